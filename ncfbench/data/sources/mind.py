"""MIND, the Microsoft News data set: news with titles and abstracts, and who clicked what.

Published by Wu et al. (ACL 2020). It stands in for the paper's Yahoo! News data, which is no longer
available. Nothing is downloaded, since users accept the licence on Microsoft's site. No checksums
are published, so the manifest keeps those of the files that were used. Memory holds only checksums
of the texts: news.tsv is read once for the ids and once for the words.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import Content, distinct_links, draw_users, split_items
from ncfbench.data.ids import natural_order
from ncfbench.data.options import TokenizerOptions, option
from ncfbench.data.readers.files import Member
from ncfbench.data.readers.mind import (
    BEHAVIORS,
    HOW_TO_GET,
    NEWS,
    PARTS,
    TEXT_PARTS,
    find_parts,
    read_clicks,
    read_news,
)
from ncfbench.data.sources import Preparation, Progress, Statistics
from ncfbench.data.text import Corpus, Texts, Vocabulary
from ncfbench.errors import DataError, UsageError

LABEL = "MIND, a stand-in for the paper's Yahoo! News data"
STATISTICS = Statistics(
    "paper (Yahoo! News)",
    {
        "users": 10_000,
        "items": 58_579,
        "links": 515_503,
        "vocabulary": 41_537,
        "words_max": 200,
        "words_min": 2,
        "words_mean": 89,
        "words_median": 90,
    },
)
LINKS_AT_ONCE = 2**22
"""Links collected, at least, before repeated ones are merged."""


@dataclass(frozen=True, kw_only=True)
class Options(TokenizerOptions):
    """Options of the source."""

    from_: Path | None = option(
        None,
        "Required: the folder with news.tsv and behaviors.tsv, or with parts as published: folders"
        " or zip archives.",
        flag="--from",
        is_stored=False,
    )
    parts: tuple[str, ...] | None = option(
        None, f"Parts to read, of {','.join(PARTS)}.", shown="all that are there", choices=PARTS
    )
    text: tuple[str, ...] = option(
        ("title", "abstract"),
        f"An item's text is made of these, in order: any of {','.join(TEXT_PARTS)}.",
        choices=TEXT_PARTS,
    )
    history: bool = option(False, "Take what a user had clicked before as links too.")
    users: int | None = option(
        None, "Draw this many of the users that have a link.", shown="all", at_least=1
    )
    max_length: int = option(200, "Words kept of a text.", at_least=1)
    split_seed: int = option(0, "Seed of the choice of held-out items, and of users.", at_least=0)

    def __post_init__(self) -> None:
        if self.parts is not None and "test" in self.parts:
            raise UsageError(
                "MIND's test part is published without clicks: there are no links in it."
            )
        super().__post_init__()


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Find the files in a folder: the two files, or the parts as they are published.

    Parts are folders or zip archives such as MINDsmall_train.zip.

    Raises:
        DataError: a file is missing.
        UsageError: no folder is named, or it has no parts to choose from.
    """
    if options.from_ is None:
        raise UsageError(HOW_TO_GET)
    parts = find_parts(options.from_, options.parts, say)
    named = tuple(part for part in PARTS if part in parts)
    options = replace(options, parts=named or None)
    files = {
        f"{_label(member.home)}/{name}" if named else name: {"sha256": member.sha256()}
        for part in parts.values()
        for name, member in part.items()
    }
    return Preparation(
        {"label": LABEL, "files": files, **options.tokenizer_origin()},
        options.stored(),
        partial(read_content, list(parts.values()), options, say=say),
    )


def _label(home: Path) -> str:
    return home.name.removesuffix(".zip")


def read_content(
    parts: Sequence[Mapping[str, Member]],
    options: Options,
    scratch: Path,
    *,
    say: Callable[[str], None],
) -> Content:
    """Parse the files: links, texts, vocabulary, split.

    Users and items are numbered in the natural order of their ids (``N9`` before ``N10``), whatever
    the order of lines.
    """
    removed: Counter[str] = Counter()
    news = [part[NEWS] for part in parts]
    numbers = _numbered(news, options.text, removed, say)
    links = _Links()
    user_numbers: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for part in parts:
        for user_id, clicked in read_clicks(part[BEHAVIORS], history=options.history):
            user = user_numbers.setdefault(user_id, len(user_numbers))
            for id_ in clicked:
                item = numbers.get(id_)
                links.add(
                    user,
                    unknown.setdefault(id_, len(numbers) + len(unknown)) if item is None else item,
                )
    users, items = links.finish()
    removed["duplicate_links"] = links.repeated
    known = items < len(numbers)
    users, items = users[known], items[known]
    if len(users) < len(known):
        removed["links_to_unknown_news"] = len(known) - len(users)
        say(
            f"Warning: {len(known) - len(users):,} links are dropped: they are to {len(unknown):,}"
            f" news that {NEWS} does not have."
        )
    if not len(users):
        raise DataError(f"No link is left: {BEHAVIORS} has no click on a news that {NEWS} has.")
    user_ids, new_user = _ordered(user_numbers, np.unique(users))
    removed["users_without_links"] = len(user_numbers) - len(user_ids)
    if options.users is not None:
        user_ids, new_user = _drawn(user_ids, new_user, options.users, options.split_seed, removed)
        drawn = new_user[users] >= 0
        removed["links_of_users_not_drawn"] = int(np.sum(~drawn))
        users, items = users[drawn], items[drawn]
    item_ids, new_item = _ordered(numbers, np.unique(items))
    removed["items_without_links"] = len(numbers) - len(item_ids)
    if removed["items_without_links"]:
        say(
            f"Left out: {removed['items_without_links']:,} of {len(numbers):,} news, to which none"
            f" of the {len(user_ids):,} users has a link."
        )
    users, items, _ = distinct_links(new_user[users], new_item[items])
    texts, vocabulary = _texts(
        news, options, {id_: item for item, id_ in enumerate(item_ids)}, scratch
    )
    return Content(
        n_users=len(user_ids),
        users=users,
        items=items,
        texts=texts,
        vocabulary=vocabulary,
        split=split_items(
            len(item_ids), options.test_fraction, options.validation_fraction, options.split_seed
        ),
        user_ids=pa.array(user_ids, pa.string()),
        item_ids=pa.array(item_ids, pa.string()),
        removed=removed,
    )


def _numbered(
    news: Sequence[Member], text: Sequence[str], removed: Counter[str], say: Callable[[str], None]
) -> dict[str, int]:
    """Number the news in the order of lines; parts share news, a file's repeats are counted."""
    texts: dict[str, bytes] = {}
    for file in news:
        own = set()
        for id_, parts in read_news(file, text):
            digest = hashlib.blake2b("\t".join(parts).encode(), digest_size=16).digest()
            if texts.setdefault(id_, digest) != digest:
                removed["news_with_another_text"] += 1
            elif id_ in own:
                removed["repeated_news"] += 1
            own.add(id_)
    if removed["news_with_another_text"]:
        say(
            f"Warning: {removed['news_with_another_text']:,} lines of {NEWS} give another text to a"
            " news that was there already; the first is kept."
        )
    return {id_: number for number, id_ in enumerate(texts)}


class _Links:
    """Collects links, and merges repeated ones from time to time."""

    def __init__(self) -> None:
        self.repeated = 0
        self._users = self._items = np.zeros(0, np.int32)
        self._pending = array("i"), array("i")

    def add(self, user: int, item: int) -> None:
        self._pending[0].append(user)
        self._pending[1].append(item)
        if len(self._pending[0]) >= max(LINKS_AT_ONCE, len(self._users)):
            self._merge()

    def finish(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return users and items of the distinct links."""
        self._merge()
        return self._users, self._items

    def _merge(self) -> None:
        users, items = (np.asarray(each, np.int32) for each in self._pending)
        self._pending = array("i"), array("i")
        self._users, self._items, repeated = distinct_links(
            np.concatenate([self._users, users]), np.concatenate([self._items, items])
        )
        self.repeated += repeated


def _ordered(
    numbers: Mapping[str, int], used: NDArray[np.int32]
) -> tuple[list[str], NDArray[np.int32]]:
    """Return the ids whose numbers are used, in natural order, and each number's position among
    them, or -1.
    """
    is_used = np.zeros(len(numbers), bool)
    is_used[used] = True
    present = pa.array([id_ for id_, number in numbers.items() if is_used[number]], pa.string())
    ids: list[str] = present.take(pa.array(natural_order(present))).to_pylist()
    new = np.full(len(numbers), -1, np.int32)
    new[[numbers[id_] for id_ in ids]] = np.arange(len(ids), dtype=np.int32)
    return ids, new


def _drawn(
    ids: list[str], new: NDArray[np.int32], size: int, seed: int, removed: Counter[str]
) -> tuple[list[str], NDArray[np.int32]]:
    """Draw some of the users of :func:`_ordered`; a smaller draw is part of a larger one."""
    if size > len(ids):
        raise UsageError(f"users = {size:,}: only {len(ids):,} users have a link.")
    removed["users_not_drawn"] = len(ids) - size
    chosen = draw_users(len(ids), size, seed)
    position = np.full(len(ids), -1, np.int32)
    position[chosen] = np.arange(size, dtype=np.int32)
    return [ids[number] for number in chosen.tolist()], np.where(new < 0, new, position[new])


def _texts(
    news: Sequence[Member], options: Options, items: dict[str, int], scratch: Path
) -> tuple[Texts, Vocabulary]:
    """Return the texts of the items, and the vocabulary of these alone."""
    corpus = Corpus(scratch, options.pieces())
    missing, order = dict(items), array("i")
    for id_, parts in chain.from_iterable(read_news(file, options.text) for file in news):
        item = missing.pop(id_, None)
        if item is not None:
            order.append(item)
            corpus.add(chain.from_iterable(map(corpus.tokenize, parts)))
    if missing:
        raise DataError(f"{news[0].path} changed while it was read.")
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
    return texts.taken(np.argsort(np.asarray(order))), vocabulary
