"""Users' own data: a file of links and a file of items, in any of the usual formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import SupportsInt

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.columns import Column, Table
from ncfbench.data.content import (
    SPLITS,
    Content,
    renumbered,
)
from ncfbench.data.features import Numbers, read_features, standardised
from ncfbench.data.files import sha256
from ncfbench.data.hold_out import Links, Moments, hold_out
from ncfbench.data.ids import Ids, encode, positions, unify
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.sources.custom_columns import (
    OF_ITEMS,
    OF_LINKS,
    SPLIT_NAMES,
    describe,
    split_names,
    with_columns,
)
from ncfbench.data.sources.custom_options import Options
from ncfbench.data.table import read_table
from ncfbench.data.text import Corpus, Texts, Vocabulary
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
    for line in describe(options, chosen, links, items, features):
        say(line)
    files = {
        role: {"name": path.name, "sha256": sha256(path)} for role, path in options.files().items()
    }
    return Preparation(
        {"files": files, "arguments": options.arguments(), **options.model_origin()},
        chosen.stored(),
        partial(
            _read_content, chosen, columns, items, features, say, options.time_column is not None
        ),
    )


LEFT_OUT = {
    "items_without_id": "Warning: left out, rows of {items} without {id}",
    "duplicate_items": "Warning: left out, rows of {items} that repeat the {id} of an earlier one",
    "links_without_id": "Warning: left out, rows of {links} without a user or an item",
    "links_below_threshold": "Rows of {links} below the threshold, which are not links",
    "links_to_unknown_items": "Warning: left out, links to items that {items} does not have",
    "users_without_links": "Warning: left out, users without a link",
    "items_without_links": "Warning: left out, items without a link",
    "duplicate_links": "Warning: left out, links of {links} that are given again",
}
"""Messages about things that are left out, by the reason."""


@dataclass(frozen=True)
class Removed:
    """Counts of what is left out, by reason; the user hears of most."""

    say: Callable[[str], None]
    words: Mapping[str, str]
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, count: SupportsInt, more: str = "") -> None:
        """Count what is left out, and say so."""
        self.counts[reason] = number = int(count)
        if number and reason in LEFT_OUT:
            self.say(f"{LEFT_OUT[reason].format_map(self.words)}: {number:,}.{more}")


def _read_content(
    options: Options,
    columns: Mapping[str, Column],
    table: Table,
    features: Numbers | None,
    say: Callable[[str], None],
    is_time_named: bool,
) -> Content:
    """Read the links, which decide what items are kept, and then those items' texts and features;
    ``table`` is that of the items, ``columns`` are those in use but texts, by their roles;
    ``is_time_named`` says whether the user named the column of times.
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
    removed.add("items_without_id", n_rows - n_present, _describe_missing(items))
    removed.add("duplicate_items", n_present - len(items.names))
    moments = _read_moments(columns.get("time"), is_time_named)
    links, n_users = _read_links(users, ends, items, columns, options, moments, removed)
    removed.add("users_without_links", n_users - _count(links.users))
    removed.add("items_without_links", len(items.names) - _count(links.items))
    if options.sample_users:
        links = _sample(links, options.sample_users, removed)
    has_user = np.bincount(links.users, minlength=len(users.names)) > 0
    has_item = np.bincount(links.items, minlength=len(items.names)) > 0
    user_ids = users.names.filter(pa.array(has_user))
    item_ids = items.names.filter(pa.array(has_item))
    of_links = renumbered(has_user, links.users), renumbered(has_item, links.items)
    links, repeated = Links(*of_links, links.moments).distinct()
    removed.add("duplicate_links", repeated)
    rows = items.first_rows()[has_item]
    held_out = hold_out(
        options,
        links,
        (len(user_ids), len(item_ids)),
        split=_split_numbers(columns["split"])[rows] if options.split_column else None,
    )
    for reason, count in held_out.removed.items():
        removed.add(reason, count)
    item_features = None
    if features is not None:
        assert options.item_features is not None
        path, is_trained = options.item_features, held_out.split == 0
        item_features = standardised(path, features[rows], item_ids, is_trained, say)
    texts_, vocabulary = _read_texts(options, table, rows, say)
    return Content(
        n_users=len(user_ids),
        texts=texts_,
        vocabulary=vocabulary,
        user_ids=user_ids,
        item_ids=item_ids,
        item_features=item_features,
        **held_out._replace(removed=removed.counts)._asdict(),
    )


def _read_links(
    users: Ids,
    ends: Ids,
    items: Ids,
    columns: Mapping[str, Column],
    options: Options,
    moments: Moments | None,
    removed: Removed,
) -> tuple[Links, int]:
    """Return the links with both ends (``users`` and ``ends``) and a sufficient rating, to items
    that the items' file has; and how many users there were before.
    """
    path, file = ends.column.table.path, items.column.table.path
    present = (users.codes >= 0) & (ends.codes >= 0)
    removed.add("links_without_id", np.sum(~present), _describe_missing(users, ends))
    kept = present
    if (least := options.rating_threshold) is not None:
        kept = present & columns["rating"].at_least(least)
    n_below = int(np.sum(present & ~kept))
    removed.add("links_below_threshold", n_below)
    if not kept.any():
        what = " of such a rating" if n_below else ""
        raise DataError(f"{path} holds no link{what}.")
    of_items = np.append(positions(ends.names, items.names), -1)[ends.codes]
    known = kept & (of_items >= 0)
    if not known.any():
        raise DataError(
            f"No link names an item of {file}: {ends.column.name} in {path.name} is, for example,"
            f" {ends.names[0].as_py()[:40]!r}, and {items.column.name} in {file.name}"
            f" {items.names[0].as_py()[:40]!r}."
        )
    unknown = kept & ~known
    removed.add("links_to_unknown_items", np.sum(unknown))
    removed.add("unknown_items", _count(ends.codes[unknown]))
    links = Links(users.codes, of_items, moments).where(known)
    return links, _count(users.codes[kept])


def _read_moments(column: Column | None, is_named: bool) -> Moments | None:
    """Return the time of each row; None where no times are needed."""
    if column is None:
        return None
    return Moments(column.times(is_named=is_named), np.arange(len(column.values)))


def _sample(links: Links, size: int, removed: Removed) -> Links:
    """Return all links of some users, drawn at random."""
    n_users = _count(links.users)
    if size >= n_users:
        removed.say(f"--sample-users {size:,}: there are {n_users:,} users; all are kept.")
        return links
    kept = links.of_drawn_users(size)
    lost_links = len(links.users) - len(kept.users)
    lost_items = _count(links.items) - _count(kept.items)
    removed.add("users_not_drawn", n_users - size)
    removed.add("links_of_users_not_drawn", lost_links)
    removed.add("items_not_drawn", lost_items)
    removed.say(
        f"A sample: {size:,} of {n_users:,} users; left out with the others: {lost_links:,}"
        f" links, {lost_items:,} items without a link."
    )
    return kept


def _count(codes: NDArray[np.int32]) -> int:
    return int(np.count_nonzero(np.bincount(codes)))


def _read_texts(
    options: Options, items: Table, rows: NDArray[np.int64], say: Callable[[str], None]
) -> tuple[Texts, Vocabulary]:
    if not options.text_columns and not options.tokens_column:
        return Texts(np.zeros(0, np.int32), np.zeros(len(rows), np.int32)), Vocabulary((), ())
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


def _split_numbers(column: Column) -> NDArray[np.uint8]:
    names = split_names(column)
    for row, name in enumerate(names):
        if name not in SPLIT_NAMES:
            column.refuse(row, f"{name[:40]!r} is none of {', '.join(SPLITS)}.")
    return np.array([SPLIT_NAMES[name] for name in names], np.uint8)


def _describe_missing(*columns: Ids) -> str:
    """Return a sentence about spellings of missing ids, such as NA, if there are any."""
    counts = sum((ids.missing for ids in columns), Counter[str]())
    listed = ", ".join(f"{spelling} ({rows:,} rows)" for spelling, rows in counts.items())
    return f" As missing count {listed}; if one is a real id, spell it otherwise." if listed else ""
