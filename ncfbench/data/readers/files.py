"""Files as streams: lines of text, digests, and members of zip archives, which are not unpacked."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from ncfbench.errors import DataError, reason

MOST_BYTES = 2**24
"""Bytes that a line may have; a longer one is damaged, and would fill the memory."""
BYTES_AT_ONCE = 2**20
"""Bytes read at a time for a digest."""
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
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    with file:
        yield from decoded(file, path, on_invalid=on_invalid)


def decoded(
    file: BinaryIO,
    path: Path,
    encoding: str = "utf-8",
    on_invalid: Callable[[int], object] | None = None,
) -> Iterator[str]:
    """Yield the lines of an open file like :func:`read_lines`; messages call it ``path``."""
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
            text = line.decode(encoding)
        except UnicodeDecodeError as error:
            if on_invalid is None:
                name = "UTF-8" if encoding == "utf-8" else encoding
                raise DataError(
                    f"{path}, line {number}: byte 0x{line[error.start]:02x} is not valid {name}."
                ) from error
            on_invalid(number)
            text = line.decode(encoding, errors="replace")
        yield text.removeprefix("\ufeff") if number == 1 else text
    if not number:
        raise DataError(f"{path} is empty.")


def git_blob_id(path: Path) -> str:
    """Return git's id of a file's content: SHA-1 of ``blob <size>\\0`` and the content."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    return _digest(path, hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of the Parquet files of a folder, hexadecimal."""
    if path.is_dir():
        parts = (f"{part.relative_to(path)} {sha256(part)}\n" for part in parquet_files(path))
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    return _digest(path, hashlib.sha256())


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files anywhere in a folder, by name."""
    return sorted(folder.rglob("*.parquet"))


def _digest(path: Path, digest: Any) -> str:
    try:
        with path.open("rb") as file:
            return _updated(digest, file)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error


def _updated(digest: Any, file: BinaryIO) -> str:
    while piece := file.read(BYTES_AT_ONCE):
        digest.update(piece)
    return str(digest.hexdigest())


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
            yield from decoded(file, self.path)

    def sha256(self) -> str:
        """Return the SHA-256 of the content: the same in a folder and in an archive."""
        with self._open() as file:
            return _updated(hashlib.sha256(), file)

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            if self.home.is_dir():
                with self.path.open("rb") as file:
                    yield file
            else:
                with zipfile.ZipFile(self.home) as archive, archive.open(self.name) as member:
                    yield cast(BinaryIO, member)
        except OSError as error:
            raise DataError(f"Cannot read {self.path}: {reason(error)}.") from error
        except _NOT_ZIP as error:
            raise DataError(
                f"Cannot read {self.path}: {reason(error)}. Is the archive whole?"
            ) from error


def find_members(home: Path, names: tuple[str, ...]) -> dict[str, Member]:
    """Return those of the named files that are in a folder, or anywhere in a zip archive.

    Raises:
        DataError: the archive is damaged, or has a file twice.
    """
    if home.is_dir():
        return {name: Member(home, name) for name in names if (home / name).exists()}
    try:
        with zipfile.ZipFile(home) as archive:
            inside = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    except OSError as error:
        raise DataError(f"Cannot read {home}: {reason(error)}.") from error
    except _NOT_ZIP as error:
        raise DataError(
            f"Cannot read {home}: {reason(error)}. Is it a whole zip archive?"
        ) from error
    found = {}
    for name in names:
        matches = [member for member in inside if member.rsplit("/", 1)[-1] == name]
        if len(matches) > 1:
            raise DataError(f"{home} has {name} more than once: {', '.join(matches[:3])}.")
        if matches:
            found[name] = Member(home, matches[0])
    return found
