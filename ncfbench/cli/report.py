"""``ncfbench report``: the tables and figures of all finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.output import json_text, print_json, print_views, reporting, say
from ncfbench.config import Locations, resolve
from ncfbench.errors import CheckFailedError, NothingToReportError, UsageError, nearest, shown

if TYPE_CHECKING:
    from ncfbench.reporting.results import Results
    from ncfbench.reporting.table import Table

REGRESSION = "10%"
FORMATS = ("table", "markdown", "latex", "csv", "json", "html")


@reporting
def report(
    runs: Annotated[
        Path | None,
        typer.Argument(help="Run folders, as --runs-dir.", show_default=False, metavar="RUNS"),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"{', '.join(FORMATS)}.",
            show_default="table",
            metavar="FORMAT",
            rich_help_panel="Output",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file. By default html goes to report.html in the runs folder.",
            show_default=False,
            dir_okay=False,
            rich_help_panel="Output",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help=(
                "Recompute rows and numbers of the written tables from the runs; exit code 6 if one"
                " is wrong."
            ),
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="Folder of other runs, to compare with these.", show_default=False),
    ] = None,
    regression: Annotated[
        str | None,
        typer.Option(
            help=(
                "With --against: how much worse than in the other folder a measure may be before"
                " the exit code is 6. A lost measure always counts."
            ),
            show_default=REGRESSION,
        ),
    ] = None,
    allow_mixed: Annotated[
        bool,
        typer.Option(
            "--allow-mixed", help="Divide times of different environments too, and mark the cells."
        ),
    ] = False,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Also draw all figures into this folder (SVG and PNG).",
            show_default=False,
            rich_help_panel="Output",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Also copy tables, records without checkpoints, and sweep files into this folder.",
            show_default=False,
            rich_help_panel="Output",
        ),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    json_: options.Json = False,
) -> None:
    """Compare all finished runs: the paper's speedup and recall tables, and figures.

    The tables are also written beside the runs as Parquet. Each cell that the paper printed stands
    beside ours with a verdict. Tables that `profile` and `audit` left in the same folder come after
    them, in every format.

    The baseline is IID for pointwise losses and Negative Sampling for pairwise ones. The last table
    lists the commands that fill missing cells.

    Example: ncfbench report runs/new --against runs/old --regression 5%
    """
    if runs is not None and runs_dir is not None:
        raise UsageError("Name the run folders once: as RUNS or by --runs-dir.")
    if json_ and format_ not in (None, "json"):
        raise UsageError(f"--json is --format json; it does not go with --format {format_}.")
    if verify and against is not None:
        raise UsageError("--verify and --against are two checks: ask for one at a time.")
    if regression is not None and against is None:
        raise UsageError(
            f"--regression {regression} is a limit for --against: name the other run folders with"
            " --against DIR."
        )
    runs_dir = runs if runs_dir is None else runs_dir
    kind = "json" if json_ else format_ or "table"
    if kind not in FORMATS:
        raise UsageError(
            f"Unknown format {kind!r}{nearest(kind, FORMATS)} Valid: {', '.join(FORMATS)}."
        )
    _, where = resolve({"data_dir": data_dir, "runs_dir": runs_dir})
    if verify or against is not None:
        if kind not in ("table", "json") or any(
            path is not None for path in (figures, export, output)
        ):
            raise UsageError(
                "--verify and --against print a table or JSON: leave --format, --figures, --output"
                " and --export out."
            )
        if against is None:
            _verify(where, kind)
        else:
            _against(where, against, regression or REGRESSION, kind, allow_mixed=allow_mixed)
        return
    if output is not None and kind == "table":
        raise UsageError("--format table is printed: send it to a file with > FILE.")
    named = {
        flag: str(path)
        for flag, path in (("--data-dir", data_dir), ("--runs-dir", runs_dir))
        if path is not None
    }
    _report(where, kind, named, output, figures, export, allow_mixed=allow_mixed)


def _report(
    where: Locations,
    kind: str,
    named: dict[str, str],
    output: Path | None,
    figures: Path | None,
    export: Path | None,
    *,
    allow_mixed: bool,
) -> None:
    from ncfbench.reporting.results import collect

    results = collect(where.runs_dir, where.data_dir, allow_mixed=allow_mixed, locations=named)
    for problem in results.problems:
        say(f"Warning: {problem}")
    for line in results.unfinished:
        say(f"Note: {line}")
    if not results.comparisons and not results.beside:
        raise NothingToReportError(
            f"No finished run in {shown(where.runs_dir)}. Begin with: ncfbench sweep smoke"
        )
    drawn: list[Path] = []
    if figures is not None:
        from ncfbench.reporting.figures import draw_all

        drawn = draw_all(results.comparisons, results.beside, figures, allow_mixed=allow_mixed)
    # Printed first: a folder that cannot be written must not hide the result.
    written = _deliver(results, kind, named, output, drawn)
    if results.is_read_only:
        say(
            f"Warning: {where.runs_dir} is read-only, so the tables are not written beside the"
            " runs. --export copies both."
        )
    else:
        written += results.write()
    written += drawn
    if export is not None:
        runs, trials = results.export(export)
        what = [f"{runs} run{'' if runs == 1 else 's'}", *([f"{trials} trials"] if trials else [])]
        say(
            f"Exported to {export}: {', '.join(what)} and {'its' if runs == 1 else 'their'} tables."
        )
    if kind == "table" and written:
        print_views("Written: " + ", ".join(map(str, written)))
    elif kind == "html" or output is not None:
        say("Written: " + ", ".join(map(str, written)))


def _deliver(
    results: Results, kind: str, named: dict[str, str], output: Path | None, drawn: list[Path]
) -> list[Path]:
    """Print or write the report in one format; return the path that was written, if any."""
    if kind == "table":
        _print_tables(results)
        return []
    from ncfbench.reporting.render import csv, html, latex, markdown
    from ncfbench.storage import tables

    if kind == "html":
        text = html.page(results, _tables(results), named)
        output = output or results.runs_dir / "report.html"
    elif kind == "csv":
        text = csv.render(_records(results))
    elif kind == "json":
        text = json_text(_document(results, drawn))
    else:
        text = (markdown if kind == "markdown" else latex).render(_tables(results))
    if output is None:
        typer.echo(text, nl=False)
        return []
    with tables.storage_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with tables.atomic_path(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return [output]


def _print_tables(results: Results) -> None:
    from ncfbench.reporting.verdicts import summary_lines

    if not results.comparisons:
        print_views(f"No finished run in {results.runs_dir} yet.", "")
    print_views(*_tables(results))
    if results.has_verdicts:
        print_views(*summary_lines(results.verdicts), "")


def _tables(results: Results) -> list[Table]:
    """Return the tables of the runs, then those that ``profile`` and ``audit`` left."""
    from ncfbench.auditing.tables import audit_tables
    from ncfbench.profiling.tables import profile_tables

    audited = audit_tables(results.beside).values()
    return [
        *results.tables,
        *profile_tables(results.beside),
        *(table for tables in audited for table in tables),
    ]


def _records(results: Results) -> list[Table]:
    """Return the same as plain records, for programs."""
    from ncfbench.reporting.views.records import records_table, results_table

    runs = results_table(results.speedup, results.recall, results.verdicts)
    beside = [records_table(name, list(rows[0]), rows) for name, rows in results.beside.items()]
    return [*([runs] if results.comparisons else []), *beside]


def _document(results: Results, drawn: list[Path]) -> dict[str, Any]:
    """Return the rows of all tables, and the tables as they are shown."""
    from ncfbench.reporting.render import json
    from ncfbench.reporting.verdicts import as_rows

    return {
        "speedup": results.speedup,
        "recall": results.recall,
        "verdicts": as_rows(results.verdicts),
        "sensitivity": results.sensitivity(),
        **results.beside,
        "tables": json.render(_tables(results)),
        "sweeps": results.sweeps,
        "figures": drawn,
        "problems": results.problems,
    }


def _verify(where: Locations, kind: str) -> None:
    import dataclasses

    from ncfbench.reporting.verify.verification import verify
    from ncfbench.reporting.views.checks import verification_tables

    found = verify(where.runs_dir)
    if kind == "json":
        print_json(dataclasses.asdict(found))
    else:
        for problem in found.problems:
            say(f"Warning: {problem}")
        print_views(
            f"{found.numbers:,} values recomputed from settings, raw samples and curves;"
            f" {len(found.mismatches):,} do not match.",
            *verification_tables(found),
        )
    if found.mismatches:
        raise CheckFailedError(
            f"{len(found.mismatches):,} entries of the tables in {where.runs_dir} do not match."
        )


def _against(
    where: Locations, other: Path, regression: str, kind: str, *, allow_mixed: bool
) -> None:
    import dataclasses

    from ncfbench.reporting.regression import changes, parse_limit
    from ncfbench.reporting.results import collect
    from ncfbench.reporting.views.checks import changes_table

    limit = parse_limit(regression)
    both = [
        collect(path, where.data_dir, allow_mixed=allow_mixed, locations={})
        for path in (where.runs_dir, other)
    ]
    for results in both:
        for problem in results.problems:
            say(f"Warning: {problem}")
        if not results.comparisons:
            raise NothingToReportError(f"No finished run in {shown(results.runs_dir)}.")
    found = changes(both[0].comparisons, both[1].comparisons, limit=limit, allow_mixed=allow_mixed)
    if kind == "json":
        print_json({"limit": limit, "changes": [dataclasses.asdict(one) for one in found]})
    else:
        print_views(changes_table(found, str(where.runs_dir), str(other), limit))
    regressed = sum(one.regressed for one in found)
    if regressed:
        raise CheckFailedError(
            f"{regressed} measures are worse than in {other} by more than {100 * limit:g} %, or"
            " lost."
        )
