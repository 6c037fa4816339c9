"""Slurm's commands for tests, strict about what they are given: ``sbatch`` runs the tasks here, or
lets them wait.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

SBATCH = r"""
import os, re, shlex, subprocess, sys
from pathlib import Path

HERE = Path(__file__).parent
KNOWN = {"job-name", "array", "output", "error", "ntasks", "signal", "partition", "gres", "time", "comment", "chdir", "open-mode"}
BARE = {"requeue", "exclusive"}


def fail(text):
    sys.exit(f"sbatch: error: {text}")


def expanded(pattern, symbols):
    if "\\" in pattern:
        fail(f"a backslash in {pattern}: its symbols are not replaced")
    def replaced(match):
        return symbols[match[1]] if match[1] in symbols else fail(f"unknown symbol %{match[1]} in {pattern}")
    return Path(re.sub("%(.?)", replaced, pattern))


if len(sys.argv) != 3 or sys.argv[1] != "--parsable":
    fail(f"not --parsable SCRIPT: {sys.argv[1:]}")
script = Path(sys.argv[2]).read_bytes()
options = {}
for line in script.decode().split("\n"):
    if line.startswith("#SBATCH"):
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError as error:
            fail(f"{error} in {line}")
        match = re.fullmatch("--([a-z-]+)(?:=(.*))?", words[0]) if len(words) == 1 else None
        if match is None or match[1] not in (BARE if match[2] is None else KNOWN):
            fail(f"not one known --key=value: {line}")
        options[match[1]] = match[2]
    elif line and not line.startswith("#"):
        break
(HERE / "options").write_text("".join(f"{key}={value}\n" for key, value in options.items()))
last = HERE / "last"
job = int(last.read_text()) + 1 if last.exists() else 7
last.write_text(str(job))
spooled = HERE / f"job-{job}"
spooled.write_bytes(script)
for task in range(int(re.fullmatch("0-([0-9]+)", options["array"])[1]) + 1):
    symbols = {"A": str(job), "a": str(task), "%": "%"}
    output = expanded(options["output"], symbols)
    if not output.parent.is_dir():
        fail(f"no such folder: {output.parent}")
    if (HERE / "busy").exists():
        with (HERE / "queue").open("a") as file:
            file.write(f"{job}_{task}\n")
        continue
    variables = os.environ | {"SLURM_ARRAY_JOB_ID": str(job), "SLURM_ARRAY_TASK_ID": str(task)}
    with output.open({"append": "ab", "truncate": "wb"}[options["open-mode"]]) as file:
        subprocess.run(
            ["bash", str(spooled)], cwd=options.get("chdir"), env=variables, stdout=file, stderr=subprocess.STDOUT
        )
answer = HERE / "answer"
print(answer.read_text().format(job=job) if answer.exists() else job)
"""
SQUEUE = r"""
import os, sys
from pathlib import Path

here = Path(__file__).parent
with (here / "asked").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\n")
words = [word for word in sys.argv[1:] if not word.startswith("--clusters=")]
if words != ["--noheader", "--array", "--format=%F_%K", f"--user={os.getuid()}"]:
    sys.exit(f"squeue: error: {words}")
if (here / "down").exists():
    sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
print("123_N/A")
print((here / "queue").read_text() if (here / "queue").exists() else "")
"""


class Cluster:
    """A folder of Slurm's commands, and what they know.

    Args:
        bin: the folder; it goes before the others on the PATH.
    """

    def __init__(self, bin: Path, patch: pytest.MonkeyPatch, *, busy: bool = False) -> None:
        self.bin = bin
        self.bin.mkdir()
        for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE)):
            (self.bin / name).write_text(f"#!{sys.executable}\n{text}")
            (self.bin / name).chmod(0o755)
        if busy:
            (self.bin / "busy").touch()
        patch.setenv("PATH", str(self.bin), prepend=os.pathsep)

    @property
    def options(self) -> list[str]:
        """``key=value`` of the job that was submitted last, as Slurm understood them."""
        return (self.bin / "options").read_text().splitlines()

    @property
    def queue(self) -> list[str]:
        """Tasks that wait."""
        path = self.bin / "queue"
        return path.read_text().split() if path.exists() else []

    @queue.setter
    def queue(self, tasks: list[str]) -> None:
        (self.bin / "queue").write_text("".join(f"{task}\n" for task in tasks))

    @property
    def asked(self) -> int:
        """How often the queue was looked at."""
        path = self.bin / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0
