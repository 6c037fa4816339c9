"""Races without what takes time and is not tested."""

from __future__ import annotations

import pytest

from ncfbench.advice import field, pipeline
from ncfbench.advice.calibration import Calibration


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration that compiles nothing: a list of who would race needs no times."""
    monkeypatch.setattr(field, "calibrate", lambda *_: Calibration(0.001, 0.001, 0.001, 0.1))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure of an answer."""
    monkeypatch.setattr(pipeline, "draw_answer", lambda answer: None)
