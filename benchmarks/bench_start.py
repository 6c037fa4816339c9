"""How long a user waits for the answer to a mistake, and for a run's first line.

Each command is a process of its own. A mistake counts by its processor time, user and system; the
first line by the clock.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ncfbench

MISTAKE_SECONDS, FIRST_LINE_SECONDS = 1.0, 1.5
PROGRAM = [sys.executable, "-m", "ncfbench"]
BARE = {name: value for name, value in os.environ.items() if not name.startswith("NCFBENCH_")}
FILES = {
    "bad.toml": "sampler = [",
    "odd.toml": 'sampler = "iid"\nloss = "hinge"\ndataset = "tiny"\n',
    "wrong.toml": "learning_rte = 0.1\n",
    "plugin.py": "loss = 3\n",
    "links.csv": "user,item\n1,2\n",
    "file": "",
}
FIRST_LINE = "run --dataset tiny --encoder mf --sampler ns --epochs 1 --runs-dir first"
REFUSALS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "refusals.txt"
"""Commands that are refused, each after a dollar sign, then its exit code and its message."""
ANSWERS = {"--version": 0, "--help": 0}


def mistakes() -> dict[str, int]:
    """Return the exit code of each refused command."""
    blocks = REFUSALS.read_text("utf-8").split("\n$ ncfbench ")[1:]
    lines = [block.splitlines() for block in blocks]
    return {command: int(code.removeprefix("exit code ")) for command, code, *_ in lines}


def prepare(folder: Path) -> None:
    """Make the files and the data set that the mistakes name, and a folder without runs."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    where: dict[str, Any] = {"name": "tiny", "data_dir": folder / "data", "say": lambda text: None}
    ncfbench.prepare("synthetic", users=120, items=150, links=1500, **where)


def seconds_of(words: list[str], folder: Path) -> tuple[float, int]:
    """Return the processor seconds of a command, and its exit code."""
    devnull = subprocess.DEVNULL
    process = subprocess.Popen(
        [*PROGRAM, *words], cwd=folder, env=BARE, stdout=devnull, stderr=devnull
    )
    _, status, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status)


def seconds_to_first_line(words: list[str], folder: Path) -> float:
    """Return the seconds until a command says something, and end it."""
    begin = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen([*PROGRAM, *words], cwd=folder, env=BARE, stderr=pipe) as process:
        assert process.stderr is not None
        process.stderr.readline()
        seconds = time.perf_counter() - begin
        process.kill()
    return seconds


def rows() -> Iterator[tuple[str, float, float]]:
    """Yield what was measured, its seconds and the target."""
    with tempfile.TemporaryDirectory() as name:
        prepare(folder := Path(name))
        for command, code in (ANSWERS | mistakes()).items():
            seconds, returned = seconds_of(shlex.split(command), folder)
            assert returned == code, f"{command} ended with {returned}"
            yield command, seconds, MISTAKE_SECONDS
        first = seconds_to_first_line(FIRST_LINE.split(), folder)
        yield f"first line of {FIRST_LINE}", first, FIRST_LINE_SECONDS
