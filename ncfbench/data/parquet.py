"""Parquet: a file, or a folder of them, whose columns are read when they are wanted."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ncfbench.data.columns import DAMAGED, Table
from ncfbench.data.files import parquet_files, visible_files
from ncfbench.errors import DataError, reason


def read_parquet(path: Path) -> Table:
    """Look at a file, or at those of a folder; folders in it such as ``year=2020`` hold a column.
    A column of several types is read as strings, and so are those of folders.

    Raises:
        DataError: a file is damaged, or has other columns than the first.
    """
    parts, warnings = [path], []
    if path.is_dir():
        parts = parquet_files(path)
        if others := [file.name for file in visible_files(path) if file not in parts]:
            warnings = [f"Warning: {path.name} has other files than .parquet, such as {others[0]}."]
    if not parts:
        raise DataError(f"{path} is a folder without a .parquet file.")
    folders = [_folder_values(part.relative_to(path)) for part in parts]
    columns = list(map(_columns, parts))
    for part, names in zip(parts, columns, strict=True):
        if {*names} != {*columns[0]}:
            raise DataError(f"{part} has other columns than {parts[0]}: {', '.join(names)}.")

    def load(name: str) -> pa.ChunkedArray:
        if name not in columns[0]:
            values = [pa.scalar(folder.get(name), pa.string()) for folder in folders]
            rows = [pq.read_metadata(part).num_rows for part in parts]
            return pa.chunked_array(list(map(pa.repeat, values, rows)))
        read = []
        for part, folder in zip(parts, folders, strict=True):
            with pq.ParquetFile(part, page_checksum_verification=True, pre_buffer=False) as file:
                read.append(file.read([name], use_threads=False).column(name))
            read[-1].validate(full=True)
            if name in folder:
                _require_value(part, name, read[-1], folder[name])
        if len({column.type for column in read}) > 1:
            for part, column in zip(parts, read, strict=True):
                _require_exact(part, name, column)
            read = [column.cast(pa.string()) for column in read]
        return pa.chunked_array([*chain(*(column.chunks for column in read))], read[0].type)

    summary = f"{len(parts)} Parquet files" if path.is_dir() else "Parquet"
    more = [name for name in dict.fromkeys(chain(*folders)) if name not in columns[0]]
    return Table(path, summary, (*columns[0], *more), load, lambda row: f"row {row + 1}", warnings)


def _columns(part: Path) -> list[str]:
    try:
        return list(pq.read_schema(part).names)
    except DAMAGED as error:
        raise DataError(f"{part} is damaged: {reason(error)}. Is the file cut off?") from error


def _folder_values(part: Path) -> dict[str, str | None]:
    """Return the values that a file's folders give, as Hive and Spark name these."""
    pairs = (map(unquote, folder.split("=", 1)) for folder in part.parts[:-1] if "=" in folder)
    return {name: None if text == "__HIVE_DEFAULT_PARTITION__" else text for name, text in pairs}


def _require_exact(part: Path, name: str, column: pa.ChunkedArray) -> None:
    """Refuse floats that have lost digits, before they become strings."""
    if pa.types.is_floating(column.type):
        digits = np.finfo(f"f{column.type.bit_width // 8}").nmant + 1
        if (pc.max(pc.abs(column.cast(pa.float64()))).as_py() or 0) >= 2**digits:
            raise DataError(
                f"{part}: {name} has floats from 2^{digits}, which have lost digits, and is of"
                " another type in other parts. Write all parts with that type."
            )


def _require_value(part: Path, name: str, column: pa.ChunkedArray, value: str | None) -> None:
    """Refuse a file's column that differs from the value that a folder gives."""
    values, wanted = column.cast(pa.string()), pa.scalar(value, pa.string())
    # As values of the column where the folder's text is one, so that 00 is 0; else as texts.
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values, wanted = column, wanted.cast(column.type)
    same = pc.is_null(values) if value is None else pc.fill_null(pc.equal(values, wanted), False)
    if (row := pc.index(same, False).as_py()) >= 0:
        raise DataError(
            f"{part}: {name} is {str(column[row].as_py())[:40]!r} in row {row + 1} of the file, and"
            f" {value!r} by its folder. Rename the folder, or leave out the file's column."
        )
