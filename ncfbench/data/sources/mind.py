"""MIND, the Microsoft News data set: news with titles and abstracts, and who clicked what.

Published by Wu et al. (ACL 2020). It stands in for the paper's Yahoo! News data, which is no longer
available. Nothing is downloaded, since users accept the licence on Microsoft's site. No checksums
are published, so the manifest keeps those of the files that were used.
"""

from __future__ import annotations

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
from ncfbench.data.text import Corpus
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
        f"{member.home.name.removesuffix('.zip')}/{name}" if named else name: member.sha256()
        for part in parts.values()
        for name, member in part.items()
    }
    return Preparation(
        {
            "label": LABEL,
            "files": {name: {"sha256": digest} for name, digest in files.items()},
            **options.tokenizer_origin(),
        },
        options.stored(),
        partial(read_content, list(parts.values()), options, say),
    )


def read_content(
    parts: Sequence[Mapping[str, Member]], options: Options, say: Callable[[str], None]
) -> Content:
    """Parse the files: links, texts, vocabulary, split.

    Users and items are numbered in the natural order of their ids (``N9`` before ``N10``), whatever
    the order of lines.
    """
    removed: Counter[str] = Counter()
    news = _read_all_news([part[NEWS] for part in parts], options.text, removed, say)
    number_of_news = {id_: number for number, id_ in enumerate(news)}
    number_of_user: dict[str, int] = {}
    clicking, clicked = array("i"), array("i")
    for part in parts:
        for user_id, ids in read_clicks(part[BEHAVIORS], history=options.history):
            user = number_of_user.setdefault(user_id, len(number_of_user))
            for id_ in ids:
                clicking.append(user)
                clicked.append(number_of_news.setdefault(id_, len(number_of_news)))
    users, items, removed["duplicate_links"] = distinct_links(
        np.asarray(clicking, np.int32), np.asarray(clicked, np.int32)
    )
    known = items < len(news)
    if unknown := int(np.sum(~known)):
        removed["links_to_unknown_news"] = unknown
        say(
            f"Warning: {unknown:,} links are dropped: they are to"
            f" {len(number_of_news) - len(news):,} news that {NEWS} does not have."
        )
    if not known.any():
        raise DataError(f"No link is left: {BEHAVIORS} has no click on a news that {NEWS} has.")
    users, items = users[known], items[known]
    user_ids = _in_order(number_of_user, users)
    removed["users_without_links"] = len(number_of_user) - len(user_ids)
    if options.users is not None:
        user_ids = _drawn(user_ids, options.users, options.split_seed, removed)
    new_user = _new_numbers(number_of_user, user_ids)
    is_drawn = new_user[users] >= 0
    removed["links_of_users_not_drawn"] = int(np.sum(~is_drawn))
    users, items = users[is_drawn], items[is_drawn]
    item_ids = _in_order(number_of_news, items)
    if unclicked := len(news) - len(item_ids):
        removed["items_without_links"] = unclicked
        say(
            f"Left out: {unclicked:,} of {len(news):,} news, to which none of the"
            f" {len(user_ids):,} users has a link."
        )
    users, items, _ = distinct_links(new_user[users], _new_numbers(number_of_news, item_ids)[items])
    corpus = Corpus(options.pieces())
    for id_ in item_ids:
        corpus.add(chain.from_iterable(map(corpus.tokenize, news[id_])))
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
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


def _read_all_news(
    files: Sequence[Member], text: Sequence[str], removed: Counter[str], say: Callable[[str], None]
) -> dict[str, list[str]]:
    """Return the parts of each news' text, the first ones given; a file's repeats are counted."""
    news: dict[str, list[str]] = {}
    for file in files:
        in_file = set()
        for id_, parts in read_news(file, text):
            if news.setdefault(id_, parts) != parts:
                removed["news_with_another_text"] += 1
            elif id_ in in_file:
                removed["repeated_news"] += 1
            in_file.add(id_)
    if removed["news_with_another_text"]:
        say(
            f"Warning: {removed['news_with_another_text']:,} lines of {NEWS} give another text to a"
            " news that was there already; the first is kept."
        )
    return news


def _in_order(numbers: Mapping[str, int], used: NDArray[np.int32]) -> list[str]:
    """Return the ids whose numbers are used, in natural order."""
    is_used = np.zeros(len(numbers), bool)
    is_used[used] = True
    present = pa.array([id_ for id_, number in numbers.items() if is_used[number]], pa.string())
    ids: list[str] = present.take(pa.array(natural_order(present))).to_pylist()
    return ids


def _new_numbers(numbers: Mapping[str, int], ids: Sequence[str]) -> NDArray[np.int32]:
    """Return each old number's index among the ids that are kept, or -1."""
    new = np.full(len(numbers), -1, np.int32)
    new[[numbers[id_] for id_ in ids]] = np.arange(len(ids), dtype=np.int32)
    return new


def _drawn(ids: list[str], size: int, seed: int, removed: Counter[str]) -> list[str]:
    """Draw some of the users; a smaller draw is part of a larger one."""
    if size > len(ids):
        raise UsageError(f"users = {size:,}: only {len(ids):,} users have a link.")
    removed["users_not_drawn"] = len(ids) - size
    return [ids[index] for index in draw_users(len(ids), size, seed).tolist()]
