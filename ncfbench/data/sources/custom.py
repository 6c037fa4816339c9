"""Users' own data: a file of links and a file of items, in any of the usual formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import SPLITS, Content, distinct_links, split_items, split_newest
from ncfbench.data.ids import Names, positions
from ncfbench.data.options import ItemOptions, as_flags, option
from ncfbench.data.readers import columns
from ncfbench.data.readers.files import sha256
from ncfbench.data.sources import Preparation, Progress, Statistics
from ncfbench.data.sources.custom_columns import Columns
from ncfbench.data.sources.custom_kept import (
    Links,
    count_removed,
    describe_removed,
    keep_frequent,
    sample_users,
)
from ncfbench.data.text import Corpus, tokenize
from ncfbench.errors import DataError, UsageError

STATISTICS: Statistics | None = None
SPLIT_NAMES = {
    "train": 0,
    "training": 0,
    "validation": 1,
    "valid": 1,
    "val": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}


LINKS, ITEMS, SPLIT = "Columns of the links", "Columns of the items", "Links and items to keep"


@dataclass(frozen=True, kw_only=True)
class Options(ItemOptions):
    """Options of the source; a column that is None is found by its usual names."""

    links: Path = option(
        help_="A row for each link: CSV, TSV, JSON Lines or Parquet; may be compressed.",
        is_stored=False,
    )
    items: Path = option(
        help_="A row for each item, with its id and its text; of the same formats.",
        is_stored=False,
    )
    user_column: str | None = option(
        None, "The user's id.", panel=LINKS, shown="user, user_id, ..."
    )
    item_column: str | None = option(
        None, "The item's id.", panel=LINKS, shown="item, item_id, movieId, asin, ..."
    )
    rating_column: str | None = option(
        None, "Ratings, for --rating-threshold.", panel=LINKS, shown="rating, score, ..."
    )
    time_column: str | None = option(
        None,
        "Numbers or dates, for --split time.",
        panel=LINKS,
        shown="timestamp, time, date, ...",
    )
    id_column: str | None = option(
        None, "The item's id.", panel=ITEMS, shown="as in the links, id, ..."
    )
    text_columns: tuple[str, ...] = option(
        (),
        "An item's text is made of these, in order, separated by commas.",
        panel=ITEMS,
        shown="title, abstract, description, ...: all that are there",
    )
    tokens_column: str | None = option(
        None,
        "Instead of a text: tokens already made, a list or separated by spaces.",
        panel=ITEMS,
        shown="tokens, words",
    )
    split_column: str | None = option(
        None, "Each item's split: train, validation or test.", panel=ITEMS, shown="split, fold, ..."
    )
    rating_threshold: float | None = option(
        None,
        "A row is a link if its rating is this or more (implicit feedback).",
        panel=SPLIT,
        shown="every row is a link",
    )
    split: str | None = option(
        None,
        "Which items are held out: random; time, those whose first link is newest; column.",
        panel=SPLIT,
        shown="column where there is one, else random",
        choices=("random", "time", "column"),
    )
    min_user_links: int = option(
        1,
        "Leave out users of fewer links, again and again until none is left.",
        panel=SPLIT,
        at_least=0,
    )
    min_item_links: int = option(
        1, "The same for items; 0 keeps those without any link.", panel=SPLIT, at_least=0
    )
    sample_users: int | None = option(
        None,
        "For a quick first answer: keep this many of the users that are left, drawn at random by"
        " --split-seed, with all their links, and no items that they have no link to. The minimum"
        " numbers of links are counted before.",
        panel=SPLIT,
        shown="all",
        at_least=1,
    )
    delimiter: str | None = option(
        None,
        "Delimiter of the CSV files that have it.",
        shown="comma, tab, semicolon or bar",
        is_stored=False,
    )
    quotes: bool = option(
        True, "Whether quotation marks enclose fields of CSV files.", is_stored=False
    )
    encoding: str = option("utf-8", "Encoding of CSV files, such as latin-1.", is_stored=False)
    split_seed: int = option(
        0, "Seed of the choice of held-out items, and of --sample-users.", at_least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_column and self.split not in (None, "column"):
            raise UsageError(
                f"--split-column {self.split_column} and --split {self.split} exclude each other."
            )
        if self.tokens_column and self.text_columns:
            raise UsageError(
                "--tokens-column and --text-columns exclude each other: a text is made of one or"
                " the other."
            )

    def stored(self) -> dict[str, Any]:
        """Return the options that decide the content; ``sample_users`` only where it is given, so
        that all other data sets have the fingerprints they had before there were samples.
        """
        values = super().stored()
        if self.sample_users is None:
            del values["sample_users"]
        return values

    def arguments(self) -> list[str]:
        """Return the words of a command that name the files and how they are read."""
        reading: dict[str, Any] = {"delimiter": self.delimiter}
        reading |= {} if self.quotes else {"quotes": False}
        reading |= {} if self.encoding == "utf-8" else {"encoding": self.encoding}
        return as_flags({"links": self.links.name, "items": self.items.name} | reading)


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Look at both files and choose their columns; see :class:`ncfbench.data.sources.SourceModule`.

    Raises:
        DataError: a file cannot be read, or no column has the name that is needed.
        UsageError: a choice that these files do not allow.
    """
    chosen = Columns.choose(options)
    for line in chosen.describe():
        say(line)
    files = {
        role: {"name": path.name, "sha256": sha256(path)}
        for role, path in (("links", options.links), ("items", options.items))
    }
    stored = options.stored() | chosen.stored()
    stored["min_user_links"] = max(options.min_user_links, 1)
    return Preparation(
        {"files": files, "arguments": options.arguments()},
        stored,
        partial(read_content, options, chosen, say=say),
    )


def read_content(
    options: Options, chosen: Columns, scratch: Path, *, say: Callable[[str], None]
) -> Content:
    """Read the links, which decide what items are kept, and then those items' texts."""
    item_ids, first_rows, splits, removed = _read_items(chosen)
    links = _read_links(chosen, item_ids, removed)
    frequent = keep_frequent(links, len(item_ids), options)
    sampled = sample_users(links, frequent, options)
    removed |= count_removed(frequent, sampled)
    kept_users, kept_items, kept = sampled
    if not kept.any():
        raise DataError(
            f"No link is left of {options.links} with --min-user-links {options.min_user_links} and"
            f" --min-item-links {options.min_item_links}."
        )
    user_number, item_number = (
        np.cumsum(flags, dtype=np.int32) - 1 for flags in (kept_users, kept_items)
    )
    users, items, removed["duplicate_links"] = distinct_links(
        user_number[links.users[kept]], item_number[links.items[kept]]
    )
    n_items = int(kept_items.sum())
    if chosen.split == "column":
        split = splits[kept_items]
    elif chosen.split == "time":
        first = np.full(n_items, np.inf)
        np.minimum.at(first, item_number[links.items[kept]], links.times[kept])
        first[np.isinf(first)] = -np.inf  # without a link there is nothing to find
        split = split_newest(first, options.test_fraction, options.validation_fraction)
    else:
        split = split_items(
            n_items, options.test_fraction, options.validation_fraction, options.split_seed
        )
    if not (split[items] == 0).any():
        raise DataError("There is nothing to train on: every link belongs to a held-out item.")
    corpus = Corpus(scratch)
    for tokens in _texts(chosen, first_rows[kept_items]):
        corpus.add(tokens)
    if len(corpus) != n_items:
        raise DataError(f"{options.items} changed while it was read. Prepare it again.")
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
    for line in describe_removed(removed, int(kept_users.sum()), options, chosen):
        say(line)
    return Content(
        n_users=int(kept_users.sum()),
        users=users,
        items=items,
        texts=texts,
        vocabulary=vocabulary,
        split=split,
        user_ids=links.user_ids.filter(pa.array(kept_users)),
        item_ids=item_ids.filter(pa.array(kept_items)),
        removed=removed,
    )


def _read_items(
    chosen: Columns,
) -> tuple[pa.StringArray, NDArray[np.int64], NDArray[np.uint8], dict[str, int]]:
    """Return the items' ids in the order of the file, their rows and splits, and what was left
    out.
    """
    wanted = [chosen.id] + ([chosen.split_column] if chosen.split_column else [])
    parts, rows, splits = [], [], []
    n_rows = 0
    for start, batch in chosen.items.batches(wanted):
        found = columns.ids(batch[chosen.id], chosen.items, start, chosen.id)
        present = np.flatnonzero(found.is_valid())
        parts.append(found.take(pa.array(present)))
        rows.append(start + present)
        n_rows = start + len(found)
        if chosen.split_column:
            splits.append(_split_numbers(chosen, batch[chosen.split_column], start)[present])
    if not any(map(len, parts)):
        raise DataError(
            f"{chosen.items.path} holds no item{f' with {chosen.id}' if n_rows else ''}."
        )
    ids = pa.chunked_array(parts, pa.string()).combine_chunks()
    # Of rows with the same id the first counts.
    distinct = ids.unique()
    first = np.full(len(distinct), len(ids), np.int64)
    np.minimum.at(first, positions(ids, distinct), np.arange(len(ids)))
    removed = {"items_without_id": n_rows - len(ids), "duplicate_items": len(ids) - len(distinct)}
    split = np.concatenate(splits)[first] if splits else np.zeros(len(distinct), np.uint8)
    return distinct, np.concatenate(rows)[first], split, removed


def _split_numbers(chosen: Columns, values: pa.Array, start: int) -> NDArray[np.uint8]:
    names = columns.labels(values, chosen.items, start, str(chosen.split_column))
    for row, name in enumerate(names):
        if name not in SPLIT_NAMES:
            chosen.items.refuse(
                start + row, f"{chosen.split_column} {name[:40]!r} is none of {', '.join(SPLITS)}."
            )
    return np.array([SPLIT_NAMES[name] for name in names], np.uint8)


def _read_links(chosen: Columns, item_ids: pa.StringArray, removed: dict[str, int]) -> Links:
    """Return the links with both ends and a sufficient rating, to items that are known."""
    wanted = [name for name in (chosen.user, chosen.item, chosen.rating, chosen.time) if name]
    users, items = Names(), Names()
    times = []
    removed |= {"links_without_id": 0, "links_below_threshold": 0}
    for start, batch in chosen.links.batches(wanted):
        user = columns.ids(batch[chosen.user], chosen.links, start, chosen.user)
        item = columns.ids(batch[chosen.item], chosen.links, start, chosen.item)
        present = np.asarray(user.is_valid()) & np.asarray(item.is_valid())
        removed["links_without_id"] += int(np.sum(~present))
        if chosen.rating and chosen.rating_threshold is not None:
            enough = (
                columns.numbers(batch[chosen.rating], chosen.links, start, chosen.rating)
                >= chosen.rating_threshold
            )
            removed["links_below_threshold"] += int(np.sum(present & ~enough))
            present &= enough
        if chosen.time:
            times.append(
                columns.times(batch[chosen.time], chosen.links, start, chosen.time)[present]
            )
        users.add(user.filter(pa.array(present)))
        items.add(item.filter(pa.array(present)))
    user_numbers, user_names = users.finish()
    item_numbers, item_names = items.finish()
    if not len(user_numbers):
        raise DataError(
            f"{chosen.links.path} holds no"
            f" link{' of such a rating' if removed['links_below_threshold'] else ''}."
        )
    position = positions(item_names, item_ids)
    known = position[item_numbers] >= 0
    removed["links_to_unknown_items"] = int(np.sum(~known))
    removed["unknown_items"] = int(np.sum(position < 0))
    if not known.any():
        raise DataError(
            f"No link names an item of {chosen.items.path}: {chosen.item} in"
            f" {chosen.links.path.name} is, for example, {item_names[0].as_py()[:40]!r}, and"
            f" {chosen.id} in {chosen.items.path.name} {item_ids[0].as_py()[:40]!r}."
        )
    return Links(
        user_names,
        user_numbers[known],
        position[item_numbers[known]],
        np.concatenate(times)[known] if times else np.zeros(0),
    )


def _texts(chosen: Columns, rows: NDArray[np.int64]) -> Iterator[list[str]]:
    """Yield the tokens of the items in some rows, which ascend."""
    names = [chosen.tokens] if chosen.tokens else list(chosen.texts)
    for start, batch in chosen.items.batches(names):
        length = len(batch[names[0]])
        wanted = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + length)] - start
        if not len(wanted):
            continue
        taken = {name: values.take(pa.array(wanted)) for name, values in batch.items()}
        if chosen.tokens:
            yield from columns.tokens(taken[chosen.tokens], chosen.items, start, chosen.tokens)
            continue
        parts = [columns.texts(taken[name], chosen.items, start, name) for name in chosen.texts]
        for of_item in zip(*parts, strict=True):
            yield tokenize("\n".join(of_item))
