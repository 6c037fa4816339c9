"""Both CiteULike sources: files published on GitHub, users' libraries, and their content.

Files are pinned to a commit, downloaded, and verified by git's id of their content.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.config import cache_dir
from ncfbench.data.content import Content, distinct_links, split_items
from ncfbench.data.markup import clean_latex
from ncfbench.data.options import ItemOptions, option
from ncfbench.data.readers.files import git_blob_id, read_lines
from ncfbench.data.sources import Preparation, Progress
from ncfbench.data.text import Corpus
from ncfbench.errors import DataError, VerificationError, reason
from ncfbench.storage import locks
from ncfbench.storage.tables import storage_errors

TIMEOUT_SECONDS = 30
"""Seconds without a byte after which a download has failed."""
RETRIES = 3


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(ItemOptions):
    """Options that say where published files come from."""

    from_: Path | None = option(
        None,
        "A folder with the published files, instead of a download.",
        flag="--from",
        is_stored=False,
    )
    allow_unverified: bool = option(
        False,
        "Accept files that are not the published ones.",
        flag="--allow-unverified",
        is_stored=False,
    )
    url: str | None = option(None, "Download from a mirror.", is_stored=False)


@dataclass(frozen=True)
class Published:
    """The files of one commit of a repository.

    Args:
        repository: its name.
        commit: 40 hexadecimal digits.
        blob_ids: git's id of the content of each file.
    """

    repository: str
    commit: str
    blob_ids: Mapping[str, str]

    @property
    def url(self) -> str:
        """Address of the folder of the files."""
        return f"https://raw.githubusercontent.com/js05212/{self.repository}/{self.commit}/"

    def prepare(
        self,
        options: PublishedOptions,
        names: Sequence[str],
        read: Callable[[Path], Content],
        *,
        say: Callable[[str], None],
        progress: Progress,
    ) -> Preparation:
        """Download the named files, unless ``--from`` names their folder, and verify them.

        Args:
            read: makes the content of the files in a folder.

        Raises:
            DataError: a file is missing, or a download failed.
            VerificationError: a file is not the published one, and that is not allowed.
        """
        folder = options.from_
        if folder is None:
            folder = cache_dir() / self.repository / self.commit[:12]
            # A second process waits, and then finds the files.
            with locks.held(folder, "downloading into", wait=say), progress() as bar:
                self.download(folder, names, options.url, bar)
        origin = {"commit": self.commit, "files": self.verify(folder, names, options, say)}
        return Preparation(origin, options.stored(), partial(read, folder))

    def download(
        self, folder: Path, names: Sequence[str], base_url: str | None = None, progress: Any = None
    ) -> None:
        """Download the named files from GitHub or a mirror; verified ones are kept.

        A download that stalls, is cut off, refused or damaged is repeated, up to three times.

        Raises:
            DataError: a download failed after its retries.
            VerificationError: the download is not the published file; it is not kept.
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

        with_slash = (base_url or self.url).rstrip("/") + "/"
        pooch.get_logger().setLevel("ERROR")
        for file in names:
            path = folder / file
            with storage_errors(path):
                if path.is_file() and git_blob_id(path) == self.blob_ids[file]:
                    continue
                path.unlink(missing_ok=True)
            pup = pooch.create(
                path=folder, base_url=with_slash, registry={file: None}, retry_if_failed=RETRIES
            )
            try:
                pup.fetch(file, downloader=fetch)
            except (requests.exceptions.RequestException, OSError) as error:
                raise DataError(
                    f"Could not download {with_slash}{file}: {reason(error)}. Check the connection"
                    " and run the command again, or fetch the files yourself and use --from DIR."
                ) from error
            except ValueError as error:
                raise VerificationError(
                    f"{file} from {with_slash} is not the published file: {reason(error)}."
                ) from error

    def verify(
        self,
        folder: Path,
        names: Sequence[str],
        options: PublishedOptions,
        say: Callable[[str], None],
    ) -> dict[str, dict[str, Any]]:
        """Return the blob id of each file, and whether it is the published one.

        Raises:
            DataError: a file is missing or cannot be read.
            VerificationError: a file is not the published one, and that is not allowed.
        """
        require(folder, names)
        files = {}
        for name in names:
            blob, expected = git_blob_id(folder / name), self.blob_ids[name]
            if blob != expected:
                difference = (
                    f"{folder / name} is not the published file: expected git blob {expected},"
                    f" found {blob}."
                )
                if not options.allow_unverified:
                    raise VerificationError(
                        f"{difference} Use --allow-unverified to prepare it all the same."
                    )
                say(f"Warning: {difference} Accepted (--allow-unverified).")
            files[name] = {"git_blob": blob, "verified": blob == expected}
        return files


def clean(text: str) -> str:
    """Return a text of the files without LaTeX and tags."""
    # A soft hyphen there is half of a letter that was decoded wrongly, and ends the other half.
    return clean_latex(text.replace("\u00ad", " "))


def require(folder: Path, names: Sequence[str]) -> None:
    """Raise a DataError unless ``folder`` holds all of ``names``."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder. --from takes the folder that holds {', '.join(names)}."
        )
    for name in names:
        if not (folder / name).exists():
            raise DataError(f"{folder / name} is missing. Needed there: {', '.join(names)}.")


def read_content(
    folder: Path,
    options: PublishedOptions,
    corpus: Corpus,
    texts: Iterable[Iterable[str]],
    say: Callable[[str], None],
) -> Content:
    """Return the content of texts and of ``users.dat``, whose line u lists user u's articles.

    Args:
        texts: the tokens of each article.

    Raises:
        DataError: a damaged file, or an article that has no text.
    """
    for tokens in texts:
        corpus.add(tokens)
    n_items = len(corpus)
    sizes, articles = array("i"), array("i")
    for row in read_lists(folder / "users.dat", limit=n_items, what="item"):
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
    token_ids, vocabulary = corpus.finish(
        options.min_count, options.vocabulary_size, options.max_length
    )
    return Content(
        n_users=len(sizes),
        users=users,
        items=items,
        texts=token_ids,
        vocabulary=vocabulary,
        split=split_items(
            n_items, options.test_fraction, options.validation_fraction, options.split_seed
        ),
        removed={"duplicate_links": repeated},
    )


def read_lists(path: Path, limit: int, what: str) -> Iterator[list[int]]:
    """Yield the ids of each line ``count id id ...``; ids are in 0..limit-1.

    Raises:
        DataError: no id at all, a malformed number, a count that does not match (a truncated line),
            an id out of range.
    """
    is_empty = True
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
        is_empty = is_empty and not ids
        yield ids
    if is_empty:
        raise DataError(f"{path} names no {what} at all.")
