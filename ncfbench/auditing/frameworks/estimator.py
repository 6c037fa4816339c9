"""Estimator: one mini-batch loss of a framework, as its documentation describes it.

An estimator draws batches and computes the loss of one. The audit differentiates the loss, so a
vector that the framework detaches is detached here too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.frameworks.links import Float32, Int32, Links


class Drawn(NamedTuple):
    """Some batches of ``b`` links each, with ``n`` other pairs: negatives, or a memory.

    The leading axis counts batches. One batch of two links, both of item 7, with no other pairs::

        Drawn(user=[[3, 5]], item=[[7, 7]], weight=[[1, 1]], probability=[[0.2, 0.2]],
              other_user=[[]], other_item=[[]], other_probability=[[]])
    """

    user: Int32
    """int32[C, b]."""
    item: Int32
    """int32[C, b]: indices among the items in use."""
    weight: Float32
    """float32[C, b]: 1, or 0 for the filling of a short batch."""
    probability: Float32
    """float32[C, b]: the share of the training links that are of the item."""
    other_user: Int32
    """int32[C, n]."""
    other_item: Int32
    """int32[C, n]."""
    other_probability: Float32
    """float32[C, n]."""


class Negatives(NamedTuple):
    """The pairs that batches count as negatives: bool[C, b, n] over users and items that broadcast
    to this shape.
    """

    user: Int32
    item: Int32
    counted: NDArray[np.bool_]


def drawn(
    links: Links,
    user: Int32,
    item: Int32,
    other_user: Int32 | None = None,
    other_item: Int32 | None = None,
    weight: Float32 | None = None,
) -> Drawn:
    """Return batches of some links, int32[C, b], and other pairs, int32[C, n]."""
    none = np.zeros((len(user), 0), np.int32)
    others = none if other_item is None else other_item
    share = links.share.astype(np.float32)
    return Drawn(
        user,
        item,
        np.ones(user.shape, np.float32) if weight is None else weight,
        share[item],
        none if other_user is None else other_user,
        others,
        share[others],
    )


@dataclass(frozen=True)
class Estimator(ABC):
    """A framework's loss. Attributes of the class say what it is; fields are its options."""

    name: ClassVar[str]
    """Name on the command line."""
    title: ClassVar[str]
    version: ClassVar[str]
    """The version whose documentation it follows."""
    source: ClassVar[str]
    """That documentation."""
    claim: ClassVar[str]
    """The objective that it claims to estimate, of :data:`ncfbench.auditing.frameworks.claims`."""
    plain: ClassVar[str] = ""
    """The objective in which all items count alike, where it claims another one."""
    limit: ClassVar[str] = ""
    """The objective that the estimate tends to as the batch grows, of
    :data:`ncfbench.auditing.frameworks.claims.LIMITS`; empty where it has not been derived.
    """
    remedy: ClassVar[str]
    """Advice to a user: one sentence."""
    fault: ClassVar[str] = ""
    """The fault that was planted; empty for a framework's own estimator."""

    def draw(self, links: Links, rng: np.random.Generator, size: int, count: int) -> Drawn:
        """Draw ``count`` batches of ``size`` links, with replacement."""
        rows = rng.integers(len(links.user), size=(count, size))
        return drawn(links, links.user[rows], links.item[rows])

    @abstractmethod
    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """Return the loss of one batch, a mean over its links.

        Args:
            users, items: the vectors of all users and items.
            batch: a :class:`Drawn` without its leading axis.
        """

    def negatives(self, batches: Drawn) -> Negatives:
        """Return the pairs that count as negatives: each user with the other links' items, and
        with all items of the other pairs.
        """
        rows = batches.weight > 0
        columns = np.concatenate([rows, np.ones(batches.other_item.shape, bool)], axis=1)
        is_own = np.eye(rows.shape[1], columns.shape[1], dtype=bool)
        counted = rows[:, :, None] & columns[:, None, :] & ~is_own
        items = np.concatenate([batches.item, batches.other_item], axis=1)
        return Negatives(batches.user[:, :, None], items[:, None, :], counted)


def others_as_negatives(batches: Drawn) -> Negatives:
    """Return the other pairs of batches as their negatives."""
    user, item = batches.other_user[:, None, :], batches.other_item[:, None, :]
    return Negatives(user, item, np.ones(user.shape, bool))


def without_own_item(found: Negatives, batches: Drawn) -> Negatives:
    """Return negatives without those that are a row's own item."""
    return found._replace(counted=found.counted & (found.item != batches.item[:, :, None]))


def mean(rows_b: jax.Array, weight_b: jax.Array) -> jax.Array:
    """Return the mean loss of a batch's real rows; 0 for a batch of filling."""
    return jnp.sum(rows_b * weight_b) / jnp.maximum(jnp.sum(weight_b), 1)


def in_batch_loss(logits_bxn: jax.Array, weight_b: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of rows whose right column is the diagonal.

    Args:
        logits_bxn: the first b columns are the batch's own items.
    """
    size = len(weight_b)
    more = jnp.ones(logits_bxn.shape[1] - size)
    real_n = jnp.concatenate([weight_b, more])
    masked = jnp.where(real_n > 0, logits_bxn, -jnp.inf)
    # A row of filling has no finite logit, and infinity has no gradient.
    masked = jnp.where(jnp.sum(real_n) > 0, masked, 0.0)
    rows = jax.nn.logsumexp(masked, axis=1) - jnp.diagonal(logits_bxn)
    return mean(rows, weight_b)
