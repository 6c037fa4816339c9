"""Runs that stop where validation does: ``epochs`` of 0."""

import pytest
from support.training import SMALL, StopAt, train

from ncfbench.config import complete
from ncfbench.data.sources import synthetic
from ncfbench.data.store import prepare
from ncfbench.runs import folder as runs
from ncfbench.runs.reported import is_chosen
from ncfbench.runs.schedule import BLIND_EPOCHS, Schedule

FAST = SMALL | {"epochs": 0, "patience": 2, "learning_rate": 0.3}


@pytest.mark.parametrize(
    ("recalls", "patience", "expected"),
    [
        ((), 2, False),
        ((0.1, 0.2), 1, False),
        ((0.2, 0.1), 1, True),
        ((0.2, 0.2, 0.2), 2, True),
        ((0.2, 0.1, 0.3, 0.2), 2, False),
        ((None, 0.2, None, 0.1, 0.1), 2, True),
    ],
)
def test_it_is_chosen_when_patience_is_over(recalls, patience, expected):
    curve = [{"validation_recall_at_50": recall} for recall in recalls]
    assert is_chosen(curve, patience) is expected


def test_it_stops_patience_after_its_best(tmp_path):
    """Its curve is the beginning of a longer run's, bit for bit; so too where it was cut."""
    options, data_dir = synthetic.Options(users=120, items=900, links=4000), tmp_path / "data"
    prepare("synthetic", options, data_dir, "tiny", say=lambda text: None)
    record = train(data_dir, tmp_path / "a", **FAST)
    epochs = int(record.summary["epochs"])
    assert (record.summary["status"], epochs) == ("finished", record.summary["reported_epoch"] + 2)
    longer = train(data_dir, tmp_path / "b", **FAST | {"epochs": epochs + 1})
    losses = [row["probe_loss"] for row in record.curve]
    assert losses == [row["probe_loss"] for row in longer.curve][: len(losses)]
    assert longer.summary["reported_epoch"] == record.summary["reported_epoch"]
    at = record.curve[-2]["iteration"] + 1
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "c", progress=StopAt(at), **FAST)
    train(data_dir, tmp_path / "c", **FAST)
    (folder,) = (tmp_path / "c").iterdir()
    again = runs.read(folder)
    assert [row["probe_loss"] for row in again.curve] == losses


def test_without_validation_it_has_some_epochs():
    schedule = Schedule.of(complete(FAST), 640, has_validation=False)
    assert schedule.last == BLIND_EPOCHS * 640 // 64
