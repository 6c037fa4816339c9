"""A sweep as an array job of Slurm: each cell is a task that is alone on its device, and all write
into one folder.

Next to the runs lie, in ``slurm/<name>-<digest of its cells>``, the job's script, the settings of
each cell by its index, what Slurm called the job, and what the tasks said. A task runs ``ncfbench
run --resume`` with its settings: the same job again, or a task that was requeued, goes on where it
was.
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
from datetime import UTC, datetime
from pathlib import Path

from ncfbench.config import Locations, RunConfig
from ncfbench.errors import CheckFailedError, DataError, UsageError
from ncfbench.storage import tables

FOLDER = "slurm"
"""Below the folder of the runs."""
JOBS = "job.json"
"""In a job's folder: the ids under which it was submitted, and when."""
SUBMIT = "sbatch"
OWN = ("array", "output", "job-name")
"""What a job says of itself."""
UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
"""Line breaks and other control characters, and what a file's name can hold that is no text."""
ALIKE = ("devices", "shard_tables")
"""Settings that decide what a task needs: every task of an array gets the same."""
SAVING_SECONDS = 120
"""A task is told so long before its time is over: it ends its iteration and saves."""
SHORT_SECONDS = 300
"""A task with no more time is not: it would hear of the end before it has begun."""


@dataclass(frozen=True)
class Job:
    """An array job.

    Args:
        name: of the sweep, one that :func:`require_plain` allows.
        cells: one for each task.
        places: given to every task, as full paths.
        options: of ``sbatch``, by their long names: ``{"partition": "gpu", "time": "02:00:00",
            "requeue": None}``.
    """

    name: str
    cells: Sequence[RunConfig]
    places: Locations
    options: Mapping[str, str | None]

    @property
    def folder(self) -> Path:
        """Where script, settings and outputs lie."""
        # Of other cells' jobs, which may still be waiting, the indices mean something else.
        digest = hashlib.sha256("".join(map(settings_of, self.cells)).encode()).hexdigest()[:12]
        name = re.sub(r"[^\w.-]+", "-", self.name)[:64]
        return self.places.runs_dir.resolve() / FOLDER / f"{name}-{digest}"

    @property
    def script_path(self) -> Path:
        """What :meth:`write` makes of the script."""
        return self.folder / "job.sh"

    @property
    def script(self) -> str:
        """What is submitted."""
        options: dict[str, str | None] = {
            "job-name": f"ncfbench-{self.name}",
            "array": f"0-{len(self.cells) - 1}",
            "output": f"{str(self.folder).replace('%', '%%')}/%A_%a.out",
            "ntasks": "1",
            "open-mode": "append",  # a task that was requeued writes behind what it wrote before
        }
        if (_seconds(self.options.get("time") or "") or SHORT_SECONDS + 1) > SHORT_SECONDS:
            # To the batch shell, which the command below takes the place of; of itself Slurm tells
            # job steps alone.
            options["signal"] = f"B:TERM@{SAVING_SECONDS}"
        # The code that submits is the code that trains, whatever lies in the folder where the task
        # begins.
        command = [sys.executable, "-P", "-m", "ncfbench", "run", "--resume", "--quiet"]
        command += [
            "--data-dir",
            str(self.places.data_dir.resolve()),
            "--runs-dir",
            str(self.places.runs_dir.resolve()),
        ]
        package = Path(__file__).resolve().parents[2]
        is_installed = package.name in ("site-packages", "dist-packages")
        path = f'export PYTHONPATH={shlex.quote(str(package))}"${{PYTHONPATH:+:$PYTHONPATH}}"'
        lines = ["#!/bin/bash"]
        for key, value in (options | dict(self.options)).items():
            lines.append(
                f"#SBATCH --{key}" if value is None else f"#SBATCH --{key}={quoted(value)}"
            )
        lines += ["set -eu", *([] if is_installed else [path])]
        settings = f'{shlex.quote(f"{self.folder}/cells")}/"$SLURM_ARRAY_TASK_ID".toml'
        return "\n".join([*lines, f"exec {shlex.join(command)} --config {settings}", ""])

    def write(self) -> Path:
        """Write the cells' settings and the script.

        Returns:
            The script.

        Raises:
            DataError: they cannot be written, or there are settings of other cells.
        """
        cells = self.folder / "cells"
        with tables.storage_errors(self.folder):
            cells.mkdir(parents=True, exist_ok=True)
        for index, config in enumerate(self.cells):
            path = cells / f"{index}.toml"
            if not path.exists():
                _write(path, settings_of(config))
            elif _read(path) != settings_of(config):
                # A job may wait that is to read them.
                raise DataError(
                    f"{path} is not as it was written. Remove {self.folder} if no job of it is"
                    " left."
                )
        _write(self.script_path, self.script)
        return self.script_path


@dataclass(frozen=True)
class Submission:
    """What Slurm calls a job.

    Args:
        id: of the array.
        cluster: that has it, where Slurm serves several.
        time: of the submission.
    """

    id: str
    cluster: str | None
    time: str

    @classmethod
    def parse(cls, answer: str) -> Submission | None:
        """From the answer of ``sbatch --parsable``; None where it is none."""
        # A site may have it say more, before that.
        for line in reversed(answer.split()):
            if match := re.fullmatch(r"(\d+)(?:;(\S+))?", line):
                return cls(match[1], match[2], datetime.now(UTC).isoformat(timespec="seconds"))
        return None


def require_plain(name: str, places: Locations) -> None:
    """Refuse names that a job's script cannot hold.

    Raises:
        UsageError: a line break, for example, in the sweep's name or a folder's path.
    """
    runs_dir = str(places.runs_dir.resolve())
    texts = {
        "sweep's name": name,
        "path of the data": str(places.data_dir.resolve()),
        "path of the runs": runs_dir,
    }
    for what, text in texts.items():
        if UNWRITABLE.search(text):
            raise UsageError(
                f"The {what}, {text!r}, has a line break or what else a job's script cannot hold."
                " Rename it."
            )
    if "\\" in runs_dir:
        # Slurm would replace no %A and %a in the outputs' names.
        raise UsageError(
            f"The path of the runs, {runs_dir}, has a backslash, which Slurm does not allow there."
            " Rename it."
        )


def require_alike(cells: Sequence[RunConfig]) -> None:
    """Refuse cells that need different resources.

    Raises:
        UsageError: they differ in devices, or in how tables are spread.
    """
    for name in ALIKE:
        values = list(dict.fromkeys(getattr(config, name) for config in cells))
        if len(values) > 1:
            shown = [str(value).lower() for value in values]
            raise UsageError(
                f"The cells differ in {name} ({', '.join(shown)}), and every task of an array job"
                " gets the same resources. Submit one sweep for each, with its own --runs-dir:"
                f" --set {name}={shown[-1]} for example."
            )


def options_of(assignments: Sequence[str]) -> dict[str, str | None]:
    """``KEY=VALUE`` texts as options of ``sbatch``, and ``KEY`` for one that has no value.

    Raises:
        UsageError: one is not of that form, or names what the job says of itself.
    """
    found: dict[str, str | None] = {}
    for text in assignments:
        key, equals, value = text.strip().removeprefix("--").partition("=")
        if not re.fullmatch(r"[a-z][a-z-]*", key) or UNWRITABLE.search(value):
            raise UsageError(
                f"--slurm {text!r} is not of the form KEY=VALUE or KEY, for example --slurm"
                " partition=gpu."
            )
        if key in OWN:
            raise UsageError(f"--slurm {key}: the sweep sets that itself.")
        found[key] = value if equals else None
    return found


def quoted(value: str) -> str:
    """A value as ``sbatch`` reads it in a script's line: in double quotes where it needs them."""
    if re.fullmatch(r"[\w@%+=:,./-]*", value, re.ASCII):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def submit(script: Path) -> Submission | None:
    """Hand a script to Slurm; None where its command does not say what it calls the job.

    Raises:
        CheckFailedError: it refused.
        UsageError: it is not here.
    """
    command = shutil.which(SUBMIT)
    if command is None:
        raise UsageError(
            f"{SUBMIT}, Slurm's command, is not on the PATH. Run this where jobs are submitted, or"
            f" submit {script} there; --dry-run prints it."
        )
    done = subprocess.run(
        [command, "--parsable", str(script)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise CheckFailedError(
            f"{SUBMIT} refused {script}: {(done.stderr or done.stdout).strip()[:500]}"
        )
    return Submission.parse(done.stdout)


def settings_of(config: RunConfig) -> str:
    """Settings as a TOML file that ``ncfbench run --config`` reads."""
    # A text in JSON is a text in TOML, but for characters beyond the sixteen-bit ones, which no
    # setting's name has.
    return "".join(
        f"{key} = {json.dumps(value)}\n"
        for key, value in config.to_dict().items()
        if value is not None
    )


def _seconds(text: str) -> int | None:
    """A limit of time as ``sbatch`` reads it: minutes, minutes:seconds, hours:minutes:seconds,
    days-hours and so on.
    """
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return None
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return 86400 * int(days or 0) + sum(
        unit * part for unit, part in zip(units, parts, strict=False)
    )


def _write(path: Path, text: str) -> None:
    with tables.atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _read(path: Path) -> str:
    with tables.storage_errors(path):
        return path.read_text(encoding="utf-8")
