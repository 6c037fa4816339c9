"""The check of ``ncfbench report``: what the runs give today beside what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ncfbench.cli.output import print_json, print_views, say
from ncfbench.config import Locations
from ncfbench.errors import CheckFailedError


def verify_tables(where: Locations, kind: str) -> None:
    """Compute tables and summaries again, and compare them with those that are kept."""
    from ncfbench.reporting.drift import verify
    from ncfbench.reporting.results import collect
    from ncfbench.reporting.table import Col, Table

    results = collect(where.runs_dir, where.data_dir)
    values, wrong = verify(results)
    if kind == "json":
        print_json({"values": values, "mismatches": wrong, "problems": results.problems})
    else:
        warn(results.problems)
        print_views(f"{values:,} values recomputed; {len(wrong):,} do not match.")
        cols = [Col(name, name) for name in ("table", "cell", "column")]
        cols += [Col("kept", lambda row: _text(row["kept"]), wraps=True)]
        cols += [Col("recomputed", lambda row: _text(row["recomputed"]), wraps=True)]
        if wrong:
            print_views(Table.of("What does not match", cols, wrong, labels=2))
    if wrong:
        text = f"{len(wrong):,} entries of {where.runs_dir} do not match. Where runs came or went,"
        raise CheckFailedError(f"{text} ncfbench report writes the tables again.")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(value) if isinstance(value, list) else "-" if value is None else str(value)


def warn(problems: Iterable[str]) -> None:
    """Print warnings."""
    for problem in problems:
        say(f"Warning: {problem}")
