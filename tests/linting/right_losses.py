"""Losses that are right, of each kind that the museum has faults of."""

from __future__ import annotations

from typing import Any

import numpy as np
from linting.museum import (
    Exhibit,
    bpr,
    corrected,
    cross_entropy,
    drawn_without_logq,
    free_items,
    gathered,
    jax_loss,
    same,
    unit,
)
from scipy.special import expit, logsumexp


def in_batch_softmax(
    users: Any, items: Any, item_ids: Any, probability: Any, temperature: float = 0.05
) -> Any:
    return cross_entropy(
        corrected(unit(users) @ unit(items).T / temperature, item_ids, probability)
    )


def sampling_corrected(users: Any, items: Any, probability: Any, temperature: float = 0.1) -> Any:
    """Yi et al. 2019: every column is corrected, and copies of an item stay in the sum."""
    return cross_entropy(users @ items.T / temperature - np.log(probability)[None, :])


def of_scores(scores: Any, item_ids: Any, log_probability: Any) -> Any:
    return cross_entropy(corrected(scores, item_ids, np.exp(log_probability)))


def drawn_softmax(users: Any, items: Any, negatives: Any, scale: float = 5.0) -> Any:
    positive = scale * np.sum(users * items, axis=-1, keepdims=True)
    negative = scale * np.einsum("bd,bkd->bk", users, negatives)
    return np.mean(logsumexp(np.concatenate([positive, negative], axis=1), axis=1) - positive[:, 0])


def drawn_by_popularity(
    positive_scores: Any, negative_scores: Any, negative_probability: Any
) -> Any:
    shifted = negative_scores - np.log(negative_scores.shape[1] * negative_probability)
    logits = np.concatenate([positive_scores[:, None], shifted], axis=1)
    return np.mean(logsumexp(logits, axis=1) - positive_scores)


def masked_bpr(scores: Any, linked: Any) -> Any:
    counts = ~(linked | np.eye(len(scores), dtype=bool))
    rows = np.sum(np.logaddexp(0, scores - np.diagonal(scores)[:, None]) * counts, axis=1)
    return np.mean(rows / np.maximum(counts.sum(axis=1), 1))


def hinge(positive_scores: Any, negative_scores: Any, margin: float = 1.0) -> Any:
    return np.mean(np.maximum(negative_scores - positive_scores[:, None] + margin, 0))


def random_negative(users: Any, items: Any, negatives: Any) -> Any:
    """One of the drawn negatives, chosen anew in each call."""
    at = np.random.default_rng().integers(negatives.shape[1], size=len(users))
    negative = np.sum(users * negatives[np.arange(len(users)), at], axis=-1)
    return np.mean(np.logaddexp(0, negative - np.sum(users * items, axis=-1)))


def pairs_bce(logits: Any, labels: Any) -> Any:
    return np.mean(np.logaddexp(0, logits) - labels * logits)


def sum_of_bce(positive_scores: Any, negative_scores: Any, negative_weight: float = 0.5) -> Any:
    positive = np.sum(np.logaddexp(0, -positive_scores))
    return positive + negative_weight * np.sum(np.logaddexp(0, negative_scores))


def squared(users: Any, items: Any, negatives: Any) -> Any:
    positive = np.sum(users * items, axis=-1)
    return np.mean((1 - positive) ** 2) + np.mean(np.einsum("bd,bkd->bk", users, negatives) ** 2)


def metric(users: Any, items: Any, negatives: Any, margin: float = 0.5) -> Any:
    """Collaborative metric learning: distances instead of dot products."""
    near = np.sum((users - items) ** 2, axis=-1)
    far = np.sum((users[:, None, :] - negatives) ** 2, axis=-1)
    return np.mean(np.maximum(near[:, None] - far + margin, 0))


def regularised(users: Any, items: Any, negatives: Any, weight: float = 0.01) -> Any:
    size = np.mean(users**2) + np.mean(items**2)
    negative = np.einsum("bd,bkd->bk", users, negatives)
    return bpr(np.sum(users * items, axis=-1), negative) + weight * size


def jax_softmax(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    return jax_loss(users, items, item_ids, item_ids, 0, probability)


def symmetric(users: Any, items: Any, item_ids: Any, user_ids: Any, probability: Any) -> Any:
    scores = 10 * unit(users) @ unit(items).T
    mask = same(user_ids) | same(item_ids)
    backward = np.where(mask, -1e9, scores).T
    logits = np.where(mask, -1e9, corrected(scores, item_ids, probability))
    return (cross_entropy(logits) + cross_entropy(backward)) / 2


def decoupled(users: Any, items: Any, item_ids: Any, probability: Any, linked: Any) -> Any:
    """Yeh et al. 2022: the positive is not in the sum."""
    scores = 10 * unit(users) @ unit(items).T
    is_out = same(item_ids) | linked | np.eye(len(scores), dtype=bool)
    logits = np.where(is_out, -1e9, scores - np.log(probability)[None, :])
    return np.mean(logsumexp(logits, axis=1) - np.diagonal(scores))


def aligned_and_uniform(users: Any, items: Any) -> Any:
    """DirectAU, Wang et al. 2022: users are pushed from users, and items from items."""
    f, g = unit(users), unit(items)
    pairs = np.triu_indices(len(f), 1)
    apart = [np.sum((x[:, None] - x[None, :]) ** 2, axis=-1)[pairs] for x in (f, g)]
    near = np.mean(np.sum((f - g) ** 2, axis=-1))
    return near + sum(np.log(np.mean(np.exp(-2 * each))) for each in apart) / 2


def top1(positive_scores: Any, negative_scores: Any) -> Any:
    """GRU4Rec: bounded, so that pairs that are wrong by far are hardly pushed."""
    return np.mean(expit(negative_scores - positive_scores[:, None]) + expit(negative_scores**2))


CORRECT = {
    "in_batch_softmax": Exhibit(in_batch_softmax),
    "sampling_corrected": Exhibit(sampling_corrected),
    "of_scores": Exhibit(of_scores),
    "drawn_softmax": Exhibit(drawn_softmax),
    "drawn_by_popularity": Exhibit(drawn_by_popularity),
    "bpr": Exhibit(bpr),
    "bpr_of_free_items": Exhibit(bpr, batches=free_items),
    "masked_bpr": Exhibit(masked_bpr),
    "hinge": Exhibit(hinge),
    "uniform_softmax": Exhibit(drawn_without_logq, batches=free_items),
    "random_negative": Exhibit(random_negative),
    "pairs_bce": Exhibit(pairs_bce),
    "sum_of_bce": Exhibit(sum_of_bce),
    "squared": Exhibit(squared),
    "metric": Exhibit(metric),
    "regularised": Exhibit(regularised),
    "jax_softmax": Exhibit(jax_softmax),
    "gathered": Exhibit(gathered),
    "symmetric": Exhibit(symmetric),
    "decoupled": Exhibit(decoupled),
    "aligned_and_uniform": Exhibit(aligned_and_uniform),
    "top1": Exhibit(top1),
}
"""At least one of each way to write a loss."""
