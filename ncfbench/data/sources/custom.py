"""Users' own data: a file of links and a file of items, in any of the usual formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import SupportsInt

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.columns import Column, Table
from ncfbench.data.content import SPLITS, Content
from ncfbench.data.features import Numbers, read_features, standardise
from ncfbench.data.files import sha256
from ncfbench.data.hold_out import SEED, Links, draw_users, hold_out
from ncfbench.data.ids import Ids, encode, positions, unify
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.sources.custom_columns import (
    OF_ITEMS,
    OF_LINKS,
    describe,
    split_numbers,
    with_columns,
)
from ncfbench.data.sources.custom_options import Options
from ncfbench.data.table import read_table
from ncfbench.data.text import Corpus, Texts
from ncfbench.errors import DataError


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Read the files and choose their columns; see :class:`ncfbench.data.sources.SourceModule`."""
    links, items = read_table(options.links), read_table(options.items)
    chosen = with_columns(options, links, items)
    columns = {
        role: table[name]
        for table, roles in ((links, OF_LINKS), (items, OF_ITEMS))
        for role in roles
        if (name := getattr(chosen, f"{role}_column"))
    }
    features = None
    if options.item_features is not None:
        features = read_features(options.item_features, len(columns["id"].values))
        name, (rows, width) = options.item_features.name, features.shape
        say(f"Features of items: {name} ({rows:,} x {width:,}), in the order of the items.")
    for line in describe(options, chosen, links, items):
        say(line)
    paths = {role: getattr(options, role) for role in ("links", "items", "item_features")}
    files = {
        role: {"name": path.name, "sha256": sha256(path)} for role, path in paths.items() if path
    }

    def read() -> Content:
        times = None
        if "time" in columns:
            times = columns["time"].times(is_named=options.time_column is not None)
        return _read_content(chosen, columns, times, items, features, say)

    return Preparation({"files": files, **options.model_origin()}, chosen.stored(), read)


LEFT_OUT = {
    "items_without_id": "Warning: dropped rows of {items} without {id}",
    "duplicate_items": "Warning: dropped rows of {items} that repeat the {id} of an earlier one",
    "links_without_id": "Warning: dropped rows of {links} without a user or an item",
    "links_below_threshold": "Rows of {links} below the threshold, which are not links",
    "links_to_unknown_items": "Warning: dropped links to items that {items} does not have",
    "users_without_links": "Warning: dropped users without a link",
    "items_without_links": "Warning: dropped items without a link",
    "duplicate_links": "Warning: dropped duplicate links of {links}",
}
"""Messages about things that are left out, by the reason."""


@dataclass(frozen=True)
class Removed:
    """Counts of what is left out, by reason; the user hears of most."""

    say: Callable[[str], None]
    words: Mapping[str, str]
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, count: SupportsInt, *columns: Ids) -> None:
        """Count what is left out, and say so, with spellings of missing ids, such as NA."""
        self.counts[reason] = number = int(count)
        missing = sum((ids.missing for ids in columns), Counter[str]())
        listed = ", ".join(f"{spelling} ({rows:,} rows)" for spelling, rows in missing.items())
        more = f" Treated as missing: {listed}. Rename it if it is a real id." if listed else ""
        if number and reason in LEFT_OUT:
            self.say(f"{LEFT_OUT[reason].format_map(self.words)}: {number:,}.{more}")


def _read_content(
    options: Options,
    columns: Mapping[str, Column],
    times: NDArray[np.float64] | None,
    table: Table,
    features: Numbers | None,
    say: Callable[[str], None],
) -> Content:
    """Read the links, which decide what items are kept, and then those items' texts and features.

    Args:
        columns: those in use but texts, by their roles.
        times: of the rows of links, where they are needed.
        table: that of the items.
        features: of its rows.
    """
    words = {"links": options.links.name, "items": options.items.name, "id": columns["id"].name}
    removed = Removed(say, words)
    (users,) = unify([encode(columns["user"])], say)
    ends, items = unify([encode(columns["item"]), encode(columns["id"])], say)
    users = users.in_natural_order()
    n_rows, n_present = len(items.codes), int(np.sum(items.codes >= 0))
    if not n_present:
        with_id = f" with {words['id']}" if n_rows else ""
        raise DataError(f"{options.items} holds no item{with_id}.")
    removed.add("items_without_id", n_rows - n_present, items)
    removed.add("duplicate_items", n_present - len(items.names))
    is_link = _links(users, ends, columns, options, removed)
    item_of_row = np.append(positions(ends.names, items.names), -1)[ends.codes]
    is_known = is_link & (item_of_row >= 0)
    if not is_known.any():
        raise DataError(
            f"No link names an item of {options.items}: {ends.column.name} in {words['links']} is,"
            f" for example, {ends.names[0].as_py()[:40]!r}, and {words['id']} in {words['items']}"
            f" {items.names[0].as_py()[:40]!r}."
        )
    is_unknown = is_link & ~is_known
    removed.add("links_to_unknown_items", np.sum(is_unknown))
    removed.add("unknown_items", _count(ends.codes[is_unknown]))
    links = Links(users.codes, item_of_row, times, np.arange(len(is_link))).where(is_known)
    removed.add("users_without_links", _count(users.codes[is_link]) - _count(links.users))
    removed.add("items_without_links", len(items.names) - _count(links.items))
    if options.sample_users:
        links = _sample(links, options.sample_users, removed)
    # Users and items without a link are left out of the numbers.
    (user_codes, of_users), (item_codes, of_items) = (
        np.unique(codes, return_inverse=True) for codes in (links.users, links.items)
    )
    links = links._replace(users=of_users.astype(np.int32), items=of_items.astype(np.int32))
    item_ids, rows = items.names.take(pa.array(item_codes)), items.first_rows()[item_codes]
    split = _split(columns["split"])[rows] if options.split_column else None
    held_out = hold_out(options, links, (len(user_codes), len(item_codes)), split=split)
    for reason, count in held_out.removed.items():
        removed.add(reason, count)
    item_features = None
    if features is not None:
        item_features, n_constant = standardise(features[rows], held_out.split == 0)
        if not (fits := np.isfinite(item_features).all(axis=1)).all():
            raise DataError(
                f"{options.item_features}: item {item_ids[int(np.argmin(fits))].as_py()[:40]!r} has"
                " a feature that is too far from those of the training items to be standardised in"
                " float32. Correct its value."
            )
        if n_constant:
            say(
                f"Warning: {n_constant:,} of {features.shape[1]:,} features of the items are the"
                " same for all in training, but for rounding, and are set to 0."
            )
    texts, vocabulary = _read_texts(options, table, rows)
    return Content(
        n_users=len(user_codes),
        texts=texts,
        vocabulary=vocabulary,
        user_ids=users.names.take(pa.array(user_codes)),
        item_ids=item_ids,
        item_features=item_features,
        **held_out._replace(removed=removed.counts)._asdict(),
    )


def _links(
    users: Ids, ends: Ids, columns: Mapping[str, Column], options: Options, removed: Removed
) -> NDArray[np.bool_]:
    """Return which rows are links: with both ends (``users`` and ``ends``), and a sufficient
    rating.
    """
    is_link = (users.codes >= 0) & (ends.codes >= 0)
    removed.add("links_without_id", np.sum(~is_link), users, ends)
    n_below = 0
    if (least := options.rating_threshold) is not None:
        is_enough = columns["rating"].at_least(least)
        n_below = int(np.sum(is_link & ~is_enough))
        is_link &= is_enough
    removed.add("links_below_threshold", n_below)
    if not is_link.any():
        what = " of such a rating" if n_below else ""
        raise DataError(f"{options.links} holds no link{what}.")
    return is_link


def _sample(links: Links, size: int, removed: Removed) -> Links:
    """Return all links of some users, drawn at random."""
    users = np.unique(links.users)
    if size >= len(users):
        removed.say(f"--sample-users {size:,}: there are {len(users):,} users; all are kept.")
        return links
    kept = links.where(np.isin(links.users, users[draw_users(len(users), size, SEED)]))
    lost_links = len(links.users) - len(kept.users)
    lost_items = _count(links.items) - _count(kept.items)
    removed.add("users_not_drawn", len(users) - size)
    removed.add("links_of_users_not_drawn", lost_links)
    removed.add("items_not_drawn", lost_items)
    removed.say(
        f"A sample: {size:,} of {len(users):,} users; left out with the others: {lost_links:,}"
        f" links, {lost_items:,} items without a link."
    )
    return kept


def _count(codes: NDArray[np.int32]) -> int:
    return len(np.unique(codes))


def _read_texts(
    options: Options, items: Table, rows: NDArray[np.int64]
) -> tuple[Texts, tuple[str, ...]]:
    if not options.text_columns and not options.tokens_column:
        return Texts(np.zeros(0, np.int32), np.zeros(len(rows), np.int32)), ()
    corpus = Corpus(options)
    if options.tokens_column:
        tokens = items[options.tokens_column]
        is_list = pa.types.is_nested(tokens.values.type)
        for row, parts in zip(rows, tokens.texts(rows), strict=True):
            if not is_list and "".join(parts).lstrip().startswith(("['", '["')):
                tokens.refuse(
                    int(row),
                    "is a list written as text. Write tokens with spaces between them, or the items"
                    " as JSON Lines or Parquet.",
                )
            corpus.add(parts if is_list else [word for text in parts for word in text.split()])
    else:
        columns = [items[name].texts(rows) for name in options.text_columns]
        for item in zip(*columns, strict=True):
            corpus.add(corpus.tokenize("\n".join(" ".join(parts) for parts in item)))
    return corpus.finish()


def _split(column: Column) -> NDArray[np.uint8]:
    """Return uint8[n], the split of each row, an index into :data:`SPLITS`."""
    numbers = split_numbers(column)
    if not (is_split := numbers < len(SPLITS)).all():
        row = int(np.argmin(is_split))
        column.refuse(
            row, f"{str(column.values[row].as_py())[:40]!r} is none of {', '.join(SPLITS)}."
        )
    return numbers
