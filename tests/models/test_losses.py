"""Losses and the objective against plain Python."""

import math
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.catalog import LOSSES, SAMPLERS, find_sampler, losses_for
from ncfbench.config import complete
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_link_loss, link_loss, user_penalty
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.sampling.batch import negative_ids

SCORES = (-40.0, -3.0, -0.2, 0.0, 0.7, 5.0, 40.0)


def log_one_plus_exp(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


PLAIN = {
    "sg": (lambda s: log_one_plus_exp(-s), log_one_plus_exp),
    "mse": (lambda s: (1 - s) ** 2, lambda s: s**2),
}


PLAIN_PAIR = {
    "log": lambda p, n, gamma=10.0: log_one_plus_exp(gamma * (n - p)),
    "hinge": lambda p, n, gamma=0.1: max(n - p + gamma, 0),
}


@pytest.mark.parametrize("name", PLAIN)
def test_pointwise_losses_by_definition(name):
    loss, scores = make_loss(complete({"loss": name})), np.array(SCORES, np.float32)
    for function, formula in zip((loss.positive, loss.negative), PLAIN[name], strict=True):
        np.testing.assert_allclose(function(scores), list(map(formula, SCORES)), 1e-5, 1e-6)


@pytest.mark.parametrize("gamma", [{}, {"gamma": 0.7}])
@pytest.mark.parametrize("name", PLAIN_PAIR)
def test_pairwise_losses_by_definition(name, gamma):
    loss, scores = make_loss(complete({"loss": name} | gamma)), np.array(SCORES, np.float32)
    expected = [[PLAIN_PAIR[name](p, n, **gamma) for n in SCORES] for p in SCORES]
    np.testing.assert_allclose(loss.pair(scores[:, None], scores[None, :]), expected, 1e-5, 1e-6)


def test_softmax_of_a_row():
    """Zero weights stand for items that are no negatives; without any negative the loss is zero."""
    loss = make_loss(complete({"loss": "softmax"}))
    positive = np.array([0.3, -0.2, 0.9], np.float32)
    negative = np.array([[0.1, 0.7], [0.5, -1.0], [0.2, 0.3]], np.float32)
    weight = np.array([[3.0, 0.5], [0.0, 20.0], [0.0, 0.0]], np.float32)
    losses = jax.jit(lambda *arrays: loss.rows(*arrays, None))(positive, negative, weight)
    odds = np.sum(weight * np.exp(10 * (negative - positive[:, None])), axis=1, dtype=float)
    expected = -np.log(1 / (1 + odds))
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-6)
    assert float(losses[2]) == 0


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_scores_stay_finite(name):
    """And one without weight is silent, even if it is infinite."""
    config = complete({"loss": name})
    loss = make_loss(config)

    @jax.jit
    def value_and_slopes(*scores_and_weights):
        call = jax.value_and_grad(link_loss, argnums=(0, 1))
        return call(*scores_and_weights, loss, config.lambda_)

    def called(positive, negative, weight):
        weights = np.array([[0.25, weight]] * 2, np.float32)
        scores = np.array(positive, np.float32), np.array(negative, np.float32)
        return list(map(np.asarray, jax.tree.leaves(value_and_slopes(*scores, weights))))

    extreme = called([1e4, -1e4], [[1e4, -1e4], [0.0, 50.0]], 0.25)
    assert all(np.isfinite(leaf).all() for leaf in extreme)
    silent, plain = (called([0.3, 0.1], [[0.2, s], [0.5, s]], 0.0) for s in (np.inf, 0.0))
    for one, other in zip(silent, plain, strict=True):
        np.testing.assert_array_equal(one, other)


CASES = [(s, loss) for s in SAMPLERS for loss in losses_for(find_sampler(s))]


@pytest.mark.long_cases(r"(?!(ns|neg)-|.*-sg$)")
@pytest.mark.parametrize(("sampler", "loss"), CASES)
def test_batch_objective_in_plain_python(tiny, sampler, loss):
    """Scores by id through the layout, in float64."""
    config = complete({"sampler": sampler, "loss": loss, "batch_size": 16, "negatives": 2})
    batch = next(islice(batches(tiny.graph, config, Streams(0)), 3, None))
    rng = np.random.default_rng(0)
    f, g = 0.3 * rng.normal(size=(tiny.n_users, 5)), rng.normal(size=(tiny.n_items, 5))

    @jax.jit
    def objective(users, items):
        return batch_link_loss(users, items, batch, make_loss(config), config.lambda_)

    actual = float(objective(f[batch.users], g[batch.items]))
    users, items = negative_ids(batch)
    scores, weight = np.sum(f[users] * g[items], axis=-1), batch.negatives.weight
    links = batch.users[batch.pos_user], batch.items[batch.pos_item]
    own = np.sum(f[links[0]] * g[links[1]], axis=-1)
    if loss in PLAIN:
        positive, negative = (np.vectorize(formula, otypes=[float]) for formula in PLAIN[loss])
        expected = np.mean(positive(own)) + config.lambda_ * np.sum(weight * negative(scores))
    elif loss in PLAIN_PAIR:
        pair = np.vectorize(PLAIN_PAIR[loss], otypes=[float])
        expected = np.sum(weight * pair(own[:, None], scores))
    else:
        shares = np.sum(16 * weight * np.exp(10 * (scores - own[:, None])), axis=1)
        expected = np.mean(np.log(shares + (loss == "softmax")))
    assert actual == pytest.approx(expected, rel=2e-5)


def test_user_penalty_is_a_mean_of_squared_norms():
    users = jnp.array([[3.0, 4.0], [0.0, 1.0]])
    assert float(user_penalty(users, 0.5)) == pytest.approx(0.5 * (25 + 1) / 2)
