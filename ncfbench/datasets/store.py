"""A prepared data set, in memory and on disk.

On disk, ``DATA_DIR/NAME/manifest.json`` names a folder beside it that holds the content::

    data/citeulike/manifest.json          what, from where, with which options; statistics; the fingerprint
    data/citeulike/3f2a91c0d4e5/          the fingerprint's first digits
        links.npy                         int32[2, links]: the user and the item of every link
        words.npy, lengths.npy            int32: all items' token ids one after another, and how many each has
        split.npy                         uint8[items]: 0 train, 1 validation, 2 test
        vocabulary.parquet                word, count: row i is token i + 1
        user_ids.parquet, item_ids.parquet   id: row i is what the source calls user or item i, where it has names

Arrays are mapped into memory, not read. Replacing the manifest is one rename, so an interrupted ``prepare`` leaves the
previous data set as it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench import __version__, tables
from ncfbench.datasets.text import Texts, Vocabulary
from ncfbench.errors import DataError, UsageError
from ncfbench.graph import MAX_LINKS, BipartiteGraph
from ncfbench.streams import Streams

Int32: TypeAlias = NDArray[np.int32]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
FORMAT_VERSION = 2
"""Of the files. What they hold has a version of its own, in :meth:`Content.fingerprint`."""
CONTENT_VERSION = 1
FINGERPRINT_DIGITS = 12
PIECE = 2**16
"""Names worked on at a time."""


@dataclass(frozen=True)
class Content:
    """What a source delivers: every link once, each item's text as token ids, and which items are held out.

    Args:
        n_users: number of users; ids are 0..n_users-1.
        users, items: int32[links], the ends of each link.
        texts: the token ids (from 1) of each item.
        vocabulary: the words the ids stand for.
        split: uint8[n_items], an index into :data:`SPLITS`.
        user_ids, item_ids: what the source calls each user and item; None where these are its own numbers.
        removed: how much of the source is not here, by reason (``duplicate_links``, ...), for the manifest.
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

    def fingerprint(self, options: Mapping[str, Any]) -> str:
        """SHA-256 (hexadecimal) of everything a run can see of this content, and of the options that made it."""
        digest = hashlib.sha256(json.dumps([CONTENT_VERSION, self.n_users, dict(options)], sort_keys=True).encode())
        for array in (self.users, self.items, self.texts.lengths, self.texts.words, self.split):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(self.vocabulary.words).encode())
        for ids in (self.user_ids, self.item_ids):
            if ids is None:
                continue
            # A name as a Python object takes ten times its bytes.
            for start in range(0, len(ids), PIECE):
                digest.update(("\n" * (start > 0) + "\n".join(ids[start : start + PIECE].to_pylist())).encode())
        return digest.hexdigest()

    def statistics(self) -> dict[str, float]:
        """Counts of the data set, with the paper's words per item (largest, smallest, mean, median)."""
        lengths = self.texts.lengths
        split_of_link = self.split[self.items]
        with_test_items = np.zeros(self.n_users, bool)
        with_test_items[self.users[split_of_link == 2]] = True
        return {
            "users": self.n_users,
            "items": len(self.texts),
            "links": len(self.users),
            "training_links": int((split_of_link == 0).sum()),
            "training_items": int((self.split == 0).sum()),
            "validation_items": int((self.split == 1).sum()),
            "test_items": int((self.split == 2).sum()),
            "users_with_test_items": int(with_test_items.sum()),
            "vocabulary": len(self.vocabulary.words),
            "words_max": int(lengths.max()),
            "words_min": int(lengths.min()),
            "words_mean": round(float(lengths.mean()), 2),
            "words_median": float(np.median(lengths)),
            "items_without_text": int((lengths == 0).sum()),
        }


@dataclass(frozen=True)
class Dataset:
    """A loaded data set: the graph of training links, the held-out links, and the texts."""

    name: str
    manifest: Mapping[str, Any]
    n_users: int
    users: Int32
    items: Int32
    split: NDArray[np.uint8]
    texts: Texts
    user_ids: pa.StringArray | None = None
    item_ids: pa.StringArray | None = None

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

    @property
    def lengths(self) -> Int32:
        """int32[n_items]: words of each item."""
        return self.texts.lengths

    @cached_property
    def tokens_IxL(self) -> Int32:  # noqa: N802 (a name with its shape)
        """int32[n_items, L]: all texts padded to the longest."""
        return self.texts.padded()

    @cached_property
    def graph(self) -> BipartiteGraph:
        """The training links."""
        users, items = self.links("train")
        return BipartiteGraph.from_links(users, items, self.n_users, self.n_items)

    def items_of(self, split: Split) -> Int32:
        """The ids of the items in a split, ascending."""
        return np.flatnonzero(self.split == SPLITS.index(split)).astype(np.int32)

    def links(self, split: Split) -> tuple[Int32, Int32]:
        """Users and items of the links whose item is in a split."""
        chosen = self.split[self.items] == SPLITS.index(split)
        return self.users[chosen], self.items[chosen]


def distinct_links(users: NDArray[np.integer], items: NDArray[np.integer]) -> tuple[Int32, Int32, int]:
    """Links by (user, item), each once, and how many were given again.

    8 bytes of scratch a link and, where links repeat, as much again.

    Raises:
        DataError: more links than int32 can number, or an id below 0 or above what int32 holds.
    """
    if len(users) > MAX_LINKS:
        raise DataError(f"{len(users):,} links: more than {MAX_LINKS:,} are not supported.")
    for kind, ids in (("user", users), ("item", items)):
        for id_ in (int(ids.min(initial=0)), int(ids.max(initial=0))):
            if not 0 <= id_ < MAX_LINKS:
                raise DataError(f"{kind} {id_}: ids from 0 to {MAX_LINKS - 1:,} are supported.")
    packed = users.astype(np.uint64)
    packed <<= np.uint64(32)
    np.bitwise_or(packed, items, out=packed, dtype=np.uint64, casting="unsafe")
    packed.sort()
    first = np.ones(len(packed), bool)
    np.not_equal(packed[1:], packed[:-1], out=first[1:])
    if repeated := len(packed) - int(first.sum()):
        packed = packed[first]
    ids = packed.view(np.int32).reshape(-1, 2)
    return ids[:, 1].copy(), ids[:, 0].copy(), repeated


def split_items(n_items: int, test_fraction: float, validation_fraction: float, seed: int) -> NDArray[np.uint8]:
    """Hold items out at random: a share for the test, then a share of the *remaining* items for validation.

    Raises:
        UsageError: a share outside 0..1, or nothing left to train on.
    """
    for name, share in (("test-fraction", test_fraction), ("validation-fraction", validation_fraction)):
        if not 0 <= share < 1:
            raise UsageError(f"{name} = {share}: it must be at least 0 and below 1.")
    order = Streams(seed).generator("split").permutation(n_items)
    return _held_out(order, test_fraction, validation_fraction)


def split_newest(first: NDArray[np.float64], test_fraction: float, validation_fraction: float) -> NDArray[np.uint8]:
    """Hold the newest items out, the very newest for the test.

    Args:
        first: float64[n_items], when each item had its first link; where equal, the later item counts as newer.
    """
    return _held_out(np.argsort(first, kind="stable")[::-1], test_fraction, validation_fraction)


def _held_out(order: NDArray[np.int64], test_fraction: float, validation_fraction: float) -> NDArray[np.uint8]:
    """uint8[n_items]: the first of ``order`` for the test, the next for validation."""
    n_items = len(order)
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
    files = (*(f"{part}.npy" for part in ARRAYS), "vocabulary.parquet")
    return manifest if all((folder / file).is_file() for file in files) else None


def prepare(
    data_dir: Path,
    name: str,
    origin: Mapping[str, Any],
    options: Mapping[str, Any],
    read: Callable[[Path], Content],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Make and write a data set, then switch to it; instant where the same was done before.

    The previous one of that name stays in place until the new one is whole.

    Args:
        origin: the source; its files, with what is known of their content (``verified``: whether it is the published one,
            where that can be told); and, for data that must not be taken for other data, a ``label`` that reports show.
        options: what the user chose; part of the fingerprint.
        read: makes the content; it is given a folder for what it does not want to hold in memory.

    Returns:
        The manifest.

    Raises:
        DataError: the source is damaged, or the data set cannot be written.
        UsageError: another process is preparing it.
    """
    options = dict(options)
    done = read_manifest(data_dir, name)
    if done and done["options"] == options and all(done.get(key) == value for key, value in origin.items()):
        say(f"Already prepared with these options{' and files' if origin.get('files') else ''}: {data_dir / name}")
        return done
    with _scratch(data_dir / name) as scratch:
        content = read(scratch)
        manifest = {
            "format_version": FORMAT_VERSION,
            "name": name,
            **origin,
            "options": options,
            "fingerprint": content.fingerprint(options),
            "statistics": content.statistics(),
            "removed": {reason: count for reason, count in content.removed.items() if count},
            "ncfbench_version": __version__,
        }
        with tables.storage_errors(data_dir / name):
            _write(scratch / "content", content)
            folder = _folder(data_dir, name, manifest)
            shutil.rmtree(folder, ignore_errors=True)
            (scratch / "content").rename(folder)
            tables.write_json(data_dir / name / "manifest.json", manifest)
            for other in (data_dir / name).iterdir():
                if other.is_dir() and other != folder and len(other.name) == FINGERPRINT_DIGITS:
                    shutil.rmtree(other, ignore_errors=True)
    return manifest


@contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    """A new folder in a data set's own, which one process at a time has; it is removed, and so is what a kill left."""
    with tables.lock(home, "preparing"):
        scratch = home / ".new"
        with tables.storage_errors(scratch):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _write(folder: Path, content: Content) -> None:
    folder.mkdir()
    texts = content.texts
    arrays: list[tables.Rows] = [(content.users, content.items), texts.words, texts.lengths, content.split]
    for (part, (dtype, _)), array in zip(ARRAYS.items(), arrays, strict=True):
        tables.write_array(folder / f"{part}.npy", array, dtype)
    words = [pa.array(content.vocabulary.words, pa.string()), pa.array(content.vocabulary.counts, pa.int64())]
    tables.write_table(folder / "vocabulary.parquet", pa.table(words, schema=VOCABULARY))
    for part, ids in (("user_ids", content.user_ids), ("item_ids", content.item_ids)):
        if ids is not None:
            tables.write_table(folder / f"{part}.parquet", pa.table([ids], schema=IDS))


def load(data_dir: Path, name: str) -> Dataset:
    """Map a prepared data set, and verify that it is the one its manifest speaks of.

    Raises:
        DataError: it was never prepared (the message names the command), or its files are damaged.
    """
    manifest = read_manifest(data_dir, name)
    if manifest is None:
        present = sorted(path.parent.name for path in data_dir.glob("*/manifest.json"))
        if name in present:
            raise DataError(f"Data set {name!r} in {data_dir} is damaged or of another version. {_again(name)}")
        prepared = f" Prepared there: {', '.join(present)}." if present else ""
        raise DataError(
            f"Data set {name!r} is not prepared in {data_dir}.{prepared} Prepare it with: ncfbench prepare {name}"
        )
    again = _again(name, str(manifest.get("source", name)))
    folder = _folder(data_dir, name, manifest)
    try:
        content = _read(folder, int(manifest["statistics"]["users"]))
        intact = content.fingerprint(manifest["options"]) == manifest["fingerprint"]
    except (DataError, KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"Data set {name!r} in {data_dir} is damaged: {error} {again}") from error
    if not intact:
        raise DataError(f"Data set {name!r} in {data_dir} is damaged: {folder} does not match its fingerprint. {again}")
    return Dataset(
        name=name,
        manifest=manifest,
        n_users=content.n_users,
        users=content.users,
        items=content.items,
        split=content.split,
        texts=content.texts,
        user_ids=content.user_ids,
        item_ids=content.item_ids,
    )


def _read(folder: Path, n_users: int) -> Content:
    links, words, lengths, split = (tables.read_array(folder / f"{part}.npy", *kind) for part, kind in ARRAYS.items())
    if len(links) != 2 or lengths.sum(dtype=np.int64) != len(words) or len(lengths) != len(split):
        raise DataError("Its arrays do not belong together.")
    vocabulary = tables.read_table(folder / "vocabulary.parquet", VOCABULARY)
    ids = {}
    for part in ("user_ids", "item_ids"):
        path = folder / f"{part}.parquet"
        ids[part] = tables.read_table(path, IDS)["id"].combine_chunks() if path.exists() else None
    return Content(
        n_users=n_users,
        users=links[0],
        items=links[1],
        texts=Texts(words, lengths),
        vocabulary=Vocabulary(tuple(vocabulary["word"].to_pylist()), tuple(vocabulary["count"].to_pylist())),
        split=split,
        user_ids=ids["user_ids"],
        item_ids=ids["item_ids"],
    )


ARRAYS: Mapping[str, tuple[type[np.generic], int]] = {
    "links": (np.int32, 2), "words": (np.int32, 1), "lengths": (np.int32, 1), "split": (np.uint8, 1),
}  # fmt: skip
"""The arrays of a data set: type and number of axes."""
VOCABULARY = pa.schema([("word", pa.string()), ("count", pa.int64())])
"""Row i is the word of token i + 1."""
IDS = pa.schema([("id", pa.string())])
"""Row i is the source's name of user or item i."""


def _again(name: str, source: str | None = None) -> str:
    """The command that prepares a data set, as far as its source is known."""
    words = source if source in (None, name) else f"{source} --name {name}"
    return f"Prepare it again: ncfbench prepare {words or name}"


def _folder(data_dir: Path, name: str, manifest: Mapping[str, Any]) -> Path:
    return data_dir / name / str(manifest["fingerprint"])[:FINGERPRINT_DIGITS]
