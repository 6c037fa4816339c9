"""Matrix factorisation: a free vector for each item, no content."""

from __future__ import annotations

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import EMBEDDING_SCALE, DataFacts, Texts


class MatrixFactorization(nnx.Module):
    """g(v) is row v of a table.

    An item without training links keeps its initial vector: cold items have no meaningful score.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.vectors = nnx.Embed(
            data.items,
            config.dimension,
            embedding_init=nnx.initializers.normal(EMBEDDING_SCALE),
            rngs=rngs,
        )

    def __call__(self, texts: Texts) -> jax.Array:
        """Return float32[V, D]."""
        return self.vectors(texts.items)
