"""Losses for implicit feedback: pure functions of scores. Four of the paper (KDD 2017, table 1),
and sampled softmax.

A pointwise loss has a term for a positive and one for a negative link; a pairwise loss compares a
positive with a negative link of one user; a listwise loss compares a positive link with all its
negatives. Means and weights are the objective's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.config import RunConfig
from ncfbench.registry import find_loss, load


class Pointwise(Protocol):
    """A loss with one term for each link."""

    def positive(self, scores: jax.Array) -> jax.Array:
        """The loss of positive links, elementwise."""

    def negative(self, scores: jax.Array) -> jax.Array:
        """The loss of negative links, elementwise."""


class Pairwise(Protocol):
    """A loss with one term for each pair of a positive and a negative link."""

    def pair(self, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """The loss of broadcasting pairs of scores, elementwise."""


class Listwise(Protocol):
    """A loss with one term for each positive link and all its negatives."""

    def row(self, positive: jax.Array, negative: jax.Array, weight: jax.Array) -> jax.Array:
        """The loss of each positive link, [b]; row i of ``negative`` and ``weight``, [b, n],
        belongs to it.

        ``sum weight h(negative)`` estimates the sum of h over all items that are no link of the
        user.
        """


Loss: TypeAlias = Pointwise | Pairwise | Listwise


@dataclass(frozen=True)
class SkipGram:
    """SG: ``-log sigmoid(score)`` and ``-log sigmoid(-score)`` (Mikolov et al. 2013)."""

    def positive(self, scores: jax.Array) -> jax.Array:
        """``log(1 + exp(-score))``, without overflow."""
        return jax.nn.softplus(-scores)

    def negative(self, scores: jax.Array) -> jax.Array:
        """``log(1 + exp(score))``, without overflow."""
        return jax.nn.softplus(scores)


@dataclass(frozen=True)
class MeanSquaredError:
    """MSE: squared distance to 1 for a positive, to 0 for a negative link (van den Oord et al.
    2013).
    """

    def positive(self, scores: jax.Array) -> jax.Array:
        """``(1 - score)^2``."""
        return jnp.square(1 - scores)

    def negative(self, scores: jax.Array) -> jax.Array:
        """``score^2``."""
        return jnp.square(scores)


@dataclass(frozen=True)
class LogLoss:
    """Log: ``-log sigmoid(gamma (positive - negative))`` (Rendle et al. 2009)."""

    gamma: float

    def pair(self, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """``log(1 + exp(gamma (negative - positive)))``, without overflow."""
        return jax.nn.softplus(self.gamma * (negative - positive))


@dataclass(frozen=True)
class Hinge:
    """Hinge: ``max(negative - positive + gamma, 0)`` (Weimer et al. 2008)."""

    gamma: float

    def pair(self, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """``max(negative - positive + gamma, 0)``."""
        return jnp.maximum(negative - positive + self.gamma, 0)


@dataclass(frozen=True)
class SampledSoftmax:
    """Softmax over all items, estimated from the sampled ones with logQ correction (Bengio and
    Senecal 2008; Yi et al. 2019).

    ``-log(exp(gamma p) / (exp(gamma p) + sum_j weight_j exp(gamma n_j)))``: a negative drawn from Q
    with n draws has weight 1 / (n Q), which is a correction of its score by -log(n Q). The
    logarithm of a sampled sum is no unbiased estimate of the logarithm: the expected loss and
    gradient approach those of the full softmax as the negatives grow, with a bias of the order of
    one over their number.
    """

    gamma: float

    def row(self, positive: jax.Array, negative: jax.Array, weight: jax.Array) -> jax.Array:
        """``log(1 + sum weight exp(gamma (negative - positive)))``, without overflow."""
        zeros = jnp.zeros_like(positive)[:, None]
        exponents = jnp.concatenate([zeros, self.gamma * (negative - positive[:, None])], axis=1)
        weights = jnp.concatenate([zeros + 1, weight], axis=1)
        return jax.nn.logsumexp(exponents, axis=1, b=weights)


def make_loss(config: RunConfig) -> Loss:
    """The loss that ``config`` names, with its settings."""
    build = load(find_loss(config.loss).path)
    loss: Loss = build() if config.gamma is None else build(config.gamma)
    return loss
