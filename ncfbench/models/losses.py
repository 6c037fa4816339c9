"""Losses for implicit feedback: pure functions of scores. Four of the paper (KDD 2017, table 1),
and sampled softmax.

A loss belongs to a family, and its base class is that of the family. A pointwise loss has a term
for a positive and one for a negative link; a pairwise loss compares a positive with a negative link
of one user; a listwise loss compares a positive link with all its negatives. Means and weights are
the objective's business.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from ncfbench.catalog import LOSSES, LossFamily, LossInfo, find_loss
from ncfbench.config import RunConfig


class Loss(ABC):
    """A loss of any family. Attributes of the class declare what
    :class:`ncfbench.catalog.LossInfo` lists.
    """

    family: ClassVar[LossFamily]
    info: ClassVar[LossInfo] = LossInfo()

    @classmethod
    def configured(cls, config: RunConfig) -> Self:
        """Build the loss of a run: from ``gamma`` where the run has it, else without arguments.

        A loss with settings of its own overrides this method.
        """
        build: Any = cls
        loss: Self = build() if config.gamma is None else build(config.gamma)
        return loss

    @abstractmethod
    def rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return [b]: the loss of each positive link and of its negatives.

        Args:
            positive: [b] scores of the positive links.
            negative: [b, n] scores of the negative links; row i belongs to positive link i.
            weight: [b, n], sums a function of a row's negative links to an expectation, or for a
                listwise loss to a sum over all items.
            lambda_: the weight of a pointwise loss's negative term; None for the others.
        """

    def batch_rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return [b]: the estimate of :meth:`rows` from the negatives of a batch.

        It is :meth:`rows`, unless the loss estimates its objective by another function.
        """
        return self.rows(positive, negative, weight, lambda_)


class Pointwise(Loss):
    """A loss with one term for each link."""

    family = "pointwise"
    costless_score: ClassVar[float | None] = None
    """A score of a negative link at which the loss and its slope are 0; None where there is none.
    """
    squares_negatives = False
    """True if the loss of a negative link is the square of its score."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "negative" in vars(cls) and "negative_and_slope" not in vars(cls):
            # What a base class says of its own loss is not true of another one.
            cls.negative_and_slope = Pointwise.negative_and_slope  # type: ignore[method-assign]
            cls.costless_score = vars(cls).get("costless_score")
            cls.squares_negatives = vars(cls).get("squares_negatives", False)

    @abstractmethod
    def positive(self, scores: jax.Array) -> jax.Array:
        """Return the loss of positive links, elementwise."""

    @abstractmethod
    def negative(self, scores: jax.Array) -> jax.Array:
        """Return the loss of negative links, elementwise."""

    def negative_and_slope(self, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the loss of negative links and its derivative by the score, elementwise."""
        value, slope = jax.jvp(self.negative, (scores,), (jnp.ones_like(scores),))
        return value, slope

    def rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """See :meth:`Loss.rows`: ``l+(positive) + lambda sum weight l-(negative)``."""
        return self.positive(positive) + self.negative_rows(negative, weight, lambda_)

    def negative_rows(
        self, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return the negative term of each row [b]: ``lambda sum weight l-(negative)``."""
        if lambda_ is None:
            raise TypeError("a pointwise loss needs lambda")
        return lambda_ * jnp.sum(weight * self.negative(negative), axis=-1)


class Pairwise(Loss):
    """A loss with one term for each pair of a positive and a negative link."""

    family = "pairwise"

    @abstractmethod
    def pair(self, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """Return the loss of broadcasting pairs of scores, elementwise."""

    def rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """See :meth:`Loss.rows`: ``sum weight l(positive, negative)``."""
        return jnp.sum(weight * self.pair(positive[:, None], negative), axis=-1)


class Listwise(Loss):
    """A loss with one term for each positive link and all its negatives."""

    family = "listwise"

    @abstractmethod
    def row(self, positive: jax.Array, negative: jax.Array, weight: jax.Array) -> jax.Array:
        """Return [b]: the loss of each positive link; row i of ``negative`` and ``weight``, [b, n],
        belongs to it.

        ``sum weight h(negative)`` estimates the sum of h over all items that are no link of the
        user.
        """

    def rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """See :meth:`Loss.rows`."""
        return self.row(positive, negative, weight)


@dataclass(frozen=True)
class SkipGram(Pointwise):
    """SG: ``-log sigmoid(score)`` and ``-log sigmoid(-score)`` (Mikolov et al. 2013)."""

    costless_score = -math.inf

    def positive(self, scores: jax.Array) -> jax.Array:
        """Return ``log(1 + exp(-score))``, without overflow."""
        return jax.nn.softplus(-scores)

    def negative(self, scores: jax.Array) -> jax.Array:
        """Return ``log(1 + exp(score))``, without overflow."""
        return jax.nn.softplus(scores)

    def negative_and_slope(self, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        """See :meth:`Pointwise.negative_and_slope`: both from one exponential, without a logarithm.

        ``log(1 + e) = 2 artanh(e / (2 + e))``, whose series has six terms here: at most 3e-7 off,
        relative, as softplus itself. 0.8 times the time of softplus and sigmoid in the sum over all
        users (5,551 users, 495 items, two CPU cores).
        """
        exponential = jnp.exp(-jnp.abs(scores))
        ratio = exponential / (2 + exponential)
        square = jnp.square(ratio)
        series = jnp.zeros_like(ratio)
        for power in (11, 9, 7, 5, 3, 1):
            series = series * square + 1 / power
        share = 1 / (1 + exponential)
        value = jnp.maximum(scores, 0) + 2 * ratio * series
        return value, jnp.where(scores >= 0, share, exponential * share)


@dataclass(frozen=True)
class MeanSquaredError(Pointwise):
    """MSE: squared distance to 1 for a positive, to 0 for a negative link (van den Oord et al.
    2013).
    """

    costless_score = 0.0
    squares_negatives = True

    def positive(self, scores: jax.Array) -> jax.Array:
        """Return ``(1 - score)^2``."""
        return jnp.square(1 - scores)

    def negative(self, scores: jax.Array) -> jax.Array:
        """Return ``score^2``."""
        return jnp.square(scores)


@dataclass(frozen=True)
class LogLoss(Pairwise):
    """Log: ``-log sigmoid(gamma (positive - negative))`` (Rendle et al. 2009)."""

    gamma: float

    def pair(self, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """Return ``log(1 + exp(gamma (negative - positive)))``, without overflow."""
        return jax.nn.softplus(self.gamma * (negative - positive))


@dataclass(frozen=True)
class Hinge(Pairwise):
    """Hinge: ``max(negative - positive + gamma, 0)`` (Weimer et al. 2008)."""

    gamma: float

    def pair(self, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """Return ``max(negative - positive + gamma, 0)``."""
        return jnp.maximum(negative - positive + self.gamma, 0)


@dataclass(frozen=True)
class SampledSoftmax(Listwise):
    """Softmax over all items, estimated from the sampled ones with logQ correction (Bengio and
    Senecal 2008; Yi et al. 2019).

    ``-log(exp(gamma p) / (exp(gamma p) + sum_j weight_j exp(gamma n_j)))``: a negative drawn from Q
    with n draws has weight 1 / (n Q), which is a correction of its score by -log(n Q). The
    logarithm of a sampled sum is no unbiased estimate of the logarithm: the expected loss and
    gradient approach those of the full softmax as the negatives grow, with a bias of the order of
    one over their number.

    The positive item is no draw, and so has weight 1. With S the weighted sum over negatives, the
    gradient is 1 - P = S / (1 + S) times that of ``log(sum weight exp(gamma n)) - gamma p``: the
    form of the refined logQ correction (Khrylchenko et al. 2025), P estimated from the same batch.
    """

    gamma: float

    def row(self, positive: jax.Array, negative: jax.Array, weight: jax.Array) -> jax.Array:
        """Return ``log(1 + sum weight exp(gamma (negative - positive)))``, without overflow."""
        zeros = jnp.zeros_like(positive)[:, None]
        exponents = jnp.concatenate([zeros, self.gamma * (negative - positive[:, None])], axis=1)
        weights = jnp.concatenate([zeros + 1, weight], axis=1)
        return jax.nn.logsumexp(exponents, axis=1, b=weights)


@dataclass(frozen=True)
class UsualSoftmax(SampledSoftmax):
    """Softmax over all items, estimated from a batch with the usual logQ correction, in which the
    positive item is corrected as if it had been drawn (Yi et al. 2019).

    ``-log`` of the positive item's share of ``sum_j weight_j exp(gamma s_j)`` over the items of the
    batch, its own among them with the weight 1 / (n Q) of a draw, where the softmax over all items
    gives it weight 1. The value is off by the logarithm of that weight, which has no gradient:
    ``log sum_j weight_j exp(gamma (s_j - p))``. The objective, which probes and audits compute, is
    that of :class:`SampledSoftmax`.
    """

    info = LOSSES["softmax-logq"]

    def batch_rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """See :meth:`Loss.batch_rows`; the positive item is among those that have weight."""
        exponents = self.gamma * (negative - positive[:, None])
        return jax.nn.logsumexp(exponents, axis=1, b=weight)


def make_loss(config: RunConfig) -> Loss:
    """Build the loss that ``config`` names, with its settings."""
    loss: Loss = find_loss(config.loss).load().configured(config)
    return loss
