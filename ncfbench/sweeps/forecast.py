"""Predict the time and memory of a sweep's cells, from a stored profile or a short pilot.

A pilot compiles the step of an arm and trains it for a few iterations, with parameters that are
thrown away. Cells that differ only in settings that cost no time, such as the seed or the loss
within a family, share a pilot. Probe and evaluation depend on the model and the data only: cells
with another sampler share their times.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from ncfbench.catalog import LOSSES, find_encoder
from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.errors import DataError
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling.profile import settings_digest
from ncfbench.runs.arms import TIMELESS_SETTINGS
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import schemas, tables
from ncfbench.sweeps.grid import CellState, group_cells, label_cells
from ncfbench.timing import environment
from ncfbench.training.evaluation import EvaluationCost, measure_evaluation_cost
from ncfbench.training.loop import timed_loops
from ncfbench.training.step import Trainer

PILOT_SECONDS = 0.5
"""A pilot's block takes about this long, within the bounds of ``PILOT_ITERATIONS``."""
PILOT_ITERATIONS = (2, 40)
LONG_ITERATION_SECONDS = 5.0
"""An iteration that takes longer is timed once: a user waits for it."""
BATCHES = (
    "sampler",
    "batch_size",
    "stratum_size",
    "negatives",
    "strata",
    "uniform_items",
    "mask",
    "unique_items",
    "share",
)
"""Settings that change batches only, and so neither probe nor evaluation."""


@dataclass(frozen=True)
class Prediction:
    """The time and memory that a cell still needs.

    ``source`` is the origin of the seconds: ``profile``, ``pilot``, or empty for a cell that is
    over. ``state_bytes`` are held while the cell is open, ``step_bytes`` while it trains. Both are
    on the device, and exclude what all cells share.
    """

    seconds: float = 0.0
    source: str = ""
    state_bytes: int = 0
    step_bytes: int = 0


@dataclass(frozen=True)
class Step:
    """Seconds of an arm's iteration and of its compilation, and its memory.

    ``source`` is the origin of the seconds of an iteration.
    """

    start_seconds: float
    iteration_seconds: float
    source: str
    state_bytes: int
    step_bytes: int


def cell_seconds(cost: EvaluationCost, step: Step, schedule: Schedule, epochs_done: float) -> float:
    """Return what a cell still needs, including evaluations and the *step* account."""
    left = schedule.epochs - epochs_done
    iterations = schedule.n_links / schedule.batch_size
    epoch = (
        (iterations + min(schedule.step_batches, iterations)) * step.iteration_seconds
        + schedule.probes_an_epoch * cost.probe_seconds
        + cost.evaluation_seconds
    )
    return cost.start_seconds + step.start_seconds + left * epoch


def predict(
    states: Mapping[RunConfig, CellState],
    datasets: Mapping[str, Dataset],
    runs_dir: Path,
    say: Callable[[str], None],
) -> dict[RunConfig, Prediction]:
    """Return what each cell still needs; cells that are over need nothing."""
    profiled = _profiled(runs_dir)
    key = str(environment.describe()["key"])
    waiting = [config for config, state in states.items() if not state.is_over]
    by_arm: dict[str, list[RunConfig]] = {}
    for config in waiting:
        by_arm.setdefault(_arm(config), []).append(config)
    names = label_cells([cells[0] for cells in by_arm.values()])
    steps: dict[str, Step] = {}
    costs: dict[str, EvaluationCost] = {}
    content: dict[str, DeviceContent] = {}
    for number, (arm, cells) in enumerate(by_arm.items(), start=1):
        config = cells[0]
        dataset = datasets[config.dataset]
        if config.dataset not in content:
            content[config.dataset] = jax.block_until_ready(DeviceContent.of(dataset))
        row = profiled.get(
            (dataset.fingerprint, key, config.sampler, settings_digest(_as_profiled(config)))
        )
        if row is None:
            name = names[config].rpartition(" seed ")[0]
            also = f" (for {len(cells)} cells)" if len(cells) > 1 else ""
            is_costly = find_encoder(config.encoder).is_costly
            slow = ", two iterations that can take minutes" if is_costly else ""
            say(f"Pilot {number} of {len(by_arm)}: {name}{also}{slow}")
        steps[arm] = _measure_step(config, dataset, content[config.dataset], row)
        if _model(config) not in costs:
            costs[_model(config)] = _measure_cost(config, dataset, content[config.dataset])
    predicted = {config: Prediction() for config in states}
    for config in waiting:
        schedule = Schedule.of(config, datasets[config.dataset].graph.n_links)
        step = steps[_arm(config)]
        seconds = cell_seconds(costs[_model(config)], step, schedule, states[config].epochs)
        predicted[config] = Prediction(seconds, step.source, step.state_bytes, step.step_bytes)
    return predicted


def predict_memory(predicted: Mapping[RunConfig, Prediction]) -> int:
    """Return the bytes on the device at the worst moment.

    Then all cells of a group are open, and the cell with the largest step trains. Texts and the
    program itself, which all cells share, are left out.
    """
    return max(
        (
            sum(predicted[config].state_bytes for config in group.cells)
            + max(predicted[config].step_bytes for config in group.cells)
            for group in group_cells(list(predicted))
        ),
        default=0,
    )


def _arm(config: RunConfig) -> str:
    """Return a text that cells share whose iterations take the same time."""
    placement = {"devices": config.devices, "shard_tables": config.shard_tables}
    settings = identity_of(config) | placement
    if config.loss in LOSSES:  # the families' losses differ in a few operations on each score
        settings["loss"] = config.family
    return json.dumps(
        {name: value for name, value in settings.items() if name not in TIMELESS_SETTINGS},
        sort_keys=True,
    )


def _model(config: RunConfig) -> str:
    """Return a text that cells share whose probes and evaluations take the same time."""
    arm = json.loads(_arm(config))
    return json.dumps({name: value for name, value in arm.items() if name not in BATCHES})


def _as_profiled(config: RunConfig) -> RunConfig:
    """Return the settings that `ncfbench profile` gives to such an arm by default."""
    return dataclasses.replace(
        config, seed=RunConfig.seed, epochs=RunConfig.epochs, probe_every=RunConfig.probe_every
    )


def _profiled(runs_dir: Path) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    path = runs_dir / "costmodel.parquet"
    try:
        rows = tables.read_rows(path, schemas.COSTMODEL) if path.exists() else []
    except DataError:
        return {}  # the report names the damage; here a pilot takes the profile's place
    return {
        (row["data_fingerprint"], row["environment_key"], row["sampler"], row["settings"]): row
        for row in rows
        if row["measured_full_iteration_seconds"]
    }


def _measure_cost(config: RunConfig, dataset: Dataset, content: DeviceContent) -> EvaluationCost:
    begin = time.perf_counter()
    trainer, state = Trainer.create(config, dataset)
    parameters = trainer.layout.to_one_device(state.parameters)
    created = time.perf_counter() - begin
    found = measure_evaluation_cost(trainer, dataset, content, parameters)
    return dataclasses.replace(found, start_seconds=created + found.start_seconds)


def _measure_step(
    config: RunConfig, dataset: Dataset, content: DeviceContent, row: Mapping[str, Any] | None
) -> Step:
    """Compile the step and, without a row of a profile, time a few iterations."""
    begin = time.perf_counter()
    with timed_loops(dataset, content, {"pilot": config}) as loops:
        loop = loops["pilot"]
        state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(loop.state))
        start = time.perf_counter() - begin
        loop.full_block(1)
        start += sum(sample.seconds for sample in loop.samples if sample.kind == "compile")
        batch = loop.recent_batches()[-1]
        needed = loop.trainer.step_bytes(loop.state, batch, loop.content)
        if row is None:
            fewest, most = PILOT_ITERATIONS
            count = int(PILOT_SECONDS / loop.samples[-1].seconds)
            if loop.samples[-1].seconds < LONG_ITERATION_SECONDS:
                loop.full_block(min(max(count, fewest), most))
            sample = loop.samples[-1]
            iteration, source = sample.seconds / sample.iterations, "pilot"
        else:
            iteration, source = float(row["measured_full_iteration_seconds"]), "profile"
    return Step(start, iteration, source, state_bytes, needed)
