from __future__ import annotations

from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.models.dropout import Dropout
from ncfbench.models.towers import Content
from ncfbench.registry import ENCODERS, SAMPLERS, find_loss, find_sampler, losses_for
from ncfbench.rng import Streams
from ncfbench.sampling import batches, make_sampler
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe
from ncfbench.training.step import Trainer, copy_state


def settings(**more: object) -> dict[str, object]:
    return {
        "batch_size": 64,
        "negatives": 3,
        "dimension": 8,
        "word_dimension": 8,
        "filters": 8,
        "lstm_units": 8,
    } | more


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_trace_per_jitted_step(tiny: Dataset, sampler: str) -> None:
    config = complete(settings(sampler=sampler))
    trainer, state = Trainer.create(config, tiny)
    content = Content.of(tiny)
    for batch in islice(batches(tiny.graph, config, Streams(0)), 6):
        state, loss = trainer.step(state, batch, content)
    assert trainer.traces == 1
    assert int(state.iteration) == 6
    assert np.isfinite(loss)


def test_the_step_is_adam_on_the_gradient(tiny: Dataset) -> None:
    """One step against Adam written out: with bias correction, the first update is lr g / (|g| +
    eps).
    """
    config = complete(settings(sampler="ns", word_dropout=0.0, item_dropout=0.0))
    trainer, state = Trainer.create(config, tiny)
    content = Content.of(tiny)
    batch = next(batches(tiny.graph, config, Streams(0)))
    _, gradient = trainer.gradient(state.parameters, batch, content, None)
    after, _ = trainer.step(copy_state(state), batch, content)
    for old, g, new in zip(
        *(jax.tree.leaves(t) for t in (state.parameters, gradient, after.parameters)), strict=True
    ):
        expected = old - config.learning_rate * g / (jnp.abs(g) + 1e-8)
        np.testing.assert_allclose(new, expected, atol=2e-6)


@pytest.mark.long_cases(r"(iid|mixed-ns|strat|neg)$")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_unique_items_change_the_work_and_not_the_gradient(tiny: Dataset, sampler: str) -> None:
    gradients = []
    for unique in (True, False):
        config = complete(settings(sampler=sampler, unique_items=unique))
        trainer, state = Trainer.create(config, tiny)
        made = make_sampler(tiny.graph, config, Streams(4))
        batch = made.assemble(made.draw(2, 1)[0])
        gradients.append(trainer.gradient(state.parameters, batch, Content.of(tiny), None))
    (value, left), (other, right) = gradients
    assert float(value) == pytest.approx(float(other), rel=1e-5)
    norm = float(jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(left))))
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * norm)


def test_padding_slots_change_nothing(tiny: Dataset) -> None:
    """More capacity: the same loss and gradient, dropout included."""
    config = complete(settings(sampler="strat-ns"))
    trainer, state = Trainer.create(config, tiny)
    made = make_sampler(tiny.graph, config, Streams(0))
    draw = made.draw(0, 1)[0]
    dropout = Dropout(jnp.uint32(0), jnp.uint32(3))
    value, gradient = trainer.gradient(
        state.parameters, made.assemble(draw), Content.of(tiny), dropout
    )
    more, same = trainer.gradient(
        state.parameters, made.assemble(draw, 150), Content.of(tiny), dropout
    )
    assert float(value) == pytest.approx(float(more), rel=1e-6)
    norm = float(jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(gradient))))
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6 * norm)


@pytest.mark.long_cases(r"(?!.*-cnn|ns-sg-lstm|iid-sg-mf|strat-ns-log-mf)")
@pytest.mark.parametrize(
    ("sampler", "loss", "encoder"),
    [
        (s, name, encoder)
        for s in SAMPLERS
        for name in losses_for(find_sampler(s))
        for encoder in ENCODERS
        # What is beyond the paper changes the batch and the loss, not the encoder: one encoder is
        # enough.
        if encoder == "cnn" or (find_sampler(s).in_paper and find_loss(name).in_paper)
    ],
)
def test_every_combination_trains_with_a_falling_probe(
    tiny: Dataset, sampler: str, loss: str, encoder: str
) -> None:
    """The paper's learning rates, dropout on: the exact objective of all pairs falls clearly."""
    config = complete(settings(sampler=sampler, loss=loss, encoder=encoder))
    trainer, state = Trainer.create(config, tiny)
    content = Content.of(tiny)
    probe = Probe(tiny.graph, config, Embedder(trainer.towers, content))
    assert probe.links.exact
    before = probe(state.parameters)
    # MSE's learning rate is a tenth of the others'; free vectors, which begin near zero, leave it
    # slowest.
    count = {"mse": 120}.get(loss, 40) * (
        5 if encoder == "mf" and loss in ("mse", "softmax") else 1
    )
    for batch in islice(batches(tiny.graph, config, Streams(0)), count):
        state, _ = trainer.step(state, batch, content)
    assert probe(state.parameters) < 0.97 * before
