"""A whole run: what it leaves behind, that it repeats, and that interruptions change nothing."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import compiled_once
from stopping import StopAt

from ncfbench.config import Locations, complete
from ncfbench.data.store import Dataset
from ncfbench.distributed.process_group import AgreedInterrupt
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.models.towers import Content
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.storage import locks
from ncfbench.training import run as training
from ncfbench.training import session
from ncfbench.training.turns import OpenRun

SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 64,
    "epochs": 3,
    "dimension": 8,
    "word_dimension": 8,
    "filters": 8,
    "lstm_units": 8,
}


class Said(StopAt):
    """Keeps the messages, and the iteration at which training began."""

    def __init__(self, iteration: int = -1) -> None:
        super().__init__(iteration)
        self.texts: list[str] = []
        self.began_at = -1

    def begin(self, title: str, total: int, done: int) -> None:
        self.began_at = done

    def say(self, text: str) -> None:
        self.texts.append(text)


def train(
    data_dir: Path,
    runs_dir: Path,
    *,
    resume: bool = False,
    again: bool = False,
    progress: Progress | None = None,
    trace: Path | None = None,
    **more: Any,
) -> RunRecord:
    return training.run(
        complete(SMALL | more),
        Locations(data_dir, runs_dir),
        resume=resume,
        again=again,
        progress=progress,
        trace=trace,
    )


def figures(record: RunRecord) -> list[dict[str, Any]]:
    """The curve without its times."""
    return [
        {key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve
    ]


def ends_of(dataset: Dataset, epochs: int = 3) -> list[int]:
    """The iterations that end an epoch."""
    return [-(-epoch * dataset.graph.n_links // 64) for epoch in range(1, epochs + 1)]


@pytest.fixture(scope="module")
def whole(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run of :data:`SMALL` that was never interrupted."""
    return train(data_dir, tmp_path_factory.mktemp("whole"))


def test_a_run_leaves_its_records(whole: RunRecord, tiny: Dataset) -> None:
    assert {path.name for path in whole.folder.iterdir()} == {
        "config.json",
        "environment.json",
        "curve.parquet",
        "evaluation.parquet",
        "timing.parquet",
        "ledger.parquet",
        "summary.parquet",
        "checkpoints",
        ".lock",
    }
    ends, summary = ends_of(tiny), whole.summary
    assert summary["status"] == "finished"
    assert summary["iterations"] == summary["planned_iterations"] == ends[-1]
    evaluated = [row for row in whole.curve if row["test_recall_at_50"] is not None]
    assert [row["iteration"] for row in evaluated] == ends
    assert [row["epoch"] for row in evaluated] == [1, 2, 3]
    iterations = [row["iteration"] for row in whole.curve]
    assert iterations[0] == 0
    assert iterations == sorted(set(iterations))
    assert whole.curve[-1]["probe_loss"] < 0.9 * whole.curve[0]["probe_loss"]
    assert summary["data_fingerprint"] == tiny.fingerprint
    assert summary["environment_key"] == whole.environment["key"]
    full = [row for row in whole.timing if row["kind"] == "full"]
    assert sum(row["iterations"] for row in full) == ends[-1]
    assert summary["train_seconds"] == pytest.approx(sum(row["seconds"] for row in full))
    assert sum(row["kind"] == "step" for row in whole.timing) == 3
    assert {row["kind"] for row in whole.timing} >= {"compile", "probe", "evaluation", "checkpoint"}
    assert summary["full_iteration_seconds"] > 0 < summary["step_iteration_seconds"]


def test_free_vectors_have_no_recall_and_say_why(data_dir: Path, tmp_path: Path) -> None:
    summary = train(data_dir, tmp_path, encoder="mf", epochs=1).summary
    assert summary["test_recall_at_50"] is None
    assert "held-out items have none" in summary["recall_reason"]


def test_one_seed_repeats_and_another_differs(
    data_dir: Path, tmp_path: Path, whole: RunRecord
) -> None:
    again = train(data_dir, tmp_path)
    assert figures(again) == figures(whole)
    other = train(data_dir, tmp_path, seed=1, epochs=1)
    assert other.folder.name != again.folder.name
    assert figures(other)[0] != figures(whole)[0]


@pytest.mark.long_cases(r"(?!stops2-strat-ns)")
@pytest.mark.parametrize("sampler", ["iid", "strat-ns"])
@pytest.mark.parametrize("stops", [(1,), (17,), (20, 36), (47,)])
def test_an_interrupted_run_ends_with_the_same_curve(
    data_dir: Path, tmp_path: Path, whole: RunRecord, sampler: str, stops: tuple[int, ...]
) -> None:
    """Stopped inside a block, at a probe and at an epoch's end; resumed once and twice."""
    ends_with_the_same_curve(data_dir, tmp_path, whole, stops, sampler=sampler)


def test_trained_interactions_and_free_items_resume(data_dir: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"encoder": "bow", "interaction": "mlp"}
    more |= {"coupling": "regularised", "epochs": 1}
    whole = train(data_dir, tmp_path / "whole", **more)
    assert whole.curve[-1]["probe_loss"] < whole.curve[0]["probe_loss"]
    ends_with_the_same_curve(data_dir, tmp_path, whole, (5,), **more)


def test_cached_items_resume(data_dir: Path, tmp_path: Path, whole: RunRecord) -> None:
    """Stopped two iterations after a refresh, and where one is due."""
    more: dict[str, Any] = {"encoder": "bow", "sampler": "strat-all", "loss": "mse", "epochs": 1}
    more |= {"negative_items": "corrected", "refresh_every": 4, "learning_rate": 0.01}
    ends_with_the_same_curve(data_dir, tmp_path, whole, (6, 12), **more)


def test_mined_negatives_resume(data_dir: Path, tmp_path: Path) -> None:
    """Stopped between two minings, and where one is due."""
    more: dict[str, Any] = {"sampler": "neg", "mined": 12, "mine_every": 4, "mine_skip": 2}
    more |= {"encoder": "bow", "loss": "hinge", "negatives": 2, "epochs": 1}
    whole = train(data_dir, tmp_path / "w", **more)
    ends_with_the_same_curve(data_dir, tmp_path, whole, (6, 12), **more)


def test_rivals_resume(data_dir: Path, tmp_path: Path) -> None:
    """Batches without duplicates, the hardest negatives, the usual logQ, and items in blocks."""
    more: dict[str, Any] = {"sampler": "ns-distinct", "hardest": 4, "loss": "softmax-logq"}
    more |= {"encoder": "bow", "batch_size": 24, "item_block": 8, "epochs": 1}
    whole = train(data_dir, tmp_path / "w", **more)
    assert whole.curve[-1]["probe_loss"] < whole.curve[0]["probe_loss"]
    ends_with_the_same_curve(data_dir, tmp_path, whole, (5,), **more)


def test_a_memory_resumes(data_dir: Path, tmp_path: Path) -> None:
    """It is saved with the state; how stale it is stands in the messages, and what recall is 1."""
    more: dict[str, Any] = {"sampler": "xbm", "memory": 80, "encoder": "bow", "epochs": 1}
    said = Said()
    whole = train(data_dir, tmp_path / "w", progress=said, **more)
    assert any("Remembered item vectors" in text for text in said.texts)
    assert "There are 32 validation items: their recall@50 is 1 by construction." in said.texts
    assert not any(" test items: their recall" in text for text in said.texts)
    ends_with_the_same_curve(data_dir, tmp_path, whole, (5,), **more)


def ends_with_the_same_curve(
    data_dir: Path, tmp_path: Path, whole: RunRecord, stops: tuple[int, ...], **more: Any
) -> None:
    is_other = more.get("sampler", "strat-ns") != "strat-ns"
    expected = train(data_dir, tmp_path / "w", **more) if is_other else whole
    runs_dir = tmp_path / "runs [old] *{x}"
    for number, stop in enumerate(stops):
        progress = Said(stop)
        with pytest.raises(KeyboardInterrupt):
            train(data_dir, runs_dir, resume=number > 0, progress=progress, **more)
        assert progress.began_at == (stops[number - 1] if number else 0)
        (folder,) = runs_dir.iterdir()
        record = runs.read(folder)
        assert (record.summary["status"], record.summary["iterations"]) == ("interrupted", stop)
    resumed = train(data_dir, runs_dir, resume=True, **more)
    assert len(list(runs_dir.iterdir())) == 1
    assert figures(resumed) == figures(expected)
    assert (
        sum(row["iterations"] for row in resumed.timing if row["kind"] == "full")
        == expected.summary["iterations"]
    )
    ends = [
        0,
        *(row["iteration"] for row in expected.curve if row["test_recall_at_50"] is not None),
    ]
    cut = [
        (begin, end)
        for begin, end in itertools.pairwise(ends)
        for stop in stops
        if begin < stop < end
    ]
    for row in resumed.timing:
        inside = any(begin <= row["first_iteration"] < end for begin, end in cut)
        assert row["resumed"] == (row["kind"] == "full" and inside)
    assert {row["session"] for row in resumed.ledger} == set(range(1, len(stops) + 2))
    wall = sum(row["seconds"] for row in resumed.ledger if row["thread"] == "main")
    assert wall == pytest.approx(resumed.summary["wall_seconds"])


def test_dispatches_change_no_curve(data_dir: Path, tmp_path: Path) -> None:
    """Four iterations in one, interrupted once: after the dispatch that the signal falls into."""
    small: dict[str, Any] = {"encoder": "mf", "epochs": 2, "sampler": "ns"}
    one = train(data_dir, tmp_path / "one", iterations_per_dispatch=1, **small)
    small |= {"iterations_per_dispatch": 4}
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "four", progress=StopAt(17), **small)
    (folder,) = (tmp_path / "four").iterdir()
    assert 17 <= runs.read(folder).summary["iterations"] < 17 + 4
    four = train(data_dir, tmp_path / "four", resume=True, **small)
    assert figures(four) == figures(one)
    assert (
        sum(row["iterations"] for row in four.timing if row["kind"] == "full")
        == one.summary["iterations"]
    )
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["iterations_per_dispatch"] == 4
    assert one.environment["key"] == four.environment["key"], "it is a setting, recorded as such"


@pytest.mark.long_cases(r"late")
@pytest.mark.parametrize(("epoch", "delay"), [(2, 0.0), (5, 0.03)], ids=("soon", "late"))
def test_a_killed_run_ends_with_the_same_curve(
    data_dir: Path, tmp_path: Path, tiny: Dataset, epoch: int, delay: float
) -> None:
    """SIGKILL soon after a checkpoint; then it is left to finish."""
    settings = SMALL | {"encoder": "mf", "epochs": 12}
    script = (
        "import sys; from pathlib import Path; from ncfbench.training import run, session;"
        " from ncfbench.config import *; session.CHECKPOINT_SECONDS = 0.0;"
        f" run.run(complete({settings!r}), Locations(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    cut, ends = tmp_path / "cut", ends_of(tiny, 12)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(data_dir), str(cut)], env=os.environ | compiled_once()
    )
    while not list(cut.glob(f"*/checkpoints/{ends[epoch - 1]}")) and process.poll() is None:
        time.sleep(0.005)
    time.sleep(delay)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run was over before it was killed"
    said = Said()
    record = training.run(complete(settings), Locations(data_dir, cut), resume=True, progress=said)
    assert said.began_at in ends[epoch - 1 :]
    whole = training.run(complete(settings), Locations(data_dir, tmp_path / "whole"))
    assert figures(record) == figures(whole)
    assert sum(row["iterations"] for row in record.timing if row["kind"] == "full") == ends[-1]
    assert not list(record.folder.glob("checkpoints/.*"))


def test_a_damaged_checkpoint_costs_no_number(
    data_dir: Path, tmp_path: Path, tiny: Dataset, whole: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls back on an older one; interrupted again before the damaged one, it still ends with
    the same curve.
    """
    monkeypatch.setattr(session, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, progress=StopAt(40))
    (folder,) = tmp_path.iterdir()
    checkpoints = folder / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {str(ends_of(tiny)[1]), "40"}
    shutil.rmtree(checkpoints / "40" / "state")
    said = Said(38)
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, resume=True, progress=said)
    assert any("Checkpoint 40 cannot be read and is removed" in text for text in said.texts)
    assert said.began_at == ends_of(tiny)[1]
    assert runs.read(folder).summary["iterations"] == 38
    assert figures(train(data_dir, tmp_path, resume=True)) == figures(whole)


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_run_is_not_repeated(
    data_dir: Path, whole: RunRecord, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    monkeypatch.setattr(training, "Session", lambda *_: pytest.fail("trained again"))
    said = Said()
    found = train(data_dir, whole.folder.parent, resume=resume, progress=said)
    assert found.folder == whole.folder
    assert said.texts == [f"Already finished: {whole.folder}. To train it again, use --again."]


def test_again_trains_a_second_run(data_dir: Path, tmp_path: Path) -> None:
    """It has a folder of its own and the same curve; with ``resume`` the newer one is returned."""
    small: dict[str, Any] = {"encoder": "mf", "epochs": 1}
    first = train(data_dir, tmp_path, **small)
    second = train(data_dir, tmp_path, again=True, **small)
    assert second.folder.name == f"{first.folder.name}-2"
    assert figures(second) == figures(first)
    assert train(data_dir, tmp_path, resume=True, again=True, **small).folder == second.folder
    assert len(list(tmp_path.iterdir())) == 2


def test_an_interrupted_run_is_neither_doubled_nor_lost(data_dir: Path, tmp_path: Path) -> None:
    """The same command without a word refuses; ``resume`` with other settings refuses, and names
    the nearest run.
    """
    small: dict[str, Any] = {"encoder": "mf", "epochs": 2}
    with pytest.raises(AgreedInterrupt) as caught:
        train(data_dir, tmp_path, progress=StopAt(5), **small)
    (folder,) = tmp_path.iterdir()
    assert caught.value.folder == folder
    with pytest.raises(UsageError, match="--resume continues it; --again trains a new one") as no:
        train(data_dir, tmp_path, **small)
    assert str(folder) in str(no.value)
    with pytest.raises(UsageError, match=r" \(interrupted\), has epochs = 2 \(not 3\)") as no:
        train(data_dir, tmp_path, resume=True, encoder="mf", epochs=3)
    assert folder.name in str(no.value)
    assert list(tmp_path.iterdir()) == [folder]
    third = train(data_dir, tmp_path, resume=True, again=True, encoder="mf", epochs=3)
    assert third.folder != folder
    assert train(data_dir, tmp_path, resume=True, **small).folder == folder


def test_a_run_that_another_process_holds_is_refused(data_dir: Path, whole: RunRecord) -> None:
    with (
        locks.held(whole.folder, "writing"),
        pytest.raises(UsageError, match="Another process is writing"),
    ):
        train(data_dir, whole.folder.parent, resume=True)


def test_divergence_names_the_iteration_and_keeps_rows(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"not finite at iteration \d+") as caught:
        train(data_dir, tmp_path, encoder="mf", loss="mse", learning_rate=1e30)
    (folder,) = tmp_path.iterdir()
    assert str(folder) in str(caught.value)
    record = runs.read(folder)
    assert record.summary["status"] == "diverged"
    assert "not finite" in record.summary["message"]
    assert record.curve[0]["iteration"] == 0


def test_a_full_disk_is_said_and_loses_nothing(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"encoder": "mf", "epochs": 1}
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(tmp_path)._replace(free=1000)
        patch.setattr("ncfbench.training.checkpoint.shutil.disk_usage", lambda path: usage)
        with pytest.raises(DataError, match="checkpoints: No space left on device. Free some"):
            train(data_dir, tmp_path, **small)
    (folder,) = tmp_path.iterdir()
    assert runs.read(folder).curve[-1]["epoch"] == 1
    assert train(data_dir, tmp_path, resume=True, **small).summary["status"] == "finished"


def test_a_trace_changes_no_number_and_no_time(
    data_dir: Path, tmp_path: Path, whole: RunRecord
) -> None:
    traced = train(data_dir, tmp_path / "runs", trace=tmp_path / "trace")
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))
    assert figures(traced) == figures(whole)
    (kept,) = [row for row in traced.timing if row["kind"] == "traced"]
    assert 1 <= kept["iterations"] <= session.TRACE_ITERATIONS
    full = [row for row in traced.timing if row["kind"] == "full"]
    assert (
        sum(row["iterations"] for row in full) + kept["iterations"] == traced.summary["iterations"]
    )
    assert {row["line"] for row in traced.ledger if row["seconds"] > 0} >= {"trace"}
    assert "load_average_at_end" in traced.environment
    trained = [row["seconds"] for row in traced.timing if row["kind"] in ("full", "traced")]
    assert traced.summary["train_seconds"] == pytest.approx(sum(trained))


def test_a_trace_that_was_not_written_is_said(data_dir: Path, tmp_path: Path) -> None:
    said, small = Said(), {"encoder": "mf", "epochs": 1}
    train(data_dir, tmp_path, probe_every=1, progress=said, trace=tmp_path / "t", **small)
    assert any("No trace was written" in text for text in said.texts)


@pytest.mark.long
def test_recall_on_cold_items_is_far_above_chance(tmp_path: Path) -> None:
    record = training.run(
        complete({"dataset": "synthetic", "loss": "hinge", "epochs": 4}),
        Locations(tmp_path, tmp_path / "r"),
    )
    chance = 50 / 640
    assert record.summary["test_recall_at_50"] > 3 * chance


def test_a_turn_can_be_evaluated_within_an_epoch(
    data_dir: Path, tmp_path: Path, tiny: Dataset
) -> None:
    """The last row gets its recall, once; training goes on as if it had not been evaluated."""
    config = complete(SMALL | {"sampler": "ns", "encoder": "cnn", "probe_every": 5})
    losses = []
    for name in ("plain", "evaluated"):
        run = OpenRun.open(
            config,
            Locations(data_dir, tmp_path / name),
            tiny,
            folder=None,
            progress=Progress(),
            interrupted=lambda: False,
            content=Content.of(tiny),
            turns="x",
        )
        run.advance()
        if name == "evaluated":
            run.evaluate()
        run.save()
        record = run.recorder.read()
        assert record is not None
        recalls = [row["test_recall_at_50"] for row in record.curve]
        assert [recall is not None for recall in recalls] == [False, name == "evaluated"]
        run.advance()
        run.save()
        losses.append([row["probe_loss"] for row in runs.read(record.folder).curve])
        run.close()
    assert losses[0] == losses[1]
