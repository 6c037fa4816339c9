"""``ncfbench report``: the tables and figures of all finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, reporting, say
from ncfbench.config import resolve
from ncfbench.errors import NothingToReportError


@reporting
def report(
    allow_mixed: Annotated[
        bool, typer.Option("--allow-mixed", help="Divide times of different environments too, and mark the cells.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option(help="Also draw all figures into this folder (SVG and PNG).", show_default=False)
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    json_: options.Json = False,
) -> None:
    """Print the paper's speedup and recall tables from all finished runs, and write them as Parquet.

    What `profile` and `audit` left in the same folder is printed below them.

    The baseline is IID for pointwise losses and Negative Sampling for pairwise ones. For each missing cell the command that
    fills it is named.
    """
    from ncfbench import runs, schemas, tables
    from ncfbench.report import audit as audit_tables
    from ncfbench.report import comparison, console, costs

    _, where = resolve({"data_dir": data_dir, "runs_dir": runs_dir})
    records, problems = runs.read_all(where.runs_dir)
    for problem in problems:
        say(f"Warning: {problem}")
    unfinished = [record for record in records if record.summary["status"] != "finished"]
    for record in unfinished:
        say(f"Note: {record.name} is {record.summary['status']} at iteration {record.summary['iterations']:,}; left out.")
    comparisons = comparison.group(records)
    beside: dict[str, Any] = {}
    for wanted in (schemas.AUDIT_TABLES, schemas.PROFILE_TABLES):
        found, unreadable = tables.read_present(where.runs_dir, wanted)
        beside |= found
        problems += unreadable
        for problem in unreadable:
            say(f"Warning: {problem}")
    if not comparisons and not beside:
        raise NothingToReportError(
            f"No finished run in {where.runs_dir}. Begin with: ncfbench run --dataset synthetic --epochs 3"
        )
    places = {flag: str(path) for flag, path in (("--data-dir", data_dir), ("--runs-dir", runs_dir)) if path is not None}
    speedups = [comparison.speedup_rows(each, allow_mixed=allow_mixed, places=places) for each in comparisons]
    recalls = [comparison.recall_rows(each, places=places) for each in comparisons]
    flat = [[row for rows in group for row in rows] for group in (speedups, recalls)]
    drawn: list[Path] = []
    if figures is not None:
        from ncfbench.report.figures import draw_all

        drawn = draw_all(comparisons, beside, figures)
    # Printed first: a folder that cannot be written must not hide the result.
    if json_:
        print_json({"speedup": flat[0], "recall": flat[1], "figures": drawn, "problems": problems} | beside)
    else:
        if comparisons:
            print_views(console.speedup_view(comparisons, speedups), console.recall_view(comparisons, recalls))
        else:
            print_views(f"No finished run in {where.runs_dir} yet.")
        if "costmodel" in beside:
            print_views(costs.view(beside))
        print_views(audit_tables.view({name: beside[name] for name in schemas.AUDIT_TABLES if name in beside}))
        print_views(*console.missing_lines([*flat[0], *flat[1]]))
    written = [where.runs_dir / "speedup.parquet", where.runs_dir / "recall.parquet"] if comparisons else []
    for path, rows, schema in zip(written, flat, (schemas.SPEEDUP, schemas.RECALL), strict=False):
        tables.write_rows(path, rows, schema)
    if not json_ and (written or drawn):
        print_views("Written: " + ", ".join(map(str, (*written, *drawn))))
