"""Predict the time and memory of a sweep's cells, from a stored profile or a short pilot.

Cells that differ only in settings that cost no time, such as the seed or the loss within a family,
share a pilot. Probe and evaluation depend on the model and the data only: cells with another
sampler share their times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax

from ncfbench.catalog import LOSSES, find_encoder
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import DataError
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling.profile import settings_digest
from ncfbench.runs.arms import ARM_SETTINGS, TIMELESS_SETTINGS
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import schemas, tables
from ncfbench.sweeps.cells import Cell, Need, group_cells, identity, label_cells
from ncfbench.timing import environment
from ncfbench.training.evaluation import EvaluationCost
from ncfbench.training.pilot import Pilot, run_pilot

BATCHES = (*ARM_SETTINGS, "batch_size", "mask", "unique_items")
"""Settings that change batches only, and so neither probe nor evaluation."""


def predict(
    cells: Iterable[Cell],
    datasets: Mapping[str, Dataset],
    runs_dir: Path,
    say: Callable[[str], None],
) -> None:
    """Set what each cell still needs; cells that are over need nothing."""
    arms: dict[str, list[Cell]] = {}
    for cell in cells:
        cell.need = Need()
        if not cell.is_over:
            arms.setdefault(_alike(cell.config), []).append(cell)
    names = label_cells([alike[0] for alike in arms.values()])
    profiled, key = _profiled(runs_dir), str(environment.describe()["key"])
    costs: dict[str, EvaluationCost] = {}
    content: dict[str, DeviceContent] = {}
    for number, alike in enumerate(arms.values(), start=1):
        config, dataset = alike[0].config, datasets[alike[0].config.dataset]
        if config.dataset not in content:
            configs = (first.config for first, *_ in arms.values())
            readers = [other for other in configs if other.dataset == config.dataset]
            content[config.dataset] = jax.block_until_ready(DeviceContent.of(dataset, readers))
        settings = settings_digest(_as_profiled(config))
        known = profiled.get((dataset.fingerprint, key, config.sampler, settings))
        if known is None:
            name = names[alike[0]].rpartition(" seed ")[0]
            also = f" (for {len(alike)} cells)" if len(alike) > 1 else ""
            is_costly = find_encoder(config.encoder).is_costly
            slow = ", two iterations that can take minutes" if is_costly else ""
            say(f"Pilot {number} of {len(arms)}: {name}{also}{slow}")
        model, texts = _alike(config, *BATCHES), content[config.dataset]
        pilot = run_pilot(
            config, dataset, texts, iteration_seconds=known, evaluates=model not in costs
        )
        if pilot.evaluation is not None:
            costs[model] = pilot.evaluation
        source = "pilot" if known is None else "profile"
        for cell in alike:
            schedule = Schedule.of(cell.config, dataset.graph.n_links)
            seconds = seconds_left(costs[model], pilot, schedule, cell.epochs)
            cell.need = Need(seconds, source, pilot.state_bytes, pilot.step_bytes)


def seconds_left(
    cost: EvaluationCost, pilot: Pilot, schedule: Schedule, epochs_done: float
) -> float:
    """Return what a cell still needs, including evaluations and the *step* account."""
    iterations = schedule.n_links / schedule.batch_size
    epoch = (
        (iterations + min(schedule.step_batches, iterations)) * pilot.iteration_seconds
        + schedule.probes_an_epoch * cost.probe_seconds
        + cost.evaluation_seconds
    )
    return cost.start_seconds + pilot.start_seconds + (schedule.epochs - epochs_done) * epoch


def predict_memory(cells: Iterable[Cell]) -> int | None:
    """Return the bytes on the device at the worst moment; None before a prediction.

    Then all cells of a group are open, and the cell with the largest step trains. Texts and the
    program itself, which all cells share, are left out.
    """
    groups = ([cell.need for cell in group if cell.need] for group in group_cells(cells))
    return max(
        (
            sum(need.state_bytes for need in needs) + max(need.step_bytes for need in needs)
            for needs in groups
            if needs
        ),
        default=None,
    )


def _alike(config: RunConfig, *apart: str) -> str:
    """Return a text that cells share whose iterations take the same time.

    Args:
        apart: further settings in which they may differ.
    """
    # The families' losses differ in a few operations on each score.
    loss = config.family if config.loss in LOSSES else config.loss
    return identity(config, *TIMELESS_SETTINGS, *apart, loss=loss, **config.placement)


def _as_profiled(config: RunConfig) -> RunConfig:
    """Return the settings that `ncfbench profile` gives to such an arm by default."""
    return dataclasses.replace(
        config, seed=RunConfig.seed, epochs=RunConfig.epochs, probe_every=RunConfig.probe_every
    )


def _profiled(runs_dir: Path) -> dict[tuple[Any, ...], float]:
    """Return the seconds of profiled iterations by data, environment, sampler and settings."""
    path = runs_dir / "costmodel.parquet"
    try:
        rows = tables.read_rows(path, schemas.COSTMODEL) if path.exists() else []
    except DataError:
        return {}  # the report names the damage; here a pilot takes the profile's place
    seconds = "measured_full_iteration_seconds"
    key = itemgetter("data_fingerprint", "environment_key", "sampler", "settings")
    return {key(row): row[seconds] for row in rows if row[seconds]}
