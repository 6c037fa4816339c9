"""Losses and the objective against plain Python."""

from __future__ import annotations

import math
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.catalog import LOSSES, SAMPLERS, find_sampler, losses_for
from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.models.interaction import make_interaction
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_link_loss, link_loss, user_penalty
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.sampling.batch import Listed, MetUsers, negative_ids, negative_weights

SCORES = (-40.0, -3.0, -0.2, 0.0, 0.7, 5.0, 40.0)


def log_one_plus_exp(x: float) -> float:
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


PLAIN = {
    "sg": (lambda s: log_one_plus_exp(-s), log_one_plus_exp),
    "mse": (lambda s: (1 - s) ** 2, lambda s: s**2),
}


def plain_softmax(positive: float, negatives: list[float], weights: list[float]) -> float:
    total = math.fsum(w * math.exp(10 * n) for n, w in zip(negatives, weights, strict=True))
    return -math.log(math.exp(10 * positive) / (math.exp(10 * positive) + total))


PLAIN_PAIR = {
    "log": lambda p, n: log_one_plus_exp(10 * (n - p)),
    "hinge": lambda p, n: max(n - p + 0.1, 0),
}


@pytest.mark.parametrize("name", PLAIN)
def test_pointwise_losses(name: str) -> None:
    loss = make_loss(complete({"loss": name}))
    for score in SCORES:
        assert float(loss.positive(jnp.float32(score))) == pytest.approx(
            PLAIN[name][0](score), rel=1e-5, abs=1e-6
        )
        assert float(loss.negative(jnp.float32(score))) == pytest.approx(
            PLAIN[name][1](score), rel=1e-5, abs=1e-6
        )


@pytest.mark.parametrize("name", PLAIN_PAIR)
def test_pairwise_losses(name: str) -> None:
    loss = make_loss(complete({"loss": name}))
    for positive in SCORES:
        for negative in SCORES:
            value = float(loss.pair(jnp.float32(positive), jnp.float32(negative)))
            assert value == pytest.approx(PLAIN_PAIR[name](positive, negative), rel=1e-5, abs=1e-6)


def test_softmax_of_a_row() -> None:
    """Zero weights stand for items that are no negatives; without any negative the loss is zero."""
    loss = make_loss(complete({"loss": "softmax"}))
    positive, negative = (
        jnp.array([0.3, -0.2, 0.9]),
        jnp.array([[0.1, 0.7], [0.5, -1.0], [0.2, 0.3]]),
    )
    weight = jnp.array([[3.0, 0.5], [0.0, 20.0], [0.0, 0.0]])
    found = loss.row(positive, negative, weight)
    expected = [
        plain_softmax(float(p), n.tolist(), w.tolist())
        for p, n, w in zip(positive, negative, weight, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert float(found[2]) == 0


def test_gamma_is_used() -> None:
    assert float(
        make_loss(complete({"loss": "hinge", "gamma": 0.7})).pair(jnp.float32(0), jnp.float32(0))
    ) == pytest.approx(0.7)
    two = make_loss(complete({"loss": "log", "gamma": 2.0})).pair(jnp.float32(1), jnp.float32(0))
    assert float(two) == pytest.approx(math.log1p(math.exp(-2)))


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_scores_stay_finite(name: str) -> None:
    config = complete({"loss": name})
    loss = make_loss(config)

    def value(scores: jax.Array) -> jax.Array:
        return link_loss(
            scores[:2], scores[2:].reshape(2, 2), jnp.full((2, 2), 0.25), loss, config.lambda_
        )

    scores = jnp.array([1e4, -1e4, 1e4, -1e4, 0.0, 50.0])
    found, gradient = jax.jit(jax.value_and_grad(value))(scores)
    assert np.isfinite(found)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", LOSSES)
def test_zero_weight_silences_infinite_scores(name: str) -> None:
    config = complete({"loss": name})
    loss = make_loss(config)
    weight = jnp.array([[0.5, 0.0]])

    def value(negative: jax.Array) -> jax.Array:
        return link_loss(jnp.array([0.3]), negative, weight, loss, config.lambda_)

    silent, plain = jnp.array([[0.2, jnp.inf]]), jnp.array([[0.2, 0.0]])
    compiled = jax.jit(jax.value_and_grad(value))
    for one, other in zip(compiled(silent), compiled(plain), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("sampler", "loss"),
    [(s, name) for s in SAMPLERS for name in losses_for(find_sampler(s))],
)
def test_batch_objective_in_plain_python(tiny: Dataset, sampler: str, loss: str) -> None:
    """Scores by id through the layout, terms one by one, in float64."""
    config = complete(
        {"sampler": sampler, "loss": loss, "batch_size": 16, "negatives": 2, "memory": 48}
    )
    batch = next(islice(batches(tiny.graph, config, Streams(0)), 3, None))
    rng = np.random.default_rng(0)
    f, g = 0.3 * rng.normal(size=(tiny.n_users, 5)), rng.normal(size=(tiny.n_items, 5))
    users, items = f[batch.users], g[batch.items]

    dot = make_interaction(config)

    @jax.jit
    def objective(users: jax.Array, items: jax.Array) -> jax.Array:
        return batch_link_loss(users, items, batch, dot, make_loss(config), config.lambda_)

    found = float(objective(jnp.asarray(users), jnp.asarray(items)))
    total = 0.0
    if isinstance(batch.negatives, MetUsers):
        named = zip(*negative_ids(batch), negative_weights(batch), strict=True)
        for row in named:
            for u, v, weight in zip(*(each.tolist() for each in row), strict=True):
                total += config.lambda_ * weight * PLAIN[loss][1](float(f[u] @ g[v]))
    for i in range(16):
        user, item = int(batch.users[batch.pos_user[i]]), int(batch.items[batch.pos_item[i]])
        own = float(f[user] @ g[item])
        if loss in PLAIN:
            total += PLAIN[loss][0](own) / 16
        if isinstance(batch.negatives, MetUsers):
            continue
        if isinstance(batch.negatives, Listed):
            ids = [
                (int(batch.users[u]), int(batch.items[v]))
                for u, v in zip(batch.negatives.user[i], batch.negatives.item[i], strict=True)
            ]
        else:
            ids = [(user, int(v)) for v in batch.items]
        weights = batch.negatives.weight[i].tolist()
        if loss == "softmax-logq":
            shares = [
                16 * w * math.exp(10 * float(f[u] @ g[v]))
                for (u, v), w in zip(ids, weights, strict=True)
            ]
            total += (math.log(math.fsum(shares)) - 10 * own) / 16
            continue
        if loss == "softmax":
            total += (
                plain_softmax(own, [float(f[u] @ g[v]) for u, v in ids], [16 * w for w in weights])
                / 16
            )
            continue
        for (u, v), weight in zip(ids, weights, strict=True):
            score = float(f[u] @ g[v])
            if loss in PLAIN:
                total += (config.lambda_ or 0) * weight * PLAIN[loss][1](score)
            else:
                total += weight * PLAIN_PAIR[loss](own, score)
    assert found == pytest.approx(total, rel=2e-5)


def test_user_penalty_is_a_mean_of_squared_norms() -> None:
    assert float(user_penalty(jnp.array([[3.0, 4.0], [0.0, 1.0]]), 0.5)) == pytest.approx(
        0.5 * (25 + 1) / 2
    )
