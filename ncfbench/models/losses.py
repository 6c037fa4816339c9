"""Losses for implicit feedback: pure functions of scores. Four of the paper (KDD 2017, table 1),
and sampled softmax.

The base class of a loss is that of its family. Means and weights are the objective's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from ncfbench.catalog import LOSSES, LossFamily, LossInfo, find_loss
from ncfbench.config import RunConfig


class Loss(ABC):
    """A loss of any family."""

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
                listwise loss to a sum over all items that are no link of the user.
            lambda_: the weight of a pointwise loss's negative term; None for the others.
        """

    def batch_rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return [b]: the estimate of :meth:`rows` from the negatives of a batch."""
        return self.rows(positive, negative, weight, lambda_)


class Pointwise(Loss):
    """A loss with one term for each positive and one for each negative link."""

    family = "pointwise"

    @abstractmethod
    def positive(self, scores: jax.Array) -> jax.Array:
        """Return the loss of positive links, elementwise."""

    @abstractmethod
    def negative(self, scores: jax.Array) -> jax.Array:
        """Return the loss of negative links, elementwise."""

    def rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return ``l+(positive) + lambda sum weight l-(negative)``."""
        if lambda_ is None:
            raise TypeError("a pointwise loss needs lambda")
        negatives = jnp.sum(weight * self.negative(negative), axis=-1)
        return self.positive(positive) + lambda_ * negatives


class Pairwise(Loss):
    """A loss with one term for each pair of a positive and a negative link of one user."""

    family = "pairwise"

    @abstractmethod
    def pair(self, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """Return the loss of broadcasting pairs of scores, elementwise."""

    def rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return ``sum weight l(positive, negative)``."""
        return jnp.sum(weight * self.pair(positive[:, None], negative), axis=-1)


class Listwise(Loss):
    """A loss with one term for each positive link and all its negatives."""

    family = "listwise"


@dataclass(frozen=True)
class SkipGram(Pointwise):
    """SG: ``-log sigmoid(score)`` and ``-log sigmoid(-score)`` (Mikolov et al. 2013)."""

    def positive(self, scores: jax.Array) -> jax.Array:
        """Return ``log(1 + exp(-score))``, without overflow."""
        return jax.nn.softplus(-scores)

    def negative(self, scores: jax.Array) -> jax.Array:
        """Return ``log(1 + exp(score))``, without overflow."""
        return jax.nn.softplus(scores)


@dataclass(frozen=True)
class MeanSquaredError(Pointwise):
    """MSE: squared distance to 1 for a positive, to 0 for a negative link (van den Oord et al.
    2013).
    """

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
    with n draws has weight 1 / (n Q), the positive item, which is no draw, weight 1. The gradient
    is the refined logQ correction of Khrylchenko et al. (2025). Its bias is of the order of one
    over the number of negatives.
    """

    gamma: float

    def rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return ``log(1 + sum weight exp(gamma (negative - positive)))``, without overflow."""
        zeros = jnp.zeros_like(positive)[:, None]
        exponents = jnp.concatenate([zeros, self.gamma * (negative - positive[:, None])], axis=1)
        weights = jnp.concatenate([zeros + 1, weight], axis=1)
        return jax.nn.logsumexp(exponents, axis=1, b=weights)


@dataclass(frozen=True)
class UsualSoftmax(SampledSoftmax):
    """Softmax with the usual logQ correction, in which the positive item is corrected as if it had
    been drawn (Yi et al. 2019).

    Probes and audits compute the objective of :class:`SampledSoftmax`; the value of a batch is off
    by the logarithm of the positive item's weight, which has no gradient.
    """

    info = LOSSES["softmax-logq"]

    def batch_rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        """Return ``log sum_j weight_j exp(gamma (s_j - p))``; the positive item has weight."""
        exponents = self.gamma * (negative - positive[:, None])
        return jax.nn.logsumexp(exponents, axis=1, b=weight)


def make_loss(config: RunConfig) -> Loss:
    """Build the loss that ``config`` names, with its settings."""
    loss: Loss = find_loss(config.loss).load().configured(config)
    return loss
