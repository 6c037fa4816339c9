"""Repeat the evidence: prepare the data, train the sweeps, profile, audit, and report.

    make results                              # all of it: days on two cores
    make results RESULTS_FLAGS="--folder citeulike"

The commands are those of ``results.toml``. Each of its folders has its runs below ``--runs-dir``,
and what is kept of them below ``--results``: records without checkpoints, tables, figures. The same
command resumes after Ctrl-C or a kill; ``steps.json`` beside the runs lists the profiles and audits
that ended. A data set that is prepared under the right name is used as it is.

Exit codes: 130 if interrupted, 6 if a number does not verify, else that of the first command that
failed; the commands after it run all the same.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import FOLDER, say
from measuring import ncfbench

from ncfbench.config import Locations
from ncfbench.data.store import read_manifest
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, DataError, NcfbenchError
from ncfbench.storage import tables

PLAN = FOLDER / "results.toml"
STEPS = "steps.json"


def split(command: str) -> list[str]:
    """Return the words of a command with the environment's variables in their places; a DataError
    where one is not set.
    """
    words = shlex.split(os.path.expandvars(command))
    for word in words:
        if "$" in word:
            raise DataError(f"{word}: set this variable to the folder of the files.")
    return words


def spelled_out(commands: Iterable[str]) -> list[str]:
    """Return commands, with one for each number in place of one with ``{0..4}``."""
    seeds = re.compile(r"\{0\.\.(\d+)\}")
    return [
        seeds.sub(str(number), command)
        for command in commands
        for number in range(1 + int(max(seeds.findall(command), default=0)))
    ]


def call(words: Sequence[str]) -> int:
    """Run a command of ncfbench, and return its exit code."""
    code, _ = ncfbench(words, shows=True)
    if code:
        say(f"Error: ncfbench {shlex.join(words)} ended with {code}.")
    return code


def prepare(folder: dict[str, Any], data_dir: Path) -> int:
    """Prepare the data sets of a folder that are missing; return the first code that is not 0."""
    for command in folder["prepare"]:
        source, *options = shlex.split(command)
        name = options[options.index("--name") + 1] if "--name" in options else source
        if read_manifest(data_dir, name) is None:
            try:
                code = call(["prepare", *split(command), f"--data-dir={data_dir}"])
            except NcfbenchError as error:
                say(f"Error: {folder['name']}: {error}")
                code = error.exit_code
            if code:
                return code
    return 0


def make(folder: dict[str, Any], options: argparse.Namespace) -> Iterator[int]:
    """Run a folder's commands, export its records, tables and figures, and compute every number
    once more; yield the exit codes.
    """
    runs, kept = options.runs_dir / folder["name"], options.results / folder["name"]
    data_dir, in_runs = f"--data-dir={options.data_dir}", f"--runs-dir={runs}"
    path = runs / STEPS
    steps: dict[str, int] = tables.read_json(path) if path.exists() else {}
    commands = spelled_out(folder["commands"])
    for number, command in enumerate(commands, 1):
        code = steps.get(command)
        said = f"{folder['name']}, {number} of {len(commands)}: ncfbench {command}"
        say(said if code is None else f"{said}: over")
        if code is None:
            # Floors are kept beside the data.
            code = call([*split(command), data_dir, *[in_runs][: not command.startswith("floor ")]])
            # A failed check is a result; sweeps know by themselves what is over.
            if code in (0, CheckFailedError.exit_code) and not command.startswith("sweep "):
                path.parent.mkdir(parents=True, exist_ok=True)
                tables.write_json(path, steps := {**steps, command: code})
        yield code
    if "profiles_of" in folder:
        yield call(["report", in_runs, f"--export={kept}"])
        return
    exported = f"--figures={kept / 'figures'}", f"--export={kept}", "--full", "--paper"
    yield call(["report", in_runs, data_dir, *exported])
    yield call(["report", str(kept), "--verify"])
    for figure in (kept / "figures").glob("*.*"):
        is_png = figure.suffix == ".png" and figure.stem.startswith(tuple(folder.get("png", ())))
        if figure.suffix != ".svg" and not is_png:
            figure.unlink()


def main(words: Sequence[str] | None = None) -> None:
    """Parse and make."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--plan", type=Path, default=PLAN, metavar="FILE.toml")
    parser.add_argument("--folder", action="append", metavar="NAME", help="only this one")
    parser.add_argument("--data-dir", type=Path, default=Locations.of().data_dir)
    parser.add_argument("--runs-dir", type=Path, default=Locations.of().runs_dir / "results")
    parser.add_argument("--results", type=Path, default=FOLDER.parent / "results")
    options = parser.parse_args(words)
    plan = tomllib.loads(options.plan.read_text())["folder"]
    names = [folder["name"] for folder in plan]
    for name in options.folder or ():
        if name not in names:
            parser.error(f"--folder: no folder {name!r}. Valid: {', '.join(names)}.")
    chosen = [folder for folder in plan if folder["name"] in (options.folder or names)]
    try:
        codes = {folder["name"]: [prepare(folder, options.data_dir)] for folder in chosen}
        for folder in chosen:
            if codes[folder["name"]] == [0]:
                codes[folder["name"]] += make(folder, options)
    except KeyboardInterrupt:
        say("Interrupted. The same command resumes.")
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None
    except NcfbenchError as error:
        say(f"Error: {error}")
        raise SystemExit(error.exit_code) from error
    raise SystemExit(next((code for of in codes.values() for code in of if code), 0))


if __name__ == "__main__":
    main()
