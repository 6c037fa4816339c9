"""A sweep as an array job, with a command of Slurm's that runs it here."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from processes import compiled_once
from typer.testing import CliRunner, Result

from ncfbench import runs, slurm
from ncfbench.cli import app
from ncfbench.config import Locations, complete
from ncfbench.errors import CheckFailedError, UsageError

SBATCH = """#!/bin/bash
# Runs the tasks of an array one after another, as Slurm would on a node, and answers as it does.
array=$(sed -n 's/^#SBATCH --array=0-//p' "$1")
output=$(sed -n 's/^#SBATCH --output=//p' "$1")
for task in $(seq 0 "$array"); do
  out=${output/\\%A/7} out=${out/\\%a/$task}
  SLURM_ARRAY_TASK_ID=$task bash "$1" > "$out" 2>&1 || exit 1
done
echo "Submitted batch job 7"
"""
WORDS = [
    "smoke", "--dataset", "tiny", "--epochs", "1", "--launcher", "slurm", "--set", "sampler=ns,iid", "--set", "loss=hinge",
    "--set", "encoder=mf", "--seeds", "2", "--set", "batch_size=64", "--set", "dimension=8",
]  # fmt: skip


def invoke(data_dir: Path, runs_dir: Path, *words: str) -> Result:
    result = CliRunner().invoke(app, ["sweep", *WORDS, "--data-dir", str(data_dir), "--runs-dir", str(runs_dir), *words])
    assert "Traceback" not in result.output
    return result


def test_an_array_job_is_printed_submitted_and_gone_on_with(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    for name, value in compiled_once().items():
        monkeypatch.setenv(name, value)
    results = tmp_path / "runs of a sweep"
    printed = invoke(
        data_dir, results, "--dry-run", "--slurm", "partition=gpu", "--slurm", "gres=gpu:1", "--slurm", "ntasks=1"
    )
    assert printed.exit_code == 0, printed.output
    for line in (
        "#SBATCH --array=0-1",
        "#SBATCH --partition=gpu",
        "#SBATCH --gres=gpu:1",
        f"exec {sys.executable} -m ncfbench run",
    ):
        assert line in printed.stdout
    assert not results.exists()
    missing = invoke(data_dir, results)
    assert missing.exit_code == 2
    assert "is not on the PATH" in missing.stderr.replace("\n", " ")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH)
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    submitted = invoke(data_dir, results)
    assert submitted.exit_code == 0, submitted.output
    assert "Submitted batch job 7" in submitted.stdout
    assert "2 of 2 cells" in submitted.stdout
    records, problems = runs.read_all(results)
    assert [(record.config.sampler, record.config.seed, record.summary["status"]) for record in records] == [
        ("ns", 0, "finished"), ("ns", 1, "finished"),
    ]  # fmt: skip
    assert not problems
    assert all(record.environment["interleaved"] == [None] for record in records), "each was alone"
    assert "All 2 cells are done" in invoke(data_dir, results, "--dry-run").stdout


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    for more in ({"loss": "softmax"}, {"sampler": "ns", "share": "local", "devices": 4}, {"tuned": "learning_rate:8x10"}):
        config = complete(more)
        assert complete(tomllib.loads(slurm.settings_of(config))) == config
    job = slurm.Job("one", [complete({"seed": seed}) for seed in (3, 4)], Locations(tmp_path, tmp_path), {"time": "1:00"})
    assert job.write().read_text() == job.script
    assert tomllib.loads((job.folder / "cells" / "1.toml").read_text())["seed"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--slurm", "partition"), "is not of the form KEY=VALUE"),
        (("--slurm", "array=0-3"), "the sweep sets that itself"),
        (("--tune", "4"), "need all cells in one process"),
        (("--launcher", "pbs"), "Valid: local, slurm"),
        (("--launcher", "local", "--slurm", "time=1:00"), "belongs to --launcher slurm"),
    ],
)
def test_what_cannot_be_is_refused(data_dir: Path, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    result = invoke(data_dir, tmp_path, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_refusal_of_slurm_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command: Any = tmp_path / "sbatch"
    command.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(CheckFailedError, match="invalid partition"):
        slurm.submit(tmp_path / "job.sh")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="Run this where jobs are submitted"):
        slurm.submit(tmp_path / "job.sh")
