"""Mined negatives after a warm start: iterations of two kinds, so times are those of the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invoked import check, invoke
from trained import train

from ncfbench.reporting.ranked import above_chance_at, curve_of
from ncfbench.reporting.verify.runs import Run
from ncfbench.runs.folder import RunRecord
from ncfbench.training.loop import TimedLoop

COLUMN = "validation_recall_at_50"
FIRST = 20
"""Iterations of the warm start; an epoch has 38."""


@pytest.fixture
def record(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    """A run whose minings take 100 planted seconds, a fifth of it each iteration, and others."""

    def planted(self: TimedLoop) -> Any:
        assert self.embedder is not None
        self._refresh_seconds.append(100.0)
        return self.trainer.carry.refreshed(self.state.parameters, self.embedder)

    monkeypatch.setattr(TimedLoop, "_refreshed", planted)
    runs = [
        train(data_dir, tmp_path, loss="softmax", epochs=3, seed=seed, **own)
        for own in (
            {"sampler": "neg", "mined": 4, "mine_every": 5, "warm_start": FIRST},
            {"sampler": "ns"},
        )
        for seed in (0, 1)
    ]
    return runs[0]


def test_seconds_are_those_of_the_clock(record: RunRecord, tmp_path: Path) -> None:
    """The warm start is charged no mining; an iteration is one after it; reports and their second
    computation agree.
    """
    evaluated = [row for row in record.curve if row[COLUMN] is not None]
    curve = curve_of(record, COLUMN, 0.0)
    assert curve.seconds == [0.0, *(row["train_seconds"] for row in evaluated)]
    for row in record.curve:
        mined = 20 * max(row["iteration"] - FIRST, 0)
        assert 0 <= row["train_seconds"] - mined < 20
    pace = record.summary["full_iteration_seconds"]
    assert 20 < pace < 25
    later = [row for row in record.timing if row["kind"] == "full"]
    later = [row for row in later if row["first_iteration"] >= FIRST]
    assert pace == pytest.approx(np.median([row["seconds"] / row["iterations"] for row in later]))
    first, middle = evaluated[0], (evaluated[0]["iteration"] + evaluated[1]["iteration"]) / 2
    between = (first["train_seconds"] + evaluated[1]["train_seconds"]) / 2
    assert curve.iterations_at(between) == pytest.approx(middle)
    assert above_chance_at(record, "validation", -1.0) == first["train_seconds"]
    clock = Run(record).clock(np.array([0, first["iteration"]], float))
    assert clock.tolist() == [0.0, first["train_seconds"]]
    check(invoke("report", "--runs-dir", tmp_path, "--full"), 0, "neg")
    result = invoke("report", "--runs-dir", tmp_path, "--verify")
    check(result, 0, " 0 do not match")
