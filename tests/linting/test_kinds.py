"""Kinds of faults beside those of the museum, and right parts that look like them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import logsumexp
from linting.museum import bpr, cross_entropy, same, unit
from scipy.special import expit, log_softmax

from ncfbench.errors import UsageError
from ncfbench.linting.lint import lint_loss


def same_items(ids: Any) -> Any:
    return (ids[:, None] == ids[None, :]) & ~jnp.eye(len(ids), dtype=bool)


def cross_entropy_of(logits: Any) -> Any:
    return jnp.mean(logsumexp(logits, axis=1) - jnp.diagonal(logits))


def positive_twice(users: Any, items: Any) -> Any:
    positive, scores = np.sum(users * items, axis=1), users @ items.T
    return np.mean(np.log(np.exp(positive) + np.exp(scores).sum(axis=1)) - positive)


def counts_for_logarithms(scores: Any, counts: Any) -> Any:
    return cross_entropy(scores - counts[None, :])


def labels_of_zero(users: Any, items: Any) -> Any:
    scores = 10 * unit(users) @ unit(items).T
    return np.mean(np.logaddexp(0, -np.eye(len(users)) * scores))


def negatives_without_user(users: Any, items: Any, negatives: Any) -> Any:
    near, far = (np.einsum("bd,b...d->b...", x, y) for x, y in ((users, items), (items, negatives)))
    return np.mean(np.logaddexp(0, -near)) + np.mean(np.logaddexp(0, far))


def pulled_negatives(scores: Any, labels: Any) -> Any:
    return np.mean(np.logaddexp(0, -scores))


def sigmoid_twice(scores: Any, labels: Any) -> Any:
    logits = expit(scores)
    return np.mean(np.logaddexp(0, logits) - labels * logits)


def shared_view(users: Any, items: Any, negatives: Any) -> Any:
    b, k, width = negatives.shape
    drawn = negatives.reshape(k, b, width).transpose(1, 0, 2)
    return bpr(np.sum(users * items, axis=1), np.einsum("bd,bkd->bk", users, drawn))


def tiled_positives(positive_scores: Any, negative_scores: Any) -> Any:
    k = negative_scores.shape[1]
    return np.mean(np.logaddexp(0, negative_scores.reshape(-1) - np.tile(positive_scores, k)))


def weights_after_the_mean(users: Any, items: Any, item_ids: Any, sample_weight: Any) -> Any:
    logits = jnp.where(same_items(item_ids), -1e9, users @ items.T)
    return cross_entropy_of(logits) * jnp.mean(sample_weight)


def softmax_over_all(scores: Any) -> Any:
    return -jnp.mean(jnp.diagonal(scores) - logsumexp(scores))


def first_negative(users: Any, items: Any, negatives: Any) -> Any:
    return bpr(np.sum(users * items, axis=1), np.sum(users * negatives[:, 0], axis=1)[:, None])


def mean_and_sum(positive_scores: Any, negative_scores: Any) -> Any:
    return np.mean(np.logaddexp(0, -positive_scores)) + np.sum(np.logaddexp(0, negative_scores))


def divided_twice(scores: Any) -> Any:
    return cross_entropy(scores) / len(scores)


def easier_by_a_margin(scores: Any, margin: float = 0.3) -> Any:
    return cross_entropy(scores + margin * np.eye(len(scores)))


def idle_symmetric(scores: Any, symmetric: bool = True) -> Any:
    return cross_entropy(scores)


def centred_in_place(scores: Any) -> Any:
    scores -= scores.max(axis=1, keepdims=True)
    return cross_entropy(scores)


def of_hardest(users: Any, items: Any) -> Any:
    scores = users @ items.T
    others = scores[~np.eye(len(scores), dtype=bool)].reshape(len(scores), -1)
    return bpr(np.diagonal(scores), others.max(axis=1, keepdims=True))


def in_bfloat16(users: Any, items: Any) -> Any:
    f, g = (x.astype(jnp.bfloat16) for x in (users, items))
    return cross_entropy_of((f @ g.T).astype(float))


@pytest.mark.parametrize(
    ("loss", "code"),
    [
        (positive_twice, "positive-twice"),
        (counts_for_logarithms, "logq-scale"),
        (labels_of_zero, "no-negatives"),
        (negatives_without_user, "no-negatives"),
        (pulled_negatives, "no-negatives"),
        (sigmoid_twice, "squashed"),
        (shared_view, "wrong-negative"),
        (tiled_positives, "wrong-negative"),
        (weights_after_the_mean, "row-weights"),
        (softmax_over_all, "over-batch"),
        (first_negative, "idle-negatives"),
        (mean_and_sum, "uneven-terms"),
        (divided_twice, "last-batch"),
        (easier_by_a_margin, "margin"),
        (idle_symmetric, "idle-flag"),
        (centred_in_place, "changed-input"),
        (of_hardest, "not-finite"),
        (in_bfloat16, "rounded"),
    ],
)
def test_kinds_of_faults_are_told_apart(loss: Any, code: str) -> None:
    assert code in [each.code for each in lint_loss(loss, estimates=False).findings]


def sampled_with_hits(users: Any, items: Any, negatives: Any, probability: Any, neg_p: Any) -> Any:
    """Corrected everywhere, with the positive's own copies among the negatives."""
    own = np.sum(users * items, axis=1, keepdims=True) - np.log(probability)[:, None]
    logits = np.concatenate([own, np.einsum("bd,bkd->bk", users, negatives) - np.log(neg_p)], 1)
    return -np.mean(log_softmax(logits, axis=1)[:, 0])


def copies_are_positives(users: Any, items: Any, item_ids: Any, probability: Any) -> Any:
    """Rows with one item share their label, and every column is corrected."""
    labels = same(item_ids) + np.eye(len(users))
    log_share = log_softmax(users @ items.T - np.log(probability)[None, :], axis=1)
    return -np.mean(np.sum(labels / labels.sum(axis=1, keepdims=True) * log_share, axis=1))


def sharp(users: Any, items: Any, temperature: float = 0.01) -> Any:
    return cross_entropy(unit(users) @ unit(items).T / temperature)


def sharpest(users: Any, items: Any, item_ids: Any) -> Any:
    """Of a scale at which dropout leaves most negatives without any push."""
    f, g = (x / jnp.linalg.norm(x, axis=1, keepdims=True) for x in (users, items))
    return cross_entropy_of(jnp.where(same_items(item_ids), -1e9, 1000 * f @ g.T))


def normed(x: Any) -> Any:
    """A move along one coordinate changes all others a little."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=1, keepdims=True))


def layers_normed(users: Any, items: Any, item_ids: Any) -> Any:
    scores = normed(users) @ normed(items).T / jnp.sqrt(users.shape[1])
    return cross_entropy_of(jnp.where(same_items(item_ids), -1e9, scores))


def scaled_by_width(users: Any, items: Any) -> Any:
    return cross_entropy(users @ items.T / np.sqrt(users.shape[1]))


def harder_by_a_margin(scores: Any, margin: float = 0.3) -> Any:
    return cross_entropy(scores - margin * np.eye(len(scores)))


def masked_by_a_margin(scores: Any, margin: float = 0.1) -> Any:
    """Negatives near the positive may be missing links: a larger margin masks more of them."""
    near = (scores > np.diagonal(scores)[:, None] - margin) & ~np.eye(len(scores), dtype=bool)
    return cross_entropy(np.where(near, -1e9, scores))


def of_the_hardest(positive_scores: Any, negative_scores: Any) -> Any:
    return bpr(positive_scores, negative_scores.max(axis=1, keepdims=True))


def narrow_hinge(positive_scores: Any, negative_scores: Any) -> Any:
    """Rows beyond the margin have no push, whatever shape the negatives have."""
    return np.mean(np.maximum(negative_scores - positive_scores[:, None] + 0.05, 0))


@pytest.mark.parametrize(
    ("loss", "codes"),
    [
        (narrow_hinge, set()),
        (of_the_hardest, set()),
        (harder_by_a_margin, {"missing-logq", "duplicates"}),
        (masked_by_a_margin, {"missing-logq"}),
        (sampled_with_hits, set()),
        (copies_are_positives, set()),
        (sharp, {"missing-logq", "duplicates"}),
        (sharpest, set()),
        (layers_normed, set()),
        (scaled_by_width, {"missing-logq", "duplicates"}),
    ],
)
def test_right_parts_are_not_accused(loss: Any, codes: set[str]) -> None:
    assert {each.code for each in lint_loss(loss, estimates=False).errors} == codes


class Remembers:
    """Keeps the items of a call for the next."""

    def __init__(self) -> None:
        self.kept: Any = None

    def __call__(self, users: Any, items: Any) -> Any:
        pool = items if self.kept is None else jnp.concatenate([items, self.kept])
        self.kept = pool[: len(items)]
        logits = users @ pool.T
        return jnp.mean(logsumexp(logits, axis=1) - jnp.sum(users * items, axis=1))


def test_a_memory_that_jax_cannot_trace_is_refused() -> None:
    with pytest.raises(UsageError, match="keeps an array of one call for the next"):
        lint_loss(Remembers(), estimates=False)
