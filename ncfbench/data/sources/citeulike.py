"""CiteULike-a and CiteULike-t: users' libraries of scientific articles, with their texts.

Published by Wang, Chen and Li (IJCAI 2013) on GitHub. CiteULike-a has titles, abstracts and tags;
CiteULike-t is larger and sparser, with texts in full or as counted words, both with HTML entities.
Its vocabulary cuts these short (``class&#34``), and a line of it may be no token (``%``), one, or
several (``60 000``).
"""

from __future__ import annotations

import csv
import html
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.data.content import Content, distinct_links, split_items
from ncfbench.data.files import read_lines
from ncfbench.data.markup import clean_latex
from ncfbench.data.options import ItemOptions, TokenizerOptions, option
from ncfbench.data.sources import Statistics
from ncfbench.data.sources.published import Published, PublishedOptions
from ncfbench.data.text import Corpus
from ncfbench.errors import DataError, reason

TEXT_PARTS = ("title", "abstract", "tags")
_COLUMNS = {"title": "raw.title", "abstract": "raw.abstract"}
TEXTS_T: Mapping[str, tuple[str, ...]] = {
    "raw": ("rawtext.dat",),
    "bag": ("mult.dat", "vocabulary.dat"),
}
"""The files of each kind of text of CiteULike-t."""
AUTO = "auto"
MOST_WORDS = 2**22
"""Words that one article may have; more mean a damaged file, and would fill the memory."""
_BEGIN = re.compile(r"##([0-9]{1,12})\s*")


@dataclass(frozen=True, kw_only=True)
class Options(TokenizerOptions, PublishedOptions):
    """Options of CiteULike-a."""

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

    def read(self, folder: Path, say: Callable[[str], None]) -> Content:
        """Parse the files: links, texts, vocabulary, split."""
        pieces = self.pieces()
        corpus = Corpus(pieces, None if pieces else clean)
        parts = [_part(folder, part, corpus.tokenize) for part in self.text]
        for item, tokens in enumerate(zip_longest(*parts)):
            if None in tokens:
                raise DataError(
                    f"The files in {folder} disagree about the number of items:"
                    f" {self.text[tokens.index(None)]} ends after {item}."
                )
            corpus.add(token for of_part in tokens for token in of_part)
        return _content(folder, self, corpus, say)


@dataclass(frozen=True, kw_only=True)
class OptionsT(PublishedOptions):
    """Options of CiteULike-t; ``auto`` becomes ``bag`` for a folder without full texts."""

    text: str = option(
        AUTO,
        "raw: texts in full; bag: counted words, without their order; auto: raw if it is there.",
        choices=(AUTO, *TEXTS_T),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text == AUTO:
            is_raw = self.from_ is None or (self.from_ / "rawtext.dat").exists()
            object.__setattr__(self, "text", "raw" if is_raw else "bag")

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose content these options use."""
        return ("users.dat", *TEXTS_T[self.text])

    def stored(self) -> dict[str, Any]:
        """Return the options for the manifest; a text is a list of its parts in every source."""
        return super().stored() | {"text": [self.text]}

    def read(self, folder: Path, say: Callable[[str], None]) -> Content:
        """Parse the files: links, texts, vocabulary, split."""
        corpus = Corpus(clean=lambda text: clean(html.unescape(text)))
        if self.text == "raw":
            for tokens in read_texts(folder / "rawtext.dat", corpus.tokenize, say):
                corpus.add(tokens)
        else:
            say(
                "Warning: a bag of words has lost their order, so an encoder sees neighbours that"
                " were none. Use --text raw if you have rawtext.dat."
            )
            words = [corpus.tokenize(line) for line in read_lines(folder / "vocabulary.dat")]
            for bag in read_lists(folder / "mult.dat", len(words), "word", has_counts=True):
                corpus.add(token for word in bag for token in words[word])
        return _content(folder, self, corpus, say)


CITEULIKE_A = Published(
    "citeulike-a",
    "91b603922d7f2d3db18071d4798bf78c9c5d1680",
    {
        "users.dat": "01c329a6df4e883f3282421557543a547eada9de",
        "raw-data.csv": "2d366a8142639249324d800c17bce39d59032744",
        "item-tag.dat": "f9e559356b1a84ba3c709a7cb4bc87fea2dad459",
        "tags.dat": "231dccc10c3b5ecb421e028528072b652c67aa04",
    },
    Options,
    Statistics(
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
    ),
)
CITEULIKE_T = Published(
    "citeulike-t",
    "4f103c6ea0fe407b23be230837b65517e613c34a",
    {
        "users.dat": "a363574955fa4def72e3025ee79c2e36b9a05fd0",
        "rawtext.dat": "cf1a042dee7dca9aeacfb24828199a86be53b625",
        "mult.dat": "2805aec9d45376f5c2383db8bb0e0bed01290cb1",
        "vocabulary.dat": "4f16a05cde545a2e84ac09bc6ecedb3b560c4f5c",
    },
    OptionsT,
    Statistics("published", {"users": 7947, "items": 25975, "links": 134860}),
)


def clean(text: str) -> str:
    """Return a text of the files without LaTeX and tags."""
    # A soft hyphen there is half of a letter that was decoded wrongly, and ends the other half.
    return clean_latex(text.replace("\u00ad", " "))


def _content(
    folder: Path, options: ItemOptions, corpus: Corpus, say: Callable[[str], None]
) -> Content:
    """Return the content of texts and of ``users.dat``, whose line u lists user u's articles."""
    n_items = len(corpus)
    sizes, articles = array("i"), array("i")
    for row in read_lists(folder / "users.dat", n_items, "item"):
        sizes.append(len(row))
        articles.extend(row)
    users = np.repeat(np.arange(len(sizes), dtype=np.int32), np.asarray(sizes))
    users, items, repeated = distinct_links(users, np.asarray(articles))
    if repeated:
        say(f"Warning: users.dat names {repeated:,} links twice; each counts once.")
    if unread := n_items - 1 - int(items.max()):
        say(
            f"Warning: of {n_items:,} texts the last {unread:,} are of articles in nobody's"
            " library."
        )
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
    return Content(
        n_users=len(sizes),
        users=users,
        items=items,
        texts=texts,
        vocabulary=vocabulary,
        split=split_items(
            n_items, options.test_fraction, options.validation_fraction, options.split_seed
        ),
        removed={"duplicate_links": repeated},
    )


def _part(folder: Path, part: str, tokenize: Callable[[str], list[str]]) -> Iterator[list[str]]:
    """Yield each item's tokens of its title, its abstract, or its tags."""
    if part in _COLUMNS:
        for (text,) in read_articles(folder / "raw-data.csv", [_COLUMNS[part]]):
            yield tokenize(text)
        return
    tags = [tokenize(line) for line in read_lines(folder / "tags.dat")]
    for row in read_lists(folder / "item-tag.dat", len(tags), "tag"):
        yield [token for tag in row for token in tags[tag]]


def read_articles(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the named columns of raw-data.csv, whose ``doc.id`` must run from 1 upwards.

    Raises:
        DataError: a missing column, a row of another width, or an unexpected doc.id.
    """
    csv.field_size_limit(2**24)
    reader = csv.reader(read_lines(path), strict=True)
    number = 0
    try:
        header = next(reader, [])
        for name in ("doc.id", *columns):
            if name not in header:
                raise DataError(
                    f"{path} lacks the column {name!r}; its header is {','.join(header)[:200]!r}."
                )
        key, wanted = header.index("doc.id"), [header.index(name) for name in columns]
        for number, row in enumerate(reader, start=1):
            where = f"{path}, line {reader.line_num}"
            if len(row) != len(header):
                raise DataError(f"{where}: {len(row)} fields where the header has {len(header)}.")
            if row[key] != str(number):
                raise DataError(f"{where}: doc.id {row[key][:40]!r} where {number} was expected.")
            yield tuple(row[column] for column in wanted)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {reason(error)}. Is the file truncated?"
        ) from error
    if not number:
        raise DataError(f"{path} has no article.")


def read_texts(
    path: Path, tokenize: Callable[[str], list[str]], say: Callable[[str], None]
) -> Iterator[list[str]]:
    """Yield the tokens of each text of rawtext.dat: the lines after ``##0``, ``##1``, ...

    Bytes that are not UTF-8 separate words; one warning counts their lines.

    Raises:
        DataError: an unexpected number, or text before the first.
    """
    invalid = array("q")
    tokens: list[str] = []
    due = 0
    for number, line in enumerate(read_lines(path, invalid.append), start=1):
        where = f"{path}, line {number}"
        if begin := _BEGIN.fullmatch(line):
            if int(begin[1]) != due:
                raise DataError(f"{where}: text ##{int(begin[1])} where ##{due} was expected.")
            if due:
                yield tokens
            tokens = []
            due += 1
        elif due:
            tokens += tokenize(line)
            _refuse_long(len(tokens), where)
        elif line.strip():
            raise DataError(f"{where}: expected ##0, found {line.strip()[:40]!r}.")
    if not due:
        raise DataError(f"{path} has no text: no line is ##0.")
    yield tokens
    if invalid:
        say(
            f"Warning: {path.name} has {len(invalid):,} lines with bytes that are not valid UTF-8"
            f" (the first: line {invalid[0]}); each such byte counts as a separator."
        )


def read_lists(
    path: Path, limit: int, what: str, *, has_counts: bool = False
) -> Iterator[list[int]]:
    """Yield the ids of each line ``count id id ...``, or ``count id:times id:times ...`` with each
    id as often as it occurs; ids are in 0..limit-1.

    Raises:
        DataError: no id at all, a malformed number, a count that does not match (a truncated line),
            an id out of range, or one that occurs less than once.
    """
    layout = f"whole numbers, a count and then {what} numbers"
    if has_counts:
        layout = f"a whole number and then {what}:count pairs"

    def parse(field: str) -> tuple[int, int]:
        id_, times = field.split(":") if has_counts else (field, 1)
        return int(id_), int(times)

    is_empty = True
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            count, *fields = line.split()
            pairs = [parse(field) for field in fields]
            n_pairs = int(count)
        except ValueError:
            raise DataError(f"{where}: expected {layout}.") from None
        if n_pairs != len(pairs):
            raise DataError(
                f"{where}: says {n_pairs} {what}s and lists {len(pairs)}. Is the file truncated?"
            )
        for id_, times in pairs:
            if not 0 <= id_ < limit:
                raise DataError(
                    f"{where}: {what} {id_} is outside 0..{limit - 1}. Is another file cut off?"
                )
            if times < 1:
                raise DataError(f"{where}: {what} {id_} occurs {times} times; it must occur.")
        _refuse_long(sum(times for _, times in pairs), where)
        is_empty = is_empty and not pairs
        yield [id_ for id_, times in pairs for _ in range(times)]
    if is_empty:
        raise DataError(f"{path} names no {what} at all.")


def _refuse_long(n_words: int, where: str) -> None:
    if n_words > MOST_WORDS:
        raise DataError(
            f"{where}: more than {MOST_WORDS:,} words in one article. Is the file damaged?"
        )
