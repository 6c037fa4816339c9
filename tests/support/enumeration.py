"""Enumeration of every draw of a batch of a small graph, and losses by their definition, in plain
arithmetic.
"""

import itertools
import math

import numpy as np

from ncfbench.catalog import find_sampler
from ncfbench.sampling import Draw
from ncfbench.sampling.batch import Listed

SCORES = np.array([[0.3, -1.2, 0.8], [-0.5, 0.9, 0.1]])
LAMBDA = 3.0
LOSS_OF_FAMILY = {"pointwise": "sg", "pairwise": "log", "listwise": "softmax"}


def positive_loss(score):
    return math.log1p(math.exp(-score))


def negative_loss(score):
    return score**2 + 0.3 * score


def pair_loss(positive, negative):
    return math.log1p(math.exp(2 * (negative - positive)))


NEGATIVE = np.array([[LAMBDA * negative_loss(score) for score in row] for row in SCORES.tolist()])
PAIR = np.array(
    [[[pair_loss(item, other) for other in row] for item in row] for row in SCORES.tolist()]
)
"""Losses of a negative link by user and item; of a pair by user, own item and other item."""


def links_of(graph):
    return list(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))


def noise_of(graph, alpha):
    degrees = {v: sum(item == v for _, item in links_of(graph)) for v in range(graph.n_items)}
    weights = {v: degree**alpha for v, degree in degrees.items() if degree}
    return {v: weight / sum(weights.values()) for v, weight in weights.items()}


def exact_objective(graph, alpha, mask, family):
    """Return L by its definition; for a listwise loss the sum over all items."""
    links, noise = links_of(graph), noise_of(graph, alpha)
    total = 0.0
    for user, item in links:
        for other, probability in noise.items():
            m = 0 if mask and (user, other) in links else 1
            if family == "pointwise":
                total += LAMBDA * probability * m * negative_loss(SCORES[user, other])
            else:
                share = probability if family == "pairwise" else 1
                total += share * m * pair_loss(SCORES[user, item], SCORES[user, other])
        if family == "pointwise":
            total += positive_loss(SCORES[user, item])
    return total / len(links)


def batch_objective(batch, family):
    users, items = batch.users[batch.pos_user], batch.items[batch.pos_item]
    negatives = batch.negatives
    if isinstance(negatives, Listed):
        of_users, of_items = batch.users[negatives.user], batch.items[negatives.item]
    else:
        of_users, of_items = users[:, None], batch.items[None, :]
    if family == "pointwise":
        losses = NEGATIVE[of_users, of_items]
        positive = math.fsum(map(positive_loss, SCORES[users, items].tolist())) / len(users)
    else:
        assert (of_users == users[:, None]).all()
        losses, positive = PAIR[users[:, None], items[:, None], of_items], 0.0
    return positive + float(np.sum(negatives.weight * losses))


def strata(graph, size, by_user):
    links = links_of(graph)
    side = 0 if by_user else 1
    for node in {link[side] for link in links}:
        indices = [index for index, link in enumerate(links) if link[side] == node]
        for chosen in itertools.product(indices, repeat=size):
            yield len(indices) / len(links) / len(indices) ** size, chosen


def all_draws(config, graph):
    """Yield every draw of a batch with its probability, from the algorithms with replacement."""
    sampler, b, alpha, by_user = (
        config.sampler,
        config.batch_size,
        config.noise_exponent,
        config.strata == "user",
    )
    s = config.stratum_size if find_sampler(sampler).reads("stratum_size") else 1
    k = config.negatives if find_sampler(sampler).reads("negatives") else 0
    user_share = {
        u: sum(user == u for user, _ in links_of(graph)) / graph.n_links
        for u in range(graph.n_users)
    }
    draws_users = sampler == "iid" or (sampler == "strat" and not by_user)
    draws_items = sampler in ("iid", "neg") or (sampler == "strat" and by_user)
    users = user_share if draws_users else {None: 1.0}
    items = noise_of(graph, alpha) if draws_items else {None: 1.0}
    one_stratum = list(strata(graph, s, by_user))
    one_negative = [
        (p * q, u, v) for (u, p), (v, q) in itertools.product(users.items(), items.items())
    ]
    shape, count = (b, -1), b * k
    if sampler == "mixed-ns":
        one_negative = [(p, None, v) for v, p in noise_of(graph, 0.0).items()]
        shape, count = (1, -1), config.uniform_items
    for positives in itertools.product(one_stratum, repeat=b // s):
        links = np.array([link for _, stratum in positives for link in stratum], np.int32)
        chance = math.prod(p for p, _ in positives)
        for negatives in itertools.product(one_negative, repeat=count):
            u = np.array([u for _, u, _ in negatives if u is not None], np.int32).reshape(b, -1)
            v = np.array([v for _, _, v in negatives if v is not None], np.int32).reshape(shape)
            yield chance * math.prod(p for p, _, _ in negatives), Draw(links, u, v)
