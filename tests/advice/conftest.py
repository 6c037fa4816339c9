"""Races without what takes time and is not tested."""

from __future__ import annotations

import pytest

from ncfbench.advice import pipeline


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure of an answer."""
    monkeypatch.setattr(pipeline, "draw_answer", lambda answer: None)
