"""Files as lines of text, their digests, and members of zip archives, which are not unpacked."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import TypeAlias, cast

from ncfbench.errors import DataError, reason

File: TypeAlias = Path | zipfile.Path
"""A file of its own, or in a zip archive: ``archive.zip/name`` in messages."""
MOST_BYTES = 2**24  # of a line; a longer one is damaged, and would fill the memory
LOGS = {
    "_delta_log": "delta",
    ".hoodie": "hudi",
    "metadata": "iceberg",
    "_spark_metadata": "parquet",
}
"""The folder of a table's log, and the table's format as Spark calls it."""
_NOT_ZIP = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)
"""Errors that :mod:`zipfile` raises for a damaged, encrypted or unusually compressed archive."""


def read_lines(file: File, on_invalid: Callable[[int], object] | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their ends, without a byte order mark.

    Args:
        on_invalid: receives the number of each line that is not UTF-8; U+FFFD then replaces the
            invalid bytes. None refuses such a line.

    Raises:
        DataError: the file cannot be read or is empty, or a line is not UTF-8 or longer than
            :data:`MOST_BYTES`.
    """
    number = 0
    with _reading(file), file.open("rb") as content:
        lines = iter(partial(content.readline, MOST_BYTES + 1), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) > MOST_BYTES:
                raise DataError(
                    f"{file}, line {number}: longer than {MOST_BYTES // 2**20} MiB. Is this a text"
                    " file?"
                )
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(
                    f"{file}, line 1: this is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8"
                    f" {file.name} > new."
                )
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                if on_invalid is None:
                    byte = line[error.start]
                    raise DataError(
                        f"{file}, line {number}: byte 0x{byte:02x} is not valid UTF-8."
                    ) from error
                on_invalid(number)
                text = line.decode(errors="replace")
            yield text.removeprefix("\ufeff") if number == 1 else text
    if not number:
        raise DataError(f"{file} is empty.")


@contextmanager
def _reading(file: File) -> Iterator[None]:
    try:
        yield
    except (OSError, *_NOT_ZIP) as error:
        advice = " Is it a whole zip archive?" if isinstance(error, _NOT_ZIP) else ""
        raise DataError(f"Cannot read {file}: {reason(error)}.{advice}") from error


def git_blob_id(path: Path) -> str:
    """Return git's id of a file's content: SHA-1 of ``blob <size>\\0`` and the content."""
    with _reading(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        return hashlib.file_digest(file, lambda: start).hexdigest()


def sha256(file: File) -> str:
    """Return the SHA-256 of a file, or of the Parquet files of a folder, hexadecimal."""
    if isinstance(file, Path) and file.is_dir():
        parts = (f"{part.relative_to(file)} {sha256(part)}\n" for part in parquet_files(file))
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    with _reading(file), file.open("rb") as content:
        return hashlib.file_digest(cast(BufferedIOBase, content), "sha256").hexdigest()


def visible_files(folder: Path) -> list[Path]:
    """Return the files anywhere in a folder, by name, but those that Spark skips: with ``.`` or
    ``_`` before a name, unless it is a column such as ``_year=2020``.

    Raises:
        DataError: the folder is, holds or belongs to a table whose log says which files count; or
            it has a symbolic link to a folder.
    """
    inside = sorted(folder.rglob("*"))
    logs = [path for path in inside if path.name in LOGS]
    logs += [up / name for up in folder.resolve().parents for name in LOGS if (up / name).is_dir()]
    for log in logs:
        if (kind := LOGS[log.name]) != "iceberg" or any(log.glob("*.metadata.json*")):
            raise DataError(
                f"{folder}: {log} is the log of a table ({kind}), which says what files count."
                f" Write its rows as plain Parquet first: spark.read.format('{kind}')"
                f".load('{log.parent.name}').write.parquet('plain')."
            )
    parts = [(path, path.relative_to(folder).parts) for path in inside]
    visible = [
        path
        for path, names in parts
        if not any(name[0] == "." or (name[0] == "_" and "=" not in name) for name in names)
    ]
    if linked := [path for path in visible if path.is_symlink() and path.is_dir()]:
        raise DataError(
            f"{linked[0]} is a symbolic link to a folder, which is not followed. Put the folder"
            " itself there, or links to its files."
        )
    return [path for path in visible if path.is_file()]


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files among :func:`visible_files`."""
    return [path for path in visible_files(folder) if path.suffix.lower() == ".parquet"]


def find_members(home: Path, names: tuple[str, ...]) -> dict[str, File]:
    """Return those of the named files that are in a folder, or anywhere in a zip archive."""
    if home.is_dir():
        return {name: home / name for name in names if (home / name).exists()}
    with _reading(home), zipfile.ZipFile(home) as archive:
        inside = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    found: dict[str, File] = {}
    for name in names:
        matches = [member for member in inside if member.rsplit("/", 1)[-1] == name]
        if len(matches) > 1:
            raise DataError(f"{home} has {name} more than once: {', '.join(matches[:3])}.")
        if matches:
            found[name] = zipfile.Path(home, matches[0])
    return found
