"""The content of a data set as a source delivers it, and which of its items are held out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.text import Int32, Texts
from ncfbench.data.words import is_unspaced
from ncfbench.storage import tables

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
FINGERPRINT_VERSION = 1  # of what the fingerprint covers
FEW_TEST_ITEMS = 50  # up to which recall@50 says nothing
MOST_RANKED_USERS = 100_000  # of a split; of more a sample is ranked
ARRAYS: Mapping[str, tuple[type[np.generic], int]] = {
    "links": (np.int32, 2),
    "words": (np.int32, 1),
    "lengths": (np.int32, 1),
    "split": (np.uint8, 1),
    "held_out": (np.uint8, 1),
    "item_features": (np.float32, 2),
}
"""Type and number of axes of each ``.npy`` file."""
TABLES = {"vocabulary": "word", "user_ids": "id", "item_ids": "id"}
"""The one column, of strings, of each ``.parquet`` file."""


@dataclass(frozen=True)
class Content:
    """Every link once, each item's text as token ids, and which items are held out.

    Args:
        n_users: number of users; ids are 0..n_users-1.
        users, items: int32[links], the ends of each link.
        texts: the token ids (from 1) of each item.
        vocabulary: words by falling count, ties alphabetically; word i has the token id i + 1.
        split: uint8[n_items], an index into :data:`SPLITS`. Where links are held out one by one, an
            item with a training link, or without a held-out one, is of train, and another of
            validation if a link of it is, else of test.
        held_out: uint8[links], the split of each link; None where it is that of the link's item.
        user_ids, item_ids: the source's names of users and items; None where these are numbers.
        removed: counts of what was left out of the source, by reason (``duplicate_links``, ...).
        item_features: float32[n_items, F], standardised; None where there are none.
        facts: more counts for the statistics.
    """

    n_users: int
    users: Int32
    items: Int32
    texts: Texts
    vocabulary: tuple[str, ...]
    split: NDArray[np.uint8]
    user_ids: pa.StringArray | None = None
    item_ids: pa.StringArray | None = None
    removed: Mapping[str, int] = field(default_factory=dict)
    item_features: NDArray[np.float32] | None = None
    held_out: NDArray[np.uint8] | None = None
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def split_of_link(self) -> NDArray[np.uint8]:
        """uint8[links]: the split of each link, an index into :data:`SPLITS`."""
        return self.split[self.items] if self.held_out is None else self.held_out

    def digest(self, options: Mapping[str, Any]) -> str:
        """Return the SHA-256 (hexadecimal) of everything a run can see of this content, and of the
        options that made it.
        """
        digest = hashlib.sha256(
            json.dumps([FINGERPRINT_VERSION, self.n_users, dict(options)], sort_keys=True).encode()
        )
        for array in (self.users, self.items, self.texts.lengths, self.texts.words, self.split):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(self.vocabulary).encode())
        for kind, ids in (("users", self.user_ids), ("items", self.item_ids)):
            if ids is not None:
                # The count keeps a name from moving from one list into the next.
                names = "\n".join(ids.to_pylist())
                digest.update(f"\n{kind} {len(ids)}\n{names}".encode())
        if self.item_features is not None:
            digest.update(f"\nfeatures of items {self.item_features.shape[1]}\n".encode())
            digest.update(np.ascontiguousarray(self.item_features).data)
        if self.held_out is not None:
            digest.update(b"\nheld-out links\n" + np.ascontiguousarray(self.held_out).tobytes())
        return digest.hexdigest()

    def statistics(self) -> dict[str, float]:
        """Return the counts of the data set, with the words per item as the paper counts them."""
        lengths = self.texts.lengths
        is_training, _, is_test = (self.split_of_link == number for number in range(len(SPLITS)))
        trained_users, trained_items = (
            np.unique(ids[is_training]) for ids in (self.users, self.items)
        )
        counts = {
            "users": self.n_users,
            "items": len(self.texts),
            "links": len(self.users),
            "training_links": int(is_training.sum()),
            **self._held_out_counts(is_training, is_test),
            "vocabulary": len(self.vocabulary),
            "words_max": int(lengths.max()),
            "words_min": int(lengths.min()),
            "words_mean": round(float(lengths.mean()), 2),
            "words_median": float(np.median(lengths)),
            "items_without_text": int((lengths == 0).sum()),
        }
        is_unspaced_word = np.array([False, *map(is_unspaced, self.vocabulary)])
        if is_unspaced_word.any():
            text_of_word = np.repeat(np.arange(len(lengths)), lengths)
            texts = np.unique(text_of_word[is_unspaced_word[self.texts.words]])
            counts |= {"texts_without_spaces": len(texts)} if len(texts) else {}
        if len(trained_users) * len(trained_items) == counts["training_links"]:
            counts["training_pairs_without_link"] = 0
        if self.item_features is not None:
            counts["item_features"] = self.item_features.shape[1]
        return counts

    def _held_out_counts(
        self, is_training: NDArray[np.bool_], is_test: NDArray[np.bool_]
    ) -> dict[str, float]:
        """Count what is held out: items, or links, of which the arguments, bool[links], say which
        are trained on and tested.
        """
        training_items, validation_items, test_items = np.bincount(self.split, minlength=3).tolist()
        n_users = len(np.unique(self.users[is_test]))
        if self.held_out is None:
            return {
                "training_items": training_items,
                "validation_items": validation_items,
                "test_items": test_items,
                "users_with_test_items": n_users,
                **self.facts,
            }
        to_new = np.bincount(self.items[is_training], minlength=len(self.split))[self.items] == 0
        held_out = self.users[~is_training]
        return {
            "validation_links": int(np.sum(~is_training & ~is_test)),
            "test_links": int(is_test.sum()),
            "test_links_to_new_items": int(np.sum(is_test & to_new)),
            "training_items": len(np.unique(self.items[is_training])),
            "new_items": validation_items + test_items,
            "users_with_test_links": n_users,
            "users_without_held_out_links": len(np.setdiff1d(self.users, held_out)),
            **self.facts,
        }


OPTIONAL = [field.name for field in fields(Content) if field.default is None]
"""Files that a data set may lack, named as the fields of its content, which may be None."""


def write_content(folder: Path, content: Content) -> None:
    """Write the files of a content into a new folder."""
    folder.mkdir()
    links, texts = (content.users, content.items), content.texts
    parts = {**vars(content), "links": links, "words": texts.words, "lengths": texts.lengths}
    for part, (dtype, _) in ARRAYS.items():
        if parts[part] is not None:
            tables.write_array(folder / f"{part}.npy", parts[part], dtype)
    for part, name in TABLES.items():
        if parts[part] is not None:
            schema = pa.schema([(name, pa.string())])
            table = pa.table([parts[part]], schema=schema)
            tables.write_table(folder / f"{part}.parquet", [table], schema)


def read_content(folder: Path, n_users: int) -> Content:
    """Map the files of a content into memory; a DataError where one is missing or damaged."""
    parts: dict[str, Any] = {}
    for part in (*ARRAYS, *TABLES):
        path = folder / f"{part}.{'npy' if part in ARRAYS else 'parquet'}"
        if part in OPTIONAL and not path.exists():
            parts[part] = None
        elif part in ARRAYS:
            parts[part] = tables.read_array(path, *ARRAYS[part])
        else:
            schema = pa.schema([(TABLES[part], pa.string())])
            parts[part] = tables.read_table(path, schema)[TABLES[part]].combine_chunks()
    parts["vocabulary"] = tuple(parts["vocabulary"].to_pylist())
    users, items = parts.pop("links")
    texts = Texts(parts.pop("words"), parts.pop("lengths"))
    return Content(n_users=n_users, users=users, items=items, texts=texts, **parts)


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
    is_of_links = "test_links" in counts
    what = "links" if is_of_links else "items"
    n_test, n_ranked = counts[f"test_{what}"], counts["items" if is_of_links else "test_items"]
    if not n_test:
        said.append(f"There are no test {what}, so there is no test recall.")
    elif n_ranked <= FEW_TEST_ITEMS:
        said.append(
            f"{'Items' if is_of_links else 'Test items'}: {n_ranked:,}, at most {FEW_TEST_ITEMS},"
            f" so recall@{FEW_TEST_ITEMS} is 1 for every model."
        )
    if (tested := counts.get(f"users_with_test_{what}", 0)) > MOST_RANKED_USERS:
        said.append(
            f"{tested:,} users have test {what}: recall is measured on {MOST_RANKED_USERS:,} of"
            " them, drawn at random."
        )
    if to_new := counts.get("test_links_to_new_items"):
        said.append(
            f"{to_new:,} of {n_test:,} test links ({100 * to_new / n_test:.1f} %) are to new items,"
            " which have no training link: recall of these stands by itself too."
        )
    removed = manifest.get("removed", {})
    if new := sum(removed.get(f"{split}_links_of_new_users", 0) for split in SPLITS):
        said.append(f"{new:,} held-out links are left out: their users have no training link.")
    kind = manifest["options"].get("hold_out")
    whole = counts.get("users_without_held_out_links")
    if whole and (n_test or kind == "last"):
        few = "no held-out link" if kind == "time" else "too few links to hold one out"
        said.append(
            f"{whole:,} of {counts['users']:,} users have {few}; all their links stay in training."
        )
    if tied := counts.get("users_with_tied_times"):
        said.append(
            f"The newest links of {tied:,} users have equal times: the later row of the file counts"
            " as newer."
        )
    if tied := counts.get("items_with_tied_times"):
        said.append(
            f"The first links of {tied:,} items have equal times, and not all are held out: the"
            " later item of the file counts as newer."
        )
    return said
