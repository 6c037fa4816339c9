"""Runs and steps on several simulated devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from processes import SMALL
from trial import Trial

from ncfbench.auditing.gradients import flat
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.data.store import Dataset
from ncfbench.models.dropout import Dropout
from ncfbench.runs.folder import RunRecord
from ncfbench.sampling import plan_capacity
from ncfbench.training import run as training


def on_devices(dataset: Dataset, config: RunConfig) -> tuple[float, np.ndarray]:
    """Loss and gradient of the third batch, dropout on, by the devices of the settings."""
    trial = Trial(dataset, config)
    layout, slots, made = trial.trainer.layout, plan_capacity(trial.graph, config), trial.sampler
    batch = layout.put(made.assemble(next(made.draws(2, 3)), slots))
    trial.content = layout.replicate(trial.content)
    value, gradient = trial.gradient(batch, Dropout(jnp.uint32(0), jnp.uint32(2)))
    return value, flat(layout.to_host(gradient))


def train(
    data_dir: Path, runs_dir: Path, *, resume: bool = False, progress: Any = None, **more: Any
) -> RunRecord:
    settings = SMALL | {"epochs": 2, "sampler": "strat-ns"} | more
    return training.run(
        complete(settings), Locations(data_dir, runs_dir), resume=resume, progress=progress
    )


def assert_same_curve(one: RunRecord, other: RunRecord) -> None:
    """Up to summation order: dropout on, Adam at the paper's learning rate."""
    names = ("iteration", "epoch", "probe_loss", "batch_loss", "test_recall_at_50")
    for row, expected in zip(one.curve, other.curve, strict=True):
        for name in names[:2]:
            assert row[name] == expected[name]
        for name in names[2:]:
            assert (row[name] is None) == (expected[name] is None)
            assert row[name] is None or row[name] == pytest.approx(expected[name], rel=2e-4)
