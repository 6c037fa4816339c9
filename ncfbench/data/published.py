"""Files that their authors published on GitHub: pinned to a commit, downloaded, verified by git's
name of a content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.errors import DataError, VerificationError, reason
from ncfbench.storage.tables import storage_errors

PIECE = 2**20
TIMEOUT_SECONDS = 30
"""Without a byte, before a download counts as failed."""
RETRIES = 3


@dataclass(frozen=True)
class Published:
    """The files of one commit of a repository.

    Args:
        repository: owner and name.
        commit: 40 hexadecimal digits.
        blob_ids: git's name for the content of each file.
    """

    repository: str
    commit: str
    blob_ids: Mapping[str, str]

    @property
    def url(self) -> str:
        """Where the files are."""
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/"

    @property
    def cache_name(self) -> str:
        """A folder's name for this commit's files."""
        return f"{self.repository.rsplit('/', 1)[1]}/{self.commit[:12]}"

    def download(
        self, folder: Path, names: Sequence[str], base_url: str | None = None, progress: Any = None
    ) -> None:
        """Fetch the named files into ``folder``, verified; files that are there and right are kept.

        What comes slowly, is cut off, refused for the moment or damaged on the way is asked for
        again, up to three times.

        Args:
            base_url: a mirror, or None for the published place.
            progress: an object with tqdm's ``total``, ``update``, ``reset`` and ``close``, or None.

        Raises:
            DataError: a download failed after its retries.
            VerificationError: what came is not the published file (it is not kept).
        """
        import pooch
        import requests

        blob_ids = self.blob_ids

        class Downloader:
            """pooch's HTTP downloader with a time-out, refusing what is not the published file."""

            def __call__(
                self, url: str, output_file: str, source: Any, check_only: bool = False
            ) -> bool | None:
                fetch = pooch.HTTPDownloader(progressbar=progress or False, timeout=TIMEOUT_SECONDS)
                result: bool | None = fetch(url, output_file, source, check_only=check_only)
                found = git_blob_id(Path(output_file))
                expected = blob_ids[url.rsplit("/", 1)[1]]
                if found != expected:
                    raise ValueError(f"expected git blob {expected}, found {found}")
                return result

        with_slash = (base_url or self.url).rstrip("/") + "/"
        for file in names:
            path = folder / file
            with storage_errors(path):
                if path.is_file() and git_blob_id(path) == self.blob_ids[file]:
                    continue
                path.unlink(missing_ok=True)
            pup = pooch.create(
                path=folder, base_url=with_slash, registry={file: None}, retry_if_failed=RETRIES
            )
            pooch.get_logger().setLevel("ERROR")
            try:
                pup.fetch(file, downloader=Downloader())
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
        *,
        allow_unverified: bool,
        say: Callable[[str], None],
    ) -> dict[str, dict[str, Any]]:
        """The blob id of each file, and whether it is the published one; as the manifest records
        it.

        Raises:
            DataError: a file is missing or cannot be read.
            VerificationError: a file is not the published one, and ``allow_unverified`` is false.
        """
        require(folder, names)
        result = {}
        for name in names:
            found, expected = git_blob_id(folder / name), self.blob_ids[name]
            if found != expected:
                difference = (
                    f"{folder / name} is not the published file: expected git blob {expected},"
                    f" found {found}."
                )
                if not allow_unverified:
                    raise VerificationError(
                        f"{difference} Use --allow-unverified to prepare it all the same."
                    )
                say(f"Warning: {difference} Accepted (--allow-unverified).")
            result[name] = {"git_blob": found, "verified": found == expected}
        return result


def require(folder: Path, names: Sequence[str]) -> None:
    """Raise a DataError unless ``folder`` holds all of ``names``."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder. --from takes the folder that holds {', '.join(names)}."
        )
    for name in names:
        if not (folder / name).exists():
            raise DataError(f"{folder / name} is missing. Needed there: {', '.join(names)}.")


def git_blob_id(path: Path) -> str:
    """git's name for the content of a file: SHA-1 of ``blob <size>\\0`` and the content."""
    return _digest(path, hashlib.sha1(b"blob %d\0" % _size(path), usedforsecurity=False))


def sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    return _digest(path, hashlib.sha256())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error


def _digest(path: Path, digest: Any) -> str:
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    return str(digest.hexdigest())
