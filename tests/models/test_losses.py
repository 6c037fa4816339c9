"""Losses, the objective and its penalties, beside plain Python, NumPy and exact enumeration."""

import itertools
import math
from itertools import islice

import jax
import numpy as np
import pytest
from flax import nnx
from support.training import Trial

from ncfbench.catalog import LOSSES, SAMPLERS, find_sampler, losses_for
from ncfbench.config import complete, digest, unused_settings
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_link_loss, link_loss
from ncfbench.rng import Streams
from ncfbench.sampling import Draw, batches
from ncfbench.sampling.batch import negative_ids
from ncfbench.sampling.shared import NegativeSharingSampler

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


# The logQ corrections of the softmax, by enumeration of all batches of a small graph

LINKS = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3)]
TABLE = np.array([[0.30, 0.05, -0.10, 0.12], [-0.20, 0.15, 0.28, -0.05]])
GAMMA = 10.0


def exact_gradient():
    """The softmax's gradient by all scores, over own items and those that are no links."""
    gradient = np.zeros(TABLE.shape)
    for user, item in LINKS:
        able = [v for v in range(4) if v == item or (user, v) not in LINKS]
        total = sum(math.exp(GAMMA * TABLE[user, v]) for v in able)
        for v in able:
            share = math.exp(GAMMA * TABLE[user, v]) / total
            gradient[user, v] += GAMMA * (share - (v == item)) / len(LINKS)
    return gradient


def expected_gradient(loss, b):
    """The mean gradient by all scores, over all batches of b links drawn with replacement."""
    users, items = np.array(LINKS).T
    graph = BipartiteGraph.from_links(users, items, 2, 4)
    config = complete({"sampler": "ns", "loss": loss, "batch_size": b, "gamma": GAMMA})
    # More draws than links are possible with replacement.
    sampler = NegativeSharingSampler(graph, config, Streams(0), weight_dtype=np.float64)
    none = np.zeros((b, 0), np.int32)
    # Links in another order make the same batch: each set counts as often as it has orders.
    sets = list(itertools.combinations_with_replacement(range(len(LINKS)), b))
    orders = [
        math.factorial(b) / math.prod(math.factorial(links.count(link)) for link in set(links))
        for links in sets
    ]
    batches = [sampler.assemble(Draw(np.array(links, np.int32), none, none), 4) for links in sets]
    row = np.stack([batch.users[batch.pos_user] for batch in batches])
    positive_item = np.stack([batch.items[batch.pos_item] for batch in batches])
    column = np.stack([batch.items for batch in batches])
    weight = np.stack([batch.negatives.weight for batch in batches])
    positive, negative = TABLE[row, positive_item], TABLE[row[:, :, None], column[:, None, :]]

    def value(positive, negative, weight):
        return link_loss(positive, negative, weight, make_loss(config), None)

    slopes = jax.jit(jax.vmap(jax.grad(value, argnums=(0, 1))))
    by_positive, by_negative = slopes(positive, negative, weight)
    chance = np.array(orders)[:, None] / len(LINKS) ** b
    gradient = np.zeros(TABLE.shape)
    np.add.at(gradient, (row, positive_item), chance * by_positive)
    full = np.broadcast_to(column[:, None, :], weight.shape)
    np.add.at(gradient, (row[:, :, None], full), chance[:, :, None] * by_negative)
    return gradient


def test_the_positive_item_is_no_draw():
    """With weight 1 of its own the bias falls as one over b; with 1 / (n Q) some stays."""
    exact = exact_gradient()
    length = np.linalg.norm(exact)
    bias = {
        loss: [np.linalg.norm(expected_gradient(loss, b) - exact) / length for b in (3, 6, 12)]
        for loss in ("softmax", "softmax-logq")
    }
    refined, usual = bias["softmax"], bias["softmax-logq"]
    assert refined[1] < 0.55 * refined[0]
    assert refined[2] < 0.5 * refined[1] < 0.11
    assert usual[2] > 4 * refined[2]
    # On its way from too large a share of the positive item to too small a one it passes zero.
    assert usual[1] < usual[2]


# Free item vectors that are pulled towards g: the penalty, and the vectors that score

COUPLED = {"dataset": "tiny", "batch_size": 64, "coupling": "regularised"}
COUPLED |= {"dimension": 6, "word_dimension": 6, "encoder": "bow"}


@pytest.mark.parametrize(
    ("sampler", "loss"), [pytest.param("neg", "sg", marks=pytest.mark.long), ("strat-ns", "hinge")]
)
def test_the_penalty_is_a_mean_over_positive_links(tiny, sampler, loss):
    """Items of several links count for each; negatives and padding do not. Against NumPy."""
    chosen = {"sampler": sampler, "loss": loss}
    trials = [Trial(tiny, COUPLED | chosen | {"coupling_weight": weight}) for weight in (0.0, 3.0)]
    batch = next(islice(trials[0].batches(), 1, None))
    (without, base), (value, gradient) = (trial.gradient(batch) for trial in trials)
    parameters, ids = trials[0].parameters, batch.items[batch.pos_item]
    towers = nnx.merge(trials[0].trainer.towers, parameters)
    g = np.asarray(jax.jit(towers.cold_items)(ids, trials[0].content), float)
    table = np.asarray(parameters["free_items"]["embedding"], float)
    lengths = np.linalg.norm(table, axis=1, keepdims=True) if loss == "hinge" else np.ones((1, 1))
    h = (table / lengths)[ids]
    assert value - without == pytest.approx(3 * np.mean(np.sum((h - g) ** 2, axis=1)), rel=1e-4)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(base["encoder"])), "W = 0"
    assert any(np.any(leaf) for leaf in jax.tree.leaves(gradient["encoder"]))
    # By a row of the table: 2 W / b for each link, along the surface of the ball if scaled to it.
    expected = np.zeros(table.shape)
    np.add.at(expected, ids, 3 * 2 / len(ids) * (h - g))
    if loss == "hinge":
        units = table / lengths
        expected = (expected - units * np.sum(units * expected, 1, keepdims=True)) / lengths
    pulled, free = (np.asarray(by["free_items"]["embedding"], float) for by in (gradient, base))
    np.testing.assert_allclose(pulled - free, expected, atol=1e-4 * np.abs(expected).max())


def test_g_scores_items_that_training_does_not_know(tiny):
    free, direct = (Trial(tiny, COUPLED | {"coupling": kind}) for kind in ("regularised", "direct"))
    table, known = np.asarray(free.parameters["free_items"]["embedding"]), tiny.graph.items_in_use
    np.testing.assert_array_equal(free.embedder.items(free.parameters, known), table[known])
    cold = tiny.items_of("test")
    g = direct.embedder.items(direct.parameters, cold)
    np.testing.assert_array_equal(free.embedder.cold_items(free.parameters, cold), g)
    np.testing.assert_array_equal(free.ranks("test"), direct.ranks("test"))


def test_its_weight_counts_only_where_it_is_used():
    for coupling, is_used in (("direct", False), ("regularised", True)):
        one, other = (complete({"coupling": coupling, "coupling_weight": w}) for w in (1.0, 5.0))
        assert (digest(one) != digest(other)) == is_used
        warned = [
            "used by regularised" in text for text in unused_settings(["coupling_weight"], one)
        ]
        assert warned == [True] * (not is_used)
