"""CiteULike-a: users' libraries of scientific articles, with titles, abstracts and tags.

Published by Wang, Chen and Li (IJCAI 2013) on GitHub; the files are pinned to one commit and verified by git blob id.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.datasets.store import Content, read_manifest, save, split_items
from ncfbench.datasets.text import Vocabulary, tokenize
from ncfbench.errors import DataError, UsageError, VerificationError
from ncfbench.registry import nearest
from ncfbench.tables import storage_errors

COMMIT = "91b603922d7f2d3db18071d4798bf78c9c5d1680"
BASE_URL = f"https://raw.githubusercontent.com/js05212/citeulike-a/{COMMIT}/"
BLOB_IDS: Mapping[str, str] = {
    "users.dat": "01c329a6df4e883f3282421557543a547eada9de",
    "raw-data.csv": "2d366a8142639249324d800c17bce39d59032744",
    "item-tag.dat": "f9e559356b1a84ba3c709a7cb4bc87fea2dad459",
    "tags.dat": "231dccc10c3b5ecb421e028528072b652c67aa04",
}
PAPER_STATISTICS: Mapping[str, float] = {
    "users": 5551, "items": 16980, "links": 204986, "vocabulary": 23011,
    "words_max": 300, "words_min": 22, "words_mean": 194, "words_median": 186,
}  # fmt: skip
TEXT_PARTS = ("title", "abstract", "tags")
_COLUMNS = {"title": "raw.title", "abstract": "raw.abstract"}


@dataclass(frozen=True)
class Options:
    """What decides the prepared content."""

    text: tuple[str, ...] = ("title", "abstract")
    max_length: int = 300
    min_count: int = 1
    vocabulary_size: int | None = None
    test_fraction: float = 0.2
    validation_fraction: float = 0.1
    split_seed: int = 0

    def __post_init__(self) -> None:
        for part in self.text:
            if part not in TEXT_PARTS:
                raise UsageError(f"Unknown text {part!r}{nearest(part, TEXT_PARTS)} Valid: {', '.join(TEXT_PARTS)}.")
        if not self.text or len(set(self.text)) < len(self.text):
            raise UsageError(f"text = {','.join(self.text)!r}: name each of {', '.join(TEXT_PARTS)} at most once.")
        for name in ("max_length", "min_count", "vocabulary_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} = {value}: it must be at least 1.")
        split_items(10**6, self.test_fraction, self.validation_fraction, 0)

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
    """Verify the files in ``folder``, parse them, and store the data set; instant where that was done before.

    Returns:
        The manifest.

    Raises:
        VerificationError: a file is not the published one and ``allow_unverified`` is false.
        DataError: a file is missing or malformed; the message names the file and the line.
    """
    files = verify(folder, options.files, allow_unverified=allow_unverified, say=say)
    settings = asdict(options) | {"text": list(options.text)}
    done = read_manifest(data_dir, name)
    if done and (done.get("source"), done.get("options"), done.get("files")) == ("citeulike", settings, files):
        say(f"Already prepared with these options and files: {data_dir / name}")
        return done
    content = read_content(folder, options, say)
    return save(data_dir, name, content, {"source": "citeulike", "commit": COMMIT, "files": files}, settings)


def download(folder: Path, names: Sequence[str], base_url: str, progress: Any = None) -> None:
    """Fetch the named files into ``folder``, verified; files that are there and right are kept.

    Args:
        progress: an object with tqdm's ``total``, ``update``, ``reset`` and ``close``, or None.

    Raises:
        DataError: a download failed after its retries.
        VerificationError: what came is not the published file (it is not kept).
    """
    import pooch
    import requests

    class Downloader:
        """pooch's HTTP downloader with a time-out, refusing what is not the published file."""

        def __call__(self, url: str, output_file: str, source: Any, check_only: bool = False) -> bool | None:
            fetch = pooch.HTTPDownloader(progressbar=progress or False, timeout=30)
            result: bool | None = fetch(url, output_file, source, check_only=check_only)
            found = git_blob_id(Path(output_file))
            expected = BLOB_IDS[url.rsplit("/", 1)[1]]
            if found != expected:
                raise ValueError(f"expected git blob {expected}, found {found}")
            return result

    with_slash = base_url.rstrip("/") + "/"
    for file in names:
        path = folder / file
        with storage_errors(path):
            if path.is_file() and git_blob_id(path) == BLOB_IDS[file]:
                continue
            path.unlink(missing_ok=True)
        pup = pooch.create(path=folder, base_url=with_slash, registry={file: None}, retry_if_failed=3)
        pooch.get_logger().setLevel("ERROR")
        try:
            pup.fetch(file, downloader=Downloader())
        except (requests.exceptions.RequestException, OSError) as error:
            raise DataError(
                f"Could not download {with_slash}{file}: {error}. Check the connection and run the command again, or "
                f"fetch the files yourself and use --from DIR."
            ) from error
        except ValueError as error:
            raise VerificationError(f"{file} from {with_slash} is not the published file: {error}.") from error


def git_blob_id(path: Path) -> str:
    """git's name for the content of a file: SHA-1 of ``blob <size>\\0`` and the content."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def verify(
    folder: Path, names: Sequence[str], *, allow_unverified: bool, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """The blob id of each file, and whether it is the published one; as the manifest records it."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. --from takes the folder that holds {', '.join(names)}.")
    result = {}
    for name in names:
        if not (folder / name).exists():
            raise DataError(f"{folder / name} is missing. Needed there: {', '.join(names)}.")
        found, expected = git_blob_id(folder / name), BLOB_IDS[name]
        if found != expected:
            difference = f"{folder / name} is not the published file: expected git blob {expected}, found {found}."
            if not allow_unverified:
                raise VerificationError(f"{difference} Use --allow-unverified to prepare it all the same.")
            say(f"Warning: {difference} Accepted (--allow-unverified).")
        result[name] = {"git_blob": found, "verified": found == expected}
    return result


def read_content(folder: Path, options: Options, say: Callable[[str], None]) -> Content:
    """Parse the files: links, texts, vocabulary, split."""
    parts: dict[str, list[list[str]]] = {}
    columns = [part for part in options.text if part in _COLUMNS]
    if columns:
        rows = read_articles(folder / "raw-data.csv", [_COLUMNS[part] for part in columns])
        for place, part in enumerate(columns):
            parts[part] = [tokenize(row[place]) for row in rows]
    if "tags" in options.text:
        tags = [tokenize(line) for line in _lines(folder / "tags.dat")]
        of_items = read_lists(folder / "item-tag.dat", limit=len(tags), what="tag")
        parts["tags"] = [[token for tag in row for token in tags[tag]] for row in of_items]
    sizes = {part: len(texts) for part, texts in parts.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"The files in {folder} disagree about the number of items: {sizes}.")
    n_items = next(iter(sizes.values()))
    texts = [[token for part in options.text for token in parts[part][item]] for item in range(n_items)]
    vocabulary = Vocabulary.build(texts, options.min_count, options.vocabulary_size)
    if not vocabulary.words:
        raise DataError(f"No word is left in {folder} with min_count = {options.min_count}.")

    libraries = read_lists(folder / "users.dat", limit=n_items, what="item")
    users = np.repeat(np.arange(len(libraries), dtype=np.int32), [len(row) for row in libraries])
    items = np.array([item for row in libraries for item in row], dtype=np.int32)
    distinct = np.unique(users.astype(np.int64) * n_items + items)
    if len(distinct) < len(users):
        say(f"Warning: users.dat names {len(users) - len(distinct):,} links twice; each counts once.")
    return Content(
        n_users=len(libraries),
        users=(distinct // n_items).astype(np.int32),
        items=(distinct % n_items).astype(np.int32),
        texts=vocabulary.encode(texts, options.max_length),
        vocabulary=vocabulary,
        split=split_items(n_items, options.test_fraction, options.validation_fraction, options.split_seed),
    )


def read_lists(path: Path, limit: int, what: str) -> list[list[int]]:
    """Parse lines of ``count id id ...`` with ids in 0..limit-1.

    Raises:
        DataError: an empty file, a malformed number, a count that does not match (a truncated line), an id out of range.
    """
    lists = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            count, *ids = [int(field) for field in line.split()]
        except ValueError:
            raise DataError(f"{path}, line {number}: expected whole numbers, a count and then {what} numbers.") from None
        if count != len(ids):
            raise DataError(f"{path}, line {number}: says {count} {what}s and lists {len(ids)}. Is the file truncated?")
        outside = [id_ for id_ in ids if not 0 <= id_ < limit]
        if outside:
            raise DataError(f"{path}, line {number}: {what} {outside[0]} is outside 0..{limit - 1}.")
        lists.append(ids)
    if not any(lists):
        raise DataError(f"{path} names no {what} at all.")
    return lists


def read_articles(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The named columns of raw-data.csv, whose ``doc.id`` must run from 1 upwards.

    Raises:
        DataError: a missing column, a row of another width, invalid UTF-8, a doc.id out of turn.
    """
    csv.field_size_limit(2**24)
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    rows: list[tuple[str, ...]] = []
    try:
        header = next(reader, [])
        missing = [name for name in ("doc.id", *columns) if name not in header]
        if missing:
            raise DataError(f"{path} lacks the column {missing[0]!r}; its header is {','.join(header)[:200]!r}.")
        key, wanted = header.index("doc.id"), [header.index(name) for name in columns]
        for row in reader:
            if len(row) != len(header):
                raise DataError(f"{path}, line {reader.line_num}: {len(row)} fields where the header has {len(header)}.")
            if row[key] != str(len(rows) + 1):
                raise DataError(f"{path}, line {reader.line_num}: doc.id {row[key][:40]!r} where {len(rows) + 1} was due.")
            rows.append(tuple(row[place] for place in wanted))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}. Is the file truncated?") from error
    if not rows:
        raise DataError(f"{path} has no article.")
    return rows


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: byte 0x{content[error.start]:02x} is not valid UTF-8.") from error


def _lines(path: Path) -> list[str]:
    lines = _text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise DataError(f"{path} is empty.")
    return lines
