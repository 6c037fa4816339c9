"""CiteULike-a and CiteULike-t (Wang, Chen and Li, IJCAI 2013): users' libraries of scientific
articles, with their texts.

In CiteULike-t these hold HTML entities.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.config import cache_dir
from ncfbench.data.content import Content
from ncfbench.data.files import git_blob_id, read_lines
from ncfbench.data.hold_out import Links, hold_out
from ncfbench.data.markup import clean_latex
from ncfbench.data.options import PUBLISHED, USUAL_LSA, TextOptions, lsa_option, option
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.table import read_table
from ncfbench.data.text import Corpus
from ncfbench.errors import DataError, VerificationError, reason
from ncfbench.storage import locks
from ncfbench.storage.tables import storage_errors

FILES = {
    "title": ("raw-data.csv",),
    "abstract": ("raw-data.csv",),
    "tags": ("item-tag.dat", "tags.dat"),
    "raw": ("rawtext.dat",),
}
"""The files of each part of an article's text; the first has an entry for each article."""
TIMEOUT_SECONDS = 30  # without a byte
RETRIES = 3
PARTS = ("title", "abstract", "tags")
REPLACED = "\ufffd"  # stands for bytes that are not UTF-8
_BEGIN = re.compile(r"##([0-9]{1,12})\s*")


@dataclass(frozen=True, kw_only=True)
class LibraryOptions(TextOptions):
    """Options of both; ``text`` names the parts of an article's text, in order."""

    from_: Path | None = option(
        None, "A folder with the published files, instead of a download.", is_stored=False
    )
    allow_unverified: bool = option(
        False, "Accept files that are not the published ones.", is_stored=False
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


@dataclass(frozen=True, kw_only=True)
class OptionsT(LibraryOptions):
    """Options of CiteULike-t."""

    fixed = PUBLISHED | {"lsa"}
    text = ("raw",)
    lsa: int | None = lsa_option(USUAL_LSA)


@dataclass(frozen=True)
class CiteULike:
    """One of the two sources; see :class:`ncfbench.data.sources.SourceModule`: files of a commit,
    of 40 hexadecimal digits, of a repository on GitHub, by git's id of their content.
    """

    Options: type[Any]
    repository: str
    commit: str
    blob_ids: Mapping[str, str]

    @property
    def url(self) -> str:
        """Address of the folder of the files."""
        return f"https://raw.githubusercontent.com/js05212/{self.repository}/{self.commit}/"

    def plan(
        self, options: Any, *, say: Callable[[str], None], progress: Progress = nullcontext
    ) -> Preparation:
        """Download the files, unless ``--from`` names their folder, and verify them.

        Raises:
            DataError: a file is missing.
            VerificationError: a file is not the published one, unless others are allowed.
        """
        parts = (file for part in options.text for file in FILES[part])
        names = tuple(dict.fromkeys(("users.dat", *parts)))
        if (folder := options.from_) is None:
            folder = cache_dir() / self.repository / self.commit[:12]
            # A second process waits, and then finds the files.
            with locks.held(folder, "downloading into", wait=say), progress() as bar:
                self.download(folder, names, bar)
        files = {}
        for name in names:
            path, expected = folder / name, self.blob_ids[name]
            if not path.exists():
                needed = ", ".join(names)
                raise DataError(f"{path} is missing. --from takes the folder that holds {needed}.")
            if (blob := git_blob_id(path)) != expected:
                text = f"{path} is not the published file: expected git blob {expected}, found"
                if not options.allow_unverified:
                    raise VerificationError(
                        f"{text} {blob}. Use --allow-unverified to prepare it all the same."
                    )
                say(f"Warning: {text} {blob}. Accepted (--allow-unverified).")
            files[name] = {"git_blob": blob, "verified": blob == expected}
        origin = {"commit": self.commit, "files": files, **options.model_origin()}
        return Preparation(origin, options.stored(), partial(read, folder, options, say))

    def download(self, folder: Path, names: Iterable[str], progress: Any = None) -> None:
        """Download the named files from GitHub, but for verified ones, with retries.

        Raises:
            DataError: a download failed.
            VerificationError: a file is not the published one.
        """
        import pooch
        import requests

        def fetch(url: str, output_file: str, source: Any, check_only: bool = False) -> Any:
            download = pooch.HTTPDownloader(progressbar=progress or False, timeout=TIMEOUT_SECONDS)
            result = download(url, output_file, source, check_only=check_only)
            blob, expected = git_blob_id(Path(output_file)), self.blob_ids[url.rsplit("/", 1)[1]]
            if blob != expected:
                raise ValueError(f"expected git blob {expected}, found {blob}")
            return result

        pooch.get_logger().setLevel("ERROR")
        registry = dict.fromkeys(names)
        files = pooch.create(folder, self.url, registry=registry, retry_if_failed=RETRIES)
        for name in names:
            path = folder / name
            if path.is_file() and git_blob_id(path) == self.blob_ids[name]:
                continue
            with storage_errors(path):
                path.unlink(missing_ok=True)
            try:
                files.fetch(name, downloader=fetch)
            except (requests.exceptions.RequestException, OSError) as error:
                raise DataError(
                    f"Could not download {self.url}{name}: {reason(error)}. Check the connection"
                    " and run the command again, or fetch the files yourself and use --from DIR."
                ) from error
            except ValueError as error:
                raise VerificationError(
                    f"{name} from {self.url} is not the published file: {reason(error)}."
                ) from error


CITEULIKE_A = CiteULike(
    Options,
    "citeulike-a",
    "91b603922d7f2d3db18071d4798bf78c9c5d1680",
    {
        "users.dat": "01c329a6df4e883f3282421557543a547eada9de",
        "raw-data.csv": "2d366a8142639249324d800c17bce39d59032744",
        "item-tag.dat": "f9e559356b1a84ba3c709a7cb4bc87fea2dad459",
        "tags.dat": "231dccc10c3b5ecb421e028528072b652c67aa04",
    },
)
CITEULIKE_T = CiteULike(
    OptionsT,
    "citeulike-t",
    "4f103c6ea0fe407b23be230837b65517e613c34a",
    {
        "users.dat": "a363574955fa4def72e3025ee79c2e36b9a05fd0",
        "rawtext.dat": "cf1a042dee7dca9aeacfb24828199a86be53b625",
    },
)


def read(folder: Path, options: Any, say: Callable[[str], None]) -> Content:
    """Parse the files."""
    corpus = Corpus(options, clean)
    parts = [_tokens(folder, part, corpus.tokenize, say) for part in options.text]
    for item, tokens in enumerate(zip_longest(*parts)):
        if None in tokens:
            raise DataError(
                f"The files in {folder} disagree about the number of items:"
                f" {options.text[tokens.index(None)]} ends after {item}."
            )
        corpus.add(chain.from_iterable(tokens))
    # Line u lists the articles of user u.
    libraries = list(read_lists(folder / "users.dat", len(corpus), "item"))
    sizes = [len(library) for library in libraries]
    if not any(sizes):
        raise DataError(f"{folder / 'users.dat'} names no item at all.")
    users = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    items = np.fromiter(chain.from_iterable(libraries), np.int32)
    if unread := len(corpus) - 1 - int(items.max()):
        say(
            f"Warning: of {len(corpus):,} texts the last {unread:,} are of articles in nobody's"
            " library."
        )
    texts, vocabulary = corpus.finish()
    held_out = hold_out(options, Links(users, items), (len(libraries), len(corpus)))
    if repeated := held_out.removed.get("duplicate_links"):
        say(f"Warning: users.dat names {repeated:,} links twice; each counts once.")
    return Content(n_users=len(libraries), texts=texts, vocabulary=vocabulary, **held_out._asdict())


def clean(text: str) -> str:
    """Return a text without LaTeX and tags."""
    # A soft hyphen is half of a letter that was decoded wrongly, and ends the other half.
    return clean_latex(text.replace("\u00ad", " "))


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
    invalid: list[int] = []
    tokens: list[str] = []
    due = 0
    for number, line in enumerate(read_lines(path, "replace"), start=1):
        if REPLACED in line:
            invalid.append(number)
        begin = _BEGIN.fullmatch(line)
        if begin and int(begin[1]) == due:
            if due:
                yield tokens
            tokens = []
            due += 1
        elif due and not begin:
            tokens += tokenize(html.unescape(line))
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
