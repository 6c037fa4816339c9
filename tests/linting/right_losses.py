"""Losses that are right, of each kind that the museum has faults of, and parts that look wrong."""

import jax
import jax.numpy as np
from jax.nn import log_softmax, logsumexp, relu, sigmoid, softplus
from linting.museum import (
    Exhibit,
    bpr,
    corrected,
    cosine,
    cross_entropy,
    drawn,
    drawn_without_logq,
    eye,
    off,
    same,
    unit,
)


def dots(users, items):
    return np.sum(users * items, axis=-1)


def sampled(positive, negative):
    """A softmax of each row's positive among its drawn negatives."""
    return -np.mean(log_softmax(np.concatenate([positive[:, None], negative], 1), axis=1)[:, 0])


def masked_bpr(scores, linked):
    counts = ~(linked | eye(scores))
    rows = np.sum(softplus(scores - np.diagonal(scores)[:, None]) * counts, axis=1)
    return np.mean(rows / np.maximum(counts.sum(axis=1), 1))


def random_negative(users, items, negatives, key):
    """One of the drawn negatives, chosen at random."""
    at = jax.random.randint(key, len(users), 0, negatives.shape[1])
    negative = dots(users, negatives[np.arange(len(users)), at])
    return np.mean(softplus(negative - dots(users, items)))


def metric(users, items, negatives, margin=0.5):
    """Collaborative metric learning: distances instead of dot products."""
    near = np.sum((users - items) ** 2, axis=-1)
    far = np.sum((users[:, None, :] - negatives) ** 2, axis=-1)
    return np.mean(relu(near[:, None] - far + margin))


def symmetric(users, items, item_ids, user_ids, probability):
    scores = 10 * cosine(users, items)
    mask = same(user_ids) | same(item_ids)
    forward = cross_entropy(off(corrected(scores, item_ids, probability), mask))
    return (forward + cross_entropy(off(scores, mask).T)) / 2


def decoupled(users, items, item_ids, probability, linked):
    """Yeh et al. 2022: the positive is not in the sum."""
    scores = 10 * cosine(users, items)
    is_out = same(item_ids) | linked | eye(scores)
    logits = off(scores - np.log(probability)[None, :], is_out)
    return np.mean(logsumexp(logits, axis=1) - np.diagonal(scores))


def aligned_and_uniform(users, items):
    """DirectAU, Wang et al. 2022: users are pushed from users, and items from items."""
    f, g = unit(users), unit(items)
    pairs = np.triu_indices(len(f), 1)
    apart = [np.sum((x[:, None] - x[None, :]) ** 2, axis=-1)[pairs] for x in (f, g)]
    near = np.mean(np.sum((f - g) ** 2, axis=-1))
    return near + sum(np.log(np.mean(np.exp(-2 * distances))) for distances in apart) / 2


def copies_are_positives(users, items, item_ids, probability):
    """Rows with one item share their label, and every column is corrected."""
    labels = same(item_ids) + np.eye(len(users))
    log_share = log_softmax(users @ items.T - np.log(probability)[None, :], axis=1)
    return -np.mean(np.sum(labels / labels.sum(axis=1, keepdims=True) * log_share, axis=1))


def normed(x):
    """A move along one coordinate changes all others a little."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True))


def masked_by_a_margin(scores, margin=0.1):
    """Negatives near the positive may be missing links: a larger margin masks more of them."""
    near = (scores > np.diagonal(scores)[:, None] - margin) & ~eye(scores)
    return cross_entropy(off(scores, near))


RIGHT_IN_FULL = {
    "bpr": bpr,
    "uniform_softmax": drawn_without_logq,
    "in_batch_softmax": lambda users, items, item_ids, probability, temperature=0.05: cross_entropy(
        corrected(cosine(users, items) / temperature, item_ids, probability)
    ),
    # Yi et al. 2019: every column is corrected, and copies of an item stay in the sum.
    "sampling_corrected": lambda users, items, probability, temperature=0.1: cross_entropy(
        users @ items.T / temperature - np.log(probability)[None, :]
    ),
    "of_scores": lambda scores, item_ids, log_probability: cross_entropy(
        corrected(scores, item_ids, np.exp(log_probability))
    ),
    "drawn_softmax": lambda users, items, negatives, scale=5.0: drawn_without_logq(
        scale * dots(users, items), scale * drawn(users, negatives)
    ),
    "drawn_by_popularity": lambda positive_scores, negative_scores, negative_probability: sampled(
        positive_scores,
        negative_scores - np.log(negative_scores.shape[1] * negative_probability),
    ),
    "masked_bpr": masked_bpr,
    "hinge": lambda positive_scores, negative_scores, margin=1.0: np.mean(
        relu(negative_scores - positive_scores[:, None] + margin)
    ),
    "random_negative": random_negative,
    "pairs_bce": lambda logits, labels: np.mean(softplus(logits) - labels * logits),
    "sum_of_bce": lambda positive_scores, negative_scores, negative_weight=0.5: (
        np.sum(softplus(-positive_scores)) + negative_weight * np.sum(softplus(negative_scores))
    ),
    "squared": lambda users, items, negatives: (
        np.mean((1 - dots(users, items)) ** 2) + np.mean(drawn(users, negatives) ** 2)
    ),
    "metric": metric,
    "regularised": lambda users, items, negatives, weight=0.01: (
        bpr(dots(users, items), drawn(users, negatives))
        + weight * (np.mean(users**2) + np.mean(items**2))
    ),
    "symmetric": symmetric,
    "decoupled": decoupled,
    "aligned_and_uniform": aligned_and_uniform,
    # GRU4Rec: bounded, so that pairs that are wrong by far are hardly pushed.
    "top1": lambda positive_scores, negative_scores: np.mean(
        sigmoid(negative_scores - positive_scores[:, None]) + sigmoid(negative_scores**2)
    ),
    # Corrected everywhere, with the positive's own copies among the negatives.
    "sampled_with_hits": lambda users, items, negatives, probability, neg_p: sampled(
        dots(users, items) - np.log(probability), drawn(users, negatives) - np.log(neg_p)
    ),
    "copies_are_positives": copies_are_positives,
    # Of a scale at which dropout leaves most negatives without any push.
    "sharpest": lambda users, items, item_ids: cross_entropy(
        off(1000 * cosine(users, items), same(item_ids))
    ),
    "layers_normed": lambda users, items, item_ids: cross_entropy(
        off(normed(users) @ normed(items).T / np.sqrt(users.shape[1]), same(item_ids))
    ),
    "of_the_hardest": lambda positive_scores, negative_scores: bpr(
        positive_scores, negative_scores.max(axis=1, keepdims=True)
    ),
    # Rows beyond the margin have no push, whatever shape the negatives have.
    "narrow_hinge": lambda positive_scores, negative_scores: np.mean(
        relu(negative_scores - positive_scores[:, None] + 0.05)
    ),
}
NOT_CORRECTED = {
    "sharp": lambda users, items, temperature=0.01: cross_entropy(
        cosine(users, items) / temperature
    ),
    "scaled_by_width": lambda users, items: cross_entropy(
        users @ items.T / np.sqrt(users.shape[1])
    ),
    "harder_by_a_margin": lambda scores, margin=0.3: cross_entropy(scores - margin * eye(scores)),
    # A flag of the users' gradient is not idle.
    "flag_of_the_gradient": lambda users, items, remove_users=True: cross_entropy(
        (jax.lax.stop_gradient(users) if remove_users else users) @ items.T
    ),
}
CORRECT = {name: Exhibit(loss) for name, loss in RIGHT_IN_FULL.items()}
CORRECT |= {
    name: Exhibit(loss, ("missing-logq", "duplicates")) for name, loss in NOT_CORRECTED.items()
}
CORRECT["masked_by_a_margin"] = Exhibit(masked_by_a_margin, ("missing-logq",))
"""By name, with the codes of the parts that are wrong."""
