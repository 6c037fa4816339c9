"""The check of ``ncfbench report``: a second computation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from ncfbench.cli.output import print_json, print_views, say
from ncfbench.config import Locations
from ncfbench.errors import CheckFailedError


def verify_tables(where: Locations, kind: str) -> None:
    """Check the written tables, the answers and the board by a second computation."""
    from ncfbench.reporting.results import collect
    from ncfbench.reporting.verify.verification import verify
    from ncfbench.reporting.views.checks import verification_tables

    results = collect(where.runs_dir, where.data_dir)
    found = verify(where.runs_dir, results.answered, results.floor_rows)
    wrong = len(found.mismatches)
    if kind == "json":
        print_json(asdict(found))
    else:
        warn(found.problems)
        counts = f"{found.numbers:,} values recomputed from settings, raw samples and curves;"
        print_views(f"{counts} {wrong:,} do not match.", *verification_tables(found))
    if wrong:
        raise CheckFailedError(f"{wrong:,} entries of the tables in {where.runs_dir} do not match.")


def warn(problems: Iterable[str]) -> None:
    """Print warnings."""
    for problem in problems:
        say(f"Warning: {problem}")
