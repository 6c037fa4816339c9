"""``ncfbench report``: the tables and figures of all finished runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.delivery import FORMATS, LIST, Drawing, Wanted, deliver, print_names
from ncfbench.cli.output import print_json, print_views, reporting, say
from ncfbench.config import Locations
from ncfbench.errors import CheckFailedError, NothingToReportError, UsageError, nearest, shown

REGRESSION = "10%"
FIGURE_KINDS = "svg,png"


@reporting
def report(
    runs: Annotated[
        Path | None,
        typer.Argument(help="Run folders, as --runs-dir.", show_default=False, metavar="RUNS"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KEY=VALUE",
            help="Compare only runs with this value of a setting, such as b=128 or sampler=iid,ns.",
            show_default=False,
            rich_help_panel="Selection",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help=(
                "Measure speedups against this sampler, for example where IID costs too much to"
                " train."
            ),
            show_default="iid; neg for pairwise losses",
            metavar="SAMPLER",
            rich_help_panel="Selection",
        ),
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Take the profiles of this folder, for example of another machine, instead of those"
                " beside the runs."
            ),
            show_default=False,
            rich_help_panel="Selection",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Show only this table, or those whose names begin so; list: name them all.",
            show_default=False,
            rich_help_panel="Selection",
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help=(
                "Draw only this figure, or those whose names begin so, into --figures or to"
                " --output FILE.pdf; list: name them all."
            ),
            show_default=False,
            rich_help_panel="Selection",
        ),
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
            help=(
                "Write to this file; a folder gets a file for each table (markdown, latex, csv). By"
                " default html goes to report.html in the runs folder."
            ),
            show_default=False,
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
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Show the details too: all arms, recall at each moment, the ratios' parts.",
            rich_help_panel="Selection",
        ),
    ] = False,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="Show ours beside the cells that the paper printed, with a verdict on each.",
            rich_help_panel="Selection",
        ),
    ] = False,
    allow_mixed: Annotated[
        bool,
        typer.Option(
            "--allow-mixed", help="Divide times of different environments too, and mark the cells."
        ),
    ] = False,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the figures into this folder.",
            show_default=False,
            rich_help_panel="Output",
        ),
    ] = None,
    figures_format: Annotated[
        str | None,
        typer.Option(
            help="Kinds of files of the figures: svg, png, pdf.",
            show_default=FIGURE_KINDS,
            metavar="KIND[,KIND]",
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
    """Say which sampler trained soonest, then compare all finished runs in tables and figures.

    The answer of each data set, encoder and loss comes first: all its arms have one target, the
    smallest loss of the baseline at its best. The baseline is IID for pointwise losses and Negative
    Sampling for pairwise ones, or that of --baseline. Then come the paper's speedup and recall
    tables, and the commands that fill missing cells. Tables that `profile` and `audit` left in the
    same folder come after them. Speedups and recalls are also written beside the runs as Parquet,
    over the usual baseline.

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
    where = Locations.of(data_dir, runs_dir)
    if verify or against is not None:
        given = (figures, export, output, table, figure, full, paper, baseline, profiles)
        if kind not in ("table", "json") or any(given):
            raise UsageError(
                "--verify and --against print a table or JSON: leave --format, --table, --figure,"
                " --figures, --output, --export, --full, --paper, --baseline and --profiles out."
            )
        if against is not None:
            limit = regression or REGRESSION
            _against(where, against, limit, kind, only or [], allow_mixed=allow_mixed)
        elif only:
            raise UsageError("--verify checks whole tables: leave --only out.")
        else:
            _verify(where, kind)
        return
    if baseline is not None and (export is not None or paper):
        raise UsageError(
            "--export and --paper are for the usual baseline: leave --baseline out, or look at the"
            " exported folder with it."
        )
    if profiles is not None and export is not None:
        raise UsageError("--export copies what lies beside the runs: leave --profiles out.")
    drawing = _drawing(figure or [], figures, figures_format, output, kind)
    if output is not None and kind == "table" and drawing.file is None:
        raise UsageError("--format table is printed: send it to a file with > FILE.")
    named = {
        flag: str(path)
        for flag, path in (("--data-dir", data_dir), ("--runs-dir", runs_dir))
        if path is not None
    }
    wanted = Wanted(kind, table or [], figure or [], named, full, paper)
    chosen = {"baseline": baseline, "allow_mixed": allow_mixed, "profiles": profiles}
    _report(where, wanted, only or [], drawing, output, export, **chosen)


def _drawing(
    wanted: Sequence[str],
    folder: Path | None,
    kinds: str | None,
    output: Path | None,
    format_: str,
) -> Drawing:
    """Return where the figures go: into a folder, or to the file of ``--output``."""
    if kinds is not None and folder is None:
        raise UsageError("--figures-format goes with --figures DIR; a single file has its suffix.")
    file = output if wanted and folder is None and format_ == "table" else None
    is_shown = format_ == "html" or LIST in wanted
    if wanted and not is_shown and folder is None and file is None:
        raise UsageError(
            f"--figure {wanted[0]}: say where to, by --figures DIR or --output FILE.pdf."
        )
    return Drawing(folder, options.names(kinds or FIGURE_KINDS), file)


def _report(
    where: Locations,
    wanted: Wanted,
    only: Sequence[str],
    drawing: Drawing,
    output: Path | None,
    export: Path | None,
    **chosen: Any,
) -> None:
    from ncfbench.reporting.collecting import collect
    from ncfbench.reporting.selection import parse_only

    results = collect(
        where.runs_dir,
        where.data_dir,
        locations=wanted.locations,
        only=parse_only(only),
        **chosen,
    )
    for problem in results.problems:
        say(f"Warning: {problem}")
    for line in results.left_out:
        say(f"Note: {line}")
    is_whole = not (wanted.tables or wanted.figures)
    race = _race(where.runs_dir, wanted.format) if is_whole else None
    if not results.comparisons and not results.beside:
        if only:
            raise NothingToReportError(
                f"No finished run in {shown(where.runs_dir)} has all of {', '.join(only)}."
            )
        if race is not None:
            if wanted.format == "json":
                print_json(race)
            elif wanted.format != "table":
                raise NothingToReportError(
                    f"{shown(where.runs_dir)} holds the answer of a race and no finished run, so"
                    f" --format {wanted.format} has no table to print. Use --format table or json."
                )
            return
        advice = "Begin with: ncfbench sweep smoke"
        races = sorted((where.runs_dir / "advice").glob("*/answer.json"))
        if results.left_out:
            advice = "Continue one of those above by its command."
        elif (where.runs_dir / "config.json").is_file():
            command = shlex.join(["ncfbench", "report", str(where.runs_dir.resolve().parent)])
            advice = f"It is the folder of one run; to compare the runs beside it: {command}"
        elif races:
            commands = [shlex.join(["ncfbench", "report", str(path.parent)]) for path in races]
            advice = f"To see the answers of its races: {'; '.join(commands)}"
        raise NothingToReportError(f"No finished run in {shown(where.runs_dir)}. {advice}")
    if LIST in (*wanted.tables, *wanted.figures):
        print_names(results, wanted)
        return
    drawn = drawing.draw(results, wanted.figures)
    if drawing.file is not None:
        say("Written: " + ", ".join(map(str, drawn)))
        return
    # Printed first: a folder that cannot be written must not hide the result.
    written = deliver(results, wanted, output, drawn)
    if is_whole and results.is_read_only:
        say(
            f"Warning: {where.runs_dir} is read-only, so the tables are not written beside the"
            " runs. --export copies both."
        )
    elif is_whole:
        written += results.write()
    written += drawn
    if export is not None:
        runs, trials = results.export(export)
        what = [f"{runs} run{'' if runs == 1 else 's'}", *([f"{trials} trials"] if trials else [])]
        say(
            f"Exported to {export}: {', '.join(what)} and {'its' if runs == 1 else 'their'} tables."
        )
    if wanted.format == "table" and written:
        print_views("Written: " + ", ".join(map(str, written)))
    elif wanted.format == "html" or output is not None:
        say("Written: " + ", ".join(map(str, written)))


def _race(folder: Path, format_: str) -> dict[str, Any] | None:
    """Print the last answer of a race in a folder, as text; return it, or None without a race."""
    if not (folder / "answer.json").exists():
        return None
    from ncfbench.advice.summary import read_answer
    from ncfbench.cli.advise import print_answer

    found = read_answer(folder)
    if format_ == "table":
        print_answer(found)
    return found


def _verify(where: Locations, kind: str) -> None:
    import dataclasses

    from ncfbench.reporting.collecting import collect
    from ncfbench.reporting.verify.verification import verify
    from ncfbench.reporting.views.answers import as_rows
    from ncfbench.reporting.views.checks import verification_tables

    answers = as_rows(collect(where.runs_dir, where.data_dir).answers, {})
    found = verify(where.runs_dir, answers)
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
    where: Locations,
    other: Path,
    regression: str,
    kind: str,
    only: Sequence[str],
    *,
    allow_mixed: bool,
) -> None:
    import dataclasses

    from ncfbench.reporting.collecting import collect
    from ncfbench.reporting.regression import changes
    from ncfbench.reporting.selection import parse_only
    from ncfbench.reporting.views.checks import changes_table

    limit = options.parse_share(regression, "--regression")
    both = [
        collect(path, where.data_dir, allow_mixed=allow_mixed, only=parse_only(only))
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
