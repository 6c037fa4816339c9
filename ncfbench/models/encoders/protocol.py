"""The contract of an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

import jax
from flax import nnx

from ncfbench.data.store import Dataset

EMBEDDING_SCALE = 0.1
"""Standard deviation of the words' and items' initial vectors. With 0.5 and 1.0 instead, ten epochs
of MSE (users at 0.14) reached a recall@50 of 0.283 and 0.183; with 0.14 they reached 0.359.
"""


class DataFacts(NamedTuple):
    """Facts of a data set that a model needs before it is built."""

    users: int
    items: int
    words: int
    """Words of the vocabulary; token ids are 1..words."""
    item_features: int = 0
    """Dense features of an item."""
    folder: Path | None = None
    """Folder of its content; None for one that is only in memory."""

    @classmethod
    def of(cls, dataset: Dataset) -> DataFacts:
        """Return the facts of a data set."""
        features = dataset.item_features
        return cls(
            dataset.n_users,
            dataset.n_items,
            dataset.n_words,
            0 if features is None else features.shape[1],
            dataset.folder,
        )


class EncoderInput(NamedTuple):
    """The content of some items, as an encoder sees it."""

    items: jax.Array
    """int32[V]: item ids, or the items' rows in the encoder's tables of ``items``."""
    tokens: jax.Array
    """int32[V, L]: word ids, or the words' rows in the encoder's tables of ``words``; 0 after the
    last word.
    """
    present: jax.Array
    """bool[V, L]: where a word is; false on padding and on words that dropout removed."""
    lengths: jax.Array
    """int32[V]: words of each text, removed ones included."""
    features: jax.Array | None = None
    """float32[V, F]: dense features, standardised; None where the data set has none."""


class Encoder(Protocol):
    """An item function g, an :class:`flax.nnx.Module`, built as ``Encoder(config, data,
    rngs=rngs)``, which may refuse both by a UsageError. Its record is a
    :class:`ncfbench.catalog.EncoderInfo`.
    """

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]: the vector of each item.

        Tokens after the last word must not affect the result.
        """


def embedding(rows: int, width: int, rngs: nnx.Rngs) -> nnx.Embed:
    """Return a table of small random vectors, of words for instance."""
    initial = nnx.initializers.normal(EMBEDDING_SCALE)
    return nnx.Embed(rows, width, embedding_init=initial, rngs=rngs)
