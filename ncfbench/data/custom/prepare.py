"""Users' own data: a file of links and a file of items, in any of the usual formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data import store
from ncfbench.data.content import Content, distinct_links
from ncfbench.data.corpus import Corpus
from ncfbench.data.custom import columns
from ncfbench.data.custom.plan import Options, Plan
from ncfbench.data.ids import Names, places
from ncfbench.data.published import sha256
from ncfbench.data.splits import SPLITS, split_items, split_newest
from ncfbench.data.text import tokenize
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


def prepare(
    data_dir: Path,
    name: str,
    links: Path,
    items: Path,
    options: Options,
    *,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Read both files and store the data set; instant where that was done before. Returns the
    manifest.

    Raises:
        DataError: a file is missing, malformed, or has nothing to train on; the message names the
            line.
        UsageError: a choice that these files do not allow.
    """
    plan = Plan.make(links, items, options)
    for line in plan.describe():
        say(line)
    files = {
        role: {"name": path.name, "sha256": sha256(path)}
        for role, path in (("links", links), ("items", items))
    }
    origin = {"source": "custom", "files": files, "arguments": plan.arguments()}
    return store.prepare(
        data_dir,
        name,
        origin,
        plan.settings(),
        lambda scratch: read_content(plan, scratch, say),
        say,
    )


def read_content(plan: Plan, scratch: Path, say: Callable[[str], None]) -> Content:
    """Links first, which tell what items are wanted; then those items' texts."""
    item_ids, first_rows, splits, removed = _read_items(plan)
    links = _read_links(plan, item_ids, removed)
    kept_users, kept_items, kept = _often(links, len(links.user_ids), len(item_ids), plan.options)
    removed["rare_users"] = int(np.sum(~kept_users))
    removed["rare_items"] = int(np.sum(~kept_items))
    removed["links_of_rare"] = int(np.sum(~kept))
    if not kept.any():
        raise DataError(
            f"No link is left of {plan.links.path} with --min-user-links"
            f" {plan.options.min_user_links} and --min-item-links {plan.options.min_item_links}."
        )
    user_number, item_number = (
        np.cumsum(flags, dtype=np.int32) - 1 for flags in (kept_users, kept_items)
    )
    users, items, removed["duplicate_links"] = distinct_links(
        user_number[links.users[kept]], item_number[links.items[kept]]
    )
    n_items = int(kept_items.sum())
    options = plan.options
    if plan.split == "column":
        split = splits[kept_items]
    elif plan.split == "time":
        first = np.full(n_items, np.inf)
        np.minimum.at(first, item_number[links.items[kept]], links.times[kept])
        first[np.isinf(first)] = -np.inf  # nobody's: to hold them out would leave nothing to find
        split = split_newest(first, options.test_fraction, options.validation_fraction)
    else:
        split = split_items(
            n_items, options.test_fraction, options.validation_fraction, options.split_seed
        )
    if not (split[items] == 0).any():
        raise DataError("There is nothing to train on: every link belongs to a held-out item.")
    corpus = Corpus(scratch)
    for tokens in _texts(plan, first_rows[kept_items]):
        corpus.add(tokens)
    if len(corpus) != n_items:
        raise DataError(f"{plan.items.path} has changed while it was read. Prepare it again.")
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
    for line in _removals(removed, plan):
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


class Links(NamedTuple):
    """Links as the file has them: numbers of users and of items, and times where they are asked
    for.
    """

    user_ids: pa.StringArray
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: NDArray[np.float64]


def _read_items(
    plan: Plan,
) -> tuple[pa.StringArray, NDArray[np.int64], NDArray[np.uint8], dict[str, int]]:
    """Ids of the items in the order of the file, the row of each, its split, and what was left
    out.
    """
    wanted = [plan.id] + ([plan.split_column] if plan.split_column else [])
    parts, rows, splits = [], [], []
    n_rows = 0
    for start, batch in plan.items.batches(wanted):
        found = columns.ids(batch[plan.id], plan.items, start, plan.id)
        present = np.flatnonzero(found.is_valid())
        parts.append(found.take(pa.array(present)))
        rows.append(start + present)
        n_rows = start + len(found)
        if plan.split_column:
            splits.append(_split_numbers(plan, batch[plan.split_column], start)[present])
    if not any(map(len, parts)):
        raise DataError(f"{plan.items.path} holds no item{f' with {plan.id}' if n_rows else ''}.")
    ids = pa.chunked_array(parts, pa.string()).combine_chunks()
    # The first row of an id is where it stands among the distinct ones for the first time.
    distinct = ids.unique()
    place = places(ids, distinct)
    first = np.full(len(distinct), len(ids), np.int64)
    np.minimum.at(first, place, np.arange(len(ids)))
    removed = {"items_without_id": n_rows - len(ids), "duplicate_items": len(ids) - len(distinct)}
    split = np.concatenate(splits)[first] if splits else np.zeros(len(distinct), np.uint8)
    return distinct, np.concatenate(rows)[first], split, removed


def _split_numbers(plan: Plan, values: pa.Array, start: int) -> NDArray[np.uint8]:
    names = columns.labels(values, plan.items, start, str(plan.split_column))
    for row, name in enumerate(names):
        if name not in SPLIT_NAMES:
            plan.items.refuse(
                start + row, f"{plan.split_column} {name[:40]!r} is none of {', '.join(SPLITS)}."
            )
    return np.array([SPLIT_NAMES[name] for name in names], np.uint8)


def _read_links(plan: Plan, item_ids: pa.StringArray, removed: dict[str, int]) -> Links:
    """The links that have both ends and a rating that suffices, between items that are known."""
    wanted = [name for name in (plan.user, plan.item, plan.rating, plan.time) if name]
    users, items = Names(), Names()
    times = []
    removed |= {"links_without_id": 0, "links_below_threshold": 0}
    for start, batch in plan.links.batches(wanted):
        user = columns.ids(batch[plan.user], plan.links, start, plan.user)
        item = columns.ids(batch[plan.item], plan.links, start, plan.item)
        present = np.asarray(user.is_valid()) & np.asarray(item.is_valid())
        removed["links_without_id"] += int(np.sum(~present))
        if plan.rating and plan.options.rating_threshold is not None:
            enough = (
                columns.numbers(batch[plan.rating], plan.links, start, plan.rating)
                >= plan.options.rating_threshold
            )
            removed["links_below_threshold"] += int(np.sum(present & ~enough))
            present &= enough
        if plan.time:
            times.append(columns.times(batch[plan.time], plan.links, start, plan.time)[present])
        users.add(user.filter(pa.array(present)))
        items.add(item.filter(pa.array(present)))
    user_numbers, user_names = users.finish()
    item_numbers, item_names = items.finish()
    if not len(user_numbers):
        raise DataError(
            f"{plan.links.path} holds no"
            f" link{' of such a rating' if removed['links_below_threshold'] else ''}."
        )
    place = places(item_names, item_ids)
    known = place[item_numbers] >= 0
    removed["links_to_unknown_items"] = int(np.sum(~known))
    removed["unknown_items"] = int(np.sum(place < 0))
    if not known.any():
        raise DataError(
            f"No link names an item of {plan.items.path}: {plan.item} in {plan.links.path.name} is,"
            f" for example, {item_names[0].as_py()[:40]!r}, and {plan.id} in {plan.items.path.name}"
            f" {item_ids[0].as_py()[:40]!r}."
        )
    return Links(
        user_names,
        user_numbers[known],
        place[item_numbers[known]],
        np.concatenate(times)[known] if times else np.zeros(0),
    )


def _often(
    links: Links, n_users: int, n_items: int, options: Options
) -> tuple[NDArray[np.bool_], ...]:
    """Which users, items and links are left once those of too few links are gone, again and again
    until none is.
    """
    users, items = np.ones(n_users, bool), np.ones(n_items, bool)
    kept = np.ones(len(links.users), bool)
    while True:
        # A link that is named twice counts twice only until links are told apart.
        pairs = distinct_links(links.users[kept], links.items[kept])
        enough_users = np.bincount(pairs[0], minlength=n_users) >= max(options.min_user_links, 1)
        enough_items = np.bincount(pairs[1], minlength=n_items) >= options.min_item_links
        users &= enough_users
        items &= enough_items
        still = kept & users[links.users] & items[links.items]
        if still.sum() == kept.sum():
            return users, items, kept
        kept = still


def _texts(plan: Plan, rows: NDArray[np.int64]) -> Iterator[list[str]]:
    """The tokens of the items in some rows, ascending."""
    names = [plan.tokens] if plan.tokens else list(plan.texts)
    for start, batch in plan.items.batches(names):
        length = len(batch[names[0]])
        wanted = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + length)] - start
        if not len(wanted):
            continue
        chosen = {name: values.take(pa.array(wanted)) for name, values in batch.items()}
        if plan.tokens:
            yield from columns.tokens(chosen[plan.tokens], plan.items, start, plan.tokens)
            continue
        parts = [columns.texts(chosen[name], plan.items, start, name) for name in plan.texts]
        for of_item in zip(*parts, strict=True):
            yield tokenize("\n".join(of_item))


def _removals(removed: dict[str, int], plan: Plan) -> Iterator[str]:
    """What the user should know of what is left out."""
    links, items = plan.links.path.name, plan.items.path.name
    fewer = {
        name: "without a link" if least <= 1 else f"of fewer than {least} links"
        for name, least in (
            ("users", plan.options.min_user_links),
            ("items", plan.options.min_item_links),
        )
    }
    messages = {
        "items_without_id": f"rows of {items} without {plan.id}",
        "duplicate_items": f"rows of {items} that repeat the {plan.id} of an earlier one",
        "links_without_id": f"rows of {links} without a user or an item",
        "links_to_unknown_items": f"links to items that {items} does not have",
        "duplicate_links": f"links of {links} that are given again",
        "links_of_rare": "links of users or items that are left out",
        "rare_users": f"users {fewer['users']}",
        "rare_items": f"items {fewer['items']}",
    }
    for reason, message in messages.items():
        if removed.get(reason):
            yield f"Warning: left out, {message}: {removed[reason]:,}."
    if removed["links_below_threshold"]:
        yield (
            f"Rows of {links} below the threshold, which are no links:"
            f" {removed['links_below_threshold']:,}."
        )
