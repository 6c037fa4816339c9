"""Checks of ``ncfbench report``: a second computation, and a comparison with another folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ncfbench.cli.output import print_json, print_views, say
from ncfbench.config import Locations
from ncfbench.errors import CheckFailedError, NothingToReportError, shown


def verify_tables(where: Locations, kind: str) -> None:
    """Check the written tables, the answers and the board by a second computation."""
    from ncfbench.reporting.results import collect
    from ncfbench.reporting.verify.verification import verify
    from ncfbench.reporting.views.checks import verification_tables

    results = collect(where.runs_dir, where.data_dir)
    found = verify(where.runs_dir, results.answered, results.floor_rows, results.race)
    wrong = len(found.mismatches)
    if kind == "json":
        print_json(asdict(found))
    else:
        warn(found.problems)
        counts = f"{found.numbers:,} values recomputed from settings, raw samples and curves;"
        print_views(f"{counts} {wrong:,} do not match.", *verification_tables(found))
    if wrong:
        raise CheckFailedError(f"{wrong:,} entries of the tables in {where.runs_dir} do not match.")


def compare_folders(
    where: Locations,
    other: Path,
    limit: float,
    kind: str,
    only: Sequence[str],
    *,
    allow_mixed: bool,
) -> None:
    """Check that no measure is worse than in another folder."""
    from ncfbench.reporting.regression import changes
    from ncfbench.reporting.results import collect
    from ncfbench.reporting.selection import parse_only
    from ncfbench.reporting.views.checks import changes_table

    both = [
        collect(path, where.data_dir, allow_mixed=allow_mixed, only=parse_only(only))
        for path in (where.runs_dir, other)
    ]
    for results in both:
        warn(results.problems)
        if not results.comparisons:
            raise NothingToReportError(f"No finished run in {shown(results.runs_dir)}.")
    found = changes(both[0].groups, both[1].groups, limit=limit, allow_mixed=allow_mixed)
    if kind == "json":
        print_json({"limit": limit, "changes": list(map(asdict, found))})
    else:
        print_views(changes_table(found, str(where.runs_dir), str(other), limit))
    if regressed := sum(change.regressed for change in found):
        raise CheckFailedError(
            f"{regressed} measures are worse than in {other} by more than {100 * limit:g} %, or"
            " lost."
        )


def warn(problems: Iterable[str]) -> None:
    """Print warnings."""
    for problem in problems:
        say(f"Warning: {problem}")
