"""CiteULike-a: users' libraries of scientific articles, with titles, abstracts and tags.

Published by Wang, Chen and Li (IJCAI 2013) on GitHub; the files are pinned to one commit and
verified by git blob id.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from ncfbench.data.content import Content
from ncfbench.data.options import TokenizerOptions, option
from ncfbench.data.readers.files import read_lines
from ncfbench.data.sources import Preparation, Progress, Statistics, citeulike_files
from ncfbench.data.sources.citeulike_files import (
    Published,
    PublishedOptions,
    clean,
    read_lists,
)
from ncfbench.data.text import Corpus
from ncfbench.errors import DataError, reason

FILES = Published(
    "citeulike-a",
    "91b603922d7f2d3db18071d4798bf78c9c5d1680",
    {
        "users.dat": "01c329a6df4e883f3282421557543a547eada9de",
        "raw-data.csv": "2d366a8142639249324d800c17bce39d59032744",
        "item-tag.dat": "f9e559356b1a84ba3c709a7cb4bc87fea2dad459",
        "tags.dat": "231dccc10c3b5ecb421e028528072b652c67aa04",
    },
)
STATISTICS = Statistics(
    "paper",
    {
        "users": 5551,
        "items": 16980,
        "links": 204986,
        "vocabulary": 23011,
        "words_max": 300,
        "words_min": 22,
        "words_mean": 194,
        "words_median": 186,
    },
)
TEXT_PARTS = ("title", "abstract", "tags")
_COLUMNS = {"title": "raw.title", "abstract": "raw.abstract"}


@dataclass(frozen=True, kw_only=True)
class Options(TokenizerOptions, PublishedOptions):
    """Options of the source."""

    text: tuple[str, ...] = option(
        ("title", "abstract"),
        f"An item's text is made of these, in order: any of {','.join(TEXT_PARTS)}.",
        choices=TEXT_PARTS,
    )

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose content these options use."""
        text = ("raw-data.csv",) if set(self.text) & set(_COLUMNS) else ()
        tags = ("item-tag.dat", "tags.dat") if "tags" in self.text else ()
        return ("users.dat", *text, *tags)


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Obtain and verify the files; see :meth:`Published.prepare`."""
    read = partial(read_content, options=options, say=say)
    planned = FILES.prepare(options, options.files, read, say=say, progress=progress)
    return planned._replace(origin={**planned.origin, **options.tokenizer_origin()})


def read_content(folder: Path, options: Options, say: Callable[[str], None]) -> Content:
    """Parse the files: links, texts, vocabulary, split."""
    pieces = options.pieces()
    corpus = Corpus(pieces, None if pieces else clean)
    articles = _articles(folder, options.text, corpus.tokenize)
    return citeulike_files.read_content(folder, options, corpus, articles, say)


def _articles(
    folder: Path, parts: Sequence[str], tokenize: Callable[[str], list[str]]
) -> Iterator[list[str]]:
    """Yield the tokens of each article, those of its parts in order."""
    texts = [_texts(folder, part, tokenize) for part in parts]
    for item, tokens in enumerate(zip_longest(*texts)):
        for part, of_part in zip(parts, tokens, strict=True):
            if of_part is None:
                raise DataError(
                    f"The files in {folder} disagree about the number of items: {part} ends after"
                    f" {item}."
                )
        yield [token for of_part in tokens for token in of_part]


def _texts(folder: Path, part: str, tokenize: Callable[[str], list[str]]) -> Iterator[list[str]]:
    """Yield each item's tokens of its title, its abstract, or its tags."""
    if part in _COLUMNS:
        for (text,) in read_articles(folder / "raw-data.csv", [_COLUMNS[part]]):
            yield tokenize(text)
        return
    tags = [tokenize(line) for line in read_lines(folder / "tags.dat")]
    for row in read_lists(folder / "item-tag.dat", limit=len(tags), what="tag"):
        yield [token for tag in row for token in tags[tag]]


def read_articles(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the named columns of raw-data.csv, whose ``doc.id`` must run from 1 upwards.

    Raises:
        DataError: a missing column, a row of another width, invalid UTF-8, or an unexpected
            doc.id.
    """
    csv.field_size_limit(2**24)
    reader = csv.reader(read_lines(path), strict=True)
    number = 0
    try:
        header = next(reader, [])
        missing = [name for name in ("doc.id", *columns) if name not in header]
        if missing:
            raise DataError(
                f"{path} lacks the column {missing[0]!r}; its header is {','.join(header)[:200]!r}."
            )
        key, wanted = header.index("doc.id"), [header.index(name) for name in columns]
        for number, row in enumerate(reader, start=1):
            if len(row) != len(header):
                raise DataError(
                    f"{path}, line {reader.line_num}: {len(row)} fields where the header has"
                    f" {len(header)}."
                )
            if row[key] != str(number):
                raise DataError(
                    f"{path}, line {reader.line_num}: doc.id {row[key][:40]!r} where {number} was"
                    " expected."
                )
            yield tuple(row[column] for column in wanted)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {reason(error)}. Is the file truncated?"
        ) from error
    if not number:
        raise DataError(f"{path} has no article.")
