"""A prepared data set, in memory and on disk.

On disk, ``DATA_DIR/NAME/manifest.json`` names a folder beside it that holds the content::

    data/citeulike/manifest.json          source, options, statistics, fingerprint
    data/citeulike/3f2a91c0d4e5/          the fingerprint's first digits
        ...                               see data/README.md
        checkpoint-DIGEST/                files of a pretrained model; see assets/

Replacing the manifest is one rename: an interrupted ``prepare`` leaves the previous data set.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench import __version__
from ncfbench.config import Folder, Locations, complete
from ncfbench.data.content import SPLITS, Content, Split, read_content, write_content
from ncfbench.data.features import Embed, with_derived, without_derived
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.options import SourceOptions, flags_of
from ncfbench.data.sources import SOURCES, Progress, find_source, how_to_prepare, prepare_command
from ncfbench.data.text import Int32, Texts
from ncfbench.errors import DataError, UsageError, nearest, reason, refusal, shown
from ncfbench.storage import locks, tables

FORMAT_VERSION = 2  # data of another one must be prepared again
FINGERPRINT_DIGITS = 12  # in the name of the folder of the content


@dataclass(frozen=True, kw_only=True)
class Dataset(Content):
    """A loaded data set: its content, and the graph of its training links.

    Args:
        folder: the folder of the content; None for one that is only in memory.
    """

    name: str
    manifest: Mapping[str, Any]
    folder: Path | None = None

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of content and options."""
        return str(self.manifest["fingerprint"])

    @property
    def n_items(self) -> int:
        """Number of items, held-out ones included."""
        return len(self.split)

    @property
    def n_words(self) -> int:
        """Number of words in the vocabulary; token ids are 1..n_words, 0 is padding."""
        return len(self.vocabulary)

    @property
    def lengths(self) -> Int32:
        """int32[n_items]: words of each item."""
        return self.texts.lengths

    @property
    def feature_seconds(self) -> float:
        """Seconds that derived features of the items took to prepare; 0 where there are none."""
        facts = self.manifest.get("derived_features", {}).values()
        return float(sum(fact["seconds"] for fact in facts))

    @cached_property
    def tokens_IxL(self) -> Int32:  # noqa: N802 - a name with its shape
        """int32[n_items, L]: all texts padded to the longest."""
        return self.texts.padded()

    @cached_property
    def graph(self) -> BipartiteGraph:
        """The training links."""
        size = self.n_users, self.n_items
        return BipartiteGraph.from_links(*self.links("train"), *size, self.item_ids)

    @cached_property
    def has_links(self) -> NDArray[np.bool_]:
        """bool[n_users]: which users have training links; the others are cold."""
        return np.asarray(self.graph.user_degrees > 0)

    def on_all_links(self) -> Dataset:
        """Return the data set with all links for training, under a fingerprint of its own."""
        fingerprint = hashlib.sha256(f"{self.fingerprint}, all links".encode()).hexdigest()
        return replace(
            self,
            split=np.zeros_like(self.split),
            held_out=None if self.held_out is None else np.zeros_like(self.held_out),
            manifest={**self.manifest, "fingerprint": fingerprint},
        )

    def items_of(self, split: Split) -> Int32:
        """Return the ids of the items in a split, ascending."""
        return np.flatnonzero(self.split == SPLITS.index(split)).astype(np.int32)

    def links(self, split: Split) -> tuple[Int32, Int32]:
        """Return users and items of the links in a split."""
        chosen = self.split_of_link == SPLITS.index(split)
        return self.users[chosen], self.items[chosen]

    @property
    def ranks_known_items(self) -> bool:
        """Whether links are held out, not items: items of training links are candidates too, but
        not for the users of these links.
        """
        return self.held_out is not None

    def holds_out(self, split: Split) -> bool:
        """Return whether an item or a link is of a split."""
        number = SPLITS.index(split)
        return bool(((self.split if self.held_out is None else self.held_out) == number).any())

    def advise_hold_out(self, split: Split) -> str:
        """Return a sentence that says how to hold out something of a split that has nothing."""
        source = SOURCES.get(self.manifest.get("source", ""))
        options = flags_of(self.manifest["options"])
        if source and f"{split}_fraction" in source.load().Options.fixed:
            return "Prepare more links, or give other shares from Python."
        kind, column = options.get("hold_out") or "items", options.get("split_column")
        ways = [f"a larger --{split}-fraction"]
        if column:
            ways = [f"rows that are {split} in the column {column}"]
        elif (kind, split) == ("last", "test"):
            ways = ["more links of a user"]
        if column or kind != "items":
            ways.append("--hold-out items, which needs few links")
        return f"Prepare it again with {', or with '.join(ways)}."

    def candidates(self, split: Split) -> Int32:
        """Return the ids of the items that are ranked for the links of a split, ascending."""
        if self.ranks_known_items:
            return np.arange(self.n_items, dtype=np.int32)
        return self.items_of(split)


def read_manifest(data_dir: Path, name: str) -> dict[str, Any] | None:
    """Return the manifest of a prepared data set; None if this version can read none."""
    try:
        manifest = tables.read_json(data_dir / name / "manifest.json")
    except DataError:
        return None
    is_ours = isinstance(manifest, dict) and manifest.get("format_version") == FORMAT_VERSION
    return manifest if is_ours else None


def prepare(
    source: str,
    options: SourceOptions,
    data_dir: Path,
    name: str | None = None,
    *,
    replace: bool = False,
    say: Callable[[str], None],
    progress: Progress = nullcontext,
    embed: Embed | None = None,
) -> dict[str, Any]:
    """Read a source, store it as a data set and return the manifest; instant where it was done.

    Args:
        source: a key of :data:`ncfbench.data.sources.SOURCES`.
        name: the data set's name; by default the source's.
        replace: replace a data set of that name and other content.
        say: receives messages, a line each.
        progress: makes a context that shows downloads, tqdm's or None.
        embed: embeds texts by a checkpoint; by default without a progress bar.

    Raises:
        DataError: a file is missing or malformed, or the data set cannot be written.
        UsageError: an unknown source, options that cannot work, another source's name, or a data
            set of that name and other content without ``replace``.
        VerificationError: a file is not the published one.
    """
    name = complete({"dataset": name or source}).dataset
    module = find_source(source, name).load()
    preparation = module.plan(options, say=say, progress=progress)
    stored, home = dict(preparation.options), data_dir / name
    asked = {"source": source, **preparation.origin, "options": stored}
    with locks.held(home, "preparing", wait=say):
        before = read_manifest(data_dir, name)
        if before is not None and before == before | asked:
            if _is_intact(home, before):
                files = " and files" if asked.get("files") else ""
                say(f"Already prepared with these options{files}: {home}")
                return before
            say(f"Warning: the data set in {home} is damaged; it is prepared again.")
        if before is not None and before["options"] != stored and not replace:
            raise _in_the_way(home, before["options"], stored)
        content = preparation.read()
        fingerprint = content.digest(stored)
        if before is not None and before["fingerprint"] != fingerprint and not replace:
            raise _in_the_way(home, stored, stored)

        def pieces() -> Texts:
            of_checkpoint = options.pieces_of_checkpoint()  # type: ignore[attr-defined]
            return module.plan(of_checkpoint, say=lambda text: None, progress=progress).read().texts

        content, derived = with_derived(content, options, pieces, embed, say)
        manifest = {
            "format_version": FORMAT_VERSION,
            "name": name,
            **asked,
            "fingerprint": fingerprint,
            **({"derived_features": derived} if derived else {}),
            "statistics": content.statistics(),
            "removed": {reason: count for reason, count in content.removed.items() if count},
            "ncfbench_version": __version__,
        }
        _switch(home, manifest, content)
    return manifest


def prepare_dataset(
    source: str,
    *,
    name: str | None = None,
    force: bool = False,
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> Dataset:
    """Prepare a data set and open it; instant if it is there already.

    Args:
        source: ``citeulike``, ``citeulike-t``, ``mind``, ``synthetic`` or ``custom``.
        options: fields of the source's options, most of them flags of ``ncfbench prepare SOURCE``,
            such as ``max_length=40``.

    Raises:
        DataError, UsageError, VerificationError: see :func:`prepare`.
    """
    kind = find_source(source).load().Options
    valid = [field.name for field in fields(kind)]
    for option in options:
        if option not in valid:
            raise UsageError(refusal(f"{source} has no option", option, valid))
    folder = Locations.of(data_dir).data_dir
    prepare(source, kind(**options), folder, name, replace=force, say=say)
    return load(folder, name or source)


def _switch(home: Path, manifest: Mapping[str, Any], content: Content) -> None:
    """Write a data set; the previous one stays in place until the new one is complete."""
    folder, new = _folder(home, manifest), home / ".new"
    with tables.storage_errors(home):
        shutil.rmtree(new, ignore_errors=True)  # what a killed process left
        try:
            if not _is_intact(home, manifest):
                write_content(new, content)
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
            tables.write_json(home / "manifest.json", manifest)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        for other in home.iterdir():
            is_content = other.is_dir() and len(other.name) == FINGERPRINT_DIGITS
            if is_content and other != folder:
                shutil.rmtree(other, ignore_errors=True)


def _in_the_way(home: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> UsageError:
    unset = dict.fromkeys({**flags_of(before), **flags_of(now)}, "unset")
    old, new = unset | flags_of(before), unset | flags_of(now)
    differing = [
        f"{name} = {old[name]} (now {new[name]})" for name in unset if old[name] != new[name]
    ]
    what = f"was prepared with {', '.join(differing)}" if differing else "has other content"
    return UsageError(
        f"The data set in {shown(home)} {what}, and runs may depend on it: replacing it would"
        " break resuming and comparing them. --name stores this one beside it; --force replaces it."
    )


def open_dataset(
    name: str, *, data_dir: Folder = None, say: Callable[[str], None] = print
) -> Dataset:
    """Open a prepared data set; ``synthetic`` is made first if it is not there.

    Raises:
        DataError: it is not prepared (the message names the command that prepares it), or damaged.
    """
    data_dir = Locations.of(data_dir).data_dir
    if name == "synthetic" and read_manifest(data_dir, name) is None:
        say(
            f"Making the synthetic data set in {data_dir / name} (sizes: ncfbench prepare synthetic"
            " --help)."
        )
        prepare(name, SOURCES[name].load().Options(), data_dir, say=say)
    return load(data_dir, name)


def load(data_dir: Path, name: str) -> Dataset:
    """Map a prepared data set into memory, and verify that it is what its manifest describes.

    Raises:
        DataError: it was never prepared (the message names the command), or its files are damaged.
    """
    home, manifest = data_dir / name, read_manifest(data_dir, name)
    if manifest is None:
        present = sorted(path.parent.name for path in data_dir.glob("*/manifest.json"))
        others = ", ".join(other for other in present if other != name)
        state = "is damaged or of another version" if name in present else "is not prepared"
        near = "." if name in (*present, *SOURCES) else nearest(name, [*present, *SOURCES])
        prepared = f" Prepared there: {others}." if others else ""
        raise DataError(
            f"Data set {name!r} {state} in {shown(data_dir)}{near}{prepared} Prepare it with:"
            f" {how_to_prepare(name)}"
        )
    try:
        content = _verified(home, manifest)
    except DataError as error:
        raise DataError(
            f"Data set {name!r} in {data_dir} is damaged: {error} Prepare it again:"
            f" {prepare_command(name, manifest)}"
        ) from error
    return Dataset(**vars(content), name=name, manifest=manifest, folder=_folder(home, manifest))


def _folder(home: Path, manifest: Mapping[str, Any]) -> Path:
    return home / str(manifest["fingerprint"])[:FINGERPRINT_DIGITS]


def _verified(home: Path, manifest: Mapping[str, Any]) -> Content:
    """Map the content in ``home``; a DataError if it does not match its fingerprint."""
    folder = _folder(home, manifest)
    try:
        content = read_content(folder, int(manifest["statistics"]["users"]))
        source, is_intact = without_derived(content, manifest.get("derived_features", {}))
        if is_intact and source.digest(manifest["options"]) == manifest["fingerprint"]:
            return content
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder}: {reason(error)}.") from error
    raise DataError(f"{folder} does not match its fingerprint.")


def _is_intact(home: Path, manifest: Mapping[str, Any]) -> bool:
    with suppress(DataError):
        _verified(home, manifest)
        return True
    return False
