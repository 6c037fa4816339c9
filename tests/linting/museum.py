"""Losses with faults that people have reported in public, each written anew.

A fault has the code of the finding that must name it, and the report that describes it.
"""

from typing import Any, NamedTuple

import jax.numpy as np
from jax.nn import log_softmax, logsumexp, sigmoid, softmax, softplus


class Exhibit(NamedTuple):
    """A loss, and the codes of what is wrong with it."""

    loss: Any
    codes: tuple[str, ...] = ()
    severity: str = "error"
    source: str = ""
    """The public report of the fault."""


FAULTS: dict[str, Exhibit] = {}
"""By name, with the code of the finding that names the fault."""


def fault(code, source="", **more):
    """Make a loss one of :data:`FAULTS`."""

    def add(loss):
        FAULTS[loss.__name__] = Exhibit(loss, (code,), source=source, **more)
        return loss

    return add


GITHUB = "https://github.com"
TFRS, ST = f"{GITHUB}/tensorflow/recommenders", f"{GITHUB}/huggingface/sentence-transformers"


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def cosine(f, g):
    return unit(f) @ unit(g).T


def drawn(f, g):
    """Scores of each row with its drawn negatives."""
    return np.einsum("bd,bkd->bk", f, g)


def eye(scores):
    return np.eye(len(scores), dtype=bool)


def off(scores, mask):
    return np.where(mask, -1e9, scores)


def cross_entropy(logits):
    """The mean over rows whose label is the diagonal."""
    return -np.mean(np.diagonal(log_softmax(logits, axis=1)))


def same(ids):
    """Pairs of different rows with one id."""
    return (ids[:, None] == ids[None, :]) & ~eye(ids)


def corrected(scores, item_ids, probability):
    """Logits of an in-batch softmax with everything right."""
    shift = np.log(max(len(scores) - 1, 1) * probability)[None, :] * ~eye(scores)
    return off(scores - shift, same(item_ids))


@fault("logq-sign", f"{TFRS}/issues/219")
def logq_sign(users, items, item_ids, probability):
    scores = 20 * cosine(users, items) + np.log(probability)[None, :]
    return cross_entropy(off(scores, same(item_ids)))


@fault("missing-logq", f"{GITHUB}/NVIDIA-Merlin/models/issues/161")
def missing_logq(scores, item_ids, temperature=0.05):
    return cross_entropy(off(scores / temperature, same(item_ids)))


@fault("logq-positive", "https://arxiv.org/abs/2507.09331")
def logq_of_the_positive(users, items, item_ids, probability):
    scores = 20 * cosine(users, items) - np.log(probability)[None, :]
    return cross_entropy(off(scores, same(item_ids)))


@fault("logq-scale", f"{GITHUB}/NVIDIA-Merlin/models/pull/1051")
def logq_over_temperature(users, items, log_probability, temperature=0.1):
    return cross_entropy((cosine(users, items) - log_probability[None, :]) / temperature)


@fault("duplicates", f"{ST}/issues/3189")
def duplicates(users, items, probability):
    return cross_entropy(corrected(10 * users @ items.T, np.arange(len(users)), probability))


@fault("linked", f"{ST}/issues/608")
def linked_pairs(users, items, item_ids):
    scores = users @ items.T
    counts = ~same(item_ids) & ~eye(scores)
    return np.sum(softplus(scores - np.diagonal(scores)[:, None]) * counts) / np.sum(counts)


@fault("mask-zero", f"{GITHUB}/google-research/simclr/issues/20")
def multiplied_mask(users, items, item_ids, probability):
    logits = corrected(10 * cosine(users, items), np.arange(len(users)), probability)
    return cross_entropy(logits * ~same(item_ids))


@fault("idle-flag", f"{TFRS}/issues/706")
def idle_flag(users, items, item_ids, probability, remove_accidental_hits=True):
    logits = corrected(20 * cosine(users, items), np.arange(len(users)), probability)
    if remove_accidental_hits:
        logits = logits - same(item_ids) * np.finfo(np.float32).tiny
    return cross_entropy(logits)


@fault("idle-flag", f"{GITHUB}/FlagOpen/FlagEmbedding/issues/1027")
def idle_in_batch_flag(users, items, negatives, use_in_batch_negatives=True):
    negative = drawn(users, negatives)
    if use_in_batch_negatives:
        negative = np.concatenate([negative, negative], axis=1)[:, : negative.shape[1]]
    return bpr(np.sum(users * items, axis=-1), negative)


def bpr(positive_scores, negative_scores):
    return np.mean(softplus(negative_scores - positive_scores[:, None]))


def drawn_without_logq(positive_scores, negative_scores):
    logits = np.concatenate([positive_scores[:, None], negative_scores], axis=1)
    return np.mean(logsumexp(logits, axis=1) - positive_scores)


@fault("temperature-twice", f"{GITHUB}/Adibvafa/CodonTransformer/pull/20")
def temperature_twice(users, items, item_ids, probability, temperature=0.2):
    scores = cosine(users, items) / temperature / temperature
    return cross_entropy(corrected(scores, item_ids, probability))


@fault("over-users", f"{GITHUB}/LongmaoTeamTf/deep_recommenders/issues/4")
def over_users(users, items):
    return cross_entropy(10 * cosine(items, users))


@fault("wrong-sign", f"{GITHUB}/kefirski/pytorch_NEG_loss/issues/5")
def negated(positive_scores, negative_scores):
    return np.mean(softplus(positive_scores[:, None] - negative_scores))


@fault("wrong-negative", f"{GITHUB}/maciejkula/spotlight")
def neighbours_negatives(users, items, negatives):
    return bpr(np.sum(users * items, axis=-1), drawn(np.roll(users, 1, axis=0), negatives))


@fault("squashed", f"{GITHUB}/nishnik/Deep-Semantic-Similarity-Model-PyTorch/issues/2")
def double_softmax(users, items, temperature=0.1):
    return cross_entropy(softmax(users @ items.T / temperature, axis=1))


@fault("batch-axis", f"{GITHUB}/alireza-nasiri/SoundCLR/issues/4")
def normalised_along_batch(users, items, temperature=0.1):
    f, g = (x / np.sqrt(np.sum(x**2, axis=0) + 1e-18) for x in (users, items))
    return cross_entropy(f @ g.T / temperature)


@fault("wrong-negative", f"{GITHUB}/IntelLabs/matsciml/pull/347")
def broadcast(positive_scores, negative_scores):
    """All rows' positives against all rows' negatives, for [b] - [b, 1] is [b, b]."""
    return np.mean(softplus(negative_scores[:, :1] - positive_scores))


# Kinds of faults without a report.


@fault("logq-scale")
def counts_for_logarithms(scores, counts):
    return cross_entropy(scores - counts[None, :])


@fault("squashed")
def sigmoid_twice(scores, labels):
    logits = sigmoid(scores)
    return np.mean(softplus(logits) - labels * logits)


@fault("wrong-negative")
def shared_view(users, items, negatives):
    b, k, width = negatives.shape
    swapped = negatives.reshape(k, b, width).transpose(1, 0, 2)
    return bpr(np.sum(users * items, axis=1), drawn(users, swapped))


@fault("wrong-negative")
def tiled_positives(positive_scores, negative_scores):
    k = negative_scores.shape[1]
    return np.mean(softplus(negative_scores.reshape(-1) - np.tile(positive_scores, k)))


@fault("idle-flag")
def idle_symmetric(scores, symmetric=True):
    return cross_entropy(scores)


@fault("not-finite", severity="warning")
def of_hardest(users, items):
    scores = users @ items.T
    rest = scores[~eye(scores)].reshape(len(scores), -1)
    return bpr(np.diagonal(scores), rest.max(axis=1, keepdims=True))
