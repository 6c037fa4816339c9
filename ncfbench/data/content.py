"""The content of a data set as a source delivers it, and which of its items are held out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.features import Float32
from ncfbench.data.options import SplitOptions
from ncfbench.data.text import Int32, Texts, Vocabulary
from ncfbench.data.words import is_unspaced
from ncfbench.errors import UsageError
from ncfbench.rng import Streams

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
FINGERPRINT_VERSION = 1  # of what the fingerprint covers
FEW_TEST_ITEMS = 50  # up to which recall@50 says nothing


@dataclass(frozen=True)
class Content:
    """Every link once, each item's text as token ids, and which items are held out.

    Args:
        n_users: number of users; ids are 0..n_users-1.
        users, items: int32[links], the ends of each link.
        texts: the token ids (from 1) of each item.
        vocabulary: the words the ids stand for.
        split: uint8[n_items], an index into :data:`SPLITS`.
        user_ids, item_ids: the source's names of users and items; None where these are numbers.
        removed: counts of what was left out of the source, by reason (``duplicate_links``, ...).
        user_features, item_features: float32[n_users, F] and float32[n_items, F'], standardised;
            None where there are none.
    """

    n_users: int
    users: Int32
    items: Int32
    texts: Texts
    vocabulary: Vocabulary
    split: NDArray[np.uint8]
    user_ids: pa.StringArray | None = None
    item_ids: pa.StringArray | None = None
    removed: Mapping[str, int] = field(default_factory=dict)
    user_features: Float32 | None = None
    item_features: Float32 | None = None

    def digest(self, options: Mapping[str, Any]) -> str:
        """Return the SHA-256 (hexadecimal) of everything a run can see of this content, and of the
        options that made it.
        """
        digest = hashlib.sha256(
            json.dumps([FINGERPRINT_VERSION, self.n_users, dict(options)], sort_keys=True).encode()
        )
        for array in (self.users, self.items, self.texts.lengths, self.texts.words, self.split):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(self.vocabulary.words).encode())
        for kind, ids in (("users", self.user_ids), ("items", self.item_ids)):
            if ids is not None:
                # The count keeps a name from moving from one list into the next.
                names = "\n".join(ids.to_pylist())
                digest.update(f"\n{kind} {len(ids)}\n{names}".encode())
        for kind, features in (("users", self.user_features), ("items", self.item_features)):
            if features is not None:
                digest.update(f"\nfeatures of {kind} {features.shape[1]}\n".encode())
                digest.update(np.ascontiguousarray(features).data)
        return digest.hexdigest()

    def statistics(self) -> dict[str, float]:
        """Return the counts of the data set, with the words per item as the paper counts them."""
        lengths = self.texts.lengths
        split_of_link = self.split[self.items]
        is_training = split_of_link == SPLITS.index("train")
        trained_users, trained_items = (
            np.unique(ids[is_training]) for ids in (self.users, self.items)
        )
        tested_users = np.unique(self.users[split_of_link == SPLITS.index("test")])
        training_items, validation_items, test_items = np.bincount(self.split, minlength=3).tolist()
        counts = {
            "users": self.n_users,
            "items": len(self.texts),
            "links": len(self.users),
            "training_links": int(is_training.sum()),
            "training_items": training_items,
            "validation_items": validation_items,
            "test_items": test_items,
            "users_with_test_items": len(tested_users),
            "vocabulary": len(self.vocabulary.words),
            "words_max": int(lengths.max()),
            "words_min": int(lengths.min()),
            "words_mean": round(float(lengths.mean()), 2),
            "words_median": float(np.median(lengths)),
            "items_without_text": int((lengths == 0).sum()),
        }
        is_unspaced_word = np.array([False, *map(is_unspaced, self.vocabulary.words)])
        if is_unspaced_word.any():
            text_of_word = np.repeat(np.arange(len(lengths)), lengths)
            texts = np.unique(text_of_word[is_unspaced_word[self.texts.words]])
            counts |= {"texts_without_spaces": len(texts)} if len(texts) else {}
        if len(trained_users) * len(trained_items) == counts["training_links"]:
            counts["training_pairs_without_link"] = 0
        for kind, features in (("user", self.user_features), ("item", self.item_features)):
            if features is not None:
                counts[f"{kind}_features"] = features.shape[1]
        if self.user_features is not None:
            cold_users = np.setdiff1d(tested_users, trained_users, assume_unique=True)
            counts["cold_users_with_test_items"] = len(cold_users)
        return counts


def cautions(manifest: Mapping[str, Any]) -> list[str]:
    """Return what a user must know about a prepared data set, a sentence each."""
    counts = manifest["statistics"]
    said = []
    if counts["items_without_text"] and counts["vocabulary"]:
        said.append(
            f"{counts['items_without_text']:,} of {counts['items']:,} items have no text; an"
            " encoder gives them all the same embedding."
        )
    if counts.get("texts_without_spaces") and not manifest.get("tokenizer"):
        said.append(
            f"{counts['texts_without_spaces']:,} of {counts['items']:,} texts are in scripts"
            " written without spaces, such as Chinese or Thai: their words are pairs of characters."
        )
    if counts.get("training_pairs_without_link") == 0:
        said.append(
            "Every user is linked with every training item, so there is no negative to train on."
        )
    if not counts["test_items"]:
        said.append("There are no test items, so there is no test recall.")
    elif counts["test_items"] <= FEW_TEST_ITEMS:
        said.append(
            f"Test items: {counts['test_items']:,}, at most {FEW_TEST_ITEMS}, so recall@"
            f"{FEW_TEST_ITEMS} is 1 for every model."
        )
    return said


def distinct_links(
    users: NDArray[np.integer], items: NDArray[np.integer]
) -> tuple[Int32, Int32, int]:
    """Return the links by (user, item), each once, and how many were given again."""
    pairs = np.sort((users.astype(np.int64) << 32) | items.astype(np.int64))
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    distinct_users, distinct_items = (pairs >> 32).astype(np.int32), pairs.astype(np.int32)
    return distinct_users, distinct_items, len(users) - len(pairs)


def draw_users(n_users: int, size: int, seed: int) -> NDArray[np.int64]:
    """Return int64[size], users drawn at random, ascending; a smaller draw is part of a larger."""
    return np.sort(Streams(seed).generator("users").permutation(n_users)[:size])


def stays_with_cold_users(
    users: NDArray[np.integer],
    is_training: NDArray[np.bool_],
    n_users: int,
    fraction: float,
    seed: int,
) -> NDArray[np.bool_]:
    """Return which links stay if a share of the users, at least one, lose their training links.

    ``users`` and ``is_training`` are of each link. A UsageError if no training link stays.
    """
    is_cold = np.zeros(n_users, bool)
    is_cold[draw_users(n_users, max(round(fraction * n_users), 1), seed)] = True
    stays: NDArray[np.bool_] = ~(is_training & is_cold[users])
    if not (is_training & stays).any():
        raise UsageError(
            f"--cold-user-fraction {fraction:g} leaves no training link: {is_cold.sum():,} of"
            f" {n_users:,} users would be cold. Use a smaller share, or more users."
        )
    return stays


def split_items(
    n_items: int, options: SplitOptions, order: NDArray[np.int64] | None = None
) -> NDArray[np.uint8]:
    """Hold the first items of an order out, by default a random one: a share for the test, then a
    share of the *remaining* items for validation.

    Returns:
        uint8[n_items], indices into :data:`SPLITS`.

    Raises:
        UsageError: nothing is left to train on.
    """
    if order is None:
        order = Streams(options.split_seed).generator("split").permutation(n_items)
    n_test = round(n_items * options.test_fraction)
    n_validation = round((n_items - n_test) * options.validation_fraction)
    if n_test + n_validation >= n_items:
        raise UsageError(
            f"With {n_items} items, these fractions hold every item out. Use smaller ones."
        )
    split = np.zeros(n_items, dtype=np.uint8)
    split[order[:n_test]] = SPLITS.index("test")
    split[order[n_test : n_test + n_validation]] = SPLITS.index("validation")
    return split
