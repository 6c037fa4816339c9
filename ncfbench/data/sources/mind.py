"""MIND, the Microsoft News data set: news with titles and abstracts, and who clicked what.

Published by Wu et al. (ACL 2020). It stands in for the paper's Yahoo! News data, which is no longer
available. Nothing is downloaded, since users accept the licence on Microsoft's site. No checksums
are published, so the manifest keeps those of the files that were used.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import Content, distinct_links, draw_users, split_items
from ncfbench.data.files import File, find_members, read_lines, sha256
from ncfbench.data.ids import natural_order
from ncfbench.data.options import TokenizerOptions, option
from ncfbench.data.sources import Preparation, Progress, Statistics
from ncfbench.data.text import Corpus
from ncfbench.errors import DataError, UsageError, shown

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
HOW_TO_GET = (
    "MIND is not downloaded for you: its licence (Microsoft Research License Terms) is yours to"
    " accept, at https://msnews.github.io. Get MINDsmall_train.zip and MINDsmall_dev.zip there, or"
    " those of MINDlarge, into one folder, and run: ncfbench prepare mind --from FOLDER"
)
NEWS, BEHAVIORS = "news.tsv", "behaviors.tsv"
FIELDS = {NEWS: 8, BEHAVIORS: 5}
TEXT_PARTS = ("title", "abstract", "category", "subcategory")
_FIELD_OF = {"category": 1, "subcategory": 2, "title": 3, "abstract": 4}
PARTS = ("train", "dev")
"""Parts with clicks."""
LONGEST_ID = 100
"""Characters that an id may have; real ids are far shorter."""
_PART = re.compile(r"(?:(MIND[A-Za-z]+)_)?(train|dev|test)(?:\.zip)?")


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
    if (folder := options.from_) is None:
        raise UsageError(HOW_TO_GET)
    parts = find_parts(folder, options.parts, say)
    named = tuple(part for part in PARTS if part in parts)
    options = replace(options, parts=named or None)
    files = {
        f"{_part_name(member, folder)}/{name}" if named else name: sha256(member)
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
    parts: Sequence[Mapping[str, File]], options: Options, say: Callable[[str], None]
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
    user_ids, rank_of_user = _ranked(number_of_user)
    item_ids, rank_of_item = _ranked(number_of_news)
    users, items, removed["duplicate_links"] = distinct_links(
        rank_of_user[np.asarray(clicking, np.int32)], rank_of_item[np.asarray(clicked, np.int32)]
    )
    is_news = np.zeros(len(item_ids), bool)
    is_news[rank_of_item[: len(news)]] = True
    is_known = is_news[items]
    if unknown := int(np.sum(~is_known)):
        removed["links_to_unknown_news"] = unknown
        say(
            f"Warning: {unknown:,} links are dropped: they are to"
            f" {len(item_ids) - len(news):,} news that {NEWS} does not have."
        )
    if not is_known.any():
        raise DataError(f"No link is left: {BEHAVIORS} has no click on a news that {NEWS} has.")
    users, items = users[is_known], items[is_known]
    kept_users = np.unique(users)
    removed["users_without_links"] = len(user_ids) - len(kept_users)
    if (size := options.users) is not None:
        if size > len(kept_users):
            raise UsageError(f"users = {size:,}: only {len(kept_users):,} users have a link.")
        removed["users_not_drawn"] = len(kept_users) - size
        kept_users = kept_users[draw_users(len(kept_users), size, options.split_seed)]
        is_drawn = np.isin(users, kept_users)
        removed["links_of_users_not_drawn"] = int(np.sum(~is_drawn))
        users, items = users[is_drawn], items[is_drawn]
    kept_items = np.unique(items)
    if unclicked := len(news) - len(kept_items):
        removed["items_without_links"] = unclicked
        say(
            f"Left out: {unclicked:,} of {len(news):,} news, to which none of the"
            f" {len(kept_users):,} users has a link."
        )
    user_ids, item_ids = user_ids.take(pa.array(kept_users)), item_ids.take(pa.array(kept_items))
    corpus = Corpus(options.pieces())
    for id_ in item_ids.to_pylist():
        corpus.add(chain.from_iterable(map(corpus.tokenize, news[id_])))
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
    return Content(
        n_users=len(user_ids),
        users=np.searchsorted(kept_users, users).astype(np.int32),
        items=np.searchsorted(kept_items, items).astype(np.int32),
        texts=texts,
        vocabulary=vocabulary,
        split=split_items(
            len(item_ids), options.test_fraction, options.validation_fraction, options.split_seed
        ),
        user_ids=user_ids,
        item_ids=item_ids,
        removed=removed,
    )


def _ranked(numbers: Mapping[str, int]) -> tuple[pa.StringArray, NDArray[np.int32]]:
    """Return ids in natural order, and the rank in it of each number."""
    ids = pa.array(list(numbers), pa.string())
    order = natural_order(ids)
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ids.take(pa.array(order)), ranks


def _read_all_news(
    files: Sequence[File], text: Sequence[str], removed: Counter[str], say: Callable[[str], None]
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


def find_parts(
    folder: Path, wanted: Sequence[str] | None, say: Callable[[str], None]
) -> dict[str, dict[str, File]]:
    """Return the two files of each part, ``train`` before ``dev``; files in the folder itself are a
    part with an empty name.

    Raises:
        DataError: a wanted part or one of its files is missing, or the parts are of several sizes.
        UsageError: parts are wanted of a folder that holds the files themselves.
    """
    if not folder.exists():
        raise DataError(f"{folder} does not exist. {HOW_TO_GET}")
    homes, sizes = _homes(folder)
    named = ", ".join(sorted(home.name for home in homes.values()))
    if direct := find_members(folder, tuple(FIELDS)):
        if homes:
            raise DataError(
                f"{folder} holds {next(iter(direct))} and also {named}. Give one of them to --from,"
                " or a folder of parts only."
            )
        if wanted is not None:
            raise UsageError(
                f"{folder} has no parts to choose from: it holds {next(iter(direct))} itself."
            )
        return {"": _files(folder)}
    if len(sizes) > 1:
        raise DataError(
            f"{folder} holds parts of several data sets: {named}. Give each a folder of its own."
        )
    if "test" in homes:
        say(f"Left out: {homes['test'].name} is published without clicks.")
    for part in wanted or ():
        if part not in homes:
            raise DataError(f"{folder} has no part {part!r}; it has {named or 'none'}.")
    chosen = [part for part in PARTS if part in (wanted or homes)]
    if not chosen:
        raise DataError(
            f"{folder} holds neither {NEWS} and {BEHAVIORS} nor a part such as MINDsmall_train."
            f" {HOW_TO_GET}"
        )
    return {part: _files(homes[part]) for part in chosen}


def _homes(folder: Path) -> tuple[dict[str, Path], set[str]]:
    """Return the folder or archive of each part, and the sizes of MIND that their names say."""
    homes: dict[str, Path] = {}
    sizes = set()
    paths = list(folder.iterdir()) if folder.is_dir() else []
    # Folders first: an unpacked part is preferred to its archive.
    for path in sorted(paths, key=lambda path: (path.is_file(), path.name)):
        match = _PART.fullmatch(path.name)
        if match and (path.is_dir() or path.suffix == ".zip"):
            homes.setdefault(match[2], path)
            sizes.add(match[1])
    return homes, sizes


def _part_name(member: File, folder: Path) -> str:
    return Path(str(member)).relative_to(folder).parts[0].removesuffix(".zip")


def _files(home: Path) -> dict[str, File]:
    files = find_members(home, tuple(FIELDS))
    for name in FIELDS:
        if name not in files:
            raise DataError(f"{name} is missing in {shown(home)}.")
    return files


def read_news(file: File, text: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the id and the parts of the text of each line of news.tsv; a DataError names a line."""
    columns = [_FIELD_OF[part] for part in text]
    for where, fields in _rows(file, NEWS):
        yield _id(fields[0], where, "news"), [fields[column] for column in columns]


def read_clicks(file: File, *, history: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the user of each line of behaviors.tsv and the news clicked there, with ``history``
    also those clicked before; a DataError names a line.
    """
    for where, (_, user, _, before, impressions) in _rows(file, BEHAVIORS):
        clicked = before.split() if history else []
        shown = impressions.split()
        if not shown:
            raise DataError(f"{where}: no impression.")
        for impression in shown:
            id_, _, mark = impression.rpartition("-")
            if mark == "1" and id_:
                clicked.append(id_)
            elif mark != "0" or not id_:
                raise DataError(
                    f"{where}: impression {impression[:40]!r} does not end in -0 or -1. (MIND's"
                    " test part is published without these marks.)"
                )
        yield _id(user, where, "user"), clicked


def _rows(file: File, kind: str) -> Iterator[tuple[str, list[str]]]:
    """Yield where each line stands, for messages, and its fields; quotes are plain characters."""
    for number, line in enumerate(read_lines(file), start=1):
        fields = line.rstrip("\r\n").split("\t")
        where = f"{file}, line {number}"
        if len(fields) != FIELDS[kind]:
            raise DataError(
                f"{where}: {len(fields)} fields, separated by tabs, where {kind} has"
                f" {FIELDS[kind]}. Is the file truncated?"
            )
        yield where, fields


def _id(text: str, where: str, what: str) -> str:
    if text.split() != [text] or len(text) > LONGEST_ID:
        raise DataError(f"{where}: {text[:40]!r} is no {what} id.")
    return text
