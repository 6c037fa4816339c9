"""The pilot: the seconds and bytes that it finds are those of a loop that trains."""

from __future__ import annotations

import time

import pytest

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.training import pilot
from ncfbench.training.pilot import run_pilot

SMALL = {"dataset": "tiny", "encoder": "mf", "dimension": 8, "batch_size": 32, "sampler": "ns"}


def test_a_pilot_measures_a_run(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts fit into the time that it takes; the state holds Adam's two moments as well."""
    monkeypatch.setattr(pilot, "BLOCK_SECONDS", 0.01)
    config, content, begin = complete(SMALL), DeviceContent.of(tiny), time.perf_counter()
    found = run_pilot(config, tiny, content, evaluates=True)
    taken, cost = time.perf_counter() - begin, found.evaluation
    assert cost is not None
    assert 0 < found.start_seconds + cost.start_seconds < taken
    assert 0 < found.iteration_seconds < found.start_seconds, "compilation is no iteration"
    assert min(cost.probe_seconds, cost.evaluation_seconds) > 0
    assert found.state_bytes > 3 * 4 * 8 * tiny.n_users
    assert found.step_bytes > 0
    known = run_pilot(config, tiny, content, iteration_seconds=7.0)
    assert (known.iteration_seconds, known.evaluation) == (7.0, None)
