"""CiteULike-t: more users and articles than CiteULike-a, with texts in full or as counted words.

Published by Wang, Chen and Li (IJCAI 2013) on GitHub; the files are pinned to one commit and
verified by git blob id. Texts and vocabulary contain HTML entities, and the vocabulary's are cut
short (``class&#34``). They are resolved before the text becomes tokens, so one line of the
vocabulary may be no token (``%``), one, or several (``60 000``).
"""

from __future__ import annotations

import html
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from ncfbench.data.content import Content
from ncfbench.data.options import option
from ncfbench.data.readers.files import read_lines
from ncfbench.data.sources import Preparation, Progress, Statistics, citeulike_files
from ncfbench.data.sources.citeulike_files import (
    Published,
    PublishedOptions,
    clean,
    require,
)
from ncfbench.data.text import Corpus
from ncfbench.data.words import tokenize
from ncfbench.errors import DataError

FILES = Published(
    "citeulike-t",
    "4f103c6ea0fe407b23be230837b65517e613c34a",
    {
        "users.dat": "a363574955fa4def72e3025ee79c2e36b9a05fd0",
        "rawtext.dat": "cf1a042dee7dca9aeacfb24828199a86be53b625",
        "mult.dat": "2805aec9d45376f5c2383db8bb0e0bed01290cb1",
        "vocabulary.dat": "4f16a05cde545a2e84ac09bc6ecedb3b560c4f5c",
    },
)
STATISTICS = Statistics("published", {"users": 7947, "items": 25975, "links": 134860})
TEXTS: Mapping[str, tuple[str, ...]] = {
    "raw": ("rawtext.dat",),
    "bag": ("mult.dat", "vocabulary.dat"),
}
"""The files of each kind of text."""
AUTO = "auto"
MOST_WORDS = 2**22
"""Words that one article may have; more mean a damaged file, and would fill memory or disk."""
_DAMAGED = "Is the file damaged?"
_BEGIN = re.compile(r"##([0-9]{1,12})\s*")


@dataclass(frozen=True, kw_only=True)
class Options(PublishedOptions):
    """Options of the source; ``text`` is ``auto`` until it is :meth:`resolved`."""

    text: str = option(
        AUTO,
        "raw: texts in full; bag: counted words, without their order; auto: raw if it is there.",
        choices=(AUTO, *TEXTS),
    )

    def resolved(self) -> Options:
        """Return the options with ``auto`` replaced: by ``bag`` in a folder without full texts."""
        if self.text != AUTO:
            return self
        is_raw = self.from_ is None or (self.from_ / "rawtext.dat").exists()
        return replace(self, text="raw" if is_raw else "bag")

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose content resolved options use."""
        return ("users.dat", *TEXTS[self.text])

    def stored(self) -> dict[str, Any]:
        """Return the options for the manifest; a text is a list of its parts in every source."""
        return super().stored() | {"text": [self.text]}


def plan(
    options: Options, *, say: Callable[[str], None], progress: Progress = nullcontext
) -> Preparation:
    """Obtain and verify the files; see :meth:`Published.prepare`."""
    if options.text == AUTO and options.from_ is not None:
        require(options.from_, ("users.dat",))
    options = options.resolved()
    read = partial(read_content, options=options, say=say)
    planned = FILES.prepare(options, options.files, read, say=say, progress=progress)
    if options.text == "bag":
        say(
            "Warning: a bag of words has lost their order, so an encoder sees neighbours that were"
            " none. Use --text raw if you have rawtext.dat."
        )
    return planned


def read_content(folder: Path, options: Options, say: Callable[[str], None]) -> Content:
    """Parse the files: links, texts, vocabulary, split."""
    path = folder / TEXTS[options.text][0]
    texts: Iterator[Iterable[str]] = (
        read_texts(path, say)
        if options.text == "raw"
        else read_bags(path, folder / "vocabulary.dat")
    )
    return citeulike_files.read_content(folder, options, Corpus(), texts, say)


def read_texts(path: Path, say: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield the tokens of each text of rawtext.dat: the lines after ``##0``, ``##1``, ...

    Bytes that are not UTF-8 separate words; one warning counts their lines.

    Raises:
        DataError: an unexpected number, or text before the first.
    """
    invalid = array("q")
    tokens: list[str] = []
    due = 0
    for number, line in enumerate(read_lines(path, invalid.append), start=1):
        begin = _BEGIN.fullmatch(line)
        if begin:
            if int(begin[1]) != due:
                raise DataError(
                    f"{path}, line {number}: text ##{int(begin[1])} where ##{due} was expected."
                )
            if due:
                yield tokens
            tokens = []
            due += 1
        elif due:
            tokens += _tokens(line)
            if len(tokens) > MOST_WORDS:
                raise DataError(
                    f"{path}, line {number}: text ##{due - 1} has more than {MOST_WORDS:,} words."
                    f" {_DAMAGED}"
                )
        elif line.strip():
            raise DataError(f"{path}, line {number}: expected ##0, found {line.strip()[:40]!r}.")
    if not due:
        raise DataError(f"{path} has no text: no line is ##0.")
    yield tokens
    if invalid:
        say(
            f"Warning: {path.name} has {len(invalid):,} lines with bytes that are not valid UTF-8"
            f" (the first: line {invalid[0]}); each such byte counts as a separator."
        )


def read_bags(path: Path, vocabulary: Path) -> Iterator[Iterator[str]]:
    """Yield the tokens of each line ``count word:occurrences ...`` of mult.dat, each word as often
    as it occurs.

    A word is the number, from 0, of a line of ``vocabulary``.

    Raises:
        DataError: a malformed number, a count that does not match, a word that the vocabulary
            lacks, or occurrences below 1.
    """
    words = [_tokens(line) for line in read_lines(vocabulary)]
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            n_words, *pairs = line.split()
            bag = [tuple(map(int, pair.split(":"))) for pair in pairs]
            is_whole = int(n_words) == len(bag)
            for word, occurrences in bag:
                if not 0 <= word < len(words):
                    raise DataError(
                        f"{where}: word {word} is outside 0..{len(words) - 1}, the lines of"
                        f" {vocabulary.name}."
                    )
                if occurrences < 1:
                    raise DataError(
                        f"{where}: word {word} occurs {occurrences} times; it must be at least"
                        " once."
                    )
        except ValueError:
            raise DataError(
                f"{where}: expected a whole number and then word:count pairs."
            ) from None
        if not is_whole:
            raise DataError(
                f"{where}: says {n_words} words and lists {len(bag)}. Is the file truncated?"
            )
        if sum(occurrences for _, occurrences in bag) > MOST_WORDS:
            raise DataError(f"{where}: more than {MOST_WORDS:,} words in one article. {_DAMAGED}")
        yield chain.from_iterable(
            chain.from_iterable(repeat(words[word], occurrences)) for word, occurrences in bag
        )


def _tokens(text: str) -> list[str]:
    return tokenize(clean(html.unescape(text)))
