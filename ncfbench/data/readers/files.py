"""Files as streams: lines of text, digests, and members of zip archives, which are not unpacked."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import cast

from ncfbench.errors import DataError, reason

MOST_BYTES = 2**24
"""Bytes that a line may have; a longer one is damaged, and would fill the memory."""
_NOT_ZIP = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)
"""Errors that :mod:`zipfile` raises for a damaged, encrypted or unusually compressed archive."""


def read_lines(path: Path, on_invalid: Callable[[int], object] | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their ends, without a byte order mark.

    Args:
        on_invalid: receives the number of each line that is not UTF-8; U+FFFD then replaces the
            invalid bytes. None refuses such a line.

    Raises:
        DataError: the file cannot be read or is empty, or a line is not UTF-8 or longer than
            :data:`MOST_BYTES`.
    """
    with _reading(path), path.open("rb") as file:
        yield from _decoded(file, path, on_invalid)


def _decoded(
    file: BufferedIOBase, path: Path, on_invalid: Callable[[int], object] | None = None
) -> Iterator[str]:
    number = 0
    while True:
        try:
            line = file.readline(MOST_BYTES + 1)
        except (OSError, EOFError) as error:
            raise DataError(f"Cannot read {path} after line {number}: {reason(error)}.") from error
        if not line:
            break
        number += 1
        if len(line) > MOST_BYTES:
            raise DataError(
                f"{path}, line {number}: longer than {MOST_BYTES // 2**20} MiB. Is this a text"
                " file?"
            )
        if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(
                f"{path}, line 1: this is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 {path.name}"
                " > new."
            )
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            if on_invalid is None:
                byte = line[error.start]
                raise DataError(
                    f"{path}, line {number}: byte 0x{byte:02x} is not valid UTF-8."
                ) from error
            on_invalid(number)
            text = line.decode(errors="replace")
        yield text.removeprefix("\ufeff") if number == 1 else text
    if not number:
        raise DataError(f"{path} is empty.")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, *_NOT_ZIP) as error:
        advice = " Is it a whole zip archive?" if isinstance(error, _NOT_ZIP) else ""
        raise DataError(f"Cannot read {path}: {reason(error)}.{advice}") from error


def git_blob_id(path: Path) -> str:
    """Return git's id of a file's content: SHA-1 of ``blob <size>\\0`` and the content."""
    with _reading(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        return hashlib.file_digest(file, lambda: start).hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of the Parquet files of a folder, hexadecimal."""
    if path.is_dir():
        parts = (f"{part.relative_to(path)} {sha256(part)}\n" for part in parquet_files(path))
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    with _reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files anywhere in a folder, by name."""
    return sorted(folder.rglob("*.parquet"))


@dataclass(frozen=True)
class Member:
    """A file in a folder or in a zip archive.

    Args:
        home: the folder or the archive.
        name: the file's name in it; in an archive with the folders around it.
    """

    home: Path
    name: str

    @property
    def path(self) -> Path:
        """Path for messages; ``archive.zip/name`` for a member of an archive."""
        return self.home / self.name

    def lines(self) -> Iterator[str]:
        """Yield the lines like :func:`read_lines`.

        Raises:
            DataError: the file cannot be read, is damaged or empty, or a line is not UTF-8.
        """
        with self._open() as file:
            yield from _decoded(file, self.path)

    def sha256(self) -> str:
        """Return the SHA-256 of the content: the same in a folder and in an archive."""
        with self._open() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @contextmanager
    def _open(self) -> Iterator[BufferedIOBase]:
        with _reading(self.path):
            if self.home.is_dir():
                with self.path.open("rb") as file:
                    yield file
            else:
                with zipfile.ZipFile(self.home) as archive, archive.open(self.name) as member:
                    yield cast(BufferedIOBase, member)


def find_members(home: Path, names: tuple[str, ...]) -> dict[str, Member]:
    """Return those of the named files that are in a folder, or anywhere in a zip archive.

    Raises:
        DataError: the archive is damaged, or has a file twice.
    """
    if home.is_dir():
        return {name: Member(home, name) for name in names if (home / name).exists()}
    with _reading(home), zipfile.ZipFile(home) as archive:
        inside = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    found = {}
    for name in names:
        matches = [member for member in inside if member.rsplit("/", 1)[-1] == name]
        if len(matches) > 1:
            raise DataError(f"{home} has {name} more than once: {', '.join(matches[:3])}.")
        if matches:
            found[name] = Member(home, matches[0])
    return found
