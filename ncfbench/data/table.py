"""The formats of the tables that users bring: CSV, JSON Lines and Parquet."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ncfbench.data.columns import DAMAGED, Table
from ncfbench.data.csv_rows import SUFFIXES, read_csv
from ncfbench.data.files import COMPRESSIONS, require_utf8
from ncfbench.data.json_lines import read_json_lines
from ncfbench.data.parquet import read_parquet
from ncfbench.errors import DataError, reason


class Format(NamedTuple):
    """A format of tables.

    Args:
        suffixes: those of its files' names.
        begins: with what its files begin, where a suffix does not say what they are.
        read: makes a table of a path, of the content of its file, and of its suffix.
        is_text: the content is read for it, decompressed, and is UTF-8.
    """

    suffixes: tuple[str, ...]
    begins: tuple[bytes, ...]
    read: Callable[[Path, bytes, str], Table]
    is_text: bool = True


FORMATS = {
    "Parquet": Format((".parquet",), (b"PAR1",), lambda path, *_: read_parquet(path), False),
    "JSON Lines": Format((".jsonl", ".ndjson", ".json"), (b"{", b"["), read_json_lines),
    "CSV": Format(tuple(SUFFIXES), (b"",), read_csv),
}
"""A format is an entry; of those that begin alike, the first."""
_AS_CSV = "save the sheet as CSV, with its ids as text."
_UTF16 = "UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 {} > new."
REFUSED = {
    b"PK\x03\x04": f"an archive, and no table. Unpack it; of a spreadsheet, {_AS_CSV}",
    b"\xd0\xcf\x11\xe0": f"a spreadsheet: {_AS_CSV}",
    b"ARROW1": "an Arrow file. Write it as Parquet.",
    b"<": f"HTML or XML, not a table. If a spreadsheet wrote it, {_AS_CSV}",
    codecs.BOM_UTF16_LE: _UTF16,
    codecs.BOM_UTF16_BE: _UTF16,
}
"""With what files begin that are none of these, and what to do."""


def read_table(path: Path) -> Table:
    """Read a file, or a folder of Parquet files; text is UTF-8.

    Raises:
        DataError: the file is missing, empty, damaged, or of no known format.
    """
    if path.is_dir():
        return read_parquet(path)
    if not path.exists():
        raise DataError(f"Cannot read {path}: No such file or directory.")
    if not path.is_file():
        how = "must be read more than once: write it to a file first."
        raise DataError(f"{path} is a pipe or a device, and {how}")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = COMPRESSIONS.get("".join(suffixes[-1:]))
    suffix = "".join((suffixes[:-1] if compression else suffixes)[-1:])
    try:
        with pa.input_stream(str(path), compression=compression) as stream:
            content = bytes(stream.read(2**12))
            start = content.removeprefix(codecs.BOM_UTF8).lstrip()
            forms = [form for form in FORMATS.values() if suffix in form.suffixes]
            forms += [form for form in FORMATS.values() if start.startswith(form.begins)]
            form = forms[0]
            if form.is_text:
                content += bytes(stream.read())
    except DAMAGED as error:
        raise DataError(
            f"Cannot read {path}: {reason(error)}. Is the file damaged, or cut off?"
        ) from error
    if not content:
        raise DataError(f"{path} is empty.")
    if form.is_text:
        for mark, what in REFUSED.items():
            if start.startswith(mark):
                raise DataError(f"{path} is {what.format(path.name)}")
        require_utf8(path, content)
        content = content.removeprefix(codecs.BOM_UTF8)
    table = form.read(path, content, suffix)
    return replace(table, summary=f"{table.summary}, {compression}") if compression else table
