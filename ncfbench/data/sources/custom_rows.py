"""The rows of users' own files: items with splits and texts, links between known items."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import SPLITS
from ncfbench.data.ids import Names, positions
from ncfbench.data.readers import columns
from ncfbench.data.sources.custom_columns import Columns
from ncfbench.data.sources.custom_kept import Links
from ncfbench.errors import DataError

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


def read_items(
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


def read_links(chosen: Columns, item_ids: pa.StringArray, removed: dict[str, int]) -> Links:
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


def read_texts(
    chosen: Columns, rows: NDArray[np.int64], tokenize: Callable[[str], list[str]]
) -> Iterator[list[str]]:
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
