"""Repeat the evidence: prepare the data, train the sweeps, profile, audit, and report.

    make results                              # a forecast, then all of it: days on two cores
    make results RESULTS_FLAGS=--dry-run      # only the forecast
    make results RESULTS_FLAGS="--folder citeulike --no-forecast"

The commands are those of ``results.toml``. Each of its folders has its runs below ``--runs-dir``,
and what is kept of them below ``--results``: records without checkpoints, tables, figures. The same
command resumes after Ctrl-C or a kill: prepared data and finished cells stay, a cell resumes from
its last checkpoint, and profiles and audits that ended are listed in ``steps.json`` beside the
runs. Remove a line there to measure it again.

A data set that is prepared under the right name is used as it is. MovieLens with plots is read from
the folder that the variable ``MOVIELENS_PLOTS`` names (links.csv.gz and items.csv), and MiniLM's
checkpoint from the folder ``MINILM``.

Exit codes: 0 if everything ended well, 130 if interrupted, else that of the first command that
failed; the commands after it run all the same. 6 if a number does not verify, a figure has more
than 300 KB, or the folders more than 40 MB in all.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cell_files import FOLDER, default_folder

from ncfbench.cli.output import print_views
from ncfbench.data.store import read_manifest
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    CheckFailedError,
    DataError,
    NcfbenchError,
    UsageError,
)
from ncfbench.reporting.table import Table
from ncfbench.storage import tables
from ncfbench.sweeps.table import format_size
from ncfbench.timing.clock import format_duration

PLAN = FOLDER / "results.toml"
STEPS = "steps.json"
PROFILE_FIGURES = "crossover", "epoch-time"
MOST_FIGURE_BYTES, MOST_BYTES = 300_000, 40_000_000


@dataclass(frozen=True)
class Evidence:
    """A folder of the plan.

    Args:
        prepare: arguments of ``ncfbench prepare``, a line for each data set.
        commands: of ncfbench, in order.
        png: figures that are kept as PNG too; the beginning of a name stands for all.
        profiles_of: a folder whose runs stand beside this one's profiles in figures. This one has
            no runs of its own.
    """

    name: str
    prepare: Sequence[str]
    commands: Sequence[str]
    png: Sequence[str] = ()
    profiles_of: str = ""


@dataclass(frozen=True)
class Places:
    """Folders of the data, of the runs, and of what is kept."""

    data_dir: Path
    runs_dir: Path
    results: Path


def read_plan(path: Path) -> list[Evidence]:
    """Return the folders of a plan.

    Raises:
        UsageError: it is not a plan.
    """
    try:
        return [Evidence(**each) for each in tomllib.loads(path.read_text("utf-8"))["folder"]]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no plan of results: {error}.") from error


def split(command: str) -> list[str]:
    """Return the words of a command with the environment's variables in their places.

    Raises:
        DataError: a variable is not set.
    """
    words = shlex.split(os.path.expandvars(command))
    for word in words:
        if "$" in word:
            raise DataError(f"{word}: set this variable to the folder of the files.")
    return words


def call(words: Sequence[str], output: int | None = None) -> int:
    """Run a command of ncfbench in a process of its own, and return its exit code.

    Ctrl-C reaches the process too, which is given the time to save.

    Args:
        output: file descriptor for what it prints; by default it is shown.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    process = subprocess.Popen([sys.executable, "-m", "ncfbench", *words], stdout=output)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    if code == INTERRUPTED_EXIT_CODE:
        raise KeyboardInterrupt
    return code


def printed(words: Sequence[str]) -> tuple[int, str]:
    """Run a command of ncfbench, and return its exit code and what it prints."""
    with tempfile.TemporaryFile() as file:
        code = call(words, file.fileno())
        file.seek(0)
        return code, file.read().decode()


class Failures:
    """Exit codes of what went wrong; the first is the script's."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def add(self, code: int, what: str) -> bool:
        """Keep an exit code that is not 0, and return whether it is 0."""
        if code:
            print(f"Error: {what} ended with {code}.", file=sys.stderr)
            self.codes.append(code)
        return not code


def prepare(evidence: Evidence, places: Places, failures: Failures) -> bool:
    """Prepare the data sets that are missing, and return whether all are there."""
    for command in evidence.prepare:
        source, *options = shlex.split(command)
        name = options[options.index("--name") + 1] if "--name" in options else source
        if read_manifest(places.data_dir, name) is None:
            words = ["prepare", *split(command), f"--data-dir={places.data_dir}"]
            if not failures.add(call(words), f"prepare {command}"):
                return False
    return True


def located(command: str, evidence: Evidence, places: Places) -> list[str]:
    """Return a command's words with the folders of data and runs."""
    runs_dir = places.runs_dir / evidence.name
    return [*split(command), f"--data-dir={places.data_dir}", f"--runs-dir={runs_dir}"]


def forecast(plan: Sequence[Evidence], places: Places, failures: Failures) -> None:
    """Print what each sweep still needs. A cell of several sweeps counts once."""
    known: set[str] = set()
    rows, total, most, others = [], 0.0, 0, 0
    for evidence in plan:
        for command in evidence.commands:
            if not command.startswith("sweep "):
                others += 1
                continue
            words = [*located(command, evidence, places), "--dry-run", "--json"]
            code, text = printed(words)
            if not failures.add(code, f"the forecast of {command}"):
                continue
            found = json.loads(text)
            new = [cell for cell in found["cells"] if identity(cell, evidence) not in known]
            known |= {identity(cell, evidence) for cell in new}
            seconds = sum(cell["predicted_seconds"] or 0.0 for cell in new)
            left = sum(cell["status"] not in ("done", "diverged") for cell in new)
            memory = found["memory_bytes"] or 0
            total, most = total + seconds, max(most, memory)
            cells = [str(len(new)), str(left), format_duration(seconds), format_size(memory)]
            rows.append([command.removeprefix("sweep "), *cells])
    title = "Forecast: cells of no earlier sweep, those that are left, and what they need"
    print_views(
        Table(title, ["sweep", "cells", "left", "time", "memory"], rows),
        f"All sweeps: {format_duration(total)}, and at most {format_size(most)} on the device"
        f" beside the data and the program. {others} profiles and audits are not predicted.",
    )


def identity(cell: dict[str, Any], evidence: Evidence) -> str:
    """Return a text that a cell has in all sweeps of its folder."""
    return json.dumps([evidence.name, cell["config"]], sort_keys=True)


def train(evidence: Evidence, places: Places, failures: Failures) -> None:
    """Run a folder's commands; those that ended and that cannot resume are not repeated."""
    path = places.runs_dir / evidence.name / STEPS
    steps: dict[str, int] = tables.read_json(path) if path.exists() else {}
    for number, command in enumerate(evidence.commands, 1):
        said = f"{evidence.name}, {number} of {len(evidence.commands)}: ncfbench {command}"
        if command in steps:
            print(f"{said}: over", file=sys.stderr)
            failures.add(steps[command], command)
            continue
        print(said, file=sys.stderr)
        code = call(located(command, evidence, places))
        failures.add(code, command)
        # A failed check is a result; sweeps know by themselves what is over.
        if code in (0, CheckFailedError.exit_code) and not command.startswith("sweep "):
            path.parent.mkdir(parents=True, exist_ok=True)
            steps[command] = code
            tables.write_json(path, steps)


def report(evidence: Evidence, places: Places, failures: Failures) -> None:
    """Export a folder's records, tables and figures, and compute every number once more."""
    kept, own = places.results / evidence.name, places.runs_dir / evidence.name
    compared = places.runs_dir / (evidence.profiles_of or evidence.name)
    runs = ["report", f"--runs-dir={compared}", f"--data-dir={places.data_dir}"]
    figures = [f"--figures={kept / 'figures'}", "--figures-format=svg"]
    export = f"--export={kept}"
    if evidence.profiles_of:
        runs.append(f"--profiles={own}")
        code, _ = printed([*runs, *figures, *(f"--figure={name}" for name in PROFILE_FIGURES)])
        failures.add(code, f"figures of {kept}")
        failures.add(call(["report", f"--runs-dir={own}", export]), f"export to {kept}")
    else:
        failures.add(call([*runs, *figures, export, "--full", "--paper"]), f"export to {kept}")
        failures.add(call(["report", str(kept), "--verify"]), f"verify of {kept}")
    if evidence.png:
        named = [f"--figure={name}" for name in evidence.png]
        code, _ = printed([*runs, figures[0], "--figures-format=png", *named])
        failures.add(code, f"{', '.join(evidence.png)} of {kept}")


def oversized(plan: Sequence[Evidence], places: Places) -> Iterator[str]:
    """Yield a message for each figure that is too large, and for too large folders."""
    kept = [path for each in plan for path in (places.results / each.name).rglob("*")]
    sizes = {path: path.stat().st_size for path in kept if path.is_file()}
    for path, size in sizes.items():
        if path.suffix == ".svg" and size > MOST_FIGURE_BYTES:
            yield f"{path} has {size / 1e3:.0f} KB; at most {MOST_FIGURE_BYTES / 1e3:.0f}."
    total = sum(sizes.values())
    if total > MOST_BYTES:
        yield f"{places.results} has {total / 1e6:.0f} MB; at most {MOST_BYTES / 1e6:.0f}."


def make(
    plan: Sequence[Evidence],
    places: Places,
    *,
    dry_run: bool = False,
    with_forecast: bool = True,
) -> int:
    """Do what a plan says, and return the exit code of the first thing that went wrong, else 0."""
    failures = Failures()
    ready = []
    for evidence in plan:
        try:
            if prepare(evidence, places, failures):
                ready.append(evidence)
        except NcfbenchError as error:
            print(f"Error: {evidence.name}: {error}", file=sys.stderr)
            failures.codes.append(error.exit_code)
    if with_forecast or dry_run:
        forecast(ready, places, failures)
    for evidence in () if dry_run else ready:
        train(evidence, places, failures)
        report(evidence, places, failures)
    for problem in () if dry_run else oversized(ready, places):
        print(f"Error: {problem}", file=sys.stderr)
        failures.codes.append(CheckFailedError.exit_code)
    return failures.codes[0] if failures.codes else 0


def main(words: Sequence[str] | None = None) -> None:
    """Parse and make."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", type=Path, default=PLAN, metavar="FILE.toml")
    parser.add_argument("--folder", action="append", metavar="NAME", help="only this one")
    parser.add_argument("--dry-run", action="store_true", help="print the forecast only")
    parser.add_argument("--no-forecast", action="store_true", help="begin at once")
    parser.add_argument("--data-dir", type=Path, default=default_folder("data_dir"))
    parser.add_argument("--runs-dir", type=Path, default=default_folder("runs_dir") / "results")
    parser.add_argument("--results", type=Path, default=FOLDER.parent / "results")
    arguments = parser.parse_args(words)
    try:
        plan = read_plan(arguments.plan)
        names = [each.name for each in plan]
        for name in arguments.folder or ():
            if name not in names:
                raise UsageError(f"--folder: no folder {name!r}. Valid: {', '.join(names)}.")
        chosen = [each for each in plan if each.name in (arguments.folder or names)]
        places = Places(arguments.data_dir, arguments.runs_dir, arguments.results)
        code = make(
            chosen, places, dry_run=arguments.dry_run, with_forecast=not arguments.no_forecast
        )
    except KeyboardInterrupt:
        print("Interrupted. The same command resumes.", file=sys.stderr)
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    raise SystemExit(code)


if __name__ == "__main__":
    main()
