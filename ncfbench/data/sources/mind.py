"""MIND, the Microsoft News data set (Wu et al., ACL 2020): news with their texts, and who clicked
what. It stands in for the paper's Yahoo! News data, which is no longer available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from ncfbench.data.content import Content
from ncfbench.data.files import read_lines, sha256
from ncfbench.data.hold_out import Links, hold_out
from ncfbench.data.ids import natural_order
from ncfbench.data.options import PUBLISHED, USUAL_LSA, TextOptions, lsa_option, option
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.text import Corpus, Int32
from ncfbench.errors import DataError, UsageError

LABEL = "MIND, a stand-in for the paper's Yahoo! News data"
HOW_TO_GET = (
    "MIND is not downloaded for you: its licence (Microsoft Research License Terms) is yours to"
    " accept, at https://msnews.github.io. Unpack MINDsmall_train.zip, say, into a folder, and run:"
    " ncfbench prepare mind --from FOLDER"
)
FIELDS = {"news.tsv": (8, 0), "behaviors.tsv": (5, 1)}
"""The number of fields of a line in each file, and which one is the id."""


@dataclass(frozen=True, kw_only=True)
class Options(TextOptions):
    """Options of the source."""

    fixed = PUBLISHED | {"lsa"}

    from_: Path | None = option(
        None, f"Required: the folder with {' and '.join(FIELDS)}.", is_stored=False
    )
    max_length: int = option(200, "Words kept of a text.", at_least=1)
    lsa: int | None = lsa_option(USUAL_LSA)


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Find the files; a UsageError that says how to get them where no folder is named."""
    if (folder := options.from_) is None:
        raise UsageError(HOW_TO_GET)
    # No checksums are published.
    files = {name: {"sha256": sha256(folder / name)} for name in FIELDS}
    origin = {"label": LABEL, "files": files, **options.model_origin()}
    return Preparation(origin, options.stored(), partial(_read_content, folder, options, say))


def _read_content(folder: Path, options: Options, say: Callable[[str], None]) -> Content:
    """Parse the files; users and items are numbered in the natural order of their ids."""
    news: dict[str, list[str]] = {}
    for where, (id_, _, _, *text, _, _, _) in _rows(folder / "news.tsv"):
        if news.setdefault(id_, text) != text:
            raise DataError(f"{where}: news {id_} has another text in a line before.")
    clicks = list(_clicks(folder / "behaviors.tsv"))
    known = [click for click in clicks if click[1] in news]
    if unknown := len(clicks) - len(known):
        say(f"Warning: dropped {unknown:,} clicks on news that news.tsv does not have.")
    if not known:
        raise DataError("No link is left: behaviors.tsv has no click on a news that news.tsv has.")
    user_names, item_names, times = zip(*known, strict=True)
    (user_ids, users), (item_ids, items) = _numbered(user_names), _numbered(item_names)
    if unclicked := len(news) - len(item_ids):
        say(f"Left out: {unclicked:,} of {len(news):,} news, which nobody clicked.")
    links = Links(users, items, np.array(times), np.arange(len(times)))
    corpus = Corpus(options)
    for id_ in item_ids.to_pylist():
        corpus.add(token for part in news[id_] for token in corpus.tokenize(part))
    texts, vocabulary = corpus.finish()
    held_out = hold_out(options, links, (len(user_ids), len(item_ids)))
    held_out.removed["links_to_unknown_news"] = unknown
    return Content(
        n_users=len(user_ids),
        texts=texts,
        vocabulary=vocabulary,
        user_ids=user_ids,
        item_ids=item_ids,
        **held_out._asdict(),
    )


def _clicks(file: Path) -> Iterator[tuple[str, str, float]]:
    """Yield the user, the news and the time of each click, in seconds since 1970."""
    for where, (_, user, text, _, impressions) in _rows(file):
        try:
            time = datetime.strptime(f"{text} +0000", "%m/%d/%Y %I:%M:%S %p %z").timestamp()
        except ValueError as error:
            what = "is no time like 11/13/2019 8:36:57 AM"
            raise DataError(f"{where}: {text[:40]!r} {what}.") from error
        for impression in impressions.split():
            id_, _, mark = impression.rpartition("-")
            if mark not in ("0", "1") or not id_:
                raise DataError(f"{where}: impression {impression[:40]!r} lacks a -0 or -1.")
            if mark == "1":
                yield user, id_, time


def _numbered(names: Iterable[str]) -> tuple[pa.StringArray, Int32]:
    """Return the ids in their natural order, and int32[n], the index of each name."""
    encoded = pa.array(names, pa.string()).dictionary_encode()
    order = natural_order(encoded.dictionary)
    rank = np.argsort(order).astype(np.int32)
    return encoded.dictionary.take(pa.array(order)), rank[encoded.indices.to_numpy()]


def _rows(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield where each line is, for messages, and its fields; quotes are plain characters."""
    n_fields, key = FIELDS[file.name]
    for number, line in enumerate(read_lines(file), start=1):
        where, fields = f"{file}, line {number}", line.rstrip("\r\n").split("\t")
        if len(fields) != n_fields:
            raise DataError(
                f"{where}: {len(fields)} fields, separated by tabs, where {file.name} has"
                f" {n_fields}. Is the file truncated?"
            )
        if fields[key].split() != [fields[key]]:
            raise DataError(f"{where}: {fields[key][:40]!r} is no id.")
        yield where, fields
