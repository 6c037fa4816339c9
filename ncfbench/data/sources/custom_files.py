"""Users' own files of links and items: which of their columns is what, and what is kept of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, SupportsInt

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import SPLITS, distinct_links, draw_users
from ncfbench.data.features import Features
from ncfbench.data.ids import Ids, first_rows, positions, read_ids
from ncfbench.data.table import Column, Table
from ncfbench.data.values import at_least, texts, times
from ncfbench.errors import DataError

SPLIT_NAMES = {"training": 0, "valid": 1, "val": 1, "dev": 1, "testing": 2} | {
    name: number for number, name in enumerate(SPLITS)
}


@dataclass(frozen=True)
class Removed:
    """Counts of what is left out, by reason; the user hears of each."""

    say: Callable[[str], None]
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, count: SupportsInt, what: str = "", more: str = "") -> None:
        """Count what is left out; say so if ``what`` describes it."""
        self.counts[reason] = number = int(count)
        if number and what:
            self.say(f"{what}: {number:,}.{more}")

    def warn(self, reason: str, count: SupportsInt, what: str, more: str = "") -> None:
        """Count what is left out, and warn."""
        self.add(reason, count, f"Warning: left out, {what}", more)


class Items(NamedTuple):
    """Items by the order of their file: ids, first rows, and splits where a column gives them."""

    ids: pa.StringArray
    rows: NDArray[np.int64]
    splits: NDArray[np.uint8]


@dataclass
class Links:
    """Links as the file has them, with flags of the users, items and links that are kept.

    Args:
        users, items: int32[links], numbers of users and items.
        times: of each link; empty where they are not needed.
    """

    user_ids: pa.StringArray
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: NDArray[np.float64]
    n_items: int

    def __post_init__(self) -> None:
        self.keeps_user = np.ones(len(self.user_ids), bool)
        self.keeps_item = np.ones(self.n_items, bool)
        self.keeps = np.ones(len(self.users), bool)

    def keep_frequent(self, min_user_links: int, min_item_links: int, removed: Removed) -> None:
        """Leave out users and items of too few links, again and again until none is left."""
        n_kept = -1
        while n_kept != self.keeps.sum():
            n_kept = self.keeps.sum()
            # A link that is given twice counts once.
            users, items, _ = distinct_links(self.users[self.keeps], self.items[self.keeps])
            n_links = np.bincount(users, minlength=len(self.user_ids))
            self.keeps_user &= n_links >= max(min_user_links, 1)
            self.keeps_item &= np.bincount(items, minlength=self.n_items) >= min_item_links
            self.keeps &= self.keeps_user[self.users] & self.keeps_item[self.items]
        removed.warn(
            "links_of_rare", np.sum(~self.keeps), "links of users or items that are left out"
        )
        for what, least, flags in (
            ("users", min_user_links, self.keeps_user),
            ("items", min_item_links, self.keeps_item),
        ):
            few = "without a link" if least <= 1 else f"of fewer than {least} links"
            removed.warn(f"rare_{what}", np.sum(~flags), f"{what} {few}")

    def sample_users(self, size: int, seed: int, keep_items: bool, removed: Removed) -> None:
        """Keep some of the users who are kept, with their links; all where there are no more.

        Nothing is filtered again: in a small sample few items would have the minimum, and in the
        next round few users. So a sampled user has as many links as without the sample. Items
        that lose their last link are left out unless ``keep_items``.
        """
        present = np.flatnonzero(self.keeps_user)
        if size >= len(present):
            removed.say(f"--sample-users {size:,}: there are {len(present):,} users; all are kept.")
            return
        n_links, n_items = self.keeps.sum(), self.keeps_item.sum()
        self.keeps_user[:] = False
        self.keeps_user[present[draw_users(len(present), size, seed)]] = True
        self.keeps &= self.keeps_user[self.users]
        if not keep_items:
            self.keeps_item[:] = False
            self.keeps_item[self.items[self.keeps]] = True
        lost_links, lost_items = n_links - self.keeps.sum(), n_items - self.keeps_item.sum()
        removed.add("users_not_drawn", len(present) - size)
        removed.add("links_of_users_not_drawn", lost_links)
        removed.add("items_not_drawn", lost_items)
        removed.say(
            f"A sample: {size:,} of {len(present):,} users; left out with the others:"
            f" {lost_links:,} links, {lost_items:,} items without a link."
        )


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files, and which of their columns is what.

    Args:
        rating: None if every row is a link.
        time: None unless the newest items are held out.
        split: ``random``, ``time`` or ``column``.
        features: of ``user`` and ``item``, where there are any.
    """

    links: Table
    items: Table
    user: str
    item: str
    rating: str | None
    rating_threshold: float | None
    time: str | None
    id: str
    texts: tuple[str, ...]
    tokens: str | None
    split: str
    split_column: str | None
    features: Mapping[str, Features]

    def describe(self, rating: str | None) -> list[str]:
        """Return what was chosen, a line for each file.

        Args:
            rating: the column of ratings, whether it is used or not.
        """
        ratings = ", every row a link"
        if self.rating:
            ratings = f", of {self.rating} {self.rating_threshold:g} and more"
        elif rating:
            ratings += f" whatever its {rating} (--rating-threshold)"
        times_ = f", times {self.time}" if self.time else ""
        text = f"tokens {self.tokens}" if self.tokens else f"text {', '.join(self.texts) or 'none'}"
        splits = {"time": "the newest items are held out", "column": f"column {self.split_column}"}
        return [
            f"Links: {self.links.path.name} ({self.links.summary}): user {self.user}, item"
            f" {self.item}{times_}{ratings}.",
            f"Items: {self.items.path.name} ({self.items.summary}): id {self.id}, {text}."
            f" Split: {splits.get(self.split, self.split)}.",
            *(f"Features of {what}s: {found.summary}." for what, found in self.features.items()),
        ]

    def stored(self) -> dict[str, Any]:
        """Return the choices for the manifest, under the names of their options."""
        columns = ("user", "item", "rating", "time", "id", "tokens")
        return {f"{name}_column": getattr(self, name) for name in columns} | {
            "text_columns": list(self.texts),
            "split": self.split,
            "split_column": self.split_column,
        }

    def read_ids(self, say: Callable[[str], None]) -> dict[str, Ids]:
        """Return the columns of ids, by what they name: ``links_user``, ``links_item``, ``items``
        and, where features have ids, ``user_features`` and ``item_features``.
        """
        users = {"links_user": self.links[self.user]}
        items = {"links_item": self.links[self.item], "items": self.items[self.id]}
        found: dict[str, Ids] = {}
        for what, columns in (("user", users), ("item", items)):
            features = self.features.get(what)
            if features and features.ids:
                columns[f"{what}_features"] = features.ids
            ids, messages = read_ids(*columns.values())
            found |= dict(zip(columns, ids, strict=True))
            for message in messages:
                say(message)
        return found

    def read_items(self, ids: Ids, removed: Removed) -> Items:
        """Return the items; of rows with the same id the first counts."""
        n_rows, present, file = len(ids.codes), int(np.sum(ids.codes >= 0)), self.items.path
        if not present:
            raise DataError(f"{file} holds no item{f' with {self.id}' if n_rows else ''}.")
        removed.warn(
            "items_without_id",
            n_rows - present,
            f"rows of {file.name} without {self.id}",
            _describe_missing(ids),
        )
        removed.warn(
            "duplicate_items",
            present - len(ids.names),
            f"rows of {file.name} that repeat the {self.id} of an earlier one",
        )
        rows = first_rows(ids)
        splits = np.zeros(len(rows), np.uint8)
        if self.split_column:
            splits = _split_numbers(self.items[self.split_column])[rows]
        return Items(ids.names, rows, splits)

    def read_links(
        self, users: Ids, items: Ids, item_ids: pa.StringArray, removed: Removed
    ) -> Links:
        """Return the links with both ends and a sufficient rating, to items that are known."""
        path = self.links.path
        kept = (users.codes >= 0) & (items.codes >= 0)
        removed.warn(
            "links_without_id",
            np.sum(~kept),
            f"rows of {path.name} without a user or an item",
            _describe_missing(users, items),
        )
        with_ids = kept
        if self.rating and self.rating_threshold is not None:
            kept = kept & at_least(self.links[self.rating], self.rating_threshold)
        removed.add(
            "links_below_threshold",
            n_below := int(with_ids.sum() - kept.sum()),
            f"Rows of {path.name} below the threshold, which are not links",
        )
        moments = times(self.links[self.time])[kept] if self.time else np.zeros(0)
        if not kept.any():
            raise DataError(f"{path} holds no link{' of such a rating' if n_below else ''}.")
        if self.time and moments.min() == moments.max():
            removed.say(
                f"Warning: all times {self.time} of {path.name} are equal, so the last items of"
                f" {self.items.path.name} count as the newest."
            )
        users, items = users.only(kept), items.only(kept)
        position = positions(items.names, item_ids)
        known = position[items.codes] >= 0
        if not known.any():
            raise DataError(
                f"No link names an item of {self.items.path}: {self.item} in {path.name} is, for"
                f" example, {items.names[0].as_py()[:40]!r}, and {self.id} in"
                f" {self.items.path.name} {item_ids[0].as_py()[:40]!r}."
            )
        unknown = f"links to items that {self.items.path.name} does not have"
        removed.warn("links_to_unknown_items", np.sum(~known), unknown)
        removed.add("unknown_items", np.sum(position < 0))
        codes = position[items.codes[known]]
        moments = moments[known] if self.time else moments
        return Links(users.names, users.codes[known], codes, moments, len(item_ids))

    def read_texts(
        self, rows: NDArray[np.int64], tokenize: Callable[[str], list[str]]
    ) -> Iterator[list[str]]:
        """Yield the tokens of the items in some rows."""
        if self.tokens:
            for parts in texts(self.items[self.tokens], rows):
                yield [token for text in parts for token in text.split()]
            return
        columns = [texts(self.items[name], rows) for name in self.texts]
        for item in zip(*columns, strict=True):
            yield tokenize("\n".join(" ".join(parts) for parts in item))


def _split_numbers(column: Column) -> NDArray[np.uint8]:
    every = texts(column, np.arange(len(column.values)))
    names = [" ".join(parts).strip().lower() for parts in every]
    for row, name in enumerate(names):
        if name not in SPLIT_NAMES:
            column.refuse(row, f"{name[:40]!r} is none of {', '.join(SPLITS)}.")
    return np.array([SPLIT_NAMES[name] for name in names], np.uint8)


def _describe_missing(*columns: Ids) -> str:
    """Return a sentence about spellings of missing ids, such as NA; empty without any."""
    counts = sum((Counter(ids.missing) for ids in columns), Counter[str]())
    listed = ", ".join(f"{spelling} ({rows:,} rows)" for spelling, rows in counts.items())
    return f" As missing count {listed}; if one is a real id, spell it otherwise." if listed else ""
