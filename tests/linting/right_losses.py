"""Losses that are right, of each kind that the museum has faults of, and parts that look wrong."""

import jax
import jax.numpy as np
from jax.nn import log_softmax, logsumexp, softplus
from jax.nn import sigmoid as expit
from linting.museum import (
    CORRECT,
    Exhibit,
    bpr,
    corrected,
    cross_entropy,
    drawn_without_logq,
    right,
    same,
    unit,
)


@right()
def in_batch_softmax(users, items, item_ids, probability, temperature=0.05):
    return cross_entropy(
        corrected(unit(users) @ unit(items).T / temperature, item_ids, probability)
    )


@right()
def sampling_corrected(users, items, probability, temperature=0.1):
    """Yi et al. 2019: every column is corrected, and copies of an item stay in the sum."""
    return cross_entropy(users @ items.T / temperature - np.log(probability)[None, :])


@right()
def of_scores(scores, item_ids, log_probability):
    return cross_entropy(corrected(scores, item_ids, np.exp(log_probability)))


@right()
def drawn_softmax(users, items, negatives, scale=5.0):
    positive = scale * np.sum(users * items, axis=-1, keepdims=True)
    negative = scale * np.einsum("bd,bkd->bk", users, negatives)
    return np.mean(logsumexp(np.concatenate([positive, negative], axis=1), axis=1) - positive[:, 0])


@right()
def drawn_by_popularity(positive_scores, negative_scores, negative_probability):
    shifted = negative_scores - np.log(negative_scores.shape[1] * negative_probability)
    logits = np.concatenate([positive_scores[:, None], shifted], axis=1)
    return np.mean(logsumexp(logits, axis=1) - positive_scores)


@right()
def masked_bpr(scores, linked):
    counts = ~(linked | np.eye(len(scores), dtype=bool))
    rows = np.sum(softplus(scores - np.diagonal(scores)[:, None]) * counts, axis=1)
    return np.mean(rows / np.maximum(counts.sum(axis=1), 1))


@right()
def hinge(positive_scores, negative_scores, margin=1.0):
    return np.mean(np.maximum(negative_scores - positive_scores[:, None] + margin, 0))


@right()
def random_negative(users, items, negatives, key):
    """One of the drawn negatives, chosen at random."""
    at = jax.random.randint(key, len(users), 0, negatives.shape[1])
    negative = np.sum(users * negatives[np.arange(len(users)), at], axis=-1)
    return np.mean(softplus(negative - np.sum(users * items, axis=-1)))


@right()
def pairs_bce(logits, labels):
    return np.mean(softplus(logits) - labels * logits)


@right()
def sum_of_bce(positive_scores, negative_scores, negative_weight=0.5):
    positive = np.sum(softplus(-positive_scores))
    return positive + negative_weight * np.sum(softplus(negative_scores))


@right()
def squared(users, items, negatives):
    positive = np.sum(users * items, axis=-1)
    return np.mean((1 - positive) ** 2) + np.mean(np.einsum("bd,bkd->bk", users, negatives) ** 2)


@right()
def metric(users, items, negatives, margin=0.5):
    """Collaborative metric learning: distances instead of dot products."""
    near = np.sum((users - items) ** 2, axis=-1)
    far = np.sum((users[:, None, :] - negatives) ** 2, axis=-1)
    return np.mean(np.maximum(near[:, None] - far + margin, 0))


@right()
def regularised(users, items, negatives, weight=0.01):
    size = np.mean(users**2) + np.mean(items**2)
    negative = np.einsum("bd,bkd->bk", users, negatives)
    return bpr(np.sum(users * items, axis=-1), negative) + weight * size


@right()
def symmetric(users, items, item_ids, user_ids, probability):
    scores = 10 * unit(users) @ unit(items).T
    mask = same(user_ids) | same(item_ids)
    backward = np.where(mask, -1e9, scores).T
    logits = np.where(mask, -1e9, corrected(scores, item_ids, probability))
    return (cross_entropy(logits) + cross_entropy(backward)) / 2


@right()
def decoupled(users, items, item_ids, probability, linked):
    """Yeh et al. 2022: the positive is not in the sum."""
    scores = 10 * unit(users) @ unit(items).T
    is_out = same(item_ids) | linked | np.eye(len(scores), dtype=bool)
    logits = np.where(is_out, -1e9, scores - np.log(probability)[None, :])
    return np.mean(logsumexp(logits, axis=1) - np.diagonal(scores))


@right()
def aligned_and_uniform(users, items):
    """DirectAU, Wang et al. 2022: users are pushed from users, and items from items."""
    f, g = unit(users), unit(items)
    pairs = np.triu_indices(len(f), 1)
    apart = [np.sum((x[:, None] - x[None, :]) ** 2, axis=-1)[pairs] for x in (f, g)]
    near = np.mean(np.sum((f - g) ** 2, axis=-1))
    return near + sum(np.log(np.mean(np.exp(-2 * distances))) for distances in apart) / 2


@right()
def top1(positive_scores, negative_scores):
    """GRU4Rec: bounded, so that pairs that are wrong by far are hardly pushed."""
    return np.mean(expit(negative_scores - positive_scores[:, None]) + expit(negative_scores**2))


@right()
def sampled_with_hits(users, items, negatives, probability, neg_p):
    """Corrected everywhere, with the positive's own copies among the negatives."""
    own = np.sum(users * items, axis=1, keepdims=True) - np.log(probability)[:, None]
    logits = np.concatenate([own, np.einsum("bd,bkd->bk", users, negatives) - np.log(neg_p)], 1)
    return -np.mean(log_softmax(logits, axis=1)[:, 0])


@right()
def copies_are_positives(users, items, item_ids, probability):
    """Rows with one item share their label, and every column is corrected."""
    labels = same(item_ids) + np.eye(len(users))
    log_share = log_softmax(users @ items.T - np.log(probability)[None, :], axis=1)
    return -np.mean(np.sum(labels / labels.sum(axis=1, keepdims=True) * log_share, axis=1))


@right("missing-logq", "duplicates")
def sharp(users, items, temperature=0.01):
    return cross_entropy(unit(users) @ unit(items).T / temperature)


@right()
def sharpest(users, items, item_ids):
    """Of a scale at which dropout leaves most negatives without any push."""
    f, g = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (users, items))
    return cross_entropy(np.where(same(item_ids), -1e9, 1000 * f @ g.T))


def normed(x):
    """A move along one coordinate changes all others a little."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True))


@right()
def layers_normed(users, items, item_ids):
    scores = normed(users) @ normed(items).T / np.sqrt(users.shape[1])
    return cross_entropy(np.where(same(item_ids), -1e9, scores))


@right("missing-logq", "duplicates")
def scaled_by_width(users, items):
    return cross_entropy(users @ items.T / np.sqrt(users.shape[1]))


@right("missing-logq", "duplicates")
def harder_by_a_margin(scores, margin=0.3):
    return cross_entropy(scores - margin * np.eye(len(scores)))


@right("missing-logq")
def masked_by_a_margin(scores, margin=0.1):
    """Negatives near the positive may be missing links: a larger margin masks more of them."""
    near = (scores > np.diagonal(scores)[:, None] - margin) & ~np.eye(len(scores), dtype=bool)
    return cross_entropy(np.where(near, -1e9, scores))


@right()
def of_the_hardest(positive_scores, negative_scores):
    return bpr(positive_scores, negative_scores.max(axis=1, keepdims=True))


@right()
def narrow_hinge(positive_scores, negative_scores):
    """Rows beyond the margin have no push, whatever shape the negatives have."""
    return np.mean(np.maximum(negative_scores - positive_scores[:, None] + 0.05, 0))


CORRECT.update(bpr=Exhibit(bpr), uniform_softmax=Exhibit(drawn_without_logq))
