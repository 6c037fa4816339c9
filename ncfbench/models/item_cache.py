"""Every item as a negative: what cached vectors add to the sum over a batch's items.

With a squared loss and dot products the negative term of all users and all items is ``sum_u a_u
(f_u' C f_u - linked pairs)``, with the items' Gramian ``C = sum_v P_n(v) g_v g_v'``. A batch
estimates it by its own items, whose Gramian is ``C_b = sum_j c_j g_j g_j'`` with mean C, and their
linked pairs (:mod:`ncfbench.models.all_users`). A cache holds what all items gave at an earlier
iteration: C~, and the gradient of each user's linked pairs. :func:`cached_sum` adds that to the
batch's sum, and takes away what the batch's items gave:

- *cached*: as they are now. Users then have the gradient of all items as these were. Its noise is
  gone, and what the cache lags behind is a bias.
- *corrected*: as they were then, by the vectors of that time. The mean of what is added is 0
  whatever the cache holds, so there is no bias; what the batch's items have changed since is noise.
  (A control variate, as in SVRG: Johnson and Zhang, NIPS 2013.)

No gradient goes through the cache or to the batch's items, which have that of the batch alone. A
step costs some products of D x D matrices more, and as many lookups of linked pairs as the batch's
own sum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ncfbench.models.precision import full
from ncfbench.sampling.batch import AllUsers


class Earlier(NamedTuple):
    """Vectors of an earlier iteration."""

    users: jax.Array
    """float32[n_users, D]."""
    items: jax.Array
    """float32[I, D]; 0 for items that are never a negative."""


class ItemCache(NamedTuple):
    """Sums over all items at the last refresh, with the vectors of that time."""

    gramian: jax.Array
    """float32[D, D]: sum over items of P_n(v) g(v) g(v)'."""
    linked: jax.Array
    """float32[n_users, D]: sum over a user's linked items of P_n(v) (f . g(v)) g(v), half the
    gradient of these pairs; 0 where linked pairs are negatives too.
    """
    earlier: Earlier | None
    """None where the age of the cache is not corrected."""


def empty_cache(n_users: int, n_items: int, dimension: int, *, is_corrected: bool) -> ItemCache:
    """Return a cache of zeros, before the first refresh."""

    def zeros(rows: int) -> jax.Array:
        return jnp.zeros((rows, dimension), jnp.float32)

    earlier = Earlier(zeros(n_users), zeros(n_items)) if is_corrected else None
    return ItemCache(zeros(dimension), zeros(n_users), earlier)


@jax.jit
@full
def linked_part(
    users: jax.Array, items: jax.Array, weights: jax.Array, user: jax.Array, item: jax.Array
) -> jax.Array:
    """Return what some links add to :attr:`ItemCache.linked`.

    Args:
        users, items: vectors by id.
        weights: float32[I], P_n.
        user, item: int32[n], the ends of each link; a user behind the last marks padding.
    """
    vectors = items[item]
    scores = jnp.sum(users.at[user].get(mode="fill", fill_value=0.0) * vectors, axis=-1)
    by_link = (weights[item] * scores)[:, None] * vectors
    return jnp.zeros_like(users).at[user].add(by_link, mode="drop")


@jax.jit
@full
def gramian_of(items: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the weighted sum of ``g g'``."""
    return items.T @ (weights[:, None] * items)


def cached_sum(
    users_MxD: jax.Array,
    items_VxD: jax.Array,
    users: jax.Array,
    items: jax.Array,
    negatives: AllUsers,
    cache: ItemCache,
) -> jax.Array:
    """Return what the cache adds to the sum over the batch's items, for a squared loss.

    Args:
        users_MxD: vectors of the users that are met.
        items_VxD: vectors of the item slots.
        users: int32[M], ids of the users that are met.
        items: int32[V], ids of the item slots.
    """
    own = jax.lax.stop_gradient(items_VxD if cache.earlier is None else cache.earlier.items[items])
    gap = cache.gramian - own.T @ (negatives.item_weight[:, None] * own)
    of_users = users_MxD.T @ (negatives.user_weight[:, None] * users_MxD)
    # A user's linked pairs are a square whose gradient is known at one point.
    of_linked = negatives.user_weight * jnp.sum(users_MxD * cache.linked[users], axis=-1)
    user, item = negatives.linked_user, negatives.linked_item
    weight = negatives.user_weight.at[user].get(mode="fill", fill_value=0.0)
    vectors = users_MxD.at[user].get(mode="fill", fill_value=0.0)
    scores = jnp.sum(vectors * own[item], axis=-1)
    if cache.earlier is None:
        before = jax.lax.stop_gradient(scores)
    else:
        ids = users.at[user].get(mode="fill", fill_value=0)
        before = jnp.sum(cache.earlier.users[ids] * own[item], axis=-1)
    of_pairs = jnp.sum(weight * negatives.item_weight[item] * before * scores)
    tangent = of_pairs - jnp.sum(of_linked)
    return jnp.sum(of_users * gap) + 2 * tangent - jax.lax.stop_gradient(tangent)
