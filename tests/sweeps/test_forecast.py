"""Forecasts: which cells share a pilot, and what a cell is predicted to need."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling import profile, rounds
from ncfbench.runs.schedule import Schedule
from ncfbench.sweeps import forecast
from ncfbench.sweeps.cells import Cell, Need, expand
from ncfbench.training import step
from ncfbench.training.evaluation import EvaluationCost
from ncfbench.training.loop import TimedLoop
from ncfbench.training.pilot import Pilot, run_pilot

LOOKS = EvaluationCost(start_seconds=5.0, probe_seconds=0.5, evaluation_seconds=2.0)
PILOT = Pilot(3.0, 0.1, 100, 10)


def test_a_cell_needs_its_epochs_probes_and_starts() -> None:
    """Two of three epochs are left: 20 iterations and 16 of the step account in each, at 0.1 s;
    four probes and an evaluation.
    """
    schedule = Schedule(n_links=200, batch_size=10, epochs=3, probe_every=0)
    expected = 5 + 3 + 2 * (36 * 0.1 + 4 * 0.5 + 2)
    assert forecast.seconds_left(LOOKS, PILOT, schedule, 1.0) == pytest.approx(expected)
    often = Schedule(n_links=200, batch_size=10, epochs=1, probe_every=2)
    expected = 5 + 3 + 36 * 0.1 + 10 * 0.5 + 2
    assert forecast.seconds_left(LOOKS, PILOT, often, 0.0) == pytest.approx(expected)


def test_alike_cells_share_a_pilot(
    tiny: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """iid and ns with both pointwise losses and ns with the pairwise one, two seeds of each; then
    ns with another model. Probe and evaluation are measured once for each model and family.
    """
    fixed = {"dataset": ("tiny",), "batch_size": (64,)}
    axes = {"sampler": ("iid", "ns"), "loss": ("sg", "mse", "hinge"), "seed": (0, 1)}
    cells, _ = expand(fixed | axes)
    more = {"dataset": "tiny", "batch_size": 64, "sampler": "ns", "loss": "hinge"}
    cells += [Cell(complete(more | {"word_dimension": 20}))]
    cells += [Cell(complete(more | {"filters": 9}), status="done")]
    said, evaluated = [], []

    def run_pilot(*_: object, iteration_seconds: float | None, evaluates: bool) -> Pilot:
        assert iteration_seconds is None, "there is no profile"
        evaluated.append(evaluates)
        return dataclasses.replace(PILOT, evaluation=LOOKS if evaluates else None)

    monkeypatch.setattr(forecast, "run_pilot", run_pilot)
    forecast.predict(cells, {"tiny": tiny}, tmp_path, said.append)
    assert said == [
        "Pilot 1 of 4: tiny cnn sg iid b=64 word_dimension=50 (for 4 cells)",
        "Pilot 2 of 4: tiny cnn sg ns b=64 word_dimension=50 (for 4 cells)",
        "Pilot 3 of 4: tiny cnn hinge ns b=64 word_dimension=50 (for 2 cells)",
        "Pilot 4 of 4: tiny cnn hinge ns b=64 word_dimension=20",
    ]
    assert evaluated == [True, False, True, True]
    ours = Schedule(tiny.graph.n_links, 64, cells[0].config.epochs, 0)
    seconds = forecast.seconds_left(LOOKS, PILOT, ours, 0.0)
    assert (cells[0].need, cells[-1].need) == (Need(seconds, "pilot", 100, 10), Need())
    assert forecast.predict_memory(cells[:4]) == 2 * 100 + 10


@pytest.mark.long
def test_a_pilot_with_mined_negatives_compiles_once(tiny: Dataset) -> None:
    """The first mining decides the shape of the first batch: the model's items need more slots than
    the popular ones that stand in for them before.
    """
    small = {"batch_size": 32, "negatives": 3, "encoder": "mf", "dimension": 8, "mined": 9}
    config = complete(small | {"dataset": "tiny", "sampler": "neg", "loss": "sg"})
    pilot = run_pilot(config, tiny, DeviceContent.of(tiny))
    assert min(pilot.start_seconds, pilot.iteration_seconds, pilot.step_bytes) > 0
    assert pilot.state_bytes > 4 * tiny.n_users * 9


@pytest.mark.long
def test_a_step_that_exceeds_the_memory_is_not_tried(
    tiny: Dataset, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte that the forecast gives."""
    small = {"batch_size": 32, "encoder": "mf", "dimension": 8, "dataset": "tiny"}
    config = complete(small)
    needed = run_pilot(config, tiny, DeviceContent.of(tiny)).step_bytes
    monkeypatch.setattr(step, "available_memory", lambda: needed)
    run_pilot(config, tiny, DeviceContent.of(tiny))
    monkeypatch.setattr(step, "available_memory", lambda: needed - 1)
    monkeypatch.setattr(TimedLoop, "_run", lambda *_: pytest.fail("it was tried"))
    monkeypatch.setattr(rounds, "Steps", lambda *_: pytest.fail("it was tried"))
    for start in (
        lambda: run_pilot(config, tiny, DeviceContent.of(tiny)),
        lambda: profile.profile(samplers=["strat-ns"], data_dir=data_dir, **small),
    ):
        with pytest.raises(UsageError, match="Use a smaller --batch-size, --item-block"):
            start()
