"""CiteULike-a: users' libraries of scientific articles, with titles, abstracts and tags.

Published by Wang, Chen and Li (IJCAI 2013) on GitHub; the files are pinned to one commit and
verified by git blob id.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ncfbench.data import store
from ncfbench.data.content import Content
from ncfbench.data.corpus import Corpus
from ncfbench.data.options import ItemOptions, require_names
from ncfbench.data.published import Published
from ncfbench.data.readers.lines import read_lines, read_lists
from ncfbench.data.sources.libraries import read_libraries
from ncfbench.data.splits import split_items
from ncfbench.data.text import tokenize
from ncfbench.errors import DataError, reason

FILES = Published(
    "js05212/citeulike-a",
    "91b603922d7f2d3db18071d4798bf78c9c5d1680",
    {
        "users.dat": "01c329a6df4e883f3282421557543a547eada9de",
        "raw-data.csv": "2d366a8142639249324d800c17bce39d59032744",
        "item-tag.dat": "f9e559356b1a84ba3c709a7cb4bc87fea2dad459",
        "tags.dat": "231dccc10c3b5ecb421e028528072b652c67aa04",
    },
)
PAPER_STATISTICS: Mapping[str, float] = {
    "users": 5551,
    "items": 16980,
    "links": 204986,
    "vocabulary": 23011,
    "words_max": 300,
    "words_min": 22,
    "words_mean": 194,
    "words_median": 186,
}
TEXT_PARTS = ("title", "abstract", "tags")
_COLUMNS = {"title": "raw.title", "abstract": "raw.abstract"}


@dataclass(frozen=True, kw_only=True)
class Options(ItemOptions):
    """What decides the prepared content."""

    text: tuple[str, ...] = ("title", "abstract")

    def __post_init__(self) -> None:
        require_names("text", self.text, TEXT_PARTS)
        super().__post_init__()

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose content these options use."""
        text = ("raw-data.csv",) if set(self.text) & set(_COLUMNS) else ()
        tags = ("item-tag.dat", "tags.dat") if "tags" in self.text else ()
        return ("users.dat", *text, *tags)


def prepare(
    data_dir: Path,
    name: str,
    options: Options,
    *,
    folder: Path,
    allow_unverified: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Verify the files in ``folder``, parse them, and store the data set; instant where that was
    done before.

    Returns:
        The manifest.

    Raises:
        VerificationError: a file is not the published one and ``allow_unverified`` is false.
        DataError: a file is missing or malformed; the message names the file and the line.
    """
    files = FILES.verify(folder, options.files, allow_unverified=allow_unverified, say=say)
    origin = {"source": "citeulike", "commit": FILES.commit, "files": files}
    read = partial(read_content, folder, options, say=say)
    return store.prepare(data_dir, name, origin, options.stored(), read, say)


def read_content(
    folder: Path, options: Options, scratch: Path, *, say: Callable[[str], None]
) -> Content:
    """Parse the files: links, texts, vocabulary, split."""
    corpus = Corpus(scratch)
    parts = {part: _texts(folder, part) for part in options.text}
    for item, tokens in enumerate(zip_longest(*parts.values())):
        short = next(
            (part for part, of_part in zip(parts, tokens, strict=True) if of_part is None), None
        )
        if short:
            raise DataError(
                f"The files in {folder} disagree about the number of items: {short} ends after"
                f" {item}."
            )
        corpus.add(token for of_part in tokens for token in of_part)
    n_items = len(corpus)
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
    n_users, users, items, repeated = read_libraries(folder / "users.dat", n_items, say)
    return Content(
        n_users=n_users,
        users=users,
        items=items,
        texts=texts,
        vocabulary=vocabulary,
        split=split_items(
            n_items, options.test_fraction, options.validation_fraction, options.split_seed
        ),
        removed={"duplicate_links": repeated},
    )


def _texts(folder: Path, part: str) -> Iterator[list[str]]:
    """The tokens that each item has in its title, its abstract, or its tags."""
    if part in _COLUMNS:
        for (text,) in read_articles(folder / "raw-data.csv", [_COLUMNS[part]]):
            yield tokenize(text)
        return
    tags = [tokenize(line) for line in read_lines(folder / "tags.dat")]
    for row in read_lists(folder / "item-tag.dat", limit=len(tags), what="tag"):
        yield [token for tag in row for token in tags[tag]]


def read_articles(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The named columns of raw-data.csv, whose ``doc.id`` must run from 1 upwards, article by
    article.

    Raises:
        DataError: a missing column, a row of another width, invalid UTF-8, a doc.id out of turn.
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
                    " due."
                )
            yield tuple(row[place] for place in wanted)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {reason(error)}. Is the file truncated?"
        ) from error
    if not number:
        raise DataError(f"{path} has no article.")
