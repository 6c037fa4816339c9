"""The objective, one for all samplers: from vectors and a batch's links to a number.

pointwise: ``mean l+(positive) + lambda sum weight l-(negative)``; pairwise: ``sum weight
l(positive, negative)``; listwise: ``mean l(positive, negatives, b weight)``. The weights already
hold importance, mask, multiplicity and normaliser (see :mod:`ncfbench.sampling.batch`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ncfbench.models.losses import Loss, Pointwise
from ncfbench.models.scores import pair_scores, score_matrix
from ncfbench.sampling.batch import Batch, Listed


def batch_link_loss(
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    batch: Batch,
    loss: Loss,
    lambda_: float | None,
    own_bxD: jax.Array | None = None,
) -> jax.Array:
    """Estimate L from the vectors of a batch's slots, with negatives of any form.

    Args:
        own_bxD: vectors of the positive links' users, where these are not those of their slots:
            each history lacks the link itself. A pairwise or listwise loss compares it with all
            negatives of the link; the negative links of a pointwise one are links of their own, and
            keep the slots' vectors.
    """
    if own_bxD is not None and not isinstance(loss, Pointwise):
        users_UxD, batch, own_bxD = own_bxD, _by_link(batch), None
    positive, negative = batch_scores(users_UxD, items_VxD, batch, own_bxD)
    return link_loss(positive, negative, batch.negatives.weight, loss, lambda_)


def batch_scores(
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    batch: Batch,
    own_bxD: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the scores of a batch's positive links, [b], and of its negative ones.

    Those are [b, k] for listed negatives, [b, V] for shared ones.

    Args:
        own_bxD: the positive links' users, where these are not the vectors of their slots.
    """
    if isinstance(batch.negatives, Listed):
        user, item, _ = batch.negatives
        f, slot = users_UxD, batch.pos_user
        if own_bxD is not None:
            f, slot = own_bxD, jnp.arange(len(own_bxD))
        positive = pair_scores(f[slot], items_VxD[batch.pos_item])
        return positive, pair_scores(users_UxD[user], items_VxD[item])
    f_bxD = users_UxD[batch.pos_user]
    own_bxD = f_bxD if own_bxD is None else own_bxD
    positive = pair_scores(own_bxD, items_VxD[batch.pos_item])
    return positive, score_matrix(f_bxD, items_VxD)


def _by_link(batch: Batch) -> Batch:
    """Return a batch of a pairwise or listwise loss whose user slots are its positive links."""
    link, negatives = jnp.arange(len(batch.pos_user)), batch.negatives
    if isinstance(negatives, Listed):
        user = jnp.broadcast_to(link[:, None], negatives.user.shape)
        negatives = negatives._replace(user=user)
    return batch._replace(pos_user=link, negatives=negatives)


def link_loss(
    positive: jax.Array, negative: jax.Array, weight: jax.Array, loss: Loss, lambda_: float | None
) -> jax.Array:
    """Estimate L from a batch's scores.

    Args:
        positive: [b] scores of the positive links.
        negative: [b, n] scores of the negative ones; row i belongs to positive link i.
        weight: [b, n]; a pair of weight 0 contributes nothing, however extreme its score.
        lambda_: the weight of a pointwise loss's negative term.
    """
    weight = weight * positive.shape[0]
    return jnp.mean(loss.batch_rows(positive, _silent(negative, weight), weight, lambda_))


def row_losses(
    positive: jax.Array, negative: jax.Array, weight: jax.Array, loss: Loss, lambda_: float | None
) -> jax.Array:
    """Return each positive link's estimate of L, [b].

    Arguments are those of :func:`link_loss`, with b times its weights.
    """
    return loss.rows(positive, _silent(negative, weight), weight, lambda_)


def _silent(negative: jax.Array, weight: jax.Array) -> jax.Array:
    """Return scores with 0 where there is no weight: 0 x inf is not a number, nor its gradient."""
    return jnp.where(weight == 0, 0.0, negative)


def user_penalty(users_bxD: jax.Array, user_l2: float) -> jax.Array:
    """Return ``user_l2`` times the mean squared norm of the positive links' raw user vectors."""
    return user_l2 * jnp.mean(jnp.sum(jnp.square(users_bxD), axis=-1))
