"""Matrix factorisation: a free vector for each item, no content."""

from __future__ import annotations

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding


class MatrixFactorization(nnx.Module):
    """g(v) is row v of a table.

    An item without training links keeps its initial vector: cold items have no meaningful score.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.vectors = embedding(data.items, config.dimension, rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]."""
        return self.vectors(texts.items)
