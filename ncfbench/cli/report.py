"""``ncfbench report``: the tables and figures of all finished runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.delivery import FORMATS, deliver, draw_into
from ncfbench.cli.failures import reporting
from ncfbench.cli.output import print_json, print_kept_answer, print_views, say
from ncfbench.config import Locations
from ncfbench.errors import CheckFailedError, NothingToReportError, UsageError, refusal, shown

if TYPE_CHECKING:
    from ncfbench.reporting.results import Results

SELECTION = partial(typer.Option, show_default=False, rich_help_panel="Selection")
OUTPUT = partial(typer.Option, show_default=False, rich_help_panel="Output")


@reporting
def report(
    runs: Annotated[
        Path | None,
        typer.Argument(
            help="Run folders, as --runs-dir; or a race's folder, to read its answer again.",
            show_default=False,
            metavar="RUNS",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        SELECTION(
            metavar="KEY=VALUE",
            help="Compare only runs with this value of a setting, such as b=128 or sampler=iid,ns.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        SELECTION(
            help="Measure speedups against this sampler, for example where IID costs too much to"
            " train.",
            show_default="iid; neg for pairwise losses",
            metavar="SAMPLER",
        ),
    ] = None,
    profiles: Annotated[
        Path | None,
        SELECTION(help="Show speedups with the times of this folder's profiles too."),
    ] = None,
    table: Annotated[
        list[str] | None,
        SELECTION(
            metavar="NAME",
            help="Show only this table, or those whose names begin so, such as speedup.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        OUTPUT("--format", help=f"{', '.join(FORMATS)}.", show_default="table", metavar="FORMAT"),
    ] = None,
    output: Annotated[
        Path | None,
        OUTPUT(
            "--output",
            "-o",
            help="Write to this file; by default html goes to report.html beside the runs.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compute tables and summaries again from raw samples and curves; exit code 6 if a"
            " kept number is another.",
        ),
    ] = False,
    full: Annotated[
        bool,
        SELECTION(
            "--full",
            help="Show the details too: all arms and other measures.",
        ),
    ] = False,
    paper: Annotated[
        bool,
        SELECTION(
            "--paper",
            help="Show the paper's claims, judged by these runs, and its figures beside ours.",
        ),
    ] = False,
    figures: Annotated[
        Path | None, OUTPUT(help="Also draw the figures into this folder: SVG, PNG, PDF.")
    ] = None,
    export: Annotated[
        Path | None,
        OUTPUT(help="Also copy tables, and records without checkpoints, into this folder."),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    json_: options.Json = False,
) -> None:
    """Say what to deploy and what to train with, then compare all finished runs.

    The answer about each data set says what ranks best soonest, whether to train at all, and what
    each choice is worth, by recall of validation links. Then come the paper's speedup table, with
    who comes down to the baseline's smallest loss soonest, and its recall table. The baseline is
    IID for pointwise losses and Negative Sampling for pairwise ones, or that of --baseline. Both
    tables are also written beside the runs as Parquet, over the usual baseline; a folder that
    --export wrote is only read.

    Example: ncfbench report --full --paper
    """
    if json_ and format_ not in (None, "json"):
        raise UsageError(f"--json is --format json; it does not go with --format {format_}.")
    kind = "json" if json_ else format_ or "table"
    if kind not in FORMATS:
        raise UsageError(refusal("Unknown format", kind, FORMATS))
    given = {
        "--format": kind not in ("table", "json"),
        "--only": only,
        "--baseline": baseline,
        "--profiles": profiles,
        "--table": table,
        "--full": full,
        "--paper": paper,
        "--output": output,
        "--figures": figures,
        "--export": export,
    }
    if verify and (extra := [flag for flag, value in given.items() if value]):
        raise UsageError(f"--verify prints a table or JSON: leave {', '.join(extra)} out.")
    if baseline and (extra := [flag for flag in ("--export", "--paper") if given[flag]]):
        raise UsageError(f"{' and '.join(extra)}: for the usual baseline; leave --baseline out.")
    if table and kind == "json":
        raise UsageError("JSON has the numbers of all tables: leave --table out.")
    if output is not None and kind == "table":
        raise UsageError("--output: --format table is printed. Send it to a file with > FILE.")
    if runs is not None and runs_dir is not None:
        raise UsageError("Name the run folders once, as RUNS or by --runs-dir.")
    if runs is not None and not runs.is_dir():
        raise UsageError(f"{runs} is no folder.")
    runs_dir = runs or runs_dir
    where = Locations.of(data_dir, runs_dir)
    if verify:
        _verify(where, kind)
        return
    if kind == "table" and not any(given.values()) and print_kept_answer(where.runs_dir):
        return
    from ncfbench.reporting.results import collect
    from ncfbench.runs.folder import is_exported

    named = {"--data-dir": data_dir, "--runs-dir": runs_dir}
    results = collect(
        where.runs_dir,
        where.data_dir,
        only=options.parse_values("--only", only or (), "sampler=iid,ns"),
        baseline=baseline,
        profiles=profiles,
        locations={flag: str(path) for flag, path in named.items() if path is not None},
    )
    _check_results(results, only or [])
    drawn = draw_into(results, figures) if figures is not None else []
    if figures is not None and not drawn:
        say(f"No figure is drawn into {figures}: the runs have nothing to compare yet.")
    # Printed first: a folder that cannot be written must not hide the result.
    written = deliver(results, kind, table or [], output, drawn, detail=full, paper=paper)
    is_kept = is_exported(results.runs_dir)
    if not table and not is_kept and not os.access(results.runs_dir, os.W_OK):
        say(
            f"Warning: {results.runs_dir} is read-only, so the tables are not written beside the"
            " runs. --export copies both."
        )
    elif not table and not is_kept:
        written += results.write()
    if export is not None:
        from ncfbench.reporting.formats import counted

        say(f"Exported to {export}: {counted(results.export(export), 'run')}, and the tables.")
    text = "Written: " + ", ".join(map(str, [*written, *drawn]))
    if kind == "table" and (written or drawn):
        print_views(text)
    elif kind == "html" or output is not None:
        say(text)


def _verify(where: Locations, kind: str) -> None:
    """Compute tables and summaries again, and compare them with those that are kept."""
    from ncfbench.reporting.drift import verify
    from ncfbench.reporting.results import collect
    from ncfbench.reporting.table import Col, Table
    from ncfbench.runs.folder import is_exported

    results = collect(where.runs_dir, where.data_dir)
    values, wrong = verify(results)
    if kind == "json":
        print_json({"values": values, "mismatches": wrong, "problems": results.problems})
    else:
        _warn(results.problems)
        print_views(f"{values:,} values recomputed; {len(wrong):,} do not match.")
        cols = [Col(name, name) for name in ("table", "cell", "column")]
        cols += [Col("kept", lambda row: _text(row["kept"]), wraps=True)]
        cols += [Col("recomputed", lambda row: _text(row["recomputed"]), wraps=True)]
        if wrong:
            print_views(Table.of("What does not match", cols, wrong, labels=2))
    if wrong:
        text = f"{len(wrong):,} entries of {where.runs_dir} do not match."
        if not is_exported(where.runs_dir):
            text += " Where runs came or went, ncfbench report writes the tables again."
        raise CheckFailedError(text)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(value) if isinstance(value, list) else "-" if value is None else str(value)


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        say(f"Warning: {problem}")


def _check_results(results: Results, only: Sequence[str]) -> None:
    """Print warnings and notes on results.

    Raises:
        NothingToReportError: there is nothing to report.
    """
    _warn(results.problems)
    for line in results.left_out:
        say(f"Note: {line}")
    for name, race in results.races.items():
        first = " ".join(race["deploy"]["lines"][:1]).rstrip(":")
        more = shlex.join(["ncfbench", "report", race["folder"]])
        say(f"Note: {name} is a race of its own: {first}. To read it: {more}")
    if results.comparisons or results.races:
        return
    folder = results.runs_dir
    reason = f"No finished run in {shown(folder)}"
    advice = "Begin with: ncfbench run --dataset NAME --preset good; or ncfbench sweep smoke"
    if only:
        reason, advice = f"{reason} has all of {', '.join(only)}", ""
    elif results.left_out:
        advice = "Continue one of those above."
    elif (folder / "config.json").is_file():
        command = shlex.join(["ncfbench", "report", str(folder.resolve().parent)])
        advice = f"It is the folder of one run; to compare the runs beside it: {command}"
    raise NothingToReportError(f"{reason}. {advice}".rstrip())
