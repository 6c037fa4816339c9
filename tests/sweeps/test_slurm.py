"""A sweep as an array job, with commands of Slurm's that run it here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from hypothesis import given
from hypothesis import strategies as st
from processes import compiled_once
from typer.testing import CliRunner, Result

from ncfbench.cli import app
from ncfbench.config import Locations, complete
from ncfbench.errors import CheckFailedError, DataError, UsageError
from ncfbench.runs import folder as runs
from ncfbench.storage import tables
from ncfbench.sweeps import slurm

SETTINGS = (
    'dataset = "tiny"\nencoder = "mf"\nloss = "hinge"\nsampler = ["ns", "iid"]\nepochs ='
    " 1\nbatch_size = 64\ndimension = 8\n"
)
WORDS = [
    "smoke",
    "--dataset",
    "tiny",
    "--epochs",
    "1",
    "--launcher",
    "slurm",
    "--set",
    "sampler=ns,iid",
    "--set",
    "loss=hinge",
    "--set",
    "encoder=mf",
    "--seeds",
    "2",
    "--set",
    "batch_size=64",
    "--set",
    "dimension=8",
]
ODD = "of 100% \"a\" #1 'b'"


def invoke(data_dir: Path, runs_dir: Path, *words: str) -> Result:
    """The sweep of :data:`WORDS`, or of a file that ``words`` begin with."""
    head = (
        ["--launcher", "slurm", "--seeds", "2"] if words and words[0].endswith(".toml") else WORDS
    )
    where = ["--data-dir", str(data_dir), "--runs-dir", str(runs_dir)]
    result = CliRunner().invoke(app, ["sweep", *head, *where, *words])
    assert "Traceback" not in result.output
    return result


def job_of(folder: Path, **options: str) -> slurm.Job:
    small = {
        "dataset": "tiny",
        "encoder": "mf",
        "sampler": "ns",
        "batch_size": 64,
        "dimension": 8,
        "epochs": 400,
    }
    return slurm.Job(
        "one",
        [complete(small | {"seed": seed}) for seed in (3, 4)],
        Locations(folder, folder),
        options,
    )


def test_an_array_job_is_printed_submitted_and_gone_on_with(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every name as odd as it may be."""
    for name, value in compiled_once().items():
        monkeypatch.setenv(name, value)
    data, results, file = (
        tmp_path / "some data",
        tmp_path / f"runs {ODD}",
        str(tmp_path / f"--sweep {ODD}.toml"),
    )
    shutil.copytree(data_dir, data)
    Path(file).write_text(SETTINGS)
    given = (
        "--slurm",
        "partition=gpu",
        "--slurm",
        "gres=gpu:1",
        "--slurm",
        f"comment={ODD}",
        "--slurm",
        "error=/tmp/%j.err",
        "--slurm",
        "requeue",
    )
    printed = invoke(data, results, file, "--dry-run", *given)
    assert printed.exit_code == 0, printed.output
    lines = printed.stdout.splitlines()
    for line in (
        "array=0-1",
        "partition=gpu",
        "gres=gpu:1",
        "error=/tmp/%j.err",
        "ntasks=1",
        "signal=B:TERM@120",
        "requeue",
    ):
        assert f"#SBATCH --{line}" in lines, "what needs no quotes has none"
    assert not results.exists()
    missing = invoke(data, results, file)
    assert missing.exit_code == 2
    assert "is not on the PATH" in missing.stderr.replace("\n", " ")
    cluster = Cluster(tmp_path / "bin", monkeypatch)
    submitted = invoke(data, results, file, *given)
    assert submitted.exit_code == 0, submitted.output
    assert "Submitted batch job 7: 2 of 2 cells" in submitted.stdout
    assert {
        f"job-name=ncfbench---sweep {ODD}",
        f"comment={ODD}",
        "error=/tmp/%j.err",
        "array=0-1",
    } <= set(cluster.options)
    (folder,) = (results / "slurm").glob("*/")
    assert {path.name for path in folder.iterdir()} == {
        "job.sh",
        "job.json",
        "cells",
        "7_0.out",
        "7_1.out",
    }
    records, problems = runs.read_all(results)
    assert [
        (record.config.sampler, record.config.seed, record.summary["status"]) for record in records
    ] == [
        ("ns", 0, "finished"),
        ("ns", 1, "finished"),
    ]
    assert not problems
    assert all(record.environment["interleaved"] == [None] for record in records), "each was alone"
    assert "All 2 cells are done" in invoke(data, results, file, "--dry-run").stdout


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))))
def test_every_value_comes_through_quotes(value: str) -> None:
    assert shlex.split(f"--key={slurm.quoted(value)} # a comment", comments=True) == [
        f"--key={value}"
    ]


@pytest.mark.parametrize("place", ["name", "data", "runs"])
def test_a_line_break_in_a_name_is_refused(data_dir: Path, tmp_path: Path, place: str) -> None:
    odd = tmp_path / "a\n#SBATCH --b"
    file = (odd if place == "name" else tmp_path).with_suffix(".toml")
    file.parent.mkdir(exist_ok=True)
    file.write_text(SETTINGS)
    data = odd if place == "data" else data_dir
    results = odd if place == "runs" else tmp_path / "results"
    if place == "data":
        data.parent.mkdir(exist_ok=True)
        shutil.copytree(data_dir, data)
    for more in ((), ("--dry-run",)):
        result = invoke(data, results, str(file), *more)
        assert (result.exit_code, "has a line break" in result.stderr) == (2, True)
    assert not results.exists()
    file.unlink()


def test_a_backslash_in_the_path_of_the_runs_is_refused(data_dir: Path, tmp_path: Path) -> None:
    result = invoke(data_dir, tmp_path / "a\\b")
    assert (result.exit_code, "has a backslash" in result.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    for more in (
        {"loss": "softmax"},
        {"sampler": "ns", "share": "local", "devices": 4},
        {"tuned": "learning_rate:8x10"},
    ):
        config = complete(more)
        assert complete(tomllib.loads(slurm.settings_of(config))) == config
    job = job_of(tmp_path, time="1:00")
    assert job.write().read_text() == job.script
    assert tomllib.loads((job.folder / "cells" / "1.toml").read_text())["seed"] == 4


def test_what_a_waiting_job_will_read_is_whole_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(DataError, match="disk full"):
        patch.setattr(tables, "sync", lambda path: (_ for _ in ()).throw(OSError(28, "disk full")))
        job.write()
    assert not [path for path in job.folder.rglob("*") if path.is_file()]
    job.write()
    path = job.folder / "cells" / "1.toml"
    before = path.stat()
    job.write()
    assert path.stat() == before
    path.write_text(slurm.settings_of(complete({"seed": 5})))
    with pytest.raises(DataError, match="is not as it was written"):
        job.write()


@pytest.mark.parametrize(
    ("time", "is_told"),
    [
        ("2:00:00", True),
        ("6", True),
        ("5:01", True),
        ("0-1", True),
        ("infinite", True),
        ("0", True),
        ("5", False),
        ("2:00", False),
        ("0:04:59", False),
        ("0-0:05", False),
    ],
)
def test_a_task_is_told_of_its_end_unless_that_is_at_once(
    tmp_path: Path, time: str, is_told: bool
) -> None:
    assert ("#SBATCH --signal=B:TERM@120\n" in job_of(tmp_path, time=time).script) == is_told
    own = job_of(tmp_path, time=time, signal="B:USR1@30").script
    assert re.findall("--signal=.*", own) == ["--signal=B:USR1@30"]


def test_a_task_that_is_told_of_its_end_saves(data_dir: Path, tmp_path: Path) -> None:
    """In a folder from which Python must not take its modules, and without the variables of whoever
    submitted it.
    """
    job = job_of(tmp_path)
    job = slurm.Job(job.name, job.cells, Locations(data_dir, tmp_path), {})
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "ncfbench").mkdir(parents=True)
    (elsewhere / "ncfbench" / "__init__.py").write_text("raise SystemExit('another one')")
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONSAFEPATH")
    }
    process = subprocess.Popen(
        ["bash", str(job.write())],
        cwd=elsewhere,
        env=variables | compiled_once() | {"SLURM_ARRAY_TASK_ID": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 60
    while (
        not list(tmp_path.glob("*/curve.parquet"))
        and process.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    (record,), _ = runs.read_all(tmp_path)
    assert (record.summary["status"], record.config.seed) == ("interrupted", 4)
    assert any((record.folder / "checkpoints").glob("[0-9]*"))


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_cells_that_need_different_resources_are_refused(
    data_dir: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    result = invoke(
        data_dir, tmp_path / "runs", "--set", "share=local", "--set", "devices=2,4", *more
    )
    assert result.exit_code == 2
    assert "The cells differ in devices (2, 4)" in result.stderr
    assert "with its own --runs-dir: --set devices=4" in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match=r"differ in shard_tables \(false, true\)"):
        slurm.require_alike(
            [complete({"devices": 2, "shard_tables": spread}) for spread in (False, True)]
        )


def test_one_object_and_nothing_beside_it(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cluster(tmp_path / "bin", monkeypatch, busy=True)
    plan = invoke(data_dir, tmp_path / "runs", "--json", "--dry-run")
    assert "Left out (2): --sampler iid cannot train --loss hinge" in plan.stderr
    planned = json.loads(plan.stdout)
    script = planned.pop("text")
    assert script == invoke(data_dir, tmp_path / "runs", "--dry-run").stdout
    assert planned["job"] is None
    assert not (tmp_path / "runs").exists()
    submitted = invoke(data_dir, tmp_path / "runs", "--json", "--quiet")
    assert submitted.stderr == ""
    found = json.loads(submitted.stdout)
    assert found == planned | {"job": "7"}
    assert Path(found["script"]).read_text() == script
    assert found["folder"] == str(Path(found["script"]).parent)
    assert [(cell["cell"], cell["config"]["seed"], cell["status"]) for cell in found["cells"]] == [
        ("tiny mf hinge ns seed 0", 0, "left"),
        ("tiny mf hinge ns seed 1", 1, "left"),
    ]
    assert (found["sweep"], found["in_queue"], found["done"], found["problems"]) == (
        "smoke",
        [],
        [],
        [],
    )
    assert [(each["combinations"], "iid" in each["reason"]) for each in found["left_out"]] == [
        (2, True)
    ]
    again = invoke(data_dir, tmp_path / "runs", "--json", "--quiet")
    found = json.loads(again.stdout)
    assert [found[key] for key in ("job", "folder", "script", "cells")] == [None, None, None, []]
    assert [(cell["cell"], cell["task"]) for cell in found["in_queue"]] == [
        ("tiny mf hinge ns seed 0", "7_0"),
        ("tiny mf hinge ns seed 1", "7_1"),
    ]
    assert "Left out" in invoke(data_dir, tmp_path / "runs", "--dry-run").stderr
    assert invoke(data_dir, tmp_path / "runs", "--dry-run", "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--slurm", "=gpu"), "is not of the form KEY=VALUE"),
        (("--slurm", "comment=a\nb"), "is not of the form KEY=VALUE"),
        (("--slurm", "array=0-3"), "the sweep sets that itself"),
        (("--tune", "4"), "need all cells in one process"),
        (("--launcher", "pbs"), "Valid: local, slurm"),
        (("--launcher", "local", "--slurm", "time=1:00"), "belongs to --launcher slurm"),
    ],
)
def test_what_cannot_be_is_refused(
    data_dir: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    result = invoke(data_dir, tmp_path, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_refusal_of_slurm_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command: Any = tmp_path / "sbatch"
    command.write_text(
        "#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2\nexit 1\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(CheckFailedError, match="invalid partition"):
        slurm.submit(tmp_path / "job.sh")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="Run this where jobs are submitted"):
        slurm.submit(tmp_path / "job.sh")
