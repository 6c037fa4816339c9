"""The state of a race on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.state import VERSION, State, read_state
from ncfbench.config import complete
from ncfbench.errors import DataError


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Of a race whose state is written."""
    config = complete({"dataset": "tiny", "encoder": "cnn", "sampler": "ns"})
    racing, gone = (Candidate(name, config, seeds=[0, 1]) for name in ("one", "two"))
    gone.leave(Status.DIVERGED, "diverged: the loss is not finite")
    state = State("0" * 64, [racing, gone], [], 1.0, clock=4.0, spent_seconds=60.0)
    state.write(tmp_path)
    return state


def test_a_state_is_read_as_it_was_written(tmp_path: Path, state: State) -> None:
    assert read_state(tmp_path) == state
    path = tmp_path / "advice.json"
    whole = path.read_text()
    for old, new, message in (
        ('"entrants"', '"arms"', "is damaged"),
        ('"racing"', '"resting"', "is damaged"),
        (f'"version": {VERSION}', '"version": 2', r"of another version of ncfbench\. Remove "),
    ):
        path.write_text(whole.replace(old, new))
        with pytest.raises(DataError, match=message):
            read_state(tmp_path)
    assert read_state(tmp_path / "none") is None
