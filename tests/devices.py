"""Runs and steps on several simulated devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from processes import SMALL

from ncfbench.auditing.gradients import flat
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.data.store import Dataset
from ncfbench.models.dropout import Dropout
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.runs.folder import RunRecord
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.training import run as training
from ncfbench.training.step import Trainer


def on_devices(dataset: Dataset, config: RunConfig) -> tuple[float, np.ndarray, int]:
    """Loss and gradient of the third batch, dropout on, by the devices that the settings ask for;
    rows of the users' table, where the tower has one.
    """
    trainer, state = Trainer.create(config, dataset)
    made = trainer.layout.shard(make_sampler(dataset.graph, config, Streams(0)))
    batch = trainer.layout.put(
        made.assemble(next(made.draws(2, 3)), plan_capacity(dataset.graph, config))
    )
    dropout = Dropout(jnp.uint32(0), jnp.uint32(2))
    content = trainer.layout.replicate(DeviceContent.of(dataset, [config]))
    value, gradient = jax.jit(trainer.gradient)(state.parameters, batch, content, dropout)
    table = gradient["user_tower"].get("vectors")
    rows = table["embedding"].addressable_shards[0].data.shape[0] if table else 0
    gradient = trainer.layout.to_host(gradient, trainer.shapes.parameters)
    return float(value), flat(gradient), rows


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
