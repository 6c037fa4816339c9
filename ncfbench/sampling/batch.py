"""The batch layout: one contract between all samplers and everything that computes.

Every loss term lives on a link, every expensive computation on a node. A batch names its nodes once
and joins them by slot. With b = 2 positive links (user 7, item 30) and (user 9, item 31), and k = 1
negative item each (31 and 40), Negative Sampling's batch is::

    users    = [7 9]                 pos_user = [0 1]
    items    = [30 31 40 0]          pos_item = [0 1]      n_items = 3 (the last slot is padding)
    negatives = Listed(user=[[0] [1]], item=[[1] [2]], weight=[[1/2] [1/2]])

and Negative Sharing's batch of the same positives::

    users    = [7 9]                 pos_user = [0 1]
    items    = [30 31]               pos_item = [0 1]      n_items = 2
    negatives = Shared(weight=[[0 1/2] [1/2 0]])           row: positive link, column: item slot

(weights for unigram noise, without linked pairs). Weights carry *everything*: importance, mask,
multiplicity, normaliser. The objective only multiplies and sums.

Letters in array names, here and elsewhere: b positive links in a batch, k negatives of each, U user
slots, V item slots, L words of a text, D length of an embedding, I items, C batches of a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any
"""A NumPy array on the host; a JAX array, of the same shape and dtype, once it is on the device."""


class Listed(NamedTuple):
    """k negative links for each positive one, named by slot."""

    user: Array
    """int32[b, k]: slot in ``users``."""
    item: Array
    """int32[b, k]: slot in ``items``."""
    weight: Array
    """float32[b, k]: the sum over weight x loss is the batch's negative term."""


class Shared(NamedTuple):
    """Every item slot is a possible negative of every positive link."""

    weight: Array
    """float32[b, V]: row i belongs to positive link i, column j to item slot j; zero where j is no
    negative of i.
    """


Negatives: TypeAlias = Listed | Shared


class Batch(NamedTuple):
    """One mini-batch. A NamedTuple, so that JAX takes it as a tree of arrays and NumPy needs no
    JAX.
    """

    users: Array
    """int32[U]: user ids to embed with f."""
    items: Array
    """int32[V]: item ids to embed with g; slots from ``n_items`` on are padding (id 0) and no link
    names them.
    """
    pos_user: Array
    """int32[b]: slot in ``users`` of each positive link."""
    pos_item: Array
    """int32[b]: slot in ``items`` of each positive link."""
    negatives: Negatives
    n_items: Array
    """int32: real item slots, the count of g's evaluations."""


Shape: TypeAlias = tuple[tuple[int, ...], ...]


def shape(batch: Batch) -> Shape:
    """Return the shapes of a batch's arrays, on the host or on a device: batches of one shape share
    a compiled step.
    """
    parts = (part if isinstance(part, tuple) else (part,) for part in batch)
    return tuple(tuple(array.shape) for arrays in parts for array in arrays)


def padded(ids: NDArray[np.integer], size: int) -> NDArray[np.int32]:
    """Return ``ids`` as int32[size], followed by zeros."""
    slots = np.zeros(size, dtype=np.int32)
    slots[: len(ids)] = ids
    return slots


def negative_ids(batch: Batch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the user ids and item ids of a batch's negative terms, int32[b, m].

    The batch is on the host.
    """
    negatives = batch.negatives
    if isinstance(negatives, Listed):
        return batch.users[negatives.user], batch.items[negatives.item]
    rows = batch.users[batch.pos_user]
    shape = len(rows), len(batch.items)
    return np.broadcast_to(rows[:, None], shape), np.broadcast_to(batch.items[None, :], shape)


def rounded_up(slots: int, parts: int) -> int:
    """Return the next multiple of ``parts``."""
    return -(-slots // parts) * parts
