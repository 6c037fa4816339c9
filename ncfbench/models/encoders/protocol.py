"""The contract of an encoder."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
from flax import nnx

from ncfbench.config import RunConfig

EMBEDDING_SCALE = 0.1
"""Standard deviation of the words' and items' initial vectors. With 0.5 and 1.0 instead, ten epochs
of MSE (users at 0.14) reached a recall@50 of 0.283 and 0.183; with 0.14 they reached 0.359.
"""


class Texts(NamedTuple):
    """The texts of some items, as an encoder sees them."""

    items: jax.Array
    """int32[V]: item ids, or the items' rows in the tables that the encoder names as its
    ``item_tables``.
    """
    tokens: jax.Array
    """int32[V, L]: word ids, 0 behind the last word."""
    present: jax.Array
    """bool[V, L]: where a word is; false on padding and on words that dropout removed."""
    lengths: jax.Array
    """int32[V]: words of each text, removed ones included."""


class Encoder(Protocol):
    """An item function g, an :class:`flax.nnx.Module`.

    Built as ``Encoder(config, n_items, n_words, rngs=rngs)``. One that looks items up by their ids
    names the :class:`flax.nnx.Embed` tables in which it does: ``item_tables = ("vectors",)``. Where
    tables are sharded over devices, only the rows of a batch's items are fetched then.
    """

    def __call__(self, texts: Texts) -> jax.Array:
        """Return float32[V, D]: the vector of each item.

        What stands behind a text's last word must not matter.
        """


class Build(Protocol):
    """The constructor of an encoder."""

    def __call__(self, config: RunConfig, n_items: int, n_words: int, *, rngs: nnx.Rngs) -> Encoder:
        """Return an encoder with initial parameters for ``n_items`` items and words 0..n_words."""
