"""Files as lines of text, and their digests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ncfbench.errors import DataError, reason

MOST_BYTES = 2**24  # of a line; a longer one is damaged, and would fill the memory
LOGS = {
    "_delta_log": "delta",
    ".hoodie": "hudi",
    "metadata": "iceberg",
    "_spark_metadata": "parquet",
}
"""The folder of a table's log, and the table's format as Spark calls it."""


def read_lines(file: Path, on_invalid: Callable[[int], object] | None = None) -> Iterator[str]:
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
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"Cannot read {file}: {reason(error)}.") from error


def git_blob_id(path: Path) -> str:
    """Return git's id of a file's content: SHA-1 of ``blob <size>\\0`` and the content."""
    with _reading(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        return hashlib.file_digest(file, lambda: start).hexdigest()


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, or of the Parquet files of a folder, hexadecimal."""
    if file.is_dir():
        parts = (f"{part.relative_to(file)} {sha256(part)}\n" for part in parquet_files(file))
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    with _reading(file), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


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
