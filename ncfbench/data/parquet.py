"""Parquet: a file, or a folder of them, whose columns are read when they are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
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
    names: tuple[str, ...] = ()
    folders = [_folder_values(part.relative_to(path)) for part in parts]
    for part in parts:
        try:
            columns = tuple(pq.read_schema(part).names)
        except DAMAGED as error:
            raise DataError(f"{part} is damaged: {reason(error)}. Is the file cut off?") from error
        names = names or columns
        if set(columns) != set(names):
            raise DataError(f"{part} has other columns than {parts[0]}: {', '.join(columns)}.")
    summary = f"{len(parts)} Parquet files" if path.is_dir() else "Parquet"
    of_folders = [name for name in dict.fromkeys(chain(*folders)) if name not in names]
    names = (*names, *of_folders)
    load = partial(_parquet_column, parts, folders, of_folders)
    return Table(path, summary, names, load, lambda row: f"row {row + 1}", warnings)


def _folder_values(part: Path) -> dict[str, str | None]:
    """Return the values that a file's folders give, as Hive and Spark name these."""
    pairs = (map(unquote, folder.split("=", 1)) for folder in part.parts[:-1] if "=" in folder)
    return {name: None if text == "__HIVE_DEFAULT_PARTITION__" else text for name, text in pairs}


def _parquet_column(
    parts: Sequence[Path],
    folders: Sequence[Mapping[str, str | None]],
    of_folders: Sequence[str],
    name: str,
) -> pa.ChunkedArray:
    """Return a column of some files; as strings where they store it in several types, or where it
    is one of their folders.
    """
    if name in of_folders:
        values = [pa.scalar(values.get(name), pa.string()) for values in folders]
        rows = [pq.read_metadata(part).num_rows for part in parts]
        return pa.chunked_array(list(map(pa.repeat, values, rows)))
    columns = []
    for part, of_part in zip(parts, folders, strict=True):
        with pq.ParquetFile(part, page_checksum_verification=True, pre_buffer=False) as file:
            column = file.read([name], use_threads=False).column(name)
        column.validate(full=True)
        if name in of_part:
            _require_value(part, name, column, of_part[name])
        columns.append(column)
    if len({column.type for column in columns}) > 1:
        for part, column in zip(parts, columns, strict=True):
            if not pa.types.is_floating(column.type):
                continue
            digits = np.finfo(column.type.to_pandas_dtype()).nmant + 1
            if (pc.max(pc.abs(column.cast(pa.float64()))).as_py() or 0) >= 2**digits:
                raise DataError(
                    f"{part}: {name} has floats from 2^{digits}, which have lost digits, and is of"
                    " another type in other parts. Write all parts with that type."
                )
        columns = [column.cast(pa.string()) for column in columns]
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, columns[0].type)


def _require_value(part: Path, name: str, column: pa.ChunkedArray, value: str | None) -> None:
    """Refuse a file's column that differs from the value that a folder gives."""
    values, wanted = column.cast(pa.string()), pa.scalar(value, pa.string())
    # As values of the column where the folder's text is one, so that 00 is 0; else as texts.
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values, wanted = column, wanted.cast(column.type)
    if value is None:
        differs = pc.is_valid(values)
    else:
        differs = pc.fill_null(pc.not_equal(values, wanted), True)
    if (row := pc.index(differs, True).as_py()) >= 0:
        raise DataError(
            f"{part}: {name} is {str(column[row].as_py())[:40]!r} in row {row + 1} of the file, and"
            f" {value!r} by its folder. Rename the folder, or leave out the file's column."
        )
