"""Layers over dense features, and the encoders that read them."""

from __future__ import annotations

import itertools

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, Encoder, EncoderInput


class FeatureLayers(nnx.Module):
    """Hidden layers with ReLU, then dense.

    Args:
        widths: of the features and of each hidden layer; without any of these it is linear.
        scale: standard deviation of the result at the start, relative to its input's.
    """

    def __init__(
        self, widths: list[int], dimension: int, *, scale: float = 1.0, rngs: nnx.Rngs
    ) -> None:
        he = nnx.initializers.he_normal()
        last = nnx.initializers.variance_scaling(scale**2, "fan_in", "normal")
        self.hidden = nnx.List(
            [nnx.Linear(*pair, kernel_init=he, rngs=rngs) for pair in itertools.pairwise(widths)]
        )
        self.dense = nnx.Linear(widths[-1], dimension, kernel_init=last, rngs=rngs)

    def __call__(self, features: jax.Array | None) -> jax.Array:
        """Return float32[n, D] of float32[n, F]."""
        assert features is not None
        for layer in self.hidden:
            features = nnx.relu(layer(features))
        return self.dense(features)


class FeatureMlp(nnx.Module):
    """Dense features -> hidden layers with ReLU -> dense. It reads no text."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        widths = [data.item_features, *[config.mlp_units] * config.mlp_layers]
        self.layers = FeatureLayers(widths, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]."""
        return self.layers(texts.features)


class WithFeatures(nnx.Module):
    """Another encoder plus a linear map of the items' dense features."""

    def __init__(
        self, encoder: Encoder, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs
    ) -> None:
        self.encoder = encoder
        self.layer = FeatureLayers([data.item_features], config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]."""
        return self.encoder(texts) + self.layer(texts.features)
