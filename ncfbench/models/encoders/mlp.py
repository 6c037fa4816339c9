"""The encoder of dense features: hidden layers, dense."""

from __future__ import annotations

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, Encoder, EncoderInput
from ncfbench.models.feature_layers import FeatureLayers


class FeatureMlp(nnx.Module):
    """Dense features -> hidden layers with ReLU -> dense. It reads no text."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.layers = FeatureLayers(
            data.item_features, config.mlp_units, config.mlp_layers, config.dimension, rngs=rngs
        )

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]."""
        assert texts.features is not None
        return self.layers(texts.features)


class WithFeatures(nnx.Module):
    """Another encoder plus a linear map of the items' dense features."""

    def __init__(
        self, encoder: Encoder, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs
    ) -> None:
        self.encoder = encoder
        self.layer = FeatureLayers(data.item_features, 1, 0, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]."""
        assert texts.features is not None
        return self.encoder(texts) + self.layer(texts.features)
