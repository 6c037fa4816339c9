"""The logQ corrections of the softmax, by exact enumeration of all batches of a small graph."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import link_loss
from ncfbench.rng import Streams
from ncfbench.sampling import Draw
from ncfbench.sampling.shared import NegativeSharingSampler

LINKS = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3)]
SCORES = np.array([[0.30, 0.05, -0.10, 0.12], [-0.20, 0.15, 0.28, -0.05]])
GAMMA = 10.0


def exact_gradient():
    """The softmax's gradient by all scores, over own items and those that are no links."""
    gradient = np.zeros(SCORES.shape)
    for user, item in LINKS:
        able = [v for v in range(4) if v == item or (user, v) not in LINKS]
        total = sum(math.exp(GAMMA * SCORES[user, v]) for v in able)
        for v in able:
            share = math.exp(GAMMA * SCORES[user, v]) / total
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
    positive, negative = SCORES[row, positive_item], SCORES[row[:, :, None], column[:, None, :]]

    def value(positive, negative, weight):
        return link_loss(positive, negative, weight, make_loss(config), None)

    slopes = jax.jit(jax.vmap(jax.grad(value, argnums=(0, 1))))
    by_positive, by_negative = slopes(positive, negative, weight)
    chance = np.array(orders)[:, None] / len(LINKS) ** b
    gradient = np.zeros(SCORES.shape)
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


def test_the_softmax_is_the_refined_correction():
    """(1 - P) (log sum_j w_j exp(s_j) - s_p), 1 - P fixed (Khrylchenko et al. 2025)."""
    rng = np.random.default_rng(0)
    loss = make_loss(complete({"loss": "softmax", "gamma": GAMMA}))
    positive, negative = rng.uniform(-1, 1, 200), rng.uniform(-1, 1, (200, 6))
    weight = np.where(rng.random((200, 6)) < 0.3, 0, rng.uniform(0, 9, (200, 6)))
    weight[:, 0] += 0.1

    def refined(p, n):
        s = jax.nn.logsumexp(GAMMA * n, b=weight, axis=1) - GAMMA * p
        return jnp.sum(jax.lax.stop_gradient(jax.nn.sigmoid(s)) * s)

    def ours(p, n):
        return jnp.sum(loss.rows(p, n, weight, None))

    gradients = (jax.jit(jax.grad(by, argnums=(0, 1))) for by in (refined, ours))
    for one, other in zip(*(gradient(positive, negative) for gradient in gradients), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
