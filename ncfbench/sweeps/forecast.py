"""Predict the time and memory of a sweep's cells, from a stored profile or a short pilot.

The pilot compiles each distinct arm and trains it for a few iterations, with parameters that are
thrown away. Cells that differ only in settings that cost no time, such as the seed, share a pilot.
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

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import DataError
from ncfbench.models.towers import Content
from ncfbench.profiling.profile import settings_digest
from ncfbench.profiling.roofline import compiled_step
from ncfbench.rng import Streams
from ncfbench.runs.schedule import Schedule
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.storage import schemas, tables
from ncfbench.sweeps.grid import CellState, group_cells
from ncfbench.timing import environment
from ncfbench.training.inference import Embedder
from ncfbench.training.interleave import timed_loops
from ncfbench.training.loop import STEP_BATCHES
from ncfbench.training.probe import Probe
from ncfbench.training.recall import make_evaluators

PILOT_SECONDS = 1.0
"""A pilot's block takes about this long, within the bounds of ``PILOT_ITERATIONS``."""
PILOT_ITERATIONS = (4, 40)
FREE = (
    "seed",
    "epochs",
    "patience",
    "probe_every",
    "learning_rate",
    "gamma",
    "lambda",
    "word_dropout",
    "item_dropout",
    "user_l2",
    "tuned",
)
"""Settings that do not change the time of an iteration."""


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
class Forecast:
    """The time of each part of a cell, and its memory.

    ``source`` is the origin of the seconds of an iteration.
    """

    start_seconds: float
    iteration_seconds: float
    probe_seconds: float
    evaluation_seconds: float
    source: str
    state_bytes: int
    step_bytes: int

    def seconds(self, schedule: Schedule, epochs_done: float) -> float:
        """Return what a cell still needs, including evaluations and the *step* account."""
        left = schedule.epochs - epochs_done
        iterations = schedule.n_links / schedule.batch_size
        probes = iterations / schedule.probe_every if schedule.probe_every else 4
        epoch = (
            (iterations + min(STEP_BATCHES, iterations)) * self.iteration_seconds
            + probes * self.probe_seconds
            + self.evaluation_seconds
        )
        return self.start_seconds + left * epoch


def predict(
    states: Mapping[RunConfig, CellState],
    datasets: Mapping[str, Dataset],
    runs_dir: Path,
    say: Callable[[str], None],
) -> dict[RunConfig, Prediction]:
    """Return what each cell still needs; cells that are over need nothing."""
    profiled = _profiled(runs_dir)
    key = str(environment.describe()["key"])
    found: dict[str, Forecast] = {}
    predicted = {}
    for config, state in states.items():
        if state.is_over:
            predicted[config] = Prediction()
            continue
        dataset = datasets[config.dataset]
        arm = _arm(config)
        if arm not in found:
            row = profiled.get(
                (dataset.fingerprint, key, config.sampler, settings_digest(_as_profiled(config)))
            )
            if row is None:
                say(f"Pilot: {config.dataset} {config.encoder} {config.loss} {config.sampler}.")
            found[arm] = _measure(config, dataset, row)
        schedule = Schedule(
            dataset.graph.n_links, config.batch_size, config.epochs, config.probe_every
        )
        own = found[arm]
        seconds = own.seconds(schedule, state.epochs)
        predicted[config] = Prediction(seconds, own.source, own.state_bytes, own.step_bytes)
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
    settings = config.effective() | {"devices": config.devices, "shard_tables": config.shard_tables}
    return json.dumps(
        {name: value for name, value in settings.items() if name not in FREE}, sort_keys=True
    )


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


def _measure(config: RunConfig, dataset: Dataset, row: Mapping[str, Any] | None) -> Forecast:
    begin = time.perf_counter()
    content = jax.block_until_ready(Content.of(dataset))
    with timed_loops(dataset, content, {"pilot": config}) as loops:
        loop = loops["pilot"]
        embedder = Embedder(loop.trainer.towers, content)
        looks: dict[str, Callable[[Any], object]] = {
            "probe": Probe(dataset.graph, config, embedder)
        }
        evaluators, _ = make_evaluators(config, dataset, embedder)
        looks["evaluation"] = lambda parameters: [each(parameters) for each in evaluators.values()]
        seconds = {"probe": 0.0, "evaluation": 0.0}
        for look in looks.values():
            look(loop.trainer.layout.to_one_device(loop.state.parameters))  # compiles
        started = time.perf_counter() - begin
        for name, look in looks.items():
            began = time.perf_counter()
            look(loop.trainer.layout.to_one_device(loop.state.parameters))
            seconds[name] = time.perf_counter() - began
        if row is None:
            loop.full_block(1)
            started += sum(sample.seconds for sample in loop.samples if sample.kind == "compile")
            fewest, most = PILOT_ITERATIONS
            loop.full_block(min(max(int(PILOT_SECONDS / loop.samples[-1].seconds), fewest), most))
            sample = loop.samples[-1]
            iteration, source = sample.seconds / sample.iterations, "pilot"
        else:
            iteration, source = float(row["measured_full_iteration_seconds"]), "profile"
        state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(loop.state))
    return Forecast(
        started,
        iteration,
        seconds["probe"],
        seconds["evaluation"],
        source,
        state_bytes,
        _step_bytes(config, dataset, content),
    )


def _step_bytes(config: RunConfig, dataset: Dataset, content: Content) -> int:
    """Return the bytes that the compiled step needs beside its arguments, by XLA's analysis.

    A backend without that analysis gives 0.
    """
    sampler = make_sampler(dataset.graph, config, Streams(config.seed))
    batch = next(sampler.batches(0, plan_capacity(dataset.graph, config)))
    found = compiled_step(config, dataset, content, batch).memory_analysis()
    return (
        0
        if found is None
        else int(found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes)
    )
