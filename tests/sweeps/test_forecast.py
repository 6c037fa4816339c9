"""Forecasts: which cells share a pilot, and what a cell is predicted to need."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling import profile
from ncfbench.runs.schedule import Schedule
from ncfbench.sweeps import forecast
from ncfbench.sweeps.forecast import EvaluationCost, Step
from ncfbench.sweeps.grid import CellState, expand
from ncfbench.training import step
from ncfbench.training.loop import TimedLoop

LOOKS = EvaluationCost(start_seconds=5.0, probe_seconds=0.5, evaluation_seconds=2.0)
STEP = Step(3.0, 0.1, "pilot", 100, 10)


def test_a_cell_needs_its_epochs_probes_and_starts() -> None:
    """Two of three epochs are left: 20 iterations and 16 of the step account in each, at 0.1 s;
    four probes and an evaluation.
    """
    schedule = Schedule(n_links=200, batch_size=10, epochs=3, probe_every=0)
    expected = 5 + 3 + 2 * (36 * 0.1 + 4 * 0.5 + 2)
    assert forecast.cell_seconds(LOOKS, STEP, schedule, 1.0) == pytest.approx(expected)
    often = Schedule(n_links=200, batch_size=10, epochs=1, probe_every=2)
    expected = 5 + 3 + 36 * 0.1 + 10 * 0.5 + 2
    assert forecast.cell_seconds(LOOKS, STEP, often, 0.0) == pytest.approx(expected)


def test_alike_cells_share_a_pilot(
    tiny: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """iid and ns with both pointwise losses and ns with the pairwise one, two seeds of each; then
    ns with another model. Probe and evaluation are measured once for each model and family.
    """
    fixed = {"dataset": ("tiny",), "batch_size": (64,)}
    axes = {"sampler": ("iid", "ns"), "loss": ("sg", "mse", "hinge"), "seed": (0, 1)}
    cells = [*expand(fixed | axes).cells]
    more = {"dataset": "tiny", "batch_size": 64, "sampler": "ns", "loss": "hinge"}
    cells += [complete(more | {"word_dimension": 20}), complete(more | {"filters": 9})]
    steps, costs, said = [], [], []
    monkeypatch.setattr(forecast, "_measure_step", lambda *given: steps.append(given) or STEP)
    monkeypatch.setattr(forecast, "_measure_cost", lambda *given: costs.append(given) or LOOKS)
    states = {config: CellState() for config in cells} | {cells[-1]: CellState("done")}
    found = forecast.predict(states, {"tiny": tiny}, tmp_path, said.append)
    assert said == [
        "Pilot 1 of 4: tiny cnn sg iid b=64 word_dimension=50 (for 4 cells)",
        "Pilot 2 of 4: tiny cnn sg ns b=64 word_dimension=50 (for 4 cells)",
        "Pilot 3 of 4: tiny cnn hinge ns b=64 word_dimension=50 (for 2 cells)",
        "Pilot 4 of 4: tiny cnn hinge ns b=64 word_dimension=20",
    ]
    assert (len(steps), len(costs)) == (4, 3)
    assert found[cells[-1]] == forecast.Prediction()
    ours = Schedule(tiny.graph.n_links, 64, cells[0].epochs, 0)
    assert found[cells[0]].seconds == forecast.cell_seconds(LOOKS, STEP, ours, 0.0)
    assert (found[cells[0]].state_bytes, found[cells[0]].step_bytes) == (100, 10)


def test_a_pilot_with_mined_negatives_compiles_once(tiny: Dataset) -> None:
    """The first mining decides the shape of the first batch: the model's items need more slots than
    the popular ones that stand in for them before.
    """
    small = {"batch_size": 32, "negatives": 3, "encoder": "mf", "dimension": 8, "mined": 9}
    config = complete(small | {"dataset": "tiny", "sampler": "neg", "loss": "sg"})
    step = forecast._measure_step(config, tiny, DeviceContent.of(tiny), None)
    assert step.source == "pilot"
    assert min(step.start_seconds, step.iteration_seconds, step.step_bytes) > 0
    assert step.state_bytes > 4 * tiny.n_users * 9


def test_a_step_that_exceeds_the_memory_is_not_tried(
    tiny: Dataset, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte that the forecast gives."""
    small = {"batch_size": 32, "encoder": "mf", "dimension": 8, "dataset": "tiny"}
    config = complete(small)
    needed = forecast._measure_step(config, tiny, DeviceContent.of(tiny), None).step_bytes
    monkeypatch.setattr(step, "available_memory", lambda: needed)
    forecast._measure_step(config, tiny, DeviceContent.of(tiny), None)
    monkeypatch.setattr(step, "available_memory", lambda: needed - 1)
    monkeypatch.setattr(TimedLoop, "_run", lambda *_: pytest.fail("it was tried"))
    monkeypatch.setattr(profile, "Steps", lambda *_: pytest.fail("it was tried"))
    for start in (
        lambda: forecast._measure_step(config, tiny, DeviceContent.of(tiny), None),
        lambda: profile.profile(samplers=["strat-ns"], data_dir=data_dir, **small),
    ):
        with pytest.raises(UsageError, match="Use a smaller --batch-size, --item-block"):
            start()
