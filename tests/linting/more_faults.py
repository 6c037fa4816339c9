"""Kinds of faults beside those of the museum."""

from __future__ import annotations

from typing import Any

import jax.numpy as np
from jax.nn import logsumexp, softplus
from jax.nn import sigmoid as expit
from linting.museum import bpr, cross_entropy, fault


def same_items(ids: Any) -> Any:
    return (ids[:, None] == ids[None, :]) & ~np.eye(len(ids), dtype=bool)


def cross_entropy_of(logits: Any) -> Any:
    return np.mean(logsumexp(logits, axis=1) - np.diagonal(logits))


@fault("logq-scale")
def counts_for_logarithms(scores: Any, counts: Any) -> Any:
    return cross_entropy(scores - counts[None, :])


@fault("squashed")
def sigmoid_twice(scores: Any, labels: Any) -> Any:
    logits = expit(scores)
    return np.mean(softplus(logits) - labels * logits)


@fault("wrong-negative")
def shared_view(users: Any, items: Any, negatives: Any) -> Any:
    b, k, width = negatives.shape
    drawn = negatives.reshape(k, b, width).transpose(1, 0, 2)
    return bpr(np.sum(users * items, axis=1), np.einsum("bd,bkd->bk", users, drawn))


@fault("wrong-negative")
def tiled_positives(positive_scores: Any, negative_scores: Any) -> Any:
    k = negative_scores.shape[1]
    return np.mean(softplus(negative_scores.reshape(-1) - np.tile(positive_scores, k)))


@fault("row-weights")
def weights_after_the_mean(users: Any, items: Any, item_ids: Any, sample_weight: Any) -> Any:
    logits = np.where(same_items(item_ids), -1e9, users @ items.T)
    return cross_entropy_of(logits) * np.mean(sample_weight)


@fault("over-batch")
def softmax_over_all(scores: Any) -> Any:
    return -np.mean(np.diagonal(scores) - logsumexp(scores))


@fault("last-batch")
def divided_twice(scores: Any) -> Any:
    return cross_entropy(scores) / len(scores)


@fault("idle-flag")
def idle_symmetric(scores: Any, symmetric: bool = True) -> Any:
    return cross_entropy(scores)


@fault("not-finite", severity="warning")
def of_hardest(users: Any, items: Any) -> Any:
    scores = users @ items.T
    others = scores[~np.eye(len(scores), dtype=bool)].reshape(len(scores), -1)
    return bpr(np.diagonal(scores), others.max(axis=1, keepdims=True))
