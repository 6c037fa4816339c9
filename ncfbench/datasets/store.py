"""A prepared data set, in memory and on disk.

On disk, ``DATA_DIR/NAME/manifest.json`` names a folder beside it that holds the content::

    data/citeulike/manifest.json          what, from where, with which options; statistics; the fingerprint
    data/citeulike/3f2a91c0d4e5/          the fingerprint's first digits
        links.parquet                     user, item: every link
        items.parquet                     split, tokens: one row for each item
        vocabulary.parquet                word, count: row i is token i + 1

Replacing the manifest is one rename, so an interrupted ``prepare`` leaves the previous data set as it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench import __version__, tables
from ncfbench.datasets.text import Vocabulary, pad
from ncfbench.errors import DataError, UsageError
from ncfbench.graph import BipartiteGraph
from ncfbench.streams import Streams

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
FORMAT_VERSION = 1
FINGERPRINT_DIGITS = 12


@dataclass(frozen=True)
class Content:
    """What a source delivers: every link once, each item's text as token ids, and which items are held out.

    Args:
        n_users: number of users; ids are 0..n_users-1.
        users, items: int32[links], the ends of each link.
        texts: one int32 array of token ids (from 1) for each item.
        vocabulary: the words the ids stand for.
        split: uint8[n_items], an index into :data:`SPLITS`.
    """

    n_users: int
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    texts: Sequence[NDArray[np.int32]]
    vocabulary: Vocabulary
    split: NDArray[np.uint8]

    def fingerprint(self, options: Mapping[str, Any]) -> str:
        """SHA-256 (hexadecimal) of everything a run can see of this content, and of the options that made it."""
        digest = hashlib.sha256(json.dumps([FORMAT_VERSION, self.n_users, dict(options)], sort_keys=True).encode())
        lengths = np.array([len(text) for text in self.texts], dtype=np.int32)
        words = np.concatenate([np.zeros(0, np.int32), *self.texts])
        for array in (self.users, self.items, lengths, words, self.split):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(self.vocabulary.words).encode())
        return digest.hexdigest()

    def statistics(self) -> dict[str, float]:
        """Counts of the data set, with the paper's words per item (largest, smallest, mean, median)."""
        lengths = np.array([len(text) for text in self.texts])
        training = self.split[self.items] == 0
        return {
            "users": self.n_users,
            "items": len(self.texts),
            "links": len(self.users),
            "training_links": int(training.sum()),
            "training_items": int((self.split == 0).sum()),
            "validation_items": int((self.split == 1).sum()),
            "test_items": int((self.split == 2).sum()),
            "users_with_test_items": len(np.unique(self.users[self.split[self.items] == 2])),
            "vocabulary": len(self.vocabulary.words),
            "words_max": int(lengths.max()),
            "words_min": int(lengths.min()),
            "words_mean": round(float(lengths.mean()), 2),
            "words_median": float(np.median(lengths)),
            "items_without_text": int((lengths == 0).sum()),
        }


@dataclass(frozen=True)
class Dataset:
    """A loaded data set: the graph of training links, the held-out links, and the padded texts."""

    name: str
    manifest: Mapping[str, Any]
    n_users: int
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    split: NDArray[np.uint8]
    tokens_IxL: NDArray[np.int32]
    lengths: NDArray[np.int32]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of content and options."""
        return str(self.manifest["fingerprint"])

    @property
    def n_items(self) -> int:
        """All items, held-out ones included."""
        return len(self.split)

    @property
    def n_words(self) -> int:
        """Words of the vocabulary; token ids are 1..n_words, 0 is padding."""
        return int(self.manifest["statistics"]["vocabulary"])

    @cached_property
    def graph(self) -> BipartiteGraph:
        """The training links."""
        users, items = self.links("train")
        return BipartiteGraph.from_links(users, items, self.n_users, self.n_items)

    def items_of(self, split: Split) -> NDArray[np.int32]:
        """The ids of the items in a split, ascending."""
        return np.flatnonzero(self.split == SPLITS.index(split)).astype(np.int32)

    def links(self, split: Split) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Users and items of the links whose item is in a split."""
        chosen = self.split[self.items] == SPLITS.index(split)
        return self.users[chosen], self.items[chosen]


def split_items(n_items: int, test_fraction: float, validation_fraction: float, seed: int) -> NDArray[np.uint8]:
    """Hold items out at random: a share for the test, then a share of the *remaining* items for validation.

    Raises:
        UsageError: a share outside 0..1, or nothing left to train on.
    """
    for name, share in (("test-fraction", test_fraction), ("validation-fraction", validation_fraction)):
        if not 0 <= share < 1:
            raise UsageError(f"{name} = {share}: it must be at least 0 and below 1.")
    order = Streams(seed).generator("split").permutation(n_items)
    n_test = round(n_items * test_fraction)
    n_validation = round((n_items - n_test) * validation_fraction)
    if n_test + n_validation >= n_items:
        raise UsageError(f"With {n_items} items, these fractions hold every item out. Use smaller ones.")
    split = np.zeros(n_items, dtype=np.uint8)
    split[order[:n_test]] = SPLITS.index("test")
    split[order[n_test : n_test + n_validation]] = SPLITS.index("validation")
    return split


def read_manifest(data_dir: Path, name: str) -> dict[str, Any] | None:
    """The manifest of a prepared data set; None where there is none, or none that this version can use."""
    try:
        manifest = tables.read_json(data_dir / name / "manifest.json")
    except DataError:
        return None
    needed = {"fingerprint": str, "options": dict, "statistics": dict}
    if not isinstance(manifest, dict) or manifest.get("format_version") != FORMAT_VERSION:
        return None
    if not all(isinstance(manifest.get(key), kind) for key, kind in needed.items()):
        return None
    folder = _folder(data_dir, name, manifest)
    return manifest if all((folder / f"{part}.parquet").is_file() for part in SCHEMAS) else None


def save(
    data_dir: Path, name: str, content: Content, origin: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a data set, then switch to it; the previous one of that name stays in place until then.

    Args:
        origin: the source and its files, for the manifest.
        options: what the user chose; part of the fingerprint.

    Returns:
        The manifest.

    Raises:
        DataError: it cannot be written.
        UsageError: another process is preparing it.
    """
    manifest = {
        "format_version": FORMAT_VERSION,
        "name": name,
        **origin,
        "options": dict(options),
        "fingerprint": content.fingerprint(options),
        "statistics": content.statistics(),
        "ncfbench_version": __version__,
    }
    home, folder = data_dir / name, _folder(data_dir, name, manifest)
    offsets = np.cumsum([0, *(len(text) for text in content.texts)], dtype=np.int32)
    words = np.concatenate([np.zeros(0, np.int32), *content.texts])
    columns = {
        "links": [pa.array(content.users), pa.array(content.items)],
        "items": [pa.array(content.split), pa.ListArray.from_arrays(pa.array(offsets), pa.array(words))],
        "vocabulary": [pa.array(content.vocabulary.words, pa.string()), pa.array(content.vocabulary.counts, pa.int64())],
    }
    with tables.lock(home, "preparing"), tables.storage_errors(home):
        temporary = home / ".new"
        shutil.rmtree(temporary, ignore_errors=True)  # what a killed process left
        temporary.mkdir()
        try:
            for part, schema in SCHEMAS.items():
                tables.write_table(temporary / f"{part}.parquet", pa.table(columns[part], schema=schema))
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        tables.write_json(home / "manifest.json", manifest)
        for other in home.iterdir():
            if other.is_dir() and other != folder and len(other.name) == FINGERPRINT_DIGITS:
                shutil.rmtree(other, ignore_errors=True)
    return manifest


def load(data_dir: Path, name: str) -> Dataset:
    """Read a prepared data set, and verify that it is the one its manifest speaks of.

    Raises:
        DataError: it was never prepared (the message names the command), or its files are damaged.
    """
    manifest = read_manifest(data_dir, name)
    again = f"Prepare it again: ncfbench prepare {name}"
    if manifest is None:
        present = sorted(path.parent.name for path in data_dir.glob("*/manifest.json"))
        if name in present:
            raise DataError(f"Data set {name!r} in {data_dir} is damaged or of another version. {again}")
        prepared = f" Prepared there: {', '.join(present)}." if present else ""
        raise DataError(
            f"Data set {name!r} is not prepared in {data_dir}.{prepared} Prepare it with: ncfbench prepare {name}"
        )
    folder = _folder(data_dir, name, manifest)
    try:
        links, items, vocabulary = (tables.read_table(folder / f"{part}.parquet", schema) for part, schema in SCHEMAS.items())
        lists = items["tokens"].combine_chunks()
        content = Content(
            n_users=int(manifest["statistics"]["users"]),
            users=links["user"].to_numpy(),
            items=links["item"].to_numpy(),
            texts=np.split(lists.values.to_numpy(), lists.offsets.to_numpy()[1:-1]),
            vocabulary=Vocabulary(tuple(vocabulary["word"].to_pylist()), tuple(vocabulary["count"].to_pylist())),
            split=items["split"].to_numpy(),
        )
        intact = content.fingerprint(manifest["options"]) == manifest["fingerprint"]
    except (DataError, KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"Data set {name!r} in {data_dir} is damaged: {error} {again}") from error
    if not intact:
        raise DataError(f"Data set {name!r} in {data_dir} is damaged: {folder} does not match its fingerprint. {again}")
    tokens, lengths = pad(content.texts)
    return Dataset(
        name=name,
        manifest=manifest,
        n_users=content.n_users,
        users=content.users,
        items=content.items,
        split=content.split,
        tokens_IxL=tokens,
        lengths=lengths,
    )


SCHEMAS: Mapping[str, pa.Schema] = {
    "links": pa.schema([("user", pa.int32()), ("item", pa.int32())]),
    "items": pa.schema([("split", pa.uint8()), ("tokens", pa.list_(pa.int32()))]),
    "vocabulary": pa.schema([("word", pa.string()), ("count", pa.int64())]),
}
"""The files of a data set. Row i of ``items`` is item i; row i of ``vocabulary`` is the word of token i + 1."""


def _folder(data_dir: Path, name: str, manifest: Mapping[str, Any]) -> Path:
    return data_dir / name / str(manifest["fingerprint"])[:FINGERPRINT_DIGITS]
