"""What is in Slurm's queue is not submitted again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster import Cluster
from typer.testing import CliRunner, Result

from ncfbench.cli import app
from ncfbench.config import RunConfig, complete
from ncfbench.errors import DataError
from ncfbench.storage import locks
from ncfbench.sweeps import queued, slurm

WORDS = [
    "smoke",
    "--dataset",
    "tiny",
    "--launcher",
    "slurm",
    "--set",
    "sampler=ns,neg",
    "--set",
    "loss=hinge",
    "--seeds",
    "2",
]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One whose tasks wait."""
    return Cluster(tmp_path / "bin", monkeypatch, busy=True)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def invoke(data_dir: Path, results: Path) -> Invoke:
    return Invoke(data_dir, results)


class Invoke:
    """The sweep of :data:`WORDS` and more words."""

    def __init__(self, data_dir: Path, results: Path) -> None:
        self.places = ["--data-dir", str(data_dir), "--runs-dir", str(results)]

    def __call__(self, *words: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(app, ["sweep", *WORDS, *self.places, *words])
        assert "Traceback" not in result.output
        assert result.exit_code == exit_code, result.output
        return result


def scripts(results: Path) -> dict[str, str]:
    """What the jobs are to read, by file."""
    return {str(path): path.read_text() for path in results.glob("slurm/*/cells/*.toml")}


def test_the_same_command_leaves_alone_what_waits(
    cluster: Cluster, invoke: Invoke, results: Path
) -> None:
    assert "Submitted batch job 7: 4 of 4 cells" in invoke().stdout
    assert cluster.asked == 0, "no job came before"
    again = invoke()
    assert (
        again.stdout
        == "4 of 4 cells are in the queue already (job 7): left alone. Nothing is left to submit.\n"
    )
    assert "4 of 4 cells are in the queue already" in invoke("--dry-run").stdout
    assert cluster.asked == 2
    assert cluster.queue == ["7_0", "7_1", "7_2", "7_3"]
    cluster.queue = ["7_1", "7_3"]
    waiting = scripts(results)
    planned = invoke("--dry-run")
    assert "2 of 4 cells are in the queue already (job 7): left alone." in planned.stderr
    assert "--array=0-1\n" in planned.stdout
    assert scripts(results) == waiting
    submitted = invoke().stdout
    assert "2 of 4 cells are in the queue already (job 7): left alone." in submitted
    assert "Submitted batch job 8: 2 of 4 cells" in submitted
    assert "array=0-1" in cluster.options
    assert waiting.items() <= scripts(results).items(), "what waits reads what it was to read"
    assert "4 of 4 cells are in the queue already (jobs 7, 8)" in invoke().stdout
    cluster.queue = []
    assert "Submitted batch job 9: 4 of 4 cells" in invoke().stdout
    assert waiting.items() <= scripts(results).items()
    cluster.queue = ["7_2", "9_3"]
    assert "2 of 4 cells are in the queue already (jobs 7, 9)" in invoke().stdout, (
        "one folder, two jobs"
    )


def test_a_cell_that_another_sweep_trains_is_left_alone(cluster: Cluster, invoke: Invoke) -> None:
    invoke("--set", "sampler=ns", "--set", "stratum_size=2", "--seeds", "1")
    cluster.queue = [*cluster.queue, "12_0", "123_5"]
    submitted = invoke(
        "--set", "sampler=ns,strat-ns", "--set", "stratum_size=4", "--seeds", "1"
    ).stdout
    assert "1 of 2 cells is in the queue already (job 7): left alone." in submitted, (
        "ns has no strata: it is the same run"
    )
    assert "Submitted batch job 8: 1 of 2 cells" in submitted
    assert (
        "Submitted batch job 9: 1 of 1 cells"
        in invoke("--set", "sampler=neg", "--seeds", "1").stdout
    )


@pytest.mark.parametrize(
    ("reason", "message"),
    [("gone", "squeue, Slurm's command, is not on the PATH"), ("down", "Unable to contact")],
)
def test_a_queue_that_cannot_be_known_is_a_warning(
    cluster: Cluster, invoke: Invoke, reason: str, message: str
) -> None:
    invoke()
    (cluster.bin / "down").touch()
    if reason == "gone":
        (cluster.bin / "squeue").unlink()
    result = invoke("--quiet")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Warning: What earlier jobs have in the queue cannot be known: ")
    assert message in line
    assert "Submitted batch job 8: 4 of 4 cells" in result.stdout
    problems = json.loads(invoke("--json", "--dry-run").stdout)["problems"]
    assert [message in problem for problem in problems] == [True]


def test_damage_is_said_and_hides_no_other_task(
    cluster: Cluster, invoke: Invoke, results: Path
) -> None:
    invoke()
    (cells,) = results.glob("slurm/*/cells")
    (cells / "1.toml").write_text("no TOML")
    (results / "slurm" / "other").mkdir()
    (results / "slurm" / "other" / "job.json").write_text('[{"id": 8}]')
    result = invoke("--dry-run")
    assert "3 of 4 cells are in the queue already" in result.stderr
    assert "What task 7_1 trains cannot be known" in result.stderr
    assert "job.json is damaged" in result.stderr


def test_one_submission_at_a_time(cluster: Cluster, invoke: Invoke, results: Path) -> None:
    with locks.held(results / "slurm", "submitting jobs from"):
        result = invoke(exit_code=2)
        assert "Another process is submitting jobs from" in result.stderr
        assert "--array=0-3" in invoke("--dry-run").stdout
    assert cluster.queue == []


def test_several_clusters(cluster: Cluster, invoke: Invoke, results: Path) -> None:
    (cluster.bin / "answer").write_text("Welcome to 3 clusters\n{job};alpha")
    assert "Submitted batch job 7" in invoke().stdout
    assert "4 of 4 cells" in invoke().stdout
    assert (cluster.bin / "asked").read_text().endswith(" --clusters=alpha\n")
    (path,) = results.glob("slurm/*/job.json")
    (found,) = queued.submissions(path.parent)
    assert (found.id, found.cluster, found.time[:2]) == ("7", "alpha", "20")


def test_an_answer_without_an_id(cluster: Cluster, invoke: Invoke, results: Path) -> None:
    (cluster.bin / "answer").write_text("Thank you")
    result = invoke()
    assert "did not say what it calls the job" in result.stderr
    assert "Submitted: 4 of 4 cells" in result.stdout
    assert not list(results.glob("slurm/*/job.json"))


def test_an_id_that_cannot_be_kept_is_told(
    cluster: Cluster, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, submission: slurm.Submission) -> None:
        raise DataError("disk full")

    monkeypatch.setattr(queued, "note", full)
    assert (
        "Job 7 is submitted, and to know of it later failed: disk full"
        in invoke(exit_code=3).stderr
    )


def test_no_job_no_question(results: Path) -> None:
    cells: list[RunConfig] = [complete({})]
    assert queued.find(results, cells) == queued.Queue({})
