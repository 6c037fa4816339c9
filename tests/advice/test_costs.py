"""What a candidate takes, by a pilot of it before the race."""

from __future__ import annotations

from typing import Any
from unittest.mock import sentinel

import pytest

from ncfbench.advice.calibration import Calibration, calibrate
from ncfbench.config import complete
from ncfbench.training.evaluation import EvaluationCost
from ncfbench.training.pilot import Pilot


def test_a_pilot_says_what_the_parts_of_a_race_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a run compiles its step and its probe, and evaluates it once."""
    cost = EvaluationCost(start_seconds=2.0, probe_seconds=0.5, evaluation_seconds=0.25)

    def run_pilot(*_: Any, evaluates: bool) -> Pilot:
        return Pilot(3.0, 0.001, 0, 0, cost if evaluates else None)

    monkeypatch.setattr("ncfbench.advice.calibration.run_pilot", run_pilot)
    found = calibrate(sentinel.dataset, sentinel.content, complete({}))
    assert found == Calibration(0.001, 0.5, 0.25, 5.5)
    # A probe after every two seconds of training, an evaluation after every five.
    pace = found.pace(2.0, 5.0)
    assert (pace.opening, pace.training) == (5.5, pytest.approx(1 + 0.25 + 0.05))
