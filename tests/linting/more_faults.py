"""Kinds of faults beside those of the museum."""

import jax.numpy as np
from jax.nn import logsumexp, softplus
from jax.nn import sigmoid as expit
from linting.museum import bpr, cross_entropy, fault


def same_items(ids):
    return (ids[:, None] == ids[None, :]) & ~np.eye(len(ids), dtype=bool)


def cross_entropy_of(logits):
    return np.mean(logsumexp(logits, axis=1) - np.diagonal(logits))


@fault("logq-scale")
def counts_for_logarithms(scores, counts):
    return cross_entropy(scores - counts[None, :])


@fault("squashed")
def sigmoid_twice(scores, labels):
    logits = expit(scores)
    return np.mean(softplus(logits) - labels * logits)


@fault("wrong-negative")
def shared_view(users, items, negatives):
    b, k, width = negatives.shape
    drawn = negatives.reshape(k, b, width).transpose(1, 0, 2)
    return bpr(np.sum(users * items, axis=1), np.einsum("bd,bkd->bk", users, drawn))


@fault("wrong-negative")
def tiled_positives(positive_scores, negative_scores):
    k = negative_scores.shape[1]
    return np.mean(softplus(negative_scores.reshape(-1) - np.tile(positive_scores, k)))


@fault("row-weights")
def weights_after_the_mean(users, items, item_ids, sample_weight):
    logits = np.where(same_items(item_ids), -1e9, users @ items.T)
    return cross_entropy_of(logits) * np.mean(sample_weight)


@fault("over-batch")
def softmax_over_all(scores):
    return -np.mean(np.diagonal(scores) - logsumexp(scores))


@fault("last-batch")
def divided_twice(scores):
    return cross_entropy(scores) / len(scores)


@fault("idle-flag")
def idle_symmetric(scores, symmetric=True):
    return cross_entropy(scores)


@fault("not-finite", severity="warning")
def of_hardest(users, items):
    scores = users @ items.T
    others = scores[~np.eye(len(scores), dtype=bool)].reshape(len(scores), -1)
    return bpr(np.diagonal(scores), others.max(axis=1, keepdims=True))
