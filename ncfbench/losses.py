"""Four losses for implicit feedback (KDD 2017, table 1): pure functions of scores.

A pointwise loss has a term for a positive and one for a negative link; a pairwise loss compares a positive with a negative
link of one user. Sums, means and weights are the objective's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.config import RunConfig
from ncfbench.registry import LOSSES, load, lookup


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


Loss: TypeAlias = Pointwise | Pairwise


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
    """MSE: squared distance to 1 for a positive, to 0 for a negative link (van den Oord et al. 2013)."""

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


def make_loss(config: RunConfig) -> Loss:
    """The loss that ``config`` names, with its settings."""
    build = load(lookup("loss", LOSSES, config.loss).path)
    loss: Loss = build() if config.gamma is None else build(config.gamma)
    return loss
