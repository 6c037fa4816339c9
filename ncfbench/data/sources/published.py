"""Files of one commit of a repository on GitHub: downloaded, and verified by git's id of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.data.files import git_blob_id
from ncfbench.errors import DataError, VerificationError, reason
from ncfbench.storage.tables import storage_errors

TIMEOUT_SECONDS = 30  # without a byte
RETRIES = 3


@dataclass(frozen=True)
class Commit:
    """A commit of 40 hexadecimal digits, and the files in it by git's id of their content."""

    repository: str
    commit: str
    blob_ids: dict[str, str]

    @property
    def url(self) -> str:
        """Address of the folder of the files."""
        return f"https://raw.githubusercontent.com/js05212/{self.repository}/{self.commit}/"

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
        files = pooch.create(
            folder, self.url, registry=dict.fromkeys(names), retry_if_failed=RETRIES
        )
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

    def verified(
        self, folder: Path, names: Iterable[str], allow_others: bool, say: Callable[[str], None]
    ) -> dict[str, dict[str, Any]]:
        """Return facts of each named file for the manifest.

        Raises:
            DataError: a file is missing.
            VerificationError: a file is not the published one, unless others are allowed.
        """
        facts = {}
        for name in names:
            path, expected = folder / name, self.blob_ids[name]
            if not path.exists():
                needed = ", ".join(names)
                raise DataError(f"{path} is missing. --from takes the folder that holds {needed}.")
            if (blob := git_blob_id(path)) != expected:
                text = f"{path} is not the published file: expected git blob {expected}, found"
                if not allow_others:
                    raise VerificationError(
                        f"{text} {blob}. Use --allow-unverified to prepare it all the same."
                    )
                say(f"Warning: {text} {blob}. Accepted (--allow-unverified).")
            facts[name] = {"git_blob": blob, "verified": blob == expected}
        return facts
