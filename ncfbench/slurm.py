"""A sweep as an array job of Slurm: each cell is a task that is alone on its device, and all write into one folder.

Next to the runs lie, in ``slurm/<name>-<digest of its cells>``, the job's script, the settings of each cell by its index, and
what the tasks said. A task runs ``ncfbench run --resume`` with its settings: the same job again, or a task that was requeued,
goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncfbench import tables
from ncfbench.config import Locations, RunConfig
from ncfbench.errors import CheckFailedError, UsageError

FOLDER = "slurm"
"""Below the folder of the runs."""
SUBMIT = "sbatch"
OWN = ("array", "output", "job-name")
"""What a job says of itself."""


@dataclass(frozen=True)
class Job:
    """An array job.

    Args:
        name: of the sweep.
        cells: one for each task.
        places: given to every task, as full paths.
        options: of ``sbatch``, by their long names: ``{"partition": "gpu", "gres": "gpu:1", "time": "02:00:00"}``.
    """

    name: str
    cells: Sequence[RunConfig]
    places: Locations
    options: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Where script, settings and outputs lie."""
        # Of other cells' jobs, which may still be waiting, the indices mean something else.
        digest = hashlib.sha256("".join(map(settings_of, self.cells)).encode()).hexdigest()[:8]
        return self.places.runs_dir.resolve() / FOLDER / f"{self.name}-{digest}"

    @property
    def script(self) -> str:
        """What is submitted."""
        options = {
            "job-name": f"ncfbench-{self.name}",
            "array": f"0-{len(self.cells) - 1}",
            "output": f"{self.folder}/%A_%a.out",
            "ntasks": "1",
        }
        command = [
            sys.executable, "-m", "ncfbench", "run", "--resume", "--quiet", "--data-dir", str(self.places.data_dir.resolve()),
            "--runs-dir", str(self.places.runs_dir.resolve()),
        ]  # fmt: skip
        lines = ["#!/bin/bash", *(f"#SBATCH --{key}={value}" for key, value in (options | dict(self.options)).items())]
        settings = f'{shlex.quote(f"{self.folder}/cells")}/"$SLURM_ARRAY_TASK_ID".toml'
        return "\n".join([*lines, "set -eu", f"exec {shlex.join(command)} --config {settings}", ""])

    def write(self) -> Path:
        """Write the cells' settings and the script.

        Returns:
            The script.

        Raises:
            DataError: they cannot be written.
        """
        cells = self.folder / "cells"
        with tables.storage_errors(self.folder):
            cells.mkdir(parents=True, exist_ok=True)
            for index, config in enumerate(self.cells):
                (cells / f"{index}.toml").write_text(settings_of(config), encoding="utf-8")
            path = self.folder / "job.sh"
            path.write_text(self.script, encoding="utf-8")
        return path


def options_of(assignments: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts as options of ``sbatch``.

    Raises:
        UsageError: one is not of that form, or names what the job says of itself.
    """
    found = {}
    for text in assignments:
        key, equals, value = text.strip().removeprefix("--").partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z-]*", key) or "\n" in value:
            raise UsageError(f"--slurm {text!r} is not of the form KEY=VALUE, for example --slurm partition=gpu.")
        if key in OWN:
            raise UsageError(f"--slurm {key}: the sweep sets that itself.")
        found[key] = value
    return found


def submit(script: Path) -> str:
    """Hand a script to Slurm; what its command answered.

    Raises:
        CheckFailedError: it refused.
        UsageError: it is not here.
    """
    command = shutil.which(SUBMIT)
    if command is None:
        raise UsageError(
            f"{SUBMIT}, Slurm's command, is not on the PATH. Run this where jobs are submitted, or submit {script} there; "
            "--dry-run prints it."
        )
    done = subprocess.run([command, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckFailedError(f"{SUBMIT} refused {script}: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout.strip()


def settings_of(config: RunConfig) -> str:
    """Settings as a TOML file that ``ncfbench run --config`` reads."""
    # A text in JSON is a text in TOML, but for characters beyond the sixteen-bit ones, which no setting's name has.
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.to_dict().items() if value is not None)
