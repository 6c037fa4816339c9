"""Limits of the machine: operations and bytes of a step, and the rates that bound them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from trial import Trial

from ncfbench.data.store import Dataset
from ncfbench.profiling import roofline


def test_demand_is_what_the_arithmetic_says(tiny: Dataset) -> None:
    """The plain convolution of the CNN, forward and both ways backward, with its products and
    little else.
    """
    own = {"sampler": "ns", "encoder": "cnn", "batch_size": 64, "convolution": "plain"}
    trial = Trial(tiny, own)
    batch = next(trial.batches())
    found = roofline.demand(trial.config, tiny, trial.content, batch)
    assert found is not None
    convolution = 2 * len(batch.items) * tiny.tokens_IxL.shape[1] * 3 * 50 * 50
    assert 2.5 * convolution < found.flops < 5 * convolution
    assert found.bytes > 4 * tiny.n_users * 50


def test_a_step_with_loops_is_not_counted(tiny: Dataset) -> None:
    """XLA would count each step of the recurrence once, however many words a text has."""
    trial = Trial(tiny, {"sampler": "ns", "encoder": "gru", "batch_size": 64})
    assert roofline.demand(trial.config, tiny, trial.content, next(trial.batches())) is None


def test_loops_are_found_however_deep() -> None:
    def loops(function: Callable[[jax.Array], jax.Array]) -> bool:
        return roofline.has_loops(jax.make_jaxpr(function)(jnp.ones((3, 2))).jaxpr)

    def often(x: jax.Array) -> jax.Array:
        return jax.lax.map(jnp.sin, x)

    def until(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, x)

    def branch(x: jax.Array) -> jax.Array:
        return jax.lax.cond(x.sum() > 0, often, jnp.cos, x)

    assert loops(often)
    assert loops(until)
    assert loops(jax.jit(often))
    assert loops(branch)
    assert loops(lambda x: jax.grad(lambda x: jax.checkpoint(often)(x).sum())(x))
    assert not loops(jnp.sin)
    assert not loops(lambda x: jax.lax.map(jnp.sin, x[None]))  # once round is no loop


def test_peaks_are_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small product and copy: positive, and not those of another planet."""
    monkeypatch.setattr(roofline, "MATRIX_SIZE", 64)
    monkeypatch.setattr(roofline, "COPY_BYTES", 2**16)
    found = roofline.measure_peaks()
    assert 1e6 < found.flops_per_second < 1e15
    assert 1e6 < found.bytes_per_second < 1e14


def test_limits_by_hand_and_peaks_that_only_rise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demand = roofline.Demand(flops=1e9, bytes=1e6)
    columns = roofline.limit_columns(demand, roofline.Peaks(1e11, 1e6), 0.04)
    assert (columns["limit_seconds"], columns["bound"]) == (pytest.approx(1), "memory")
    columns = roofline.limit_columns(demand, roofline.Peaks(1e11, 1e10), 0.04)
    assert (columns["limit_seconds"], columns["bound"]) == (pytest.approx(0.01), "arithmetic")
    assert (columns["limit_share"], columns["step_flops"]) == (pytest.approx(0.25), 1e9)
    for measured, expected in (
        ((2.0, 5.0), (2.0, 5.0)),
        ((1.0, 7.0), (2.0, 7.0)),
        ((3.0, 1.0), (3.0, 7.0)),
    ):
        monkeypatch.setattr(
            roofline,
            "measure_peaks",
            lambda precision, measured=measured: roofline.Peaks(*measured),
        )
        assert roofline.peaks(tmp_path, "key") == roofline.Peaks(*expected)
    (tmp_path / "peaks" / "key.json").write_text("no JSON")
    assert roofline.peaks(tmp_path, "key") == roofline.Peaks(3.0, 1.0)
    monkeypatch.setattr(
        roofline,
        "measure_peaks",
        lambda precision: roofline.Peaks(9.0 if precision == "tf32" else 1.0, 1.0),
    )
    assert roofline.peaks(tmp_path, "key", "tf32") == roofline.Peaks(9.0, 1.0)
    assert roofline.peaks(tmp_path, "key") == roofline.Peaks(3.0, 1.0), "each precision has its own"
