"""Parquet files in pieces of so many bytes, however long their texts are, and however small the
file is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ncfbench.data.readers import rows
from ncfbench.data.readers.files import MOST_BYTES
from ncfbench.data.readers.rows import Columns, RowFile


@dataclass(frozen=True)
class ParquetFile(RowFile):
    """A Parquet file; strings are checked to be valid UTF-8."""

    format: ClassVar[str] = "Parquet"

    def read(self, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield runs of rows with the named columns."""
        names = list(dict.fromkeys(columns))
        # Long texts that repeat stay dictionaries until a piece of rows is wanted.
        texts = [
            field.name
            for field in pq.read_schema(self.path)
            if field.name in names and pa.types.is_string(field.type)
        ]
        with pq.ParquetFile(
            self.path,
            read_dictionary=texts,
            pre_buffer=False,
            buffer_size=rows.PIECE_ROWS,
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
                    self.refuse(
                        start + int(sizes.argmax()),
                        f"longer than {MOST_BYTES // 2**20} MiB. Is this a table?",
                    )
                begin = 0
                for end in _ends(sizes):
                    yield {name: batch[name].slice(begin, end - begin) for name in names}
                    begin = end
                start += batch.num_rows


def _rows_at_a_time(metadata: pq.FileMetaData, names: Sequence[str]) -> int:
    """Return how many rows have about :data:`ncfbench.data.readers.rows.PIECE_BYTES` together."""
    most = 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(column) for column in range(group.num_columns))
        size = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            if chunk.path_in_schema.split(".")[0] in names
        )
        most = max(most, size / max(group.num_rows, 1))
    return int(np.clip(rows.PIECE_BYTES // most, 1, rows.PIECE_ROWS))


def _bytes(values: pa.Array) -> NDArray[np.int64]:
    """Return int64[n]: the bytes of each row's strings, however they are stored; 0 for others."""
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
    """Yield the ends of pieces of rows that take up to ``PIECE_BYTES``, or are a single row."""
    total, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        before = int(total[begin - 1]) if begin else 0
        begin = max(int(np.searchsorted(total, before + rows.PIECE_BYTES, side="right")), begin + 1)
        yield begin
