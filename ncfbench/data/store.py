"""A prepared data set, in memory and on disk.

On disk, ``DATA_DIR/NAME/manifest.json`` names a folder beside it that holds the content::

    data/citeulike/manifest.json          source, options, statistics, fingerprint
    data/citeulike/3f2a91c0d4e5/          the fingerprint's first digits
        links.npy                         int32[2, links]: the user and the item of every link
        words.npy, lengths.npy            int32: token ids, item after item; tokens of each item
        split.npy                         uint8[items]: 0 train, 1 validation, 2 test
        vocabulary.parquet                word, count: row i is token i + 1
        user_ids.parquet, item_ids.parquet   id: row i is the source's id of user or item i
        user_features.npy, item_features.npy   float32[n, F]: where there are any
        word-vectors-DIGEST.npy           float32[words + 1, length]; see assets/
        checkpoint-DIGEST/                files of a pretrained model; see assets/

Arrays are mapped into memory, not read. Replacing the manifest is one rename, so an interrupted
``prepare`` leaves the previous data set as it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench import __version__
from ncfbench.data.content import SPLITS, Content, Split
from ncfbench.data.features import Float32
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.sources import SOURCES, Preparation, how_to_prepare, prepare_command
from ncfbench.data.text import Int32, Texts, Vocabulary
from ncfbench.errors import DataError, UsageError, nearest, reason, shown
from ncfbench.storage import locks, tables

FORMAT_VERSION = 2
"""Version of the files; a data set of another one must be prepared again."""
FINGERPRINT_DIGITS = 12
"""Digits of the fingerprint in the name of the folder of the content."""


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
    user_features: Float32 | None = None
    """float32[n_users, F]: dense features, standardised; None where there are none."""
    item_features: Float32 | None = None
    """float32[n_items, F']."""
    folder: Path | None = None
    """The folder of the content; None for one that is only in memory."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of content and options."""
        return str(self.manifest["fingerprint"])

    @property
    def n_items(self) -> int:
        """Number of items, held-out ones included."""
        return len(self.split)

    @property
    def n_words(self) -> int:
        """Number of words in the vocabulary; token ids are 1..n_words, 0 is padding."""
        return int(self.manifest["statistics"]["vocabulary"])

    @property
    def lengths(self) -> Int32:
        """int32[n_items]: words of each item."""
        return self.texts.lengths

    @cached_property
    def tokens_IxL(self) -> Int32:  # noqa: N802 - a name with its shape
        """int32[n_items, L]: all texts padded to the longest."""
        return self.texts.padded()

    @cached_property
    def graph(self) -> BipartiteGraph:
        """The training links."""
        users, items = self.links("train")
        ids = {"user_ids": self.user_ids, "item_ids": self.item_ids}
        return BipartiteGraph.from_links(users, items, self.n_users, self.n_items, **ids)

    @cached_property
    def has_links(self) -> NDArray[np.bool_]:
        """bool[n_users]: which users have training links; the others are cold."""
        has_links: NDArray[np.bool_] = self.graph.user_degrees > 0
        return has_links

    def items_of(self, split: Split) -> Int32:
        """Return the ids of the items in a split, ascending."""
        return np.flatnonzero(self.split == SPLITS.index(split)).astype(np.int32)

    def links(self, split: Split) -> tuple[Int32, Int32]:
        """Return users and items of the links whose item is in a split."""
        chosen = self.split[self.items] == SPLITS.index(split)
        return self.users[chosen], self.items[chosen]


def read_manifest(data_dir: Path, name: str) -> dict[str, Any] | None:
    """Return the manifest of a prepared data set; None if this version can read none."""
    try:
        manifest = tables.read_json(data_dir / name / "manifest.json")
    except DataError:
        return None
    needed = {"fingerprint": str, "options": dict, "statistics": dict}
    if not isinstance(manifest, dict) or manifest.get("format_version") != FORMAT_VERSION:
        return None
    if not all(isinstance(manifest.get(key), kind) for key, kind in needed.items()):
        return None
    folder = _folder(data_dir / name, manifest)
    files = (*(f"{part}.npy" for part in ARRAYS), "vocabulary.parquet")
    return manifest if all((folder / file).is_file() for file in files) else None


def prepare(
    data_dir: Path,
    name: str,
    source: str,
    preparation: Preparation,
    say: Callable[[str], None],
    *,
    replace: bool = False,
) -> dict[str, Any]:
    """Make and write a data set, switch to it and return its manifest; instant where the same was
    done before. Arguments and errors are those of :func:`ncfbench.data.prepare`.

    The previous one of that name stays in place until the new one is complete. Where another
    process prepares a data set of that name, this one waits for it to end.
    """
    home, origin = data_dir / name, {"source": source, **preparation.origin}
    wanted = {**origin, "options": dict(preparation.options)}
    done = _intact(home, wanted)
    if done is None:
        with locks.held(home, "preparing", wait=say):
            # Another process may have prepared it meanwhile.
            done = _intact(home, wanted, say)
            if done is None:
                return _make(home, wanted, preparation.read, replace=replace)
    say(f"Already prepared with these options{' and files' if origin.get('files') else ''}: {home}")
    return done


def _intact(
    home: Path, wanted: Mapping[str, Any], say: Callable[[str], None] = lambda text: None
) -> dict[str, Any] | None:
    """Return the manifest in ``home`` if it is what is wanted, and its content undamaged."""
    manifest = read_manifest(home.parent, home.name)
    if manifest is None or any(manifest.get(key) != value for key, value in wanted.items()):
        return None
    if not _is_intact(home, manifest):
        say(f"Warning: the data set in {home} is damaged; it is prepared again.")
        return None
    return manifest


def _make(
    home: Path, wanted: Mapping[str, Any], read: Callable[[], Content], *, replace: bool
) -> dict[str, Any]:
    options = wanted["options"]
    before = None if replace else read_manifest(home.parent, home.name)
    if before is not None and before["options"] != options:
        # Options are part of the fingerprint: nothing has to be read to know.
        raise _in_the_way(home, before["options"], options)
    content = read()
    manifest = {
        "format_version": FORMAT_VERSION,
        "name": home.name,
        **wanted,
        "fingerprint": content.fingerprint(options),
        "statistics": content.statistics(),
        "removed": {reason: count for reason, count in content.removed.items() if count},
        "ncfbench_version": __version__,
    }
    if before is not None and before["fingerprint"] != manifest["fingerprint"]:
        raise _in_the_way(home, options, options)
    folder, new = _folder(home, manifest), home / ".new"
    with tables.storage_errors(home):
        # What a killed process left.
        shutil.rmtree(new, ignore_errors=True)
        try:
            if not _is_intact(home, manifest):
                _write(new, content)
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
            tables.write_json(home / "manifest.json", manifest)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        for other in home.iterdir():
            if other.is_dir() and other != folder and len(other.name) == FINGERPRINT_DIGITS:
                shutil.rmtree(other, ignore_errors=True)
    return manifest


def _in_the_way(home: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> UsageError:
    """Return the error that refuses to replace a data set of other content."""
    missing = "unset"
    differing = [
        f"{name} = {before.get(name, missing)} (now {now.get(name, missing)})"
        for name in {**before, **now}
        if before.get(name, missing) != now.get(name, missing)
    ]
    what = f"was prepared with {', '.join(differing)}" if differing else "has other content"
    return UsageError(
        f"The data set in {shown(home)} {what}, and runs may depend on it: replaced, it could not"
        " continue them or be compared with them. --name stores this one beside it; --force"
        " replaces it."
    )


def _write(folder: Path, content: Content) -> None:
    folder.mkdir()
    arrays: dict[str, Any] = {
        "links": (content.users, content.items),
        "words": content.texts.words,
        "lengths": content.texts.lengths,
        "split": content.split,
    }
    for part, (dtype, _) in ARRAYS.items():
        tables.write_array(folder / f"{part}.npy", arrays[part], dtype)
    words = [
        pa.array(content.vocabulary.words, pa.string()),
        pa.array(content.vocabulary.counts, pa.int64()),
    ]
    tables.write_table(folder / "vocabulary.parquet", pa.table(words, schema=VOCABULARY))
    for side in ("user", "item"):
        if (ids := getattr(content, f"{side}_ids")) is not None:
            tables.write_table(folder / f"{side}_ids.parquet", pa.table([ids], schema=IDS))
        if (features := getattr(content, f"{side}_features")) is not None:
            tables.write_array(folder / f"{side}_features.npy", features, np.float32)


def load(data_dir: Path, name: str) -> Dataset:
    """Map a prepared data set, and verify that it is the one that its manifest describes.

    Raises:
        DataError: it was never prepared (the message names the command), or its files are damaged.
    """
    manifest = read_manifest(data_dir, name)
    if manifest is None:
        present = sorted(path.parent.name for path in data_dir.glob("*/manifest.json"))
        how = how_to_prepare(name)
        if name in present:
            raise DataError(
                f"Data set {name!r} in {data_dir} is damaged or of another version. Prepare it"
                f" again: {how}"
            )
        prepared = f" Prepared there: {', '.join(present)}." if present else ""
        near = "." if name in SOURCES else nearest(name, [*present, *SOURCES])
        raise DataError(
            f"Data set {name!r} is not prepared in {shown(data_dir)}{near}{prepared} Prepare it"
            f" with: {how}"
        )
    try:
        content = _verified(data_dir / name, manifest)
    except DataError as error:
        raise DataError(
            f"Data set {name!r} in {data_dir} is damaged: {error} Prepare it again:"
            f" {prepare_command(name, manifest)}"
        ) from error
    shared = vars(content).keys() & {field.name for field in fields(Dataset)}
    return Dataset(
        name=name,
        manifest=manifest,
        folder=_folder(data_dir / name, manifest),
        **{part: getattr(content, part) for part in shared},
    )


def _is_intact(home: Path, manifest: Mapping[str, Any]) -> bool:
    try:
        _verified(home, manifest)
    except DataError:
        return False
    return True


def _verified(home: Path, manifest: Mapping[str, Any]) -> Content:
    folder = _folder(home, manifest)
    try:
        content = _read(folder, int(manifest["statistics"]["users"]))
        is_it = content.fingerprint(manifest["options"]) == manifest["fingerprint"]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{folder}: {reason(error)}.") from error
    if not is_it:
        raise DataError(f"{folder} does not match its fingerprint.")
    return content


def _read(folder: Path, n_users: int) -> Content:
    links, words, lengths, split = (
        tables.read_array(folder / f"{part}.npy", *kind) for part, kind in ARRAYS.items()
    )
    if len(links) != 2 or lengths.sum(dtype=np.int64) != len(words) or len(lengths) != len(split):
        raise DataError("Its arrays do not belong together.")
    vocabulary = tables.read_table(folder / "vocabulary.parquet", VOCABULARY)
    optional: dict[str, Any] = {}
    for side in ("user", "item"):
        if (path := folder / f"{side}_ids.parquet").exists():
            optional[f"{side}_ids"] = tables.read_table(path, IDS)["id"].combine_chunks()
        if (path := folder / f"{side}_features.npy").exists():
            optional[f"{side}_features"] = tables.read_array(path, np.float32, 2)
    return Content(
        n_users=n_users,
        users=links[0],
        items=links[1],
        texts=Texts(words, lengths),
        vocabulary=Vocabulary(
            tuple(vocabulary["word"].to_pylist()), tuple(vocabulary["count"].to_pylist())
        ),
        split=split,
        **optional,
    )


ARRAYS: Mapping[str, tuple[type[np.generic], int]] = {
    "links": (np.int32, 2),
    "words": (np.int32, 1),
    "lengths": (np.int32, 1),
    "split": (np.uint8, 1),
}
"""Type and number of axes of each array."""
VOCABULARY = pa.schema([("word", pa.string()), ("count", pa.int64())])
"""Row i holds the word of token i + 1."""
IDS = pa.schema([("id", pa.string())])
"""Row i holds the source's name of user or item i."""


def _folder(home: Path, manifest: Mapping[str, Any]) -> Path:
    return home / str(manifest["fingerprint"])[:FINGERPRINT_DIGITS]
