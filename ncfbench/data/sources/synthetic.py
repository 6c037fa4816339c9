"""Synthetic data: heavy-tailed links and texts that share latent topics, made from a seed.

A link is a user (chosen by a heavy-tailed activity), one of the user's topics, and an item of that
topic (chosen by a heavy-tailed popularity). An item's words come mostly from its topic, so that
recall on cold items can be learned.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.content import Content
from ncfbench.data.features import Float32, standardise
from ncfbench.data.graph import MAX_LINKS
from ncfbench.data.hold_out import Links, hold_out
from ncfbench.data.options import MAX_FEATURES, PUBLISHED, SourceOptions, option
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.text import Int32, Texts
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.storage.free_space import require_memory

TOPICS_OF_A_USER = 3  # a user's links fall on them with weights 1, 1/2, 1/3
TOPIC_WORD_SHARE = 0.6  # of an item's words; the others come from all words
OFF_TOPIC_SHARE = 0.1  # of links, which ignore topics
FEATURE_NOISE = np.float32(0.5)  # standard deviation; a topic's centre has 1
LINKS_AT_ONCE = 2**22  # drawn at a time; part of what a seed means


def _size(default: int, help_: str) -> Any:
    return option(default, help_, at_least=1, at_most=MAX_LINKS)


@dataclass(frozen=True, kw_only=True)
class Options(SourceOptions):
    """Sizes and seeds of a synthetic data set."""

    fixed = PUBLISHED | {"topics", "vocabulary_size", "min_words", "lsa"}
    users: int = _size(800, "Users.")
    items: int = _size(3200, "Items.")
    links: int = _size(60_000, "Links between them.")
    topics: int = _size(12, "Latent topics, which decide links and words.")
    vocabulary_size: int = _size(1000, "Different words.")
    min_words: int = _size(6, "Words of the shortest text.")
    max_length: int = _size(24, "Words of the longest text.")
    item_features: int = option(
        0,
        "Dense features of an item, which tell its topic with noise.",
        at_least=0,
        at_most=MAX_FEATURES,
        omits_default=True,
    )
    seed: int = option(0, "Seed of everything but the choice of what is held out.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.links > self.users * self.items // 4:
            raise UsageError(
                f"links = {self.links}: more than a quarter of all {self.users} x {self.items}"
                " pairs. Use fewer links."
            )
        if self.topics > min(self.items, self.vocabulary_size):
            raise UsageError(f"topics = {self.topics}: more than the items or the words.")
        if self.min_words > self.max_length:
            raise UsageError(
                f"min_words = {self.min_words} is above max_length = {self.max_length}."
            )


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Return how the data set is made; sizes that memory cannot hold are refused first."""

    def read() -> Content:
        what = f"{options.users:,} users, {options.items:,} items and {options.links:,} links"
        require_memory(what, _memory_bytes(options))
        return make(options)

    return Preparation({"files": {}}, options.stored(), read)


def _memory_bytes(options: Options) -> int:
    """Return about the most memory that making the data set takes."""
    words = options.items * (options.min_words + options.max_length) // 2
    nodes = 40 * (options.users + options.items) + 200 * options.vocabulary_size
    links = max(100 * options.links, 8 * options.links + 45 * words)
    return nodes + links + 12 * options.items * options.item_features


def make(options: Options) -> Content:
    """Make the content; the same options give the same content, bit for bit."""
    streams = Streams(options.seed)
    rng = streams.generator("items")
    # Sorted, so that a topic's items are a contiguous run and drawing one takes two look-ups.
    topic_of_item = np.sort(rng.integers(options.topics, size=options.items))
    popularity = _heavy_tail(rng, options.items)
    # Ids must not reveal the topic.
    rename = rng.permutation(options.items).astype(np.int32)
    users, items = _links(options, streams, topic_of_item, popularity, rename)
    topic_of_item = topic_of_item[np.argsort(rename)]
    texts, vocabulary = _texts(options, streams, topic_of_item)
    held_out = hold_out(options, Links(users, items), (options.users, options.items))
    return Content(
        n_users=options.users,
        texts=texts,
        vocabulary=vocabulary,
        item_features=_features(options, streams, topic_of_item),
        **held_out._asdict(),
    )


def _heavy_tail(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Draw positive weights with a Pareto tail (exponent 1.2), cut so that none dominates."""
    return np.minimum(1 + rng.pareto(1.2, size), 0.01 * size + 10)


def _choose(weights: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return indices drawn by weights, from numbers that are uniform between 0 and 1."""
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return np.asarray(np.minimum(drawn, len(weights) - 1))


def _links(
    options: Options,
    streams: Streams,
    topic_of_item: NDArray[np.int64],
    popularity: NDArray[np.float64],
    rename: Int32,
) -> tuple[Int32, Int32]:
    """Draw exactly ``options.links`` distinct links, sorted by user and item; item i of the
    sorted topics gets the id ``rename[i]``.
    """
    rng = streams.generator("links")
    activity = _heavy_tail(rng, options.users)
    size = (options.users, TOPICS_OF_A_USER)
    topics_of_user = rng.integers(options.topics, size=size, dtype=np.int32)
    topic_weights = 1 / np.arange(1, TOPICS_OF_A_USER + 1)
    cumulative = np.cumsum(popularity)
    starts = np.searchsorted(topic_of_item, np.arange(options.topics + 1))
    bounds = np.concatenate([[0.0], cumulative])[starts]

    def draw(size: int) -> NDArray[np.int64]:
        # Searching for sorted values is faster, and leaves the distribution as it is.
        user = _choose(activity, np.sort(rng.random(size)))
        topic = topics_of_user[user, _choose(topic_weights, rng.random(size))]
        at_large = (rng.random(size) < OFF_TOPIC_SHARE) | (bounds[topic] == bounds[topic + 1])
        low = np.where(at_large, 0.0, bounds[topic])
        high = np.where(at_large, cumulative[-1], bounds[topic + 1])
        item = np.searchsorted(cumulative, low + rng.random(size) * (high - low), side="right")
        return np.asarray(user * options.items + rename[np.minimum(item, options.items - 1)])

    keys = np.zeros(0, np.int64)
    while len(keys) < options.links:
        # Popular pairs are drawn repeatedly, so draw more than are missing.
        wanted = (options.links - len(keys)) * 5 // 4 + 64
        drawn = [draw(min(LINKS_AT_ONCE, wanted - n)) for n in range(0, wanted, LINKS_AT_ONCE)]
        keys = np.unique(np.concatenate([keys, *drawn]))
    surplus = rng.choice(len(keys), len(keys) - options.links, replace=False)
    users, items = np.divmod(np.delete(keys, surplus), options.items)
    return users.astype(np.int32), items.astype(np.int32)


def _texts(
    options: Options, streams: Streams, topic_of_item: NDArray[np.int64]
) -> tuple[Texts, tuple[str, ...]]:
    """Draw each item's words; the vocabulary is ``w0001``, ``w0002``, ... by falling count."""
    rng = streams.generator("texts")
    lengths = rng.integers(options.min_words, options.max_length + 1, size=options.items)
    topic = np.repeat(topic_of_item, lengths)
    n_words, n_topics = options.vocabulary_size, options.topics
    words = _choose(1 / np.arange(1, n_words + 1), rng.random(len(topic)))
    # Topic t owns the words t, t + topics, t + 2 topics, ...: frequent and rare ones.
    rank = _choose(1 / np.sqrt(np.arange(1, n_words // n_topics + 1)), rng.random(len(topic)))
    is_of_topic = rng.random(len(topic)) < TOPIC_WORD_SHARE
    words = np.where(is_of_topic, topic + n_topics * rank, words)
    counts = np.bincount(words, minlength=n_words)
    by_count = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    ids = np.zeros(n_words, np.int32)
    ids[by_count] = np.arange(1, len(by_count) + 1)
    names = tuple(f"w{word:04d}" for word in by_count)
    return Texts(ids[words], lengths.astype(np.int32)), names


def _features(options: Options, streams: Streams, topics: NDArray[np.integer]) -> Float32 | None:
    """Return float32[items, F]: the centre of each item's topic, and some noise."""
    if not (width := options.item_features):
        return None
    rng = streams.generator("features")
    centres = rng.standard_normal((options.topics, width), np.float32)
    features = FEATURE_NOISE * rng.standard_normal((len(topics), width), np.float32)
    features += centres[topics]
    return standardise(features, np.ones(len(features), bool))[0]
