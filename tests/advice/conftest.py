"""Races without what takes time and is not tested."""

from __future__ import annotations

from typing import Any

import pytest

from ncfbench.advice import field, pipeline
from ncfbench.advice.calibration import Calibration


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration that compiles nothing: a list of who would race needs no times."""

    def calibrate(_dataset: Any, _content: Any, configs: Any, *_rest: Any) -> Calibration:
        return Calibration(dict.fromkeys(configs, 0.001), 0.001, 0.001, 0.1)

    monkeypatch.setattr(field, "calibrate", calibrate)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure of an answer."""
    monkeypatch.setattr(pipeline, "draw_answer", lambda answer: None)
