"""``ncfbench report``: the tables and figures of all finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, reporting, say
from ncfbench.config import Locations, resolve
from ncfbench.errors import CheckFailedError, NothingToReportError, UsageError
from ncfbench.registry import nearest

if TYPE_CHECKING:
    from ncfbench.report.results import Results

REGRESSION = "10%"
FORMATS = ("table", "markdown", "latex", "csv", "json", "html")


@reporting
def report(
    runs: Annotated[
        Path | None,
        typer.Argument(help="Run folders, as --runs-dir.", show_default=False, metavar="[RUNS]"),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help=f"{', '.join(FORMATS)}.", show_default="table", metavar="FORMAT"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file. html is written to report.html in the runs folder by itself.",
            show_default=False,
            dir_okay=False,
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help=(
                "Work out rows and numbers of the written tables again, from the runs; 6 if one is"
                " wrong."
            ),
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="Other run folders, to set side by side with these.", show_default=False),
    ] = None,
    regression: Annotated[
        str | None,
        typer.Option(
            help=(
                "With --against: how much worse than the other folder a measure may be before the"
                " exit code is 6, as it is "
                "for one that was lost."
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
            help="Also draw all figures into this folder (SVG and PNG).", show_default=False
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Also copy tables and records, without checkpoints, into this folder.",
            show_default=False,
        ),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    json_: options.Json = False,
) -> None:
    """Print the paper's speedup and recall tables from all finished runs, and write them as
    Parquet.

    Each cell stands beside the paper's with a verdict. What `profile` and `audit` left in the same
    folder is printed below the tables, by --format table and json.

    The baseline is IID for pointwise losses and Negative Sampling for pairwise ones. For each
    missing cell the command that fills it is named.

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
    if output is not None and kind in ("table", "json"):
        raise UsageError(f"--format {kind} is printed: send it to a file with > FILE.")
    places = {
        flag: str(path)
        for flag, path in (("--data-dir", data_dir), ("--runs-dir", runs_dir))
        if path is not None
    }
    _report(where, kind, places, output, figures, export, allow_mixed=allow_mixed)


def _report(
    where: Locations,
    kind: str,
    places: dict[str, str],
    output: Path | None,
    figures: Path | None,
    export: Path | None,
    *,
    allow_mixed: bool,
) -> None:
    from ncfbench.report.results import collect

    results = collect(where.runs_dir, where.data_dir, allow_mixed=allow_mixed, places=places)
    for problem in results.problems:
        say(f"Warning: {problem}")
    for line in results.unfinished:
        say(f"Note: {line}")
    if not results.comparisons and not results.beside:
        raise NothingToReportError(
            f"No finished run in {where.runs_dir}. Begin with: ncfbench run --dataset synthetic"
            " --epochs 3"
        )
    drawn: list[Path] = []
    if figures is not None:
        from ncfbench.report.render.figures import draw_all

        drawn = draw_all(results.comparisons, results.beside, figures, allow_mixed=allow_mixed)
    # Printed first: a folder that cannot be written must not hide the result.
    written: list[Path] = []
    if kind == "json":
        _print_json(results, drawn)
    elif kind == "table":
        _print_tables(results)
    else:
        written = _deliver(results, kind, places, output)
    if results.is_read_only:
        say(
            f"Warning: {where.runs_dir} is read-only, so the tables are not written beside the"
            " runs. --export copies both."
        )
    else:
        written += results.write()
    written += drawn
    if export is not None:
        exported, trials = results.export(export)
        what = [
            f"{exported} run{'' if exported == 1 else 's'}",
            *([f"{trials} trials"] if trials else []),
        ]
        say(
            f"Exported to {export}: {', '.join(what)} and {'its' if exported == 1 else 'their'}"
            " tables."
        )
    if kind == "table" and written:
        print_views("Written: " + ", ".join(map(str, written)))
    elif kind == "html" or output is not None:
        say("Written: " + ", ".join(map(str, written)))


def _print_tables(results: Results) -> None:
    from ncfbench.audit import tables as audit_tables
    from ncfbench.profiling import tables as profile_tables
    from ncfbench.report import sheets, verdicts
    from ncfbench.report.render import console
    from ncfbench.storage import schemas

    if results.comparisons:
        print_views(
            console.speedup_view(results.comparisons, results.speedups),
            console.recall_view(results.comparisons, results.recalls),
        )
        if any(one.verdict != verdicts.MISSING for one in results.verdicts):
            beside = sheets.verdict_sheets(
                results.comparisons, results.speedups, results.recalls, results.verdicts
            )
            print_views(console.sheets_view(beside), *verdicts.summary_lines(results.verdicts), "")
    else:
        print_views(f"No finished run in {results.runs_dir} yet.")
    if "costmodel" in results.beside:
        print_views(profile_tables.view(results.beside))
    print_views(
        audit_tables.view(
            {name: results.beside[name] for name in schemas.AUDIT_TABLES if name in results.beside}
        )
    )
    print_views(*console.missing_lines([*results.speedup, *results.recall]))


def _print_json(results: Results, drawn: list[Path]) -> None:
    from ncfbench.report.verdicts import as_rows

    document = {
        "speedup": results.speedup,
        "recall": results.recall,
        "verdicts": as_rows(results.verdicts),
        "sensitivity": results.sensitivity(),
        "figures": drawn,
        "problems": results.problems,
    }
    print_json(document | dict(results.beside))


def _deliver(
    results: Results, kind: str, places: dict[str, str], output: Path | None
) -> list[Path]:
    """Print or write one document; the path that was written, if any."""
    from ncfbench.report import sheets
    from ncfbench.report.render import longform, markup
    from ncfbench.storage import tables

    if kind == "html":
        from ncfbench.report.render.page import page

        text, output = page(results, places), output or results.runs_dir / "report.html"
    elif kind == "csv":
        text = longform.long_form(results.speedup, results.recall, results.verdicts)
    else:
        shown = [
            *sheets.speedup_sheets(results.comparisons, results.speedups),
            *sheets.recall_sheets(results.comparisons, results.recalls),
            *sheets.verdict_sheets(
                results.comparisons, results.speedups, results.recalls, results.verdicts
            ),
        ]
        text = markup.markdown(shown) if kind == "markdown" else markup.latex(shown)
    if output is None:
        typer.echo(text, nl=False)
        return []
    with tables.atomic_path(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return [output]


def _verify(where: Locations, kind: str) -> None:
    import dataclasses

    from ncfbench.report.checks import verification_view
    from ncfbench.report.verify.verification import verify

    found = verify(where.runs_dir)
    if kind == "json":
        print_json(dataclasses.asdict(found))
    else:
        print_views(verification_view(found))
    if found.mismatches:
        raise CheckFailedError(
            f"{len(found.mismatches):,} entries of the tables in {where.runs_dir} do not match."
        )


def _against(
    where: Locations, other: Path, regression: str, kind: str, *, allow_mixed: bool
) -> None:
    import dataclasses

    from ncfbench.report.checks import changes_view
    from ncfbench.report.regression import changes, parse_limit
    from ncfbench.report.results import collect

    limit = parse_limit(regression)
    both = [
        collect(path, where.data_dir, allow_mixed=allow_mixed, places={})
        for path in (where.runs_dir, other)
    ]
    for results in both:
        for problem in results.problems:
            say(f"Warning: {problem}")
        if not results.comparisons:
            raise NothingToReportError(f"No finished run in {results.runs_dir}.")
    found = changes(both[0].comparisons, both[1].comparisons, limit=limit, allow_mixed=allow_mixed)
    if kind == "json":
        print_json({"limit": limit, "changes": [dataclasses.asdict(one) for one in found]})
    else:
        print_views(changes_view(found, str(where.runs_dir), str(other), limit))
    regressed = sum(one.regressed for one in found)
    if regressed:
        raise CheckFailedError(
            f"{regressed} measures are worse than in {other} by more than {100 * limit:g} %, or"
            " lost."
        )
