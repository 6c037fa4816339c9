"""Files of one commit of a repository on GitHub: downloaded, and verified by git's id of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ncfbench.config import cache_dir
from ncfbench.data.content import Content
from ncfbench.data.files import git_blob_id
from ncfbench.data.options import TokenizerOptions, option
from ncfbench.data.sources import Preparation, Progress, Statistics
from ncfbench.errors import DataError, VerificationError, reason
from ncfbench.storage import locks
from ncfbench.storage.tables import storage_errors

TIMEOUT_SECONDS = 30
"""Seconds without a byte after which a download has failed."""
RETRIES = 3


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(TokenizerOptions, ABC):
    """Options that say where published files come from, and what is made of them."""

    from_: Path | None = option(
        None,
        "A folder with the published files, instead of a download.",
        is_stored=False,
    )
    allow_unverified: bool = option(
        False,
        "Accept files that are not the published ones.",
        is_stored=False,
    )
    url: str | None = option(None, "Download from a mirror.", is_stored=False)

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """The files whose content these options use."""

    @abstractmethod
    def read(self, folder: Path, say: Callable[[str], None]) -> Content:
        """Parse the files in a folder."""


@dataclass(frozen=True)
class Published:
    """A source of data, see :class:`ncfbench.data.sources.SourceModule`: the files of one commit.

    Args:
        repository: its name.
        commit: 40 hexadecimal digits.
        blob_ids: git's id of the content of each file.
    """

    repository: str
    commit: str
    blob_ids: Mapping[str, str]
    Options: type[Any]
    STATISTICS: Statistics | None = None

    @property
    def url(self) -> str:
        """Address of the folder of the files."""
        return f"https://raw.githubusercontent.com/js05212/{self.repository}/{self.commit}/"

    def plan(
        self,
        options: PublishedOptions,
        *,
        say: Callable[[str], None],
        progress: Progress = nullcontext,
    ) -> Preparation:
        """Download the files, unless ``--from`` names their folder, and verify them.

        Raises:
            DataError: a file is missing, or a download failed.
            VerificationError: a file is not the published one, and that is not allowed.
        """
        folder = options.from_
        if folder is None:
            folder = cache_dir() / self.repository / self.commit[:12]
            # A second process waits, and then finds the files.
            with locks.held(folder, "downloading into", wait=say), progress() as bar:
                self.download(folder, options.files, options.url, bar)
        files = {name: self._verified(folder, name, options, say) for name in options.files}
        origin = {"commit": self.commit, "files": files, **options.tokenizer_origin()}
        return Preparation(origin, options.stored(), partial(options.read, folder, say))

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

        site = (base_url or self.url).rstrip("/") + "/"
        pooch.get_logger().setLevel("ERROR")
        files = pooch.create(folder, site, registry=dict.fromkeys(names), retry_if_failed=RETRIES)
        for name in names:
            with storage_errors(folder / name):
                if (folder / name).is_file() and git_blob_id(folder / name) == self.blob_ids[name]:
                    continue
                (folder / name).unlink(missing_ok=True)
            try:
                files.fetch(name, downloader=fetch)
            except (requests.exceptions.RequestException, OSError) as error:
                raise DataError(
                    f"Could not download {site}{name}: {reason(error)}. Check the connection and"
                    " run the command again, or fetch the files yourself and use --from DIR."
                ) from error
            except ValueError as error:
                raise VerificationError(
                    f"{name} from {site} is not the published file: {reason(error)}."
                ) from error

    def _verified(
        self, folder: Path, name: str, options: PublishedOptions, say: Callable[[str], None]
    ) -> dict[str, Any]:
        """Return the blob id of a file, and whether it is the published one."""
        path, expected = folder / name, self.blob_ids[name]
        if not path.exists():
            needed = ", ".join(options.files)
            raise DataError(f"{path} is missing. --from takes the folder that holds {needed}.")
        blob = git_blob_id(path)
        if blob != expected:
            difference = (
                f"{path} is not the published file: expected git blob {expected}, found {blob}."
            )
            if not options.allow_unverified:
                raise VerificationError(
                    f"{difference} Use --allow-unverified to prepare it all the same."
                )
            say(f"Warning: {difference} Accepted (--allow-unverified).")
        return {"git_blob": blob, "verified": blob == expected}
