"""Every item as a negative: what cached item vectors add to the sum over a batch's items.

With a squared loss and dot products the negative term of all users and all items, linked pairs
included, is ``sum_u a_u f_u' C f_u`` with the items' Gramian ``C = sum_v P_n(v) g_v g_v'``. A batch
estimates it by its own items, whose Gramian is ``C_b = sum_j c_j g_j g_j'`` with mean C
(:mod:`ncfbench.models.all_users`). A cache holds C~, the Gramian of all items at an earlier
iteration. :func:`cached_sum` is ``sum_u a_u f_u' (C~ - B) f_u``, added to the batch's sum. No
gradient goes through the cache or through B, so items get that of the batch alone. Users get that
of the batch with C_b replaced:

- B = C_b, of the batch's vectors as they are: by C~. Its noise is gone, and what C~ lags behind C is
  a bias.
- B = C~_b, of the batch's items as they were cached: by C_b + (C~ - C~_b). The mean of the bracket is
  0 whatever the cache holds, so there is no bias; what the batch's items differ from their cached
  vectors is noise. (A control variate, as in SVRG: Johnson and Zhang, NIPS 2013.)

A step costs V D^2 products more, and as many on the Gramian of the users.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ncfbench.models.precision import full
from ncfbench.sampling.batch import AllUsers


class ItemCache(NamedTuple):
    """All items as they were at the last refresh."""

    gramian: jax.Array
    """float32[D, D]: sum over items of P_n(v) g(v) g(v)'."""
    vectors: jax.Array | None
    """float32[I, D]: g by item id, 0 for items that are never a negative; None where the age of the
    Gramian is not corrected.
    """


def empty_cache(n_items: int, dimension: int, *, is_corrected: bool) -> ItemCache:
    """Return a cache of zeros, before the first refresh."""
    vectors = jnp.zeros((n_items, dimension), jnp.float32) if is_corrected else None
    return ItemCache(jnp.zeros((dimension, dimension), jnp.float32), vectors)


@jax.jit
@full
def filled(
    cache: ItemCache, ids: jax.Array, vectors: jax.Array, probability: jax.Array
) -> ItemCache:
    """Return a cache of these vectors, of the form of an earlier one.

    Args:
        cache: says whether vectors are kept.
        ids: int32[nodes], the items that can be negatives.
        vectors: float32[nodes, D], g of them.
        probability: float32[nodes], P_n of them.
    """
    gramian = vectors.T @ (probability[:, None] * vectors)
    kept = None if cache.vectors is None else cache.vectors.at[ids].set(vectors)
    return ItemCache(gramian, kept)


def cached_sum(
    users_MxD: jax.Array,
    items_VxD: jax.Array,
    items: jax.Array,
    negatives: AllUsers,
    cache: ItemCache,
) -> jax.Array:
    """Return what the cache adds to the sum over the batch's items, for a squared loss.

    Args:
        users_MxD: vectors of the users that are met.
        items_VxD: vectors of the item slots.
        items: int32[V], the item slots' ids.
    """
    own = items_VxD if cache.vectors is None else cache.vectors[items]
    of_batch = own.T @ (negatives.item_weight[:, None] * own)
    gap = jax.lax.stop_gradient(cache.gramian - of_batch)
    of_users = users_MxD.T @ (negatives.user_weight[:, None] * users_MxD)
    return jnp.sum(of_users * gap)
