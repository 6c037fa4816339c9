"""Held-out items and links: what is kept from training, as a source's options say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.content import SPLITS
from ncfbench.data.options import NEED_TIMES, SourceOptions
from ncfbench.data.text import Int32
from ncfbench.errors import DataError, UsageError
from ncfbench.rng import Streams

UInt8 = NDArray[np.uint8]
SEED = 0
"""Seed of what is held out, and of the users of a sample."""
TRAIN, VALIDATION, TEST = range(len(SPLITS))


class Links(NamedTuple):
    """The users and items at the ends of links; where needed also times, and the links' rows in the
    file, the smaller the earlier among equal times.

    Args:
        users, items: int32[links].
        times: number[links], growing with time.
        rows: number[links].
    """

    users: Int32
    items: Int32
    times: Any = None
    rows: Any = None

    def where(self, kept: NDArray[np.bool_] | NDArray[np.intp]) -> Links:
        """Return some of the links."""
        times, rows = (None if part is None else part[kept] for part in self[2:])
        return Links(self.users[kept], self.items[kept], times, rows)

    def distinct(self) -> tuple[Links, int]:
        """Return each link at its first time, by (user, item); and the number of duplicates."""
        pairs = (self.users.astype(np.int64) << 32) | self.items.astype(np.int64)
        order = np.lexsort([key for key in (self.rows, self.times, pairs) if key is not None])
        first = order[np.diff(pairs[order], prepend=-1) > 0]
        return self.where(first), len(pairs) - len(first)


def draw_users(n_users: int, size: int, seed: int) -> NDArray[np.int64]:
    """Return int64[size], users drawn at random, ascending; a smaller draw is part of a larger."""
    return np.sort(Streams(seed).generator("users").permutation(n_users)[:size])


class HeldOut(NamedTuple):
    """The links that are left, and what of them is held out: fields of
    :class:`ncfbench.data.content.Content`.
    """

    users: Int32
    items: Int32
    split: UInt8
    held_out: UInt8 | None
    removed: dict[str, int]
    facts: dict[str, float]


def hold_out(
    options: SourceOptions,
    links: Links,
    size: tuple[int, int],
    *,
    split: UInt8 | None = None,
) -> HeldOut:
    """Hold items or links out.

    Args:
        links: with times and rows for hold-outs that need times; duplicates are removed.
        size: numbers of users and items.
        split: uint8[n_items], where the source itself says which items are held out.

    Raises:
        DataError: nothing is left to train on.
        UsageError: these options hold out everything, all links have one time, or they have none.
    """
    links, n_duplicates = links.distinct()
    kind, (users, items, times, _) = options.hold_out or "items", links
    facts: dict[str, float] = {}
    removed = {"duplicate_links": n_duplicates} if n_duplicates else {}
    if kind in NEED_TIMES and times is None:
        raise UsageError(
            f"--hold-out {kind} needs the times of links, and there are none here: use --hold-out"
            " items or --hold-out links."
        )
    if split is None and kind == "items":
        split = split_items(size[1], options)
    elif split is None and kind == "newest-items":
        split, facts["items_with_tied_times"] = split_newest(links, size[1], options)
    if split is not None:
        held_out = split[items]
    elif kind == "links":
        held_out = split_links(users, options)
    elif kind == "last":
        held_out, facts["users_with_tied_times"] = split_last(links, options)
    else:
        held_out = split_at(links, options)
    if not (held_out == TRAIN).any():
        raise DataError("There is nothing to train on: every link belongs to a held-out item.")
    if split is not None:
        return HeldOut(users, items, split, None, removed, facts)
    is_new = np.bincount(users[held_out == TRAIN], minlength=size[0])[users] == 0
    for number in (VALIDATION, TEST):
        reason = f"{SPLITS[number]}_links_of_new_users"
        removed[reason] = int(np.sum(is_new & (held_out == number)))
    users, items, held_out = users[~is_new], items[~is_new], held_out[~is_new]
    first = np.full(size[1], len(SPLITS), np.uint8)
    np.minimum.at(first, items, held_out)
    split = np.where(first == len(SPLITS), TRAIN, first).astype(np.uint8)
    return HeldOut(users, items, split, held_out, removed, facts)


def split_items(
    n_items: int, options: SourceOptions, order: NDArray[np.int64] | None = None
) -> UInt8:
    """Hold the first items of an order out, by default a random one: a share for the test, then a
    share of the *remaining* items for validation.

    Returns:
        uint8[n_items], indices into :data:`SPLITS`.

    Raises:
        UsageError: nothing is left to train on.
    """
    if order is None:
        order = Streams(SEED).generator("split").permutation(n_items)
    n_test = round(n_items * options.test_fraction)
    n_validation = round((n_items - n_test) * options.validation_fraction)
    if n_test + n_validation >= n_items:
        raise UsageError(
            f"With {n_items} items, these fractions hold every item out. Use smaller ones."
        )
    split = np.zeros(n_items, dtype=np.uint8)
    split[order[:n_test]] = TEST
    split[order[n_test : n_test + n_validation]] = VALIDATION
    return split


def split_newest(links: Links, n_items: int, options: SourceOptions) -> tuple[UInt8, int]:
    """Hold out the items whose first link is the newest, never those without a link while others
    are left; among equals the later item counts as newer.

    Returns:
        uint8[n_items], indices into :data:`SPLITS`; and the items whose split the order of items
        decided, since their first links have equal times.
    """
    first = np.full(n_items, np.inf)
    np.minimum.at(first, links.items, links.times)
    first[np.isinf(first)] = -np.inf
    split = split_items(n_items, options, np.argsort(first, kind="stable")[::-1])
    linked = np.isfinite(first)
    moments, splits = first[linked], split[linked]
    pairs = np.unique(np.stack([moments, splits]), axis=1)[0]
    tied = pairs[1:][np.diff(pairs) == 0]  # times of items of several splits
    return split, int(np.isin(moments, tied).sum())


def split_links(users: Int32, options: SourceOptions) -> UInt8:
    """Hold out links of each user at random: a share for the test, then a share of the *remaining*
    ones for validation, both rounded; at least one link of each user stays in training.

    Returns:
        uint8[links], indices into :data:`SPLITS`.
    """
    # The order of a user's links is that of random numbers.
    keys = Streams(SEED).generator("split").random(len(users))
    place, n_links = _places(users, np.lexsort((keys, users)))
    n_test = np.minimum(np.rint(n_links * options.test_fraction), n_links - 1)
    n_left = n_links - n_test
    n_validation = np.minimum(np.rint(n_left * options.validation_fraction), n_left - 1)
    is_held_out = [place < n_test, place < n_test + n_validation]
    return np.select(is_held_out, [TEST, VALIDATION], TRAIN).astype(np.uint8)


def split_last(links: Links, options: SourceOptions) -> tuple[UInt8, int]:
    """Hold out each user's newest link for the test, and the one before it for validation, unless
    the validation fraction is 0. Users who would have no training link keep all their links.

    Returns:
        uint8[links], indices into :data:`SPLITS`; and the users for whom the order of rows decided,
        since links have equal times.
    """
    users, _, times, rows = links
    n_held_out = 2 if options.validation_fraction else 1
    order = np.lexsort((rows, times, users))[::-1]  # each user's newest first
    place, n_links = _places(users, order)
    place = np.where(n_links > n_held_out, place, n_held_out)
    of_link = np.select([place == 0, place < n_held_out], [TEST, VALIDATION], TRAIN)
    # A link that is held out, and the next one of the same user.
    one, next_ = order[:-1], order[1:]
    is_tied = (place[one] < n_held_out) & (users[one] == users[next_])
    is_tied &= times[one] == times[next_]
    return of_link.astype(np.uint8), len(np.unique(users[one[is_tied]]))


def split_at(links: Links, options: SourceOptions) -> UInt8:
    """Hold out all links from a time on for the test, and the newest of the others for validation.

    The cut is the one that leaves nearest to the test fraction of the links after it. Links of one
    time are never parted.

    Returns:
        uint8[links], indices into :data:`SPLITS`.

    Raises:
        UsageError: all links have one time.
    """
    times = links.times
    is_test = times >= _cut(times, options.test_fraction, "--test-fraction")
    of_link = np.where(is_test, TEST, TRAIN).astype(np.uint8)
    if options.validation_fraction:
        before = times[~is_test]
        from_ = _cut(before, options.validation_fraction, "--validation-fraction")
        of_link[~is_test & (times >= from_)] = VALIDATION
    return of_link


def _places(users: Int32, order: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the place of each link among its user's in an order of links by user, from 0; and the
    number of its user's links.
    """
    counts = np.bincount(users)
    ordered = users[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    place = np.empty(len(users), np.intp)
    place[order] = np.arange(len(users)) - np.repeat(begins, counts[ordered[begins]])
    return place, counts[users]


def _cut(times: NDArray[np.number], fraction: float, flag: str) -> float:
    """Return the time which leaves nearest to a share of the links at or after it, and some before;
    infinity for a share of 0.
    """
    if not fraction:
        return np.inf
    moments, first = np.unique(np.sort(times), return_index=True)
    if len(moments) < 2:
        raise UsageError(
            f"--hold-out time: all links that {flag} would divide have one time, and links of one"
            f" time are not parted. Use {flag} 0, or --hold-out links."
        )
    distance = np.abs(len(times) - first[1:] - fraction * len(times))
    # The later of two that are as near.
    return float(moments[1:][::-1][np.argmin(distance[::-1])])
