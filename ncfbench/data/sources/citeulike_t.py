"""CiteULike-t: more users and articles than CiteULike-a, and texts either in full or as counted
words.

Published by Wang, Chen and Li (IJCAI 2013) on GitHub; the files are pinned to one commit and
verified by git blob id. Both the texts and the vocabulary are written with HTML's entities, the
vocabulary's cut short (``class&#34``): they are resolved before the text becomes tokens, so that
one line of the vocabulary is no token (``%``), one or several (``60 000``).
"""

from __future__ import annotations

import html
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from ncfbench.data import store
from ncfbench.data.content import Content
from ncfbench.data.corpus import Corpus
from ncfbench.data.options import ItemOptions, require_names
from ncfbench.data.published import Published, require
from ncfbench.data.readers.lines import read_lines
from ncfbench.data.sources.libraries import read_libraries
from ncfbench.data.splits import split_items
from ncfbench.data.text import tokenize
from ncfbench.errors import DataError

FILES = Published(
    "js05212/citeulike-t",
    "4f103c6ea0fe407b23be230837b65517e613c34a",
    {
        "users.dat": "a363574955fa4def72e3025ee79c2e36b9a05fd0",
        "rawtext.dat": "cf1a042dee7dca9aeacfb24828199a86be53b625",
        "mult.dat": "2805aec9d45376f5c2383db8bb0e0bed01290cb1",
        "vocabulary.dat": "4f16a05cde545a2e84ac09bc6ecedb3b560c4f5c",
    },
)
PUBLISHED_STATISTICS: Mapping[str, float] = {"users": 7947, "items": 25975, "links": 134860}
TEXTS: Mapping[str, tuple[str, ...]] = {
    "raw": ("rawtext.dat",),
    "bag": ("mult.dat", "vocabulary.dat"),
}
"""The files that each kind of text is in."""
AUTO = "auto"
MOST_WORDS = 2**22
"""Of one article; a damaged count, or lost beginnings of texts, must fill neither memory nor
disk.
"""
_DAMAGED = "Is the file damaged?"
_BEGIN = re.compile(r"##([0-9]{1,12})\s*")


@dataclass(frozen=True, kw_only=True)
class Options(ItemOptions):
    """What decides the prepared content. ``text`` is ``raw``, ``bag``, or ``auto`` until
    :meth:`resolved`.
    """

    text: str = AUTO

    def __post_init__(self) -> None:
        require_names("text", (self.text,), (AUTO, *TEXTS))
        super().__post_init__()

    def resolved(self, folder: Path | None) -> Options:
        """With what ``auto`` stands for: the texts in full, but the bag of words in a folder
        without them.
        """
        if self.text != AUTO:
            return self
        return replace(
            self, text="raw" if folder is None or (folder / "rawtext.dat").exists() else "bag"
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose content these options use, once they are resolved."""
        return ("users.dat", *TEXTS[self.text])

    def stored(self) -> dict[str, Any]:
        """As a manifest has them: a text is a list of its parts, of whatever source."""
        return super().stored() | {"text": [self.text]}


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
    if options.text == AUTO:
        require(folder, ("users.dat",))
        options = options.resolved(folder)
    files = FILES.verify(folder, options.files, allow_unverified=allow_unverified, say=say)
    if options.text == "bag":
        say(
            "Warning: a bag of words has lost their order: what an encoder reads as neighbours were"
            " none. Use --text raw where rawtext.dat is at hand."
        )
    origin = {"source": "citeulike-t", "commit": FILES.commit, "files": files}
    read = partial(read_content, folder, options, say=say)
    return store.prepare(data_dir, name, origin, options.stored(), read, say)


def read_content(
    folder: Path, options: Options, scratch: Path, *, say: Callable[[str], None]
) -> Content:
    """Parse the files: links, texts, vocabulary, split."""
    corpus = Corpus(scratch)
    texts_path = folder / TEXTS[options.text][0]
    found: Iterator[Iterable[str]] = (
        read_texts(texts_path, say)
        if options.text == "raw"
        else read_bags(texts_path, folder / "vocabulary.dat")
    )
    for tokens in found:
        corpus.add(tokens)
    n_items = len(corpus)
    n_users, users, items, repeated = read_libraries(folder / "users.dat", n_items, say)
    behind = n_items - 1 - int(items.max())
    if behind:
        say(
            f"Warning: {texts_path.name} has {n_items:,} texts, the last {behind:,} of articles in"
            " nobody's library."
        )
    texts, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
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


def read_texts(path: Path, say: Callable[[str], None]) -> Iterator[list[str]]:
    """The tokens of each text of rawtext.dat: what stands between the lines ``##0``, ``##1``, ...

    What is not UTF-8 separates words; one warning counts the lines.

    Raises:
        DataError: a number out of turn, or a text before the first.
    """
    invalid = array("q")
    tokens: list[str] = []
    due = 0
    for number, line in enumerate(read_lines(path, invalid.append), start=1):
        begin = _BEGIN.fullmatch(line)
        if begin:
            if int(begin[1]) != due:
                raise DataError(
                    f"{path}, line {number}: text ##{int(begin[1])} where ##{due} was due."
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
    """The tokens of each line ``count word:occurrences ...`` of mult.dat, each word as often as it
    occurs.

    Words are numbers, from 0, of lines in ``vocabulary``.

    Raises:
        DataError: a malformed number, a count that does not match, a word that the vocabulary
            lacks, occurrences below 1.
    """
    words = [_tokens(line) for line in read_lines(vocabulary)]
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            count, *pairs = line.split()
            bag = [
                (int(word), int(occurrences))
                for word, occurrences in (pair.split(":") for pair in pairs)
            ]
            n_words = int(count)
        except ValueError:
            raise DataError(
                f"{where}: expected a whole number and then word:count pairs."
            ) from None
        if n_words != len(bag):
            raise DataError(
                f"{where}: says {n_words} words and lists {len(bag)}. Is the file truncated?"
            )
        for word, occurrences in bag:
            if not 0 <= word < len(words):
                raise DataError(
                    f"{where}: word {word} is outside 0..{len(words) - 1}, the lines of"
                    f" {vocabulary.name}."
                )
            if occurrences < 1:
                raise DataError(
                    f"{where}: word {word} occurs {occurrences} times; it must be at least once."
                )
        if sum(occurrences for _, occurrences in bag) > MOST_WORDS:
            raise DataError(f"{where}: more than {MOST_WORDS:,} words in one article. {_DAMAGED}")
        yield chain.from_iterable(
            chain.from_iterable(repeat(words[word], occurrences)) for word, occurrences in bag
        )


def _tokens(text: str) -> list[str]:
    return tokenize(html.unescape(text))
