"""A two-tower of TensorFlow Recommenders, with its own in-batch softmax or with batches of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs
from bench_migrating import Clock, ColdItems

from ncfbench.config import complete
from ncfbench.rng import Streams
from ncfbench.sampling import batches

DIMENSION, GAMMA = 50, 10.0
BATCH, LARGER = 512, 2048
"""Links in a batch: of 2,048 in strata of 4, about as many items are encoded as of 512 without."""


class TwoTower(tfrs.Model):
    """A vector for each user; a convolution over an item's words; cosines times GAMMA."""

    def __init__(self, dataset: Any, way: str) -> None:
        super().__init__()
        self.way, self.batch_size = way, LARGER if way == "larger" else BATCH
        self.tokens = tf.constant(dataset.tokens_IxL)
        self.users = tf.keras.layers.Embedding(dataset.n_users, DIMENSION)
        words = tf.keras.layers.Embedding(dataset.n_words + 1, DIMENSION)
        convolution = tf.keras.layers.Conv1D(DIMENSION, 3, padding="same", activation="relu")
        pooling, dense = tf.keras.layers.GlobalMaxPooling1D(), tf.keras.layers.Dense(DIMENSION)
        self.items = tf.keras.Sequential([words, convolution, pooling, dense])
        self.task = tfrs.tasks.Retrieval(temperature=1 / GAMMA)
        graph = dataset.graph
        self.share = tf.constant(np.maximum(graph.item_degrees, 1) / graph.n_links, tf.float32)

    def user_vectors(self, users: Any) -> Any:
        """[U] -> [U, D], of unit length."""
        return tf.math.l2_normalize(self.users(users), axis=1)

    def item_vectors(self, items: Any) -> Any:
        """[V] -> [V, D], of unit length."""
        return tf.math.l2_normalize(self.items(tf.gather(self.tokens, items)), axis=1)

    def compute_loss(self, batch: Any, training: bool = False) -> Any:
        """Return the framework's loss, or that of docs/migrating.md."""
        if self.way in ("after", "larger"):
            users, items, pos_item, weight = batch
            f, g = self.user_vectors(users), self.item_vectors(items)
            scores = GAMMA * tf.linalg.matmul(f, g, transpose_b=True)
            own = tf.gather(scores, pos_item, axis=1, batch_dims=1)
            others = scores - own[:, None] + tf.math.log(float(self.batch_size) * weight)
            return tf.reduce_mean(tf.math.softplus(tf.reduce_logsumexp(others, axis=1)))
        users, items = batch
        f, g = self.user_vectors(users), self.item_vectors(items)
        if self.way == "before":
            return self.task(f, g, compute_metrics=False)
        share = tf.gather(self.share, items)
        return self.task(f, g, candidate_sampling_probability=share, compute_metrics=False)


def links(graph: Any, batch_size: int, seed: int) -> Any:
    """All links in random order, in batches, pass by pass."""
    pairs = (graph.link_user, graph.link_item)
    data = tf.data.Dataset.from_tensor_slices(pairs).shuffle(graph.n_links, seed=seed)
    return data.batch(batch_size, drop_remainder=True).repeat()


def shared(graph: Any, batch_size: int, seed: int) -> Any:
    """Stratified batches with shared negatives, and their weights."""
    settings = {"sampler": "strat-ns", "loss": "softmax", "batch_size": batch_size, "seed": seed}
    config = complete(settings)

    def stream() -> Iterator[tuple[Any, ...]]:
        for batch in batches(graph, config, Streams(seed)):
            yield batch.users, batch.items, batch.pos_item, batch.negatives.weight

    ids, weights = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.float32)
    return tf.data.Dataset.from_generator(stream, output_signature=(ids, ids, ids, weights))


def train(dataset: Any, way: str, seed: int, rate: float, start: Callable[..., Clock]) -> None:
    """Train until the clock is over."""
    tf.keras.utils.set_random_seed(seed)
    model, cold = TwoTower(dataset, way), ColdItems(dataset)
    model.compile(optimizer=tf.keras.optimizers.Adam(rate))
    every = tf.range(dataset.n_users)
    clock = start(lambda: cold.recall(model.user_vectors(every), model.item_vectors(cold.items)))

    class Tick(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            clock.batch()

    make = links if way in ("before", "corrected") else shared
    data = make(dataset.graph, model.batch_size, seed).prefetch(2)
    model.fit(data, steps_per_epoch=10**9, verbose=0, callbacks=[Tick()])
