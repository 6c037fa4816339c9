"""The two towers: user function f, item function g, and how they see the data on the device."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.models.dropout import OUTPUT_PLACE, Dropout
from ncfbench.models.encoders.protocol import Build, Texts
from ncfbench.registry import find_encoder, load

USER_SCALE = 0.01
"""Deviation of the users' first parameters. After 10 epochs of MSE at its learning rate of 0.001
(strat-ns, title and tags, 40 words) recall@50 was 0.420 from 0.01, 0.418 from 0.03, 0.385 from 0.1
and 0.280 from 0.3; the other losses do not care.
"""


class Content(NamedTuple):
    """All items' texts, resident on the device; batches name items by id."""

    tokens: jax.Array
    """int32[I, L]."""
    lengths: jax.Array
    """int32[I]."""

    @classmethod
    def of(cls, dataset: Dataset) -> Content:
        """The texts of a data set."""
        return cls(jnp.asarray(dataset.tokens_IxL), jnp.asarray(dataset.lengths))


class Towers(nnx.Module):
    """f: a vector for each user. g: an encoder, with word dropout before it and item dropout behind
    it.
    """

    def __init__(
        self, config: RunConfig, n_users: int, n_items: int, n_words: int, *, rngs: nnx.Rngs
    ) -> None:
        build: Build = load(find_encoder(config.encoder).path)
        self.users = nnx.Embed(
            n_users, config.dimension, embedding_init=nnx.initializers.normal(USER_SCALE), rngs=rngs
        )
        self.encoder = build(config, n_items, n_words, rngs=rngs)
        self.word_dropout = config.word_dropout
        self.item_dropout = config.item_dropout
        self.normalize = config.normalize

    def user_vectors(self, users: jax.Array) -> jax.Array:
        """float32[U, D]: f before any normalisation, as the users' penalty wants it."""
        return self.users(users)

    def finish(self, vectors: jax.Array) -> jax.Array:
        """What scores are made of: the vectors themselves for pointwise losses, unit vectors for
        the others.
        """
        return unit_vectors(vectors) if self.normalize else vectors

    def embed_users(self, users: jax.Array) -> jax.Array:
        """float32[U, D]: f of each user id."""
        return self.finish(self.user_vectors(users))

    def embed_items(
        self,
        items: jax.Array,
        content: Content,
        dropout: Dropout | None = None,
        rows: jax.Array | None = None,
    ) -> jax.Array:
        """float32[V, D]: g of each item id; without ``dropout``, as in evaluation.

        Args:
            rows: int32[V], of the items in the encoder's tables by item, where these are not the
                items' ids.
        """
        tokens, lengths = content.tokens[items], content.lengths[items]
        present = tokens > 0
        if dropout is not None and self.word_dropout > 0:
            # Words are removed and the others not rescaled: a maximum is not linear.
            present &= dropout.keep(items, tokens.shape[1], self.word_dropout)
        vectors = self.encoder(Texts(items if rows is None else rows, tokens, present, lengths))
        if dropout is not None and self.item_dropout > 0:
            kept = dropout.keep(items, vectors.shape[1], self.item_dropout, OUTPUT_PLACE)
            vectors = jnp.where(kept, vectors / (1 - self.item_dropout), 0)
        return self.finish(vectors)


def unit_vectors(vectors: jax.Array) -> jax.Array:
    """Each row divided by its length; a row of zeros stays as it is, with a gradient of zero."""
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    is_zero = squared < 1e-24
    return jnp.where(is_zero, 0.0, vectors * jax.lax.rsqrt(jnp.where(is_zero, 1.0, squared)))


def make_towers(config: RunConfig, dataset: Dataset) -> Towers:
    """Both towers with the parameters that the run's seed gives."""
    return Towers(
        config, dataset.n_users, dataset.n_items, dataset.n_words, rngs=nnx.Rngs(config.seed)
    )
