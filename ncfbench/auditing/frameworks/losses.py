"""The losses of frameworks on one mini-batch, and the pairs that they count as negatives.

A loss takes the vectors of all users and of all items, and a batch: a
:class:`ncfbench.auditing.frameworks.draws.Drawn` without its leading axis. It is a mean over the
batch's links. The audit differentiates it, so a vector that the framework detaches is detached here
too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from ncfbench.auditing.frameworks.draws import Drawn
from ncfbench.data.graph import Int32

SCALE = 20.0
"""Scale of the cosine in a softmax: the default of sentence-transformers."""
PAPER_GAMMA = 10.0
"""Scale of the paper's pairwise log loss (KDD 2017, section 5)."""
CHUNKS = 4
"""Chunks of a batch in GradCache."""


class Negatives(NamedTuple):
    """The pairs that batches count as negatives: bool[C, b, n] over users and items that broadcast
    to this shape.
    """

    user: Int32
    item: Int32
    counted: NDArray[np.bool_]


def mean(rows_b: Array, weight_b: Array) -> Array:
    """Return the mean loss of a batch's real rows; 0 for a batch of filling."""
    return jnp.sum(rows_b * weight_b) / jnp.maximum(jnp.sum(weight_b), 1)


def cross_entropy(logits_bxn: Array, weight_b: Array) -> Array:
    """Return the mean cross-entropy of rows whose right column is the diagonal.

    Args:
        logits_bxn: the first b columns are the batch's own items.
    """
    more = jnp.ones(logits_bxn.shape[1] - len(weight_b))
    real_n = jnp.concatenate([weight_b, more])
    masked = jnp.where(real_n > 0, logits_bxn, -jnp.inf)
    # A row of filling has no finite logit, and infinity has no gradient.
    masked = jnp.where(jnp.sum(real_n) > 0, masked, 0.0)
    rows = jax.nn.logsumexp(masked, axis=1) - jnp.diagonal(logits_bxn)
    return mean(rows, weight_b)


def in_batch_softmax(
    users: Array,
    items: Array,
    batch: Any,
    *,
    corrects: bool = False,
    removes_hits: bool = False,
) -> Array:
    """Return the cross-entropy of the batch's items and of a queue's, whose vectors are constants.

    Args:
        corrects: subtract log p(item) from every column.
        removes_hits: mask other rows with the same item.
    """
    queue = jax.lax.stop_gradient(items[batch.other_item])
    vectors = jnp.concatenate([items[batch.item], queue])
    logits = SCALE * users[batch.user] @ vectors.T
    if corrects:
        probability = jnp.concatenate([batch.probability, batch.other_probability])
        logits = logits - jnp.log(jnp.clip(probability, 1e-6, 1.0))[None, :]
    if removes_hits:
        is_hit = (batch.item[:, None] == batch.item[None, :]) & ~jnp.eye(len(logits), dtype=bool)
        logits = jnp.where(is_hit, -jnp.inf, logits)
    return cross_entropy(logits, batch.weight)


def merlin_softmax(users: Array, items: Array, batch: Any, *, reg_factor: float = 0.0) -> Array:
    """Return Merlin's loss: a column of positives stands before those of the batch's items; of
    these, the ones with the row's own id get the lowest score (``downscore_false_negatives``).

    The order of operations is that of release 23.12.00, ``merlin/models/tf/outputs/base.py``: the
    output layer calls ``post``, and divides by the temperature last. A correction in ``post`` is
    therefore divided by the temperature too. So is that of ``logq_sampling_correction=True``, which
    ``outputs/contrastive.py`` subtracts from the dot products.

    Args:
        reg_factor: factor of log p, which is subtracted before the temperature divides.
    """
    scores = users[batch.user] @ items[batch.item].T
    if reg_factor:
        scores = scores - reg_factor * jnp.log(batch.probability + 1e-16)[None, :]
    scores = SCALE * scores
    positive = jnp.diagonal(scores)
    is_own = batch.item[:, None] == batch.item[None, :]
    negative = jnp.where(is_own, -jnp.inf, scores)
    logits = jnp.concatenate([positive[:, None], negative], axis=1)
    return mean(jax.nn.logsumexp(logits, axis=1) - positive, batch.weight)


def cached(
    vector_loss: Callable[[Array, Array], Array],
    f_bxD: Array,
    g_bxD: Array,
    replayed: Sequence[int] = range(CHUNKS),
) -> Array:
    """Return a loss whose gradient comes from a cache, chunk by chunk.

    First the gradient by all vectors, without the towers; then each chunk's vectors again, times
    their cached gradient, so that the chain rule goes on into the towers.

    Args:
        replayed: the chunks whose gradients reach the towers; all of them if it is right.
    """
    fixed = jax.lax.stop_gradient((f_bxD, g_bxD))
    value, (f_cache, g_cache) = jax.value_and_grad(vector_loss, argnums=(0, 1))(*fixed)
    chunks = jnp.split(jnp.concatenate([f_bxD * f_cache, g_bxD * g_cache], axis=1), CHUNKS)
    total = jnp.sum(jnp.stack([chunks[number] for number in replayed]))
    loss: Array = total - jax.lax.stop_gradient(total) + value
    return loss


def cached_softmax(users: Array, items: Array, batch: Any) -> Array:
    """Return GradCache's ``SimpleContrastiveLoss``: in-batch softmax without a correction."""
    vectors = users[batch.user], items[batch.item]
    return cached(lambda f, g: cross_entropy(SCALE * f @ g.T, batch.weight), *vectors)


def reference_softmax(
    users: Array,
    items: Array,
    batch: Any,
    *,
    sign: float = -1.0,
    corrects: bool = True,
    replayed: Sequence[int] = (),
) -> Array:
    """Return the softmax over a link's own item, once, and the other links' items with weights
    1 / ((b-1) p): in-batch softmax with everything right.

    ``-log(exp(s_i) / (exp(s_i) + sum_{j: v_j != v_i} exp(s_ij) / ((b - 1) p_j)))``. The sum has the
    right expectation, so the only bias left is that of the logarithm, of the order of 1 / b.

    Args:
        sign: of the logarithm of (b-1) p; +1 is a fault.
        corrects: False takes all items as equally likely, a fault.
        replayed: chunks of a cache that pass gradients on; none: there is no cache.
    """
    p = batch.probability if corrects else jnp.full_like(batch.probability, 1 / len(items))
    log_weight = sign * jnp.log((len(p) - 1) * p)

    def loss(f_bxD: Array, g_bxD: Array) -> Array:
        scores = SCALE * f_bxD @ g_bxD.T
        own = jnp.diagonal(scores)
        is_own = batch.item[:, None] == batch.item[None, :]
        others = jnp.where(is_own, -jnp.inf, scores + log_weight[None, :])
        rows = jax.nn.logsumexp(jnp.concatenate([own[:, None], others], axis=1), axis=1) - own
        return mean(rows, batch.weight)

    vectors = users[batch.user], items[batch.item]
    return cached(loss, *vectors, replayed) if replayed else loss(*vectors)


def bpr(users: Array, items: Array, batch: Any) -> Array:
    """Return RecBole's ``BPRLoss``."""
    f, g = users[batch.user], items[batch.item] - items[batch.other_item]
    # 1e-10 is the framework's guard against log 0.
    return mean(-jnp.log(1e-10 + jax.nn.sigmoid(jnp.sum(f * g, axis=-1))), batch.weight)


def link_prediction(users: Array, items: Array, batch: Any) -> Array:
    """Return the binary cross-entropy of links and other pairs, as PyG's examples compute it."""
    positive = jnp.sum(users[batch.user] * items[batch.item], axis=-1)
    negative = jnp.sum(users[batch.other_user] * items[batch.other_item], axis=-1)
    return jnp.mean(jax.nn.softplus(jnp.concatenate([-positive, negative])))


def shared_log(users: Array, items: Array, batch: Any) -> Array:
    """Return the log loss of the paper's own program: each link against all distinct items of the
    batch, its own too; each of them counts once.
    """
    scores = users[batch.user] @ items[batch.item].T
    same = batch.item[:, None] == batch.item[None, :]
    is_first = jnp.argmax(same, axis=1) == jnp.arange(len(scores))
    rows = jax.nn.softplus(PAPER_GAMMA * (scores - jnp.diagonal(scores)[:, None]))
    return jnp.sum(jnp.where(is_first, rows, 0)) / (len(scores) * jnp.sum(is_first))


def in_batch(batches: Drawn) -> Negatives:
    """Return each user with the other links' items, and with all items of the other pairs."""
    rows = batches.weight > 0
    columns = np.concatenate([rows, np.ones(batches.other_item.shape, bool)], axis=1)
    is_own = np.eye(rows.shape[1], columns.shape[1], dtype=bool)
    counted = rows[:, :, None] & columns[:, None, :] & ~is_own
    items = np.concatenate([batches.item, batches.other_item], axis=1)
    return Negatives(batches.user[:, :, None], items[:, None, :], counted)


def but_own_item(batches: Drawn) -> Negatives:
    """Return those in the batch without the ones that are a row's own item."""
    found = in_batch(batches)
    return found._replace(counted=found.counted & (found.item != batches.item[:, :, None]))


def other_pairs(batches: Drawn) -> Negatives:
    """Return the other pairs."""
    user, item = batches.other_user[:, None, :], batches.other_item[:, None, :]
    return Negatives(user, item, np.ones(user.shape, bool))


def distinct_items(batches: Drawn) -> Negatives:
    """Return each user with each distinct item of the batch, once."""
    same = batches.item[:, :, None] == batches.item[:, None, :]
    is_first = np.argmax(same, axis=1) == np.arange(batches.item.shape[1])
    counted = np.broadcast_to(is_first[:, None, :], same.shape)
    return Negatives(batches.user[:, :, None], batches.item[:, None, :], counted)
