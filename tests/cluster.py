"""Slurm's commands for tests: ``sbatch`` only keeps jobs, ``sacct`` prints the states it is
given.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

SBATCH = """
from pathlib import Path
import sys

here = Path(__file__).parent
if (here / "refusal").exists():
    sys.exit((here / "refusal").read_text())
job = 7 + len(list(here.glob("job-*")))
(here / f"job-{job}").write_text(Path(sys.argv[1]).read_text())
print(f"Submitted batch job {job}")
"""
SACCT = """
from pathlib import Path
import sys

here = Path(__file__).parent
with (here / "asked").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
states = here / "states"
if not states.exists():
    sys.exit("sacct: error: accounting is off")
print("JobID|State|NodeList")
print(states.read_text())
"""
SRUN = """
import os, sys

words = sys.argv[1:]
while words[0].startswith("--"):
    option = words.pop(0)
    if option in ("--output", "--error"):
        words.pop(0)
os.execvp(words[0], words)
"""


class Cluster:
    """A folder of Slurm's commands, which goes before the others on the PATH."""

    def __init__(self, bin: Path, patch: pytest.MonkeyPatch) -> None:
        self.bin = bin
        self.bin.mkdir()
        for name, text in (("sbatch", SBATCH), ("sacct", SACCT), ("srun", SRUN)):
            (self.bin / name).write_text(f"#!{sys.executable}\n{text}")
            (self.bin / name).chmod(0o755)
        # submitit remembers states for the life of a process: here that of one test.
        patch.setattr(SlurmJob, "watcher", SlurmInfoWatcher())
        patch.setenv("PATH", str(self.bin), prepend=os.pathsep)
        self.tell()

    def tell(self, **states: str) -> None:
        """Set what ``sacct`` says of jobs: ``job7_0="RUNNING"``."""
        lines = [f"{job.removeprefix('job')}|{state}|None" for job, state in states.items()]
        (self.bin / "states").write_text("\n".join(lines))

    def script(self, job: int) -> str:
        """The script of a job."""
        return (self.bin / f"job-{job}").read_text()

    @property
    def asked(self) -> int:
        """How often ``sacct`` was called."""
        path = self.bin / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0
