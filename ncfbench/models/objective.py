"""The objective, one for all samplers: from vectors and a batch's links to a number.

pointwise: ``mean l+(positive) + lambda sum weight l-(negative)``; pairwise: ``sum weight
l(positive, negative)``; listwise: ``mean l(positive, negatives, b weight)``. The weights already
hold importance, mask, multiplicity and normaliser (see :mod:`ncfbench.sampling.batch`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ncfbench.models.interaction import Interaction
from ncfbench.models.losses import Loss, Pointwise
from ncfbench.sampling.batch import Batch, Listed, Remembered


class Hardness(NamedTuple):
    """Which negatives of a positive link count."""

    hardest: int = 0
    """Those of the highest scores: so many of them; 0: all."""
    margin: float = 0.0
    """Least distance of their score below the positive link's (de Souza Moreira et al. 2024, arXiv
    2407.15831); 0: whatever their score.
    """


ALL = Hardness()


def batch_link_loss(
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    batch: Batch,
    interaction: Interaction,
    loss: Loss,
    lambda_: float | None,
    hardness: Hardness = ALL,
    own_bxD: jax.Array | None = None,
    is_hard: jax.Array | None = None,
) -> jax.Array:
    """Estimate L from the vectors of a batch's slots, with negatives of any form.

    Args:
        own_bxD: vectors of the positive links' users, where these are not those of their slots:
            each history lacks the link itself. A pairwise or listwise loss compares it with all
            negatives of the link; the negative links of a pointwise one are links of their own, and
            keep the slots' vectors.
        is_hard: bool[], false where all negatives count after all: before the end of a warm start.
    """
    if own_bxD is not None and not isinstance(loss, Pointwise):
        users_UxD, batch, own_bxD = own_bxD, _by_link(batch), None
    negatives = batch.negatives
    positive, negative = batch_scores(users_UxD, items_VxD, batch, interaction, own_bxD)
    keeps = hardness != ALL and loss.info.includes_positive
    kept = batch.items[batch.pos_item][:, None] == batch.items[None, :] if keeps else None
    weight = hard_weights(positive, negative, negatives.weight, hardness, kept)
    if is_hard is not None:
        weight = jnp.where(is_hard, weight, negatives.weight)
    return link_loss(positive, negative, weight, loss, lambda_)


def without_remembered(items_VxD: jax.Array, batch: Batch) -> jax.Array:
    """Return the vectors of item slots; those of remembered items are constants."""
    if not isinstance(batch.negatives, Remembered):
        return items_VxD
    is_remembered = jnp.arange(len(items_VxD)) < jnp.min(batch.pos_item)
    return jnp.where(is_remembered[:, None], jax.lax.stop_gradient(items_VxD), items_VxD)


def batch_scores(
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    batch: Batch,
    interaction: Interaction,
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
        positive = interaction.indexed(f, items_VxD, slot, batch.pos_item)
        return positive, interaction.indexed(users_UxD, items_VxD, user, item)
    f_bxD = users_UxD[batch.pos_user]
    own_bxD = f_bxD if own_bxD is None else own_bxD
    positive = interaction.pairs(own_bxD, items_VxD[batch.pos_item])
    return positive, interaction.matrix(f_bxD, items_VxD)


def _by_link(batch: Batch) -> Batch:
    """Return a batch of a pairwise or listwise loss whose user slots are its positive links."""
    link, negatives = jnp.arange(len(batch.pos_user)), batch.negatives
    if isinstance(negatives, Listed):
        user = jnp.broadcast_to(link[:, None], negatives.user.shape)
        negatives = negatives._replace(user=user)
    return batch._replace(pos_user=link, negatives=negatives)


def hard_weights(
    positive: jax.Array,
    negative: jax.Array,
    weight: jax.Array,
    hardness: Hardness,
    kept: jax.Array | None = None,
) -> jax.Array:
    """Return the weights [..., n] with 0 for all but each row's hard negatives.

    Those are the ``hardest`` of the highest scores among the negatives that have weight and are
    below the positive link by the margin, and any that equal the lowest of them. Nothing is
    rescaled where there are fewer.

    Args:
        positive: [...], the score of each row's positive link.
        negative: [..., n].
        kept: bool[..., n] pairs that keep their weight, and are none of the ``hardest``: a row's
            own item, for a loss whose sum includes the positive one.
    """
    hardest, margin = hardness
    picks = 0 < hardest < weight.shape[-1]
    if not picks and not margin:
        return weight
    able = weight > 0 if kept is None else (weight > 0) & ~kept
    negative = jax.lax.stop_gradient(negative)
    if margin:
        able &= negative < jax.lax.stop_gradient(positive)[..., None] - margin
    chosen = able
    if picks:
        chosen &= _is_among_highest(jnp.where(able, negative, -jnp.inf), hardest)
    return jnp.where(chosen if kept is None else chosen | kept, weight, 0)


def _is_among_highest(scores: jax.Array, count: int) -> jax.Array:
    """Return which scores [..., n] are at least the ``count``-th highest of their row, which is
    found bit by bit: in a sixth of the time of ``top_k`` on a CPU.
    """
    bits = jax.lax.bitcast_convert_type(scores.astype(jnp.float32), jnp.uint32)
    # Unsigned numbers in the order of the floats: those below zero have all bits turned round.
    sign = jnp.uint32(1 << 31)
    order = jnp.where(bits >= sign, ~bits, bits | sign)

    def narrow(step: jax.Array, lowest: jax.Array) -> jax.Array:
        higher = lowest | (sign >> step.astype(jnp.uint32))
        is_enough = jnp.sum(order >= higher, axis=-1, keepdims=True) >= count
        return jnp.where(is_enough, higher, lowest)

    begin = jnp.zeros((*scores.shape[:-1], 1), jnp.uint32)
    lowest: jax.Array = jax.lax.fori_loop(0, 32, narrow, begin)
    return order >= lowest


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


def pairs_loss(
    positive: jax.Array, negative: jax.Array, weight: jax.Array, loss: Loss, lambda_: float | None
) -> jax.Array:
    """Estimate L as :func:`link_loss` does; a pointwise loss's negative links, [n, m], need not
    stand in rows of positive ones.
    """
    if not isinstance(loss, Pointwise) or lambda_ is None:
        return link_loss(positive, negative, weight, loss, lambda_)
    summed = jnp.sum(weight * loss.negative(_silent(negative, weight)))
    return jnp.mean(loss.positive(positive)) + lambda_ * summed


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


def coupling_penalty(gaps_b: jax.Array, weight: float) -> jax.Array:
    """Return ``weight`` times the mean squared distance of the positive links' items from g; an
    item counts once for each of its links.
    """
    return weight * jnp.mean(gaps_b)
