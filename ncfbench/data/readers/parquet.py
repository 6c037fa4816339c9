"""Parquet files in pieces of so many bytes, however long their texts are and however little they
take in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ncfbench.data.readers.lines import MOST_BYTES

PIECE_BYTES = 2**24
"""Of a file read at a time."""
PIECE_ROWS = 2**16

Columns: TypeAlias = Mapping[str, pa.Array]


def pieces(
    path: Path, columns: Sequence[str], refuse: Callable[[int, str], NoReturn]
) -> Iterator[Columns]:
    """Runs of rows with the named columns, whose strings are valid UTF-8.

    Args:
        refuse: called with the number of a row, from 0, that is too long to be one.

    Raises:
        pa.ArrowException, OSError, MemoryError: the file is damaged.
    """
    names = list(dict.fromkeys(columns))
    # Long texts that repeat stay dictionaries until a piece of rows is wanted.
    texts = [
        field.name
        for field in pq.read_schema(path)
        if field.name in names and pa.types.is_string(field.type)
    ]
    with pq.ParquetFile(
        path,
        read_dictionary=texts,
        pre_buffer=False,
        buffer_size=PIECE_ROWS,
        page_checksum_verification=True,
    ) as file:
        start = 0
        for batch in file.iter_batches(
            _rows_at_a_time(file.metadata, names), columns=names, use_threads=False
        ):
            sizes = np.zeros(batch.num_rows, np.int64)
            for name in names:
                batch[name].validate(full=True)
                sizes += _bytes(batch[name])
            if sizes.max(initial=0) > MOST_BYTES:
                refuse(
                    start + int(sizes.argmax()),
                    f"longer than {MOST_BYTES // 2**20} MiB. Is this a table?",
                )
            begin = 0
            for end in _ends(sizes):
                yield {name: batch[name].slice(begin, end - begin) for name in names}
                begin = end
            start += batch.num_rows


def _rows_at_a_time(metadata: pq.FileMetaData, names: Sequence[str]) -> int:
    """So many rows that some :data:`PIECE_BYTES` of the columns are read together."""
    most = 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(place) for place in range(group.num_columns))
        size = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            if chunk.path_in_schema.split(".")[0] in names
        )
        most = max(most, size / max(group.num_rows, 1))
    return int(np.clip(PIECE_BYTES // most, 1, PIECE_ROWS))


def _bytes(values: pa.Array) -> NDArray[np.int64]:
    """int64[n]: of each row's strings, however they are stored; 0 of what is no string."""
    if pa.types.is_dictionary(values.type):
        if not len(values.dictionary):
            return np.zeros(len(values), np.int64)
        found: NDArray[np.int64] = _bytes(values.dictionary)[
            values.indices.fill_null(0).to_numpy(zero_copy_only=False)
        ]
        return found
    if (
        pa.types.is_string(values.type)
        or pa.types.is_large_string(values.type)
        or pa.types.is_string_view(values.type)
    ):
        lengths: NDArray[np.int64] = (
            pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        return lengths
    return np.zeros(len(values), np.int64)


def _ends(sizes: NDArray[np.int64]) -> Iterator[int]:
    """Where pieces of rows end that take up to :data:`PIECE_BYTES`, or are one row."""
    total, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        before = int(total[begin - 1]) if begin else 0
        begin = max(int(np.searchsorted(total, before + PIECE_BYTES, side="right")), begin + 1)
        yield begin
