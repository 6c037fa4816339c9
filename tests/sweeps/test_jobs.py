"""Cells as jobs: what is submitted to Slurm and when, and how a job trains, saves and fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import invoked
import psutil
import pytest
from cluster import Cluster
from processes import compiled_once
from submitit import AutoExecutor
from submitit.core import utils as submitit
from typer.testing import Result

from ncfbench.config import Locations, complete
from ncfbench.errors import UsageError, install_command
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import ConsoleProgress
from ncfbench.storage import locks
from ncfbench.sweeps import jobs
from ncfbench.sweeps.slurm import slurm_parameters

SMALL = {
    "dataset": "tiny",
    "encoder": "mf",
    "loss": "hinge",
    "batch_size": 64,
    "dimension": 8,
    "epochs": 2,
}
FILE = "".join(f"{key} = {json.dumps(value)}\n" for key, value in SMALL.items())
SLURM = ("--launcher", "slurm", "--slurm", "time=2:00:00")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path / "bin", monkeypatch)


@pytest.fixture
def invoke(data_dir: Path, tmp_path: Path) -> Invoke:
    return Invoke(data_dir, tmp_path)


class Invoke:
    """``ncfbench sweep`` of a file that stands for four cells: two samplers, two seeds."""

    def __init__(self, data_dir: Path, folder: Path) -> None:
        self.data_dir, self.runs_dir = data_dir, folder / "runs"
        self.file = folder / "mine.toml"
        self.file.write_text(FILE + 'sampler = ["ns", "neg"]\nseed = [0, 1]\n')

    def __call__(self, *words: str, exit_code: int = 0) -> Result:
        locations = ["--data-dir", self.data_dir, "--runs-dir", self.runs_dir]
        result = invoked.invoke("sweep", self.file, *locations, *words)
        invoked.check(result, exit_code)
        return result

    def document(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*words, "--json", "--quiet").stdout)
        return found


def end(folder: Path, job: str, outcome: str, result: str) -> None:
    """Leave the result of a job."""
    path = submitit.JobPaths(folder, job).result_pickle
    submitit.cloudpickle_dump((outcome, result), path)


# Slurm


def test_slurm_gets_one_array_job_of_all_cells(cluster: Cluster, invoke: Invoke) -> None:
    options = ("--slurm", "partition=gpu", "--slurm", "requeue", "--slurm", "array-parallelism=3")
    plan = invoke(*SLURM, *options, "--dry-run")
    assert "To submit: 4 of 4 cells" in plan.stdout
    assert not invoke.runs_dir.exists(), "a dry run leaves nothing"
    found = invoke.document(*SLURM, *options)
    assert found["submitted"] == ["7_0", "7_1", "7_2", "7_3"]
    lines = cluster.script(7).splitlines()
    for line in ("array=0-3%3", "partition=gpu", "requeue", "time=120", "signal=USR2@120"):
        assert f"#SBATCH --{line}" in lines
    assert "#SBATCH --job-name=ncfbench-mine" in lines
    for cell in found["cells"]:
        submission = submitit.JobPaths(found["folder"], cell["job"]).submitted_pickle
        task = submitit.DelayedSubmission.load(submission)
        assert task.args == (cell["config"],)
        assert task.function.locations == Locations(invoke.data_dir, invoke.runs_dir)
    assert Path(found["file"]).parent == invoke.runs_dir / "sweeps"


def test_no_cell_is_submitted_twice(cluster: Cluster, invoke: Invoke) -> None:
    """Whatever sweep asks for it: it counts what its run would be."""
    invoke(*SLURM, "--set", "sampler=ns")
    assert cluster.asked == 0, "there was no job to ask for"
    cluster.tell(job7_0="RUNNING", job7_1="PENDING")
    again = invoke(*SLURM, "--set", "sampler=ns", "--set", "stratum_size=2")
    assert again.stdout == "Nothing to submit: 2 of 2 cells are in the queue already.\n"
    assert cluster.asked == 1, "one question for all jobs"
    rows = invoke.document(*SLURM, "--dry-run")["cells"]
    assert [(row["config"]["sampler"], row["status"], row["job"]) for row in rows] == [
        ("ns", "in queue", "7_0"),
        ("neg", "left", None),
        ("ns", "in queue", "7_1"),
        ("neg", "left", None),
    ]
    cluster.tell(job7_0="RUNNING", job7_1="TIMEOUT")
    assert "Submitted job 8: 3 of 4 cells. 1 were in the queue" in invoke(*SLURM).stdout


def test_a_failed_job_is_named_and_submitted_again(cluster: Cluster, invoke: Invoke) -> None:
    folder = Path(invoke.document(*SLURM)["folder"])
    end(folder, "7_0", "success", "somewhere")
    end(folder, "7_1", "error", "Traceback\n  line\nncfbench.errors.DataError: Disk full.\n")
    cluster.tell(job7_2="OUT_OF_MEMORY", job7_3="RUNNING")
    rows = invoke.document(*SLURM, "--dry-run")["cells"]
    assert [row["status"] for row in rows] == ["left", "failed", "failed", "in queue"]
    assert rows[0]["message"] is None, "its run is not there, and no failure is known"
    assert rows[1]["message"] == "job 7_1: Disk full."
    assert rows[2]["message"].startswith("job 7_2: out_of_memory; see ")
    assert "Submitted job 8: 3 of 4 cells" in invoke(*SLURM).stdout
    cluster.tell(job7_3="RUNNING", job8_0="PENDING", job8_1="PENDING", job8_2="PENDING")
    assert "Nothing to submit: 4 of 4" in invoke(*SLURM).stdout


def test_unknown_jobs_count_as_queued_with_a_warning(cluster: Cluster, invoke: Invoke) -> None:
    invoke(*SLURM)
    (cluster.bin / "states").unlink()
    result = invoke(*SLURM)
    assert "Nothing to submit: 4 of 4" in result.stdout
    assert "Warning: Slurm (sacct) does not report the state of 7_0, 7_1, 7_2, 7_3" in result.stderr
    (path,) = invoke.runs_dir.glob("jobs/*/cells.json")
    assert str(path) in result.stderr, "what to remove"
    path.write_text('[{"job": "7_0"}]')
    result = invoke(*SLURM, "--dry-run")
    assert "The jobs of mine cannot be known" in result.stderr
    assert "To submit: 4 of 4" in result.stdout


def test_one_submission_at_a_time(cluster: Cluster, invoke: Invoke) -> None:
    with locks.held(invoke.runs_dir / "jobs", "testing"):
        assert "Another process is submitting jobs" in invoke(*SLURM, exit_code=2).stderr
        assert "To submit: 4 of 4" in invoke(*SLURM, "--dry-run").stdout
    assert not list(cluster.bin.glob("job-*"))


def test_refusals_of_slurm_leave_nothing(
    cluster: Cluster, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cluster.bin / "refusal").write_text("sbatch: error: invalid partition specified: gpu")
    result = invoke(*SLURM, exit_code=6)
    assert "sbatch refused the job: sbatch: error: invalid partition" in result.stderr
    monkeypatch.setenv("PATH", "")
    assert "sbatch, Slurm's command, is not on the PATH" in invoke(*SLURM, exit_code=2).stderr
    assert not [path for path in invoke.runs_dir.rglob("*") if path.name not in ("jobs", ".lock")]


def test_without_submitit_the_extra_is_named(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert install_command("slurm") in invoke(*SLURM, exit_code=2).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SLURM, "--slurm", "=gpu"), "is not of the form KEY=VALUE"),
        ((*SLURM, "--slurm", "comment=a\nb"), "is not of the form KEY=VALUE"),
        ((*SLURM, "--slurm", "ntasks_per_node=2"), "the sweep sets that itself"),
        ((*SLURM, "--slurm", "array_parallelism=0"), "a whole number above 0"),
        (("--launcher", "slurm"), "needs the time limit of a task"),
        (("--launcher", "slurm", "--slurm", "time=2:00"), "not time=2:00"),
        ((*SLURM, "--tune", "4"), "--launcher slurm cannot tune"),
        ((*SLURM, "--budget", "1h"), "--budget needs all cells in one process"),
        (("--launcher", "local"), "Valid: turns, slurm"),
        (("--slurm", "time=60"), "belongs to --launcher slurm"),
        ((*SLURM, "--set", "share=local", "--set", "devices=2,4"), "differ in devices (2, 4)"),
    ],
)
def test_impossible_launches_are_refused(
    invoke: Invoke, words: tuple[str, ...], message: str
) -> None:
    assert message in " ".join(invoke(*words, exit_code=2).stderr.split())
    assert not invoke.runs_dir.exists()


def test_a_percent_sign_in_the_path_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    """Slurm and submitit would replace it with a job's number."""
    invoke.runs_dir = tmp_path / "100%a"
    assert "has a percent sign" in invoke(*SLURM, "--dry-run", exit_code=2).stderr


@pytest.mark.parametrize(
    ("time", "minutes"),
    [("90", 90), ("6:30", 7), ("1:00:00", 60), ("1-2", 1560), ("0-0:05", 5), ("0-1:2:3", 63)],
)
def test_time_limits_are_slurms(time: str, minutes: int) -> None:
    assert slurm_parameters([f"time={time}"])["timeout_min"] == minutes
    with pytest.raises(UsageError):
        slurm_parameters([f"time={time}h"])


# Jobs


def test_a_warned_task_saves_and_is_requeued(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requeued = []

    def requeue(number: int, frame: object) -> None:
        requeued.append(number)
        raise SystemExit

    def warn(self: ConsoleProgress, iteration: int, item_slots: float) -> None:
        if iteration == 20:
            signal.raise_signal(signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, requeue)
    task = jobs.Task(Locations(data_dir, tmp_path))
    config = complete(SMALL | {"sampler": "ns"})
    try:
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(ConsoleProgress, "advance", warn)
            task.train(config)
        assert signal.getsignal(signal.SIGUSR2) is requeue
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert requeued == [signal.SIGUSR2]
    (record,), _ = runs.read_all(tmp_path)
    assert (record.summary["status"], record.summary["iterations"]) == ("interrupted", 20)
    again = task.checkpoint(config.to_dict())
    assert (again.function, again.args) == (task, (config.to_dict(),))
    assert task.train(config) == str(record.folder)
    assert runs.read(record.folder).summary["status"] == "finished"


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("ncfbench.errors.DivergedError: not: finite", "not: finite"),
        ("KeyError: 'x'", "KeyError: 'x'; see LOG"),
        ("SystemExit", "SystemExit; see LOG"),
    ],
)
def test_failures_are_read_from_tracebacks(tmp_path: Path, trace: str, message: str) -> None:
    end(tmp_path, "1", "error", f"Traceback:\n  somewhere\n{trace}\n")
    paths = submitit.JobPaths(tmp_path, "1")
    assert jobs.read_failure(paths) == message.replace("LOG", str(paths.stderr))


@pytest.mark.long
def test_a_warned_job_is_requeued_and_resumes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With submitit's own handler and requeue, in a process of its own."""
    for name, value in compiled_once().items():
        monkeypatch.setenv(name, value)
    config = complete(SMALL | {"sampler": "ns", "epochs": 100})
    executor = AutoExecutor(tmp_path / "jobs", cluster="local")
    executor.update_parameters(timeout_min=60)
    job = executor.submit(jobs.Task(Locations(data_dir, tmp_path)), config.to_dict())
    while not list(tmp_path.glob("*/curve.parquet")):
        assert not job.done()
    (process,) = psutil.Process(int(job.job_id)).children()
    process.send_signal(signal.SIGUSR2)
    job.wait()
    assert jobs.read_failure(job.paths) is None, job.stderr()
    (record,), _ = runs.read_all(tmp_path)
    assert record.summary["status"] == "finished"
    assert record.environment["interleaved"] == [None, None], "it took no turns"
    assert (job.stdout() or "").count("Starting with JobEnvironment") > 1
    assert ", from iteration" in (job.stdout() or "")


@pytest.mark.long
def test_a_slurm_task_trains_its_own_cell(
    cluster: Cluster, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script as Slurm starts it, for the third task of the array."""
    found = invoke.document(*SLURM)
    task = {"JOB_ID": "9", "ARRAY_JOB_ID": "7", "ARRAY_TASK_ID": "2", "PROCID": "0"}
    variables = {f"SLURM_{name}": value for name, value in task.items()}
    done = subprocess.run(
        ["bash", "-c", cluster.script(7)],
        env=os.environ | compiled_once() | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (record,), _ = runs.read_all(invoke.runs_dir)
    assert record.config.to_dict() == found["cells"][2]["config"]
