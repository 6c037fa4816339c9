"""MIND, the Microsoft News data set (Wu et al., ACL 2020): news with their texts, and who clicked
what. It stands in for the paper's Yahoo! News data, which is no longer available.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ncfbench.data.content import Content, renumbered
from ncfbench.data.files import File, find_members, read_lines, sha256
from ncfbench.data.hold_out import Links, Moments, hold_out
from ncfbench.data.ids import natural_order
from ncfbench.data.options import NEED_TIMES, TextOptions, TimedOptions, option
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.text import Corpus, Int32
from ncfbench.errors import DataError, UsageError, shown

LABEL = "MIND, a stand-in for the paper's Yahoo! News data"
HOW_TO_GET = (
    "MIND is not downloaded for you: its licence (Microsoft Research License Terms) is yours to"
    " accept, at https://msnews.github.io. Get MINDsmall_train.zip and MINDsmall_dev.zip there, or"
    " those of MINDlarge, into one folder, and run: ncfbench prepare mind --from FOLDER"
)
NEWS, BEHAVIORS = "news.tsv", "behaviors.tsv"
FIELDS = {NEWS: 8, BEHAVIORS: 5}
TIME_FORMAT = "%m/%d/%Y %I:%M:%S %p"
TEXT_PARTS = ("title", "abstract", "category", "subcategory")
_FIELD_OF = {"category": 1, "subcategory": 2, "title": 3, "abstract": 4}
PARTS = ("train", "dev")
"""Parts with clicks."""
_PART = re.compile(r"(?:(MIND[A-Za-z]+)_)?(train|dev|test)(?:\.zip)?")


@dataclass(frozen=True, kw_only=True)
class Options(TextOptions, TimedOptions):
    """Options of the source."""

    from_: Path | None = option(
        None,
        "Required: the folder with news.tsv and behaviors.tsv, or with parts as published: folders"
        " or zip archives.",
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
    split_seed: int = option(0, "Seed of the choice of what is held out, and of users.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.history and self.hold_out in NEED_TIMES:
            raise UsageError(
                f"--history and --hold-out {self.hold_out} exclude each other: the history's clicks"
                " have no times."
            )


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Find the files; a UsageError that says how to get them where no folder is named."""
    if options.from_ is None:
        raise UsageError(HOW_TO_GET)
    homes = _find_parts(options.from_, options.parts, say)
    parts = {home: _files(home) for home in homes.values()}
    # No checksums are published.
    files = {
        f"{home.name.removesuffix('.zip')}/{name}" if part else name: {"sha256": sha256(file)}
        for part, home in homes.items()
        for name, file in parts[home].items()
    }
    options = replace(options, parts=tuple(filter(None, homes)) or None)
    return Preparation(
        {"label": LABEL, "files": files, **options.model_origin()},
        options.stored(),
        partial(_read_content, list(parts.values()), options, say),
    )


def _read_content(
    parts: Sequence[Mapping[str, File]], options: Options, say: Callable[[str], None]
) -> Content:
    """Parse the files; users and items are numbered in the natural order of their ids."""
    removed: Counter[str] = Counter()
    news = _read_news([part[NEWS] for part in parts], options.text, removed, say)
    behaviors = [part[BEHAVIORS] for part in parts]
    links, user_ids, item_ids = _read_links(behaviors, news, options)
    links, removed["duplicate_links"] = links.distinct()
    is_known = pc.is_in(item_ids, pa.array(news)).to_numpy(False)
    removed["links_to_unknown_news"] = unknown = int(np.sum(~is_known[links.items]))
    if unknown:
        say(
            f"Warning: {unknown:,} links are dropped: they are to {np.sum(~is_known):,} news that"
            f" {NEWS} does not have."
        )
    links = links.where(is_known[links.items])
    if not len(links.users):
        raise DataError(f"No link is left: {BEHAVIORS} has no click on a news that {NEWS} has.")
    n_users = len(np.unique(links.users))
    removed["users_without_links"] = len(user_ids) - n_users
    if (size := options.users) is not None:
        if size > n_users:
            raise UsageError(f"users = {size:,}: only {n_users:,} users have a link.")
        removed["users_not_drawn"] = n_users - size
        n_users, n_links = size, len(links.users)
        links = links.of_drawn_users(size, options.split_seed)
        removed["links_of_users_not_drawn"] = n_links - len(links.users)
    has_user = np.bincount(links.users, minlength=len(user_ids)) > 0
    has_item = np.bincount(links.items, minlength=len(item_ids)) > 0
    item_ids = item_ids.filter(pa.array(has_item))
    removed["items_without_links"] = unlinked = len(news) - len(item_ids)
    if unlinked:
        say(
            f"Left out: {unlinked:,} of {len(news):,} news, to which none of the {n_users:,} users"
            " has a link."
        )
    users, items = renumbered(has_user, links.users), renumbered(has_item, links.items)
    corpus = Corpus(options)
    for id_ in item_ids.to_pylist():
        corpus.add(chain.from_iterable(map(corpus.tokenize, news[id_])))
    texts, vocabulary = corpus.finish()
    held_out = hold_out(options, Links(users, items, links.moments), (n_users, len(item_ids)))
    return Content(
        n_users=n_users,
        texts=texts,
        vocabulary=vocabulary,
        user_ids=user_ids.filter(pa.array(has_user)),
        item_ids=item_ids,
        **held_out._replace(removed={**removed, **held_out.removed})._asdict(),
    )


def _read_news(
    files: Sequence[File], text: Sequence[str], removed: Counter[str], say: Callable[[str], None]
) -> dict[str, list[str]]:
    """Return the parts of each news' text; the first line about a news counts."""
    news: dict[str, list[str]] = {}
    for file in files:
        in_file = set()
        for where, fields in _rows(file, NEWS):
            id_, parts = _id(fields[0], where, "news"), [fields[_FIELD_OF[part]] for part in text]
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


def _read_links(
    files: Sequence[File], news: Iterable[str], options: Options
) -> tuple[Links, pa.StringArray, pa.StringArray]:
    """Return the clicks, with their moments where what is held out depends on them; and the ids
    of all users and of all news.
    """
    numbers_of_users: defaultdict[str, int] = defaultdict(count().__next__)
    numbers_of_news: defaultdict[str, int] = defaultdict(count().__next__)
    for id_ in news:
        numbers_of_news[id_]
    users, items, times = array("i"), array("i"), array("d")
    has_times = options.hold_out in NEED_TIMES
    for file in files:
        for where, (_, user_id, time, before, impressions) in _rows(file, BEHAVIORS):
            clicked: list[str] = before.split() if options.history else []
            if not impressions.strip():
                raise DataError(f"{where}: no impression.")
            for impression in impressions.split():
                id_, _, mark = impression.rpartition("-")
                if mark not in ("0", "1") or not id_:
                    raise DataError(
                        f"{where}: impression {impression[:40]!r} does not end in -0 or -1. (MIND's"
                        " test part is published without these marks.)"
                    )
                if mark == "1":
                    clicked.append(id_)
            user = numbers_of_users[_id(user_id, where, "user")]
            items.extend(map(numbers_of_news.__getitem__, clicked))
            users.extend([user] * len(clicked))
            if has_times:
                times.extend([_seconds(time, where)] * len(clicked))
    of_links, user_ids = _ranked(numbers_of_users, users)
    to_links, item_ids = _ranked(numbers_of_news, items)
    moments = None
    if has_times:
        cut = None if options.cut is None else _seconds(options.cut, "--cut")
        moments = Moments(
            np.asarray(times, np.float64),
            np.arange(len(times)),
            lambda row: _shown(times[row]),
            cut,
        )
    return Links(of_links, to_links, moments), user_ids, item_ids


def _seconds(text: str, where: str) -> float:
    """Return a time of MIND's files, or an ISO date, as seconds since 1970 in its own zone."""
    with suppress(ValueError):
        return datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    with suppress(ValueError):
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    raise DataError(f"{where}: {text[:40]!r} is not a time such as 11/13/2019 8:36:57 AM.")


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(TIME_FORMAT)


def _ranked(numbers: Mapping[str, int], values: array[int]) -> tuple[Int32, pa.StringArray]:
    """Return the rank of each value in the natural order of ids, and the ids in this order."""
    ids = pa.array(list(numbers), pa.string())
    order = natural_order(ids)
    rank = np.argsort(order).astype(np.int32)
    return rank[np.asarray(values, np.int32)], ids.take(pa.array(order))


def _find_parts(
    folder: Path, wanted: Sequence[str] | None, say: Callable[[str], None]
) -> dict[str, Path]:
    """Return the folder or archive of each part, ``train`` before ``dev``; files in the folder
    itself are a part with an empty name.
    """
    if not folder.exists():
        raise DataError(f"{folder} does not exist. {HOW_TO_GET}")
    homes = {"": folder} if find_members(folder, tuple(FIELDS)) else {}
    sizes: set[str | None] = set(homes)
    paths = list(folder.iterdir()) if folder.is_dir() else []
    # Folders first: an unpacked part is preferred to its archive.
    for path in sorted(paths, key=lambda path: (path.is_file(), path.name)):
        match = _PART.fullmatch(path.name)
        if match and (path.is_dir() or path.suffix == ".zip"):
            homes.setdefault(match[2], path)
            sizes.add(match[1])
    listed = ", ".join(sorted(home.name if part else NEWS for part, home in homes.items()))
    if len(sizes) > 1:
        raise DataError(
            f"{folder} holds several data sets: {listed}. Give each a folder of its own."
        )
    if "test" in homes:
        say(f"Left out: {homes['test'].name} is published without clicks.")
    for part in wanted or ():
        if part not in homes:
            raise DataError(f"{folder} has no part {part!r}; it has {listed or 'none'}.")
    chosen = [part for part in ("", *PARTS) if part in (wanted or homes)]
    if not chosen:
        raise DataError(
            f"{folder} holds neither {NEWS} and {BEHAVIORS} nor a part such as MINDsmall_train."
            f" {HOW_TO_GET}"
        )
    return {part: homes[part] for part in chosen}


def _files(home: Path) -> dict[str, File]:
    files = find_members(home, tuple(FIELDS))
    for name in FIELDS:
        if name not in files:
            raise DataError(f"{name} is missing in {shown(home)}.")
    return files


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
    if text.split() != [text]:
        raise DataError(f"{where}: {text[:40]!r} is no {what} id.")
    return text
