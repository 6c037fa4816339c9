"""Layers over dense features."""

from __future__ import annotations

import itertools

import jax
from flax import nnx


class FeatureLayers(nnx.Module):
    """Hidden layers with ReLU, then dense.

    Args:
        width: number of features.
        units, layers: of the hidden layers; without any it is linear.
        dimension: length of the result.
        scale: standard deviation of the result at the start, relative to its input's.
    """

    def __init__(
        self,
        width: int,
        units: int,
        layers: int,
        dimension: int,
        *,
        scale: float = 1.0,
        rngs: nnx.Rngs,
    ) -> None:
        widths = [width, *[units] * layers]
        he = nnx.initializers.he_normal()
        self.hidden = nnx.List(
            [
                nnx.Linear(before, after, kernel_init=he, rngs=rngs)
                for before, after in itertools.pairwise(widths)
            ]
        )
        initial = nnx.initializers.variance_scaling(scale**2, "fan_in", "normal")
        self.dense = nnx.Linear(widths[-1], dimension, kernel_init=initial, rngs=rngs)

    def __call__(self, features: jax.Array) -> jax.Array:
        """Return float32[n, D] of float32[n, F]."""
        for layer in self.hidden:
            features = nnx.relu(layer(features))
        return self.dense(features)
