"""The two towers, the user function f and the item function g."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.catalog import find_encoder, find_user_tower
from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.models.blocks import in_blocks
from ncfbench.models.contracts import require_contracts
from ncfbench.models.dropout import FIRST_FEATURE, FIRST_OUTPUT, Dropout
from ncfbench.models.encoders.mlp import WithFeatures
from ncfbench.models.encoders.protocol import DataFacts, Encoder, EncoderInput, embedding
from ncfbench.models.histories import Histories
from ncfbench.models.scores import unit_vectors
from ncfbench.models.tables import WHOLE_TABLES, Rows

BLOCK_NUMBERS = 2**24
"""Numbers of the vectors of histories' items that are in memory at a time: 64 MB."""


class DeviceContent(NamedTuple):
    """Content of all items and users, resident on the device; batches name them by id."""

    tokens: jax.Array
    """int32[I, L]."""
    lengths: jax.Array
    """int32[I]."""
    item_features: jax.Array | None = None
    """float32[I, F]; None where the data set has none."""
    histories: Histories | None = None
    """None where no user tower reads them."""

    @classmethod
    def of(cls, dataset: Dataset, configs: Iterable[RunConfig] = ()) -> DeviceContent:
        """Move the content of a data set to the device.

        Args:
            configs: settings of the runs that read it, which decide whether histories are made.
        """
        features = dataset.item_features
        arrays = dataset.tokens_IxL, dataset.lengths, features
        readers = [config for config in configs if config.reads_histories]
        histories = None
        if readers:
            reads_them = any(config.reads_history_features for config in readers)
            histories = Histories.of_graph(dataset.graph, features if reads_them else None)
        return cls(*jax.device_put(arrays))._replace(histories=histories)


class UserVectors(NamedTuple):
    """The vectors of some users."""

    scored: jax.Array
    """float32[U, D]: the vectors that scores are made of."""
    raw: jax.Array
    """float32[U, D]: the same before any normalisation, for the users' penalty."""


class Towers(nnx.Module):
    """Both towers, the only way to the vectors of users and items.

    Word dropout stands before g, item dropout after it. Pairwise and listwise losses score unit
    vectors (as the authors' program does), and all methods make them.

    With direct coupling g is what is scored. With regularised coupling training scores a free
    vector of each item, which a penalty on :meth:`gaps` pulls towards g, and g scores the items
    that training does not know.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.n_users = data.users
        self.user_tower = find_user_tower(config.user_tower).load()(config, data, rngs=rngs)
        self.history_items = config.history_items if config.reads_histories else 0
        self.dimension = config.dimension
        info = find_encoder(config.encoder)
        encoder: Encoder = info.load()(config, data, rngs=rngs)
        reads_them = data.item_features and config.reads_item_features
        is_added = reads_them and "features" not in info.content
        self.encoder = WithFeatures(encoder, config, data, rngs=rngs) if is_added else encoder
        is_coupled = config.coupling == "regularised"
        self.free_items = embedding(data.items, config.dimension, rngs) if is_coupled else None
        self.encodes_rows = "items" in info.tables.values()
        # The rates come with each iteration: runs of other rates share their programs.
        self.drops_words = config.word_dropout > 0 and info.reads("word_dropout")
        reads_them = reads_them and info.reads("feature_dropout")
        self.drops_features = config.feature_dropout > 0 and reads_them
        self.drops_items = config.item_dropout > 0
        self.normalize = config.normalize
        self.item_block = config.item_block

    def users(
        self,
        content: DeviceContent,
        users: jax.Array | None = None,
        rows: Rows = WHOLE_TABLES,
        left_out: jax.Array | None = None,
    ) -> UserVectors:
        """Return f of each user id, int32[U], or of all users in order.

        Args:
            rows: the users' and their histories' rows in the tower's tables, where these are not
                their ids.
            left_out: int32[U], an item that is left out of each user's history.
        """
        ids = jnp.arange(self.n_users) if users is None else users
        named = ids if rows.users is None else rows.users
        if not self.history_items:
            raw = self.user_tower(named)
            return UserVectors(self._finished(raw), raw)

        def embed(
            ids: jax.Array,
            named: jax.Array,
            items: jax.Array | None,
            left_out: jax.Array | None,
        ) -> jax.Array:
            histories = content.histories
            assert histories is not None
            history = histories.of(ids, self.history_items, content.item_features, left_out)
            history = history if items is None else history._replace(items=items)
            vectors: jax.Array = self.user_tower(named, history)
            return vectors

        size = max(BLOCK_NUMBERS // (self.history_items * self.dimension), 1)
        raw = in_blocks(embed, (ids, named, rows.histories, left_out), size)
        return UserVectors(self._finished(raw), raw)

    def items(
        self,
        items: jax.Array,
        content: DeviceContent,
        dropout: Dropout | None = None,
        rows: Rows = WHOLE_TABLES,
        n_items: jax.Array | None = None,
    ) -> jax.Array:
        """Return the vectors of item ids that training scores, float32[V, D]: g, or free vectors.

        Args:
            dropout: None in evaluation.
            rows: the items' and their words' rows in tables, where these are not their ids.
            n_items: int32, the first so many are items; the others are padding, whose words are
                not encoded. By default all are items.
        """
        if self.free_items is None:
            vectors = self._encode(items, content, dropout, rows, n_items)
        else:
            vectors = self.free_items(items if rows.items is None else rows.items)
        if dropout is not None and self.drops_items:
            rate = dropout.rates["item_dropout"]
            kept = dropout.keep(items, vectors.shape[1], rate, FIRST_OUTPUT)
            vectors = jnp.where(kept, vectors * rate.scale, 0)
        return self._finished(vectors)

    def cold_items(self, items: jax.Array, content: DeviceContent) -> jax.Array:
        """Return the vectors that score items without training links, float32[V, D]: always g."""
        return self._finished(self._encode(items, content))

    def gaps(
        self,
        items: jax.Array,
        content: DeviceContent,
        dropout: Dropout | None = None,
        rows: Rows = WHOLE_TABLES,
        n_items: jax.Array | None = None,
    ) -> jax.Array:
        """Return the squared distance of each item's free vector from g, float32[V].

        There is no item dropout. Arguments are those of :meth:`items`.
        """
        assert self.free_items is not None
        free = self._finished(self.free_items(items if rows.items is None else rows.items))
        encoded = self._finished(self._encode(items, content, dropout, rows, n_items))
        return jnp.sum(jnp.square(free - encoded), axis=-1)

    def _encode(
        self,
        items: jax.Array,
        content: DeviceContent,
        dropout: Dropout | None = None,
        rows: Rows = WHOLE_TABLES,
        n_items: jax.Array | None = None,
    ) -> jax.Array:
        def encode(items: jax.Array, rows: Rows, is_item: jax.Array | None) -> jax.Array:
            ids, lengths = content.tokens[items], content.lengths[items]
            tokens = ids if rows.words is None else rows.words
            present = tokens > 0
            if is_item is not None:
                present &= is_item[:, None]
                lengths = jnp.where(is_item, lengths, 0)
            if dropout is not None and self.drops_words:
                # Words are removed and the others not rescaled: a maximum is not linear.
                present &= dropout.keep(items, tokens.shape[1], dropout.rates["word_dropout"])
            named = items if rows.items is None or not self.encodes_rows else rows.items
            features = None if content.item_features is None else content.item_features[items]
            if dropout is not None and features is not None and self.drops_features:
                rate = dropout.rates["feature_dropout"]
                kept = dropout.keep(items, features.shape[1], rate, FIRST_FEATURE)
                features = jnp.where(kept, features * rate.scale, 0)
            return self.encoder(EncoderInput(named, tokens, present, lengths, features))

        is_item = None if n_items is None else jnp.arange(len(items)) < n_items
        arrays = items, rows._replace(users=None), is_item
        return in_blocks(encode, arrays, self.item_block or len(items))

    def _finished(self, vectors: jax.Array) -> jax.Array:
        return unit_vectors(vectors) if self.normalize else vectors


def make_towers(config: RunConfig, dataset: Dataset) -> Towers:
    """Return both towers with the initial parameters of the run's seed.

    Raises:
        UsageError: see :func:`ncfbench.models.contracts.require_contracts`.
    """
    require_contracts(config, dataset)
    return Towers(config, DataFacts.of(dataset), rngs=nnx.Rngs(config.seed))
