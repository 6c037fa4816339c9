"""Users' own files of links and items: which of their columns is what, and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import SPLITS
from ncfbench.data.features import Features
from ncfbench.data.ids import Ids, first_rows, positions, read_ids
from ncfbench.data.sources.filters import Links
from ncfbench.data.table import Column, Table
from ncfbench.data.values import at_least, texts, times
from ncfbench.errors import DataError

SPLIT_NAMES = {"training": 0, "valid": 1, "val": 1, "dev": 1, "testing": 2} | {
    name: number for number, name in enumerate(SPLITS)
}


class Items(NamedTuple):
    """Items by the order of their file: ids, first rows, and splits where a column gives them."""

    ids: pa.StringArray
    rows: NDArray[np.int64]
    splits: NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files, and which of their columns is what."""

    links: Table
    items: Table
    user: str
    item: str
    rating: str | None
    """None if every row is a link."""
    rating_threshold: float | None
    time: str | None
    """None unless the newest items are held out."""
    id: str
    texts: tuple[str, ...]
    tokens: str | None
    split: str
    """``random``, ``time`` or ``column``."""
    split_column: str | None
    features: Mapping[str, Features]
    """Of ``user`` and ``item``, where there are any."""

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
        splits = {
            "random": "random",
            "time": "the newest items are held out",
            "column": f"column {self.split_column}",
        }
        return [
            (
                f"Links: {self.links.path.name} ({self.links.summary}): user {self.user}, item"
                f" {self.item}{times_}{ratings}."
            ),
            (
                f"Items: {self.items.path.name} ({self.items.summary}): id {self.id}, {text}."
                f" Split: {splits[self.split]}."
            ),
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

    def read_items(self, ids: Ids, removed: dict[str, int]) -> Items:
        """Return the items; of rows with the same id the first counts."""
        n_rows, present = len(ids.codes), int(np.sum(ids.codes >= 0))
        if not present:
            raise DataError(
                f"{self.items.path} holds no item{f' with {self.id}' if n_rows else ''}."
            )
        removed["items_without_id"] = n_rows - present
        removed["duplicate_items"] = present - len(ids.names)
        rows = first_rows(ids)
        splits = np.zeros(len(rows), np.uint8)
        if self.split_column:
            splits = _split_numbers(self.items[self.split_column])[rows]
        return Items(ids.names, rows, splits)

    def read_links(
        self,
        users: Ids,
        items: Ids,
        item_ids: pa.StringArray,
        removed: dict[str, int],
        say: Callable[[str], None],
    ) -> Links:
        """Return the links with both ends and a sufficient rating, to items that are known."""
        kept = (users.codes >= 0) & (items.codes >= 0)
        removed |= {"links_without_id": int(np.sum(~kept)), "links_below_threshold": 0}
        if self.rating and self.rating_threshold is not None:
            enough = at_least(self.links[self.rating], self.rating_threshold)
            removed["links_below_threshold"] = int(np.sum(kept & ~enough))
            kept &= enough
        moments = times(self.links[self.time])[kept] if self.time else np.zeros(0)
        if not kept.any():
            raise DataError(
                f"{self.links.path} holds no"
                f" link{' of such a rating' if removed['links_below_threshold'] else ''}."
            )
        if self.time and moments.min() == moments.max():
            say(
                f"Warning: all times {self.time} of {self.links.path.name} are equal, so the last"
                f" items of {self.items.path.name} count as the newest."
            )
        users, items = users.only(kept), items.only(kept)
        position = positions(items.names, item_ids)
        known = position[items.codes] >= 0
        removed["links_to_unknown_items"] = int(np.sum(~known))
        removed["unknown_items"] = int(np.sum(position < 0))
        if not known.any():
            raise DataError(
                f"No link names an item of {self.items.path}: {self.item} in"
                f" {self.links.path.name} is, for example, {items.names[0].as_py()[:40]!r}, and"
                f" {self.id} in {self.items.path.name} {item_ids[0].as_py()[:40]!r}."
            )
        return Links(
            users.names,
            users.codes[known],
            position[items.codes[known]],
            moments[known] if self.time else moments,
        )

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


def describe_removed(
    removed: Mapping[str, int],
    ids: Mapping[str, Ids],
    n_users: int,
    min_user_links: int,
    min_item_links: int,
    sample: int | None,
) -> Iterator[str]:
    """Yield a message for each reason for which something was left out.

    Args:
        n_users: number of users who are kept.
    """
    links, items = (ids[name].column.table.path.name for name in ("links_user", "items"))
    id_ = ids["items"].column.name
    rare_users, rare_items = (
        "without a link" if least <= 1 else f"of fewer than {least} links"
        for least in (min_user_links, min_item_links)
    )
    left_out = "Warning: left out, "
    messages = {
        "items_without_id": f"{left_out}rows of {items} without {id_}",
        "duplicate_items": f"{left_out}rows of {items} that repeat the {id_} of an earlier one",
        "links_without_id": f"{left_out}rows of {links} without a user or an item",
        "links_to_unknown_items": f"{left_out}links to items that {items} does not have",
        "duplicate_links": f"{left_out}links of {links} that are given again",
        "links_of_rare": f"{left_out}links of users or items that are left out",
        "rare_users": f"{left_out}users {rare_users}",
        "rare_items": f"{left_out}items {rare_items}",
        "links_below_threshold": f"Rows of {links} below the threshold, which are not links",
        "links_of_cold_users": "Links of cold users that are not trained on",
    }
    spelled = {
        "items_without_id": _describe_missing(ids["items"]),
        "links_without_id": _describe_missing(ids["links_user"], ids["links_item"]),
    }
    for reason, message in messages.items():
        if count := removed.get(reason):
            yield f"{message}: {count:,}.{spelled.get(reason, '')}"
    if sample is not None and not removed["users_not_drawn"]:
        yield f"--sample-users {sample:,}: there are {n_users:,} users; all are kept."
    elif sample is not None:
        yield (
            f"A sample: {n_users:,} of {n_users + removed['users_not_drawn']:,} users; left out"
            f" with the others: {removed['links_of_users_not_drawn']:,} links,"
            f" {removed['items_not_drawn']:,} items without a link."
        )


def _describe_missing(*columns: Ids) -> str:
    """Return a sentence about spellings of missing ids, such as NA; empty without any."""
    counts = sum((Counter(ids.missing) for ids in columns), Counter[str]())
    listed = ", ".join(f"{spelling} ({rows:,} rows)" for spelling, rows in counts.items())
    return f" As missing count {listed}; if one is a real id, spell it otherwise." if listed else ""
