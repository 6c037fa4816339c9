"""Repeat the evidence: prepare the data, train the sweeps, profile, audit, and report.

    make results                              # all of it: days on two cores
    make results RESULTS_FLAGS="--folder citeulike"

The commands are those of ``results.toml``. Each of its folders has its runs below ``--runs-dir``,
and what is kept of them below ``--results``: records without checkpoints, tables, figures. The same
command resumes after Ctrl-C or a kill: prepared data and finished cells stay, a cell resumes from
its last checkpoint, and profiles and audits that ended are listed in ``steps.json`` beside the
runs. Remove a line there to measure it again.

A data set that is prepared under the right name is used as it is. MovieLens with plots is read from
the folder that the variable ``MOVIELENS_PLOTS`` names (links.csv.gz and items.csv), and MiniLM's
checkpoint from the folder ``MINILM``.

Exit codes: 0 if everything ended well, 130 if interrupted, else that of the first command that
failed; the commands after it run all the same. 6 if a number does not verify.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import FOLDER, say
from measuring import command as run_command

from ncfbench.config import Locations
from ncfbench.data.store import read_manifest
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    CheckFailedError,
    DataError,
    NcfbenchError,
    UsageError,
)
from ncfbench.storage import tables

PLAN = FOLDER / "results.toml"
STEPS = "steps.json"


@dataclass(frozen=True)
class Evidence:
    """A folder of the plan.

    Args:
        prepare: arguments of ``ncfbench prepare``, a line for each data set.
        commands: of ncfbench, in order.
        png: figures that are kept as PNG too; the beginning of a name stands for all.
        profiles_of: a folder whose runs stand beside this one's profiles. This one has no runs of
            its own.
    """

    name: str
    prepare: Sequence[str]
    commands: Sequence[str]
    png: Sequence[str] = ()
    profiles_of: str = ""


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


def call(words: Sequence[str]) -> int:
    """Run a command of ncfbench, and return its exit code.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    code = run_command([sys.executable, "-m", "ncfbench", *words], shows=True).exit_code
    if code == INTERRUPTED_EXIT_CODE:
        raise KeyboardInterrupt
    return code


class Maker:
    """Does what a plan says.

    Args:
        options: of the command line.

    Attributes:
        codes: exit codes of what went wrong; the first is the script's.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.codes = options, list[int]()
        self.data_dir, self.runs_dir = options.data_dir, options.runs_dir

    def make(self, plan: Sequence[Evidence]) -> int:
        """Make some folders, and return the first exit code that is not 0, else 0."""
        ready = []
        for evidence in plan:
            try:
                if self._prepare(evidence):
                    ready.append(evidence)
            except NcfbenchError as error:
                say(f"Error: {evidence.name}: {error}")
                self.codes.append(error.exit_code)
        for evidence in ready:
            self._train(evidence)
            self._report(evidence)
        return self.codes[0] if self.codes else 0

    def _check(self, code: int, what: str) -> bool:
        """Keep an exit code that is not 0, and return whether it is 0."""
        if code:
            say(f"Error: {what} ended with {code}.")
            self.codes.append(code)
        return not code

    def _call(self, words: Sequence[str], what: str) -> bool:
        return self._check(call(words), what)

    def _prepare(self, evidence: Evidence) -> bool:
        """Prepare the data sets that are missing, and return whether all are there."""
        for command in evidence.prepare:
            source, *options = shlex.split(command)
            name = options[options.index("--name") + 1] if "--name" in options else source
            if read_manifest(self.data_dir, name) is None:
                words = ["prepare", *split(command), f"--data-dir={self.data_dir}"]
                if not self._call(words, f"prepare {command}"):
                    return False
        return True

    def _located(self, command: str, evidence: Evidence) -> list[str]:
        """Return a command's words with the folders of data and runs."""
        words = [*split(command), f"--data-dir={self.data_dir}"]
        if words[0] == "floor":  # which is kept beside the data
            return words
        return [*words, f"--runs-dir={self.runs_dir / evidence.name}"]

    def _train(self, evidence: Evidence) -> None:
        """Run a folder's commands; those that ended and that cannot resume are not repeated."""
        path = self.runs_dir / evidence.name / STEPS
        steps: dict[str, int] = tables.read_json(path) if path.exists() else {}
        for number, command in enumerate(evidence.commands, 1):
            said = f"{evidence.name}, {number} of {len(evidence.commands)}: ncfbench {command}"
            if command in steps:
                say(f"{said}: over")
                self._check(steps[command], command)
                continue
            say(said)
            code = call(self._located(command, evidence))
            self._check(code, command)
            # A failed check is a result; sweeps know by themselves what is over.
            if code in (0, CheckFailedError.exit_code) and not command.startswith("sweep "):
                path.parent.mkdir(parents=True, exist_ok=True)
                steps[command] = code
                tables.write_json(path, steps)

    def _report(self, evidence: Evidence) -> None:
        """Export a folder's records, tables and figures, and compute every number once more."""
        kept, own = self.options.results / evidence.name, self.runs_dir / evidence.name
        compared = self.runs_dir / (evidence.profiles_of or evidence.name)
        runs = ["report", f"--runs-dir={compared}", f"--data-dir={self.data_dir}"]
        figures = [f"--figures={kept / 'figures'}"]
        exported, export = f"export to {kept}", f"--export={kept}"
        if evidence.profiles_of:
            self._call(["report", f"--runs-dir={own}", export], exported)
        else:
            self._call([*runs, *figures, export, "--full", "--paper"], exported)
            self._call(["report", str(kept), "--verify"], f"verify of {kept}")
        for path in (kept / "figures").glob("*.*"):
            is_png = path.suffix == ".png" and path.stem.startswith(tuple(evidence.png))
            if path.suffix != ".svg" and not is_png:
                path.unlink()


def main(words: Sequence[str] | None = None) -> None:
    """Parse and make."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", type=Path, default=PLAN, metavar="FILE.toml")
    parser.add_argument("--folder", action="append", metavar="NAME", help="only this one")
    parser.add_argument("--data-dir", type=Path, default=Locations.of().data_dir)
    parser.add_argument("--runs-dir", type=Path, default=Locations.of().runs_dir / "results")
    parser.add_argument("--results", type=Path, default=FOLDER.parent / "results")
    options = parser.parse_args(words)
    try:
        plan = read_plan(options.plan)
        names = [each.name for each in plan]
        for name in options.folder or ():
            if name not in names:
                raise UsageError(f"--folder: no folder {name!r}. Valid: {', '.join(names)}.")
        chosen = [each for each in plan if each.name in (options.folder or names)]
        code = Maker(options).make(chosen)
    except KeyboardInterrupt:
        say("Interrupted. The same command resumes.")
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None
    except NcfbenchError as error:
        say(f"Error: {error}")
        raise SystemExit(error.exit_code) from error
    raise SystemExit(code)


if __name__ == "__main__":
    main()
