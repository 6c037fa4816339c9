"""CiteULike-a and CiteULike-t (Wang, Chen and Li, IJCAI 2013): users' libraries of scientific
articles, with their texts.

In CiteULike-t these hold HTML entities.
"""

from __future__ import annotations

import html
import re
from array import array
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.config import cache_dir
from ncfbench.data.content import Content, distinct_links
from ncfbench.data.files import git_blob_id, read_lines
from ncfbench.data.hold_out import Links, hold_out
from ncfbench.data.markup import clean_latex
from ncfbench.data.options import PUBLISHED, USUAL_LSA, TextOptions, lsa_option, option
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.sources.published import Commit
from ncfbench.data.table import read_table
from ncfbench.data.text import Corpus
from ncfbench.errors import DataError, VerificationError
from ncfbench.storage import locks

FILES = {
    "title": ("raw-data.csv",),
    "abstract": ("raw-data.csv",),
    "tags": ("item-tag.dat", "tags.dat"),
    "raw": ("rawtext.dat",),
}
"""The files of each part of an article's text; the first has an entry for each article."""
PARTS = ("title", "abstract", "tags")
_BEGIN = re.compile(r"##([0-9]{1,12})\s*")


@dataclass(frozen=True, kw_only=True)
class LibraryOptions(TextOptions):
    """Options of both."""

    from_: Path | None = option(
        None, "A folder with the published files, instead of a download.", is_stored=False
    )
    allow_unverified: bool = option(
        False, "Accept files that are not the published ones.", is_stored=False
    )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of an article's text, in order."""
        return ("raw",)

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose content these options use."""
        return ("users.dat", *dict.fromkeys(file for part in self.parts for file in FILES[part]))

    def clean(self, text: str) -> str:
        """Return a text of the files without LaTeX and tags, which word pieces keep."""
        # A soft hyphen is half of a letter that was decoded wrongly, and ends the other half.
        return text if self.tokenizer else clean_latex(text.replace("\u00ad", " "))

    def read(self, folder: Path, say: Callable[[str], None]) -> Content:
        """Parse the files."""
        corpus = Corpus(self, self.clean)
        parts = [_tokens(folder, part, corpus.tokenize, say) for part in self.parts]
        for item, tokens in enumerate(zip_longest(*parts)):
            if None in tokens:
                raise DataError(
                    f"The files in {folder} disagree about the number of items:"
                    f" {self.parts[tokens.index(None)]} ends after {item}."
                )
            corpus.add(token for of_part in tokens for token in of_part)
        # Line u lists the articles of user u.
        libraries = list(read_lists(folder / "users.dat", len(corpus), "item"))
        sizes = [len(library) for library in libraries]
        if not any(sizes):
            raise DataError(f"{folder / 'users.dat'} names no item at all.")
        users, items, repeated = distinct_links(
            np.repeat(np.arange(len(sizes)), sizes),
            np.fromiter(chain.from_iterable(libraries), np.int64),
        )
        if repeated:
            say(f"Warning: users.dat names {repeated:,} links twice; each counts once.")
        if unread := len(corpus) - 1 - int(items.max()):
            say(
                f"Warning: of {len(corpus):,} texts the last {unread:,} are of articles in nobody's"
                " library."
            )
        texts, vocabulary = corpus.finish()
        held_out = hold_out(self, Links(users, items), (len(libraries), len(corpus)))
        held_out.removed["duplicate_links"] = repeated
        return Content(
            n_users=len(libraries), texts=texts, vocabulary=vocabulary, **held_out._asdict()
        )


@dataclass(frozen=True, kw_only=True)
class Options(LibraryOptions):
    """Options of CiteULike-a."""

    fixed = frozenset({"test_fraction"})
    text: tuple[str, ...] = option(
        ("title", "abstract"),
        f"An item's text is made of these, in order: any of {','.join(PARTS)}.",
        choices=PARTS,
    )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of an article's text, in order."""
        return self.text


@dataclass(frozen=True, kw_only=True)
class OptionsT(LibraryOptions):
    """Options of CiteULike-t."""

    fixed = PUBLISHED | {"lsa"}
    lsa: int | None = lsa_option(USUAL_LSA)

    def clean(self, text: str) -> str:
        """Return a text of the files without entities, LaTeX and tags."""
        return super().clean(html.unescape(text))


@dataclass(frozen=True)
class CiteULike:
    """One of the two sources; see :class:`ncfbench.data.sources.SourceModule`."""

    published: Commit
    Options: type[Any]

    def plan(
        self, options: Any, *, say: Callable[[str], None], progress: Progress = nullcontext
    ) -> Preparation:
        """Download the files, unless ``--from`` names their folder, and verify them."""
        folder = options.from_
        if folder is None:
            folder = cache_dir() / self.published.repository / self.published.commit[:12]
            # A second process waits, and then finds the files.
            with locks.held(folder, "downloading into", wait=say), progress() as bar:
                self.published.download(folder, options.files, bar)
        files = {name: self._verified(folder / name, options, say) for name in options.files}
        origin = {"commit": self.published.commit, "files": files, **options.model_origin()}
        return Preparation(origin, options.stored(), partial(options.read, folder, say))

    def _verified(self, path: Path, options: Any, say: Callable[[str], None]) -> dict[str, Any]:
        if not path.exists():
            needed = ", ".join(options.files)
            raise DataError(f"{path} is missing. --from takes the folder that holds {needed}.")
        blob, expected = git_blob_id(path), self.published.blob_ids[path.name]
        if blob != expected:
            text = f"{path} is not the published file: expected git blob {expected}, found {blob}."
            if not options.allow_unverified:
                raise VerificationError(
                    f"{text} Use --allow-unverified to prepare it all the same."
                )
            say(f"Warning: {text} Accepted (--allow-unverified).")
        return {"git_blob": blob, "verified": blob == expected}


CITEULIKE_A = CiteULike(
    Commit(
        "citeulike-a",
        "91b603922d7f2d3db18071d4798bf78c9c5d1680",
        {
            "users.dat": "01c329a6df4e883f3282421557543a547eada9de",
            "raw-data.csv": "2d366a8142639249324d800c17bce39d59032744",
            "item-tag.dat": "f9e559356b1a84ba3c709a7cb4bc87fea2dad459",
            "tags.dat": "231dccc10c3b5ecb421e028528072b652c67aa04",
        },
    ),
    Options,
)
CITEULIKE_T = CiteULike(
    Commit(
        "citeulike-t",
        "4f103c6ea0fe407b23be230837b65517e613c34a",
        {
            "users.dat": "a363574955fa4def72e3025ee79c2e36b9a05fd0",
            "rawtext.dat": "cf1a042dee7dca9aeacfb24828199a86be53b625",
        },
    ),
    OptionsT,
)


def _tokens(
    folder: Path, part: str, tokenize: Callable[[str], list[str]], say: Callable[[str], None]
) -> Iterator[list[str]]:
    """Return each item's tokens of a part of its text."""
    path, *words = (folder / name for name in FILES[part])
    if part in ("title", "abstract"):
        return map(tokenize, read_articles(path, f"raw.{part}"))
    if part == "raw":
        return read_texts(path, tokenize, say)
    tokens = [tokenize(line) for line in read_lines(words[0])]
    rows = read_lists(path, len(tokens), "tag")
    return ([token for tag in row for token in tokens[tag]] for row in rows)


def read_articles(path: Path, column: str) -> list[str]:
    """Return a column of raw-data.csv; a DataError unless its ``doc.id`` runs from 1 upwards."""
    table = read_table(path)
    for name in ("doc.id", column):
        if name not in table.names:
            raise DataError(
                f"{path} lacks the column {name!r}; its header is {','.join(table.names)[:200]!r}."
            )
    ids = table["doc.id"]
    for row, id_ in enumerate(ids.values.to_pylist()):
        if id_ != str(row + 1):
            ids.refuse(row, f"{id_[:40]!r} where {row + 1} was expected.")
    texts: list[str] = table[column].values.to_pylist()
    return texts


def read_texts(
    path: Path, tokenize: Callable[[str], list[str]], say: Callable[[str], None]
) -> Iterator[list[str]]:
    """Yield the tokens of each text of rawtext.dat: the lines after ``##0``, ``##1``, ...

    Bytes that are not UTF-8 separate words; one warning counts their lines. A DataError names the
    line of an unexpected number.
    """
    invalid = array("q")
    tokens: list[str] = []
    due = 0
    for number, line in enumerate(read_lines(path, invalid.append), start=1):
        begin = _BEGIN.fullmatch(line)
        if begin and int(begin[1]) == due:
            if due:
                yield tokens
            tokens = []
            due += 1
        elif due and not begin:
            tokens += tokenize(line)
        elif line.strip():
            raise DataError(
                f"{path}, line {number}: expected ##{due}, found {line.strip()[:40]!r}."
            )
    if not due:
        raise DataError(f"{path} has no text: no line is ##0.")
    yield tokens
    if invalid:
        say(
            f"Warning: {path.name} has {len(invalid):,} lines with bytes that are not valid UTF-8"
            f" (the first: line {invalid[0]}); each such byte counts as a separator."
        )


def read_lists(path: Path, limit: int, what: str) -> Iterator[list[int]]:
    """Yield the ids of each line ``count id id ...``. A DataError names a line that is malformed or
    cut off, or has an id that is not in 0..limit-1.
    """
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            count, *ids = map(int, line.split())
        except ValueError:
            raise DataError(
                f"{where}: expected whole numbers, a count and then {what} numbers."
            ) from None
        if count != len(ids):
            raise DataError(
                f"{where}: says {count} {what}s and lists {len(ids)}. Is the file truncated?"
            )
        for id_ in ids:
            if not 0 <= id_ < limit:
                raise DataError(
                    f"{where}: {what} {id_} is outside 0..{limit - 1}. Is another file cut off?"
                )
        yield ids
