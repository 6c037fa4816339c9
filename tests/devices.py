"""Runs and steps on several simulated devices."""

import jax.numpy as jnp
import pytest
from processes import SMALL
from trial import Trial

from ncfbench.auditing.gradients import flat
from ncfbench.config import Locations, complete
from ncfbench.models.dropout import Dropout, rates_of
from ncfbench.runs.plan import RunPlan
from ncfbench.sampling import plan_capacity
from ncfbench.training import run as training


def on_devices(dataset, config):
    """Loss and gradient of the third batch, dropout on, by the devices of the settings."""
    trial = Trial(dataset, config)
    layout, slots, made = trial.trainer.layout, plan_capacity(trial.graph, config), trial.sampler
    batch = layout.put(made.assemble(next(made.draws(2, 3)), slots))
    trial.content = layout.replicate(trial.content)
    value, gradient = trial.gradient(
        batch, Dropout(jnp.uint32(0), jnp.uint32(2), rates_of(trial.config))
    )
    return value, flat(layout.to_host(gradient))


def train(data_dir, runs_dir, *, progress=None, **more):
    settings = SMALL | {"epochs": 2, "sampler": "strat-ns"} | more
    return training.run(
        RunPlan.of(complete(settings), Locations(data_dir, runs_dir)), progress=progress
    )


def assert_same_curve(one, other):
    """Up to summation order: dropout on, Adam at the paper's learning rate."""
    names = ("iteration", "epoch", "probe_loss", "batch_loss", "test_recall_at_50")
    for row, expected in zip(one.curve, other.curve, strict=True):
        for name in names[:2]:
            assert row[name] == expected[name]
        for name in names[2:]:
            assert (row[name] is None) == (expected[name] is None)
            assert row[name] is None or row[name] == pytest.approx(expected[name], rel=2e-4)
