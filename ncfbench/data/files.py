"""Files as lines of text, and their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

from ncfbench.errors import DataError
from ncfbench.storage.tables import reading

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Compressions by the suffixes that mean them."""
LOGS = {
    "_delta_log": "delta",
    ".hoodie": "hudi",
    "metadata": "iceberg",
    "_spark_metadata": "parquet",
}
"""The folder of a table's log, and the table's format as Spark calls it."""


def read_lines(file: Path, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their ends, without a byte order mark.

    Args:
        errors: ``replace`` reads bytes that are not UTF-8 as U+FFFD; else they are refused.

    Raises:
        DataError: the file cannot be read or is empty, or a line is not UTF-8.
    """
    with reading(file):
        content = file.read_bytes()
    if not content:
        raise DataError(f"{file} is empty.")
    if errors == "strict":
        require_utf8(file, content)
    return iter(TextIOWrapper(BytesIO(content), "utf-8-sig", errors, newline="\n"))


def require_utf8(file: Path, content: bytes) -> None:
    """Refuse bytes that are not UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise DataError(
            f"{file}, line {line}: byte 0x{byte:02x} is not valid UTF-8. Convert the file: iconv -f"
            f" LATIN1 -t UTF-8 {file.name} > new, for example; or, if it is compressed, name it by"
            f" its suffix: {', '.join(COMPRESSIONS)}."
        ) from error


def git_blob_id(file: Path) -> str:
    """Return git's id of a file's content: SHA-1 of ``blob <size>\\0`` and the content."""
    with reading(file):
        content = file.read_bytes()
    blob = b"blob %d\0" % len(content) + content
    return hashlib.sha1(blob, usedforsecurity=False).hexdigest()


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, or of the Parquet files of a folder, hexadecimal."""
    if file.is_dir():
        parts = (f"{part.relative_to(file)} {sha256(part)}\n" for part in parquet_files(file))
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    with reading(file), file.open("rb") as content:
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
