"""Tables that users bring, as their readers give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from ncfbench.errors import DataError, reason

DAMAGED = (pa.ArrowException, OSError, EOFError, MemoryError)
"""What reading a damaged file raises."""


@dataclass(frozen=True)
class Table:
    """A file of rows; make one with :func:`~ncfbench.data.table.read_table`.

    Args:
        summary: format, delimiter and compression, in a few words.
        names: names of the columns, as the file spells them.
        load: returns the values of a column.
        locate: returns how messages name a row, by its number from 0.
    """

    path: Path
    summary: str
    names: tuple[str, ...]
    load: Callable[[str], pa.ChunkedArray] = field(compare=False)
    locate: Callable[[int], str] = field(compare=False)
    warnings: Sequence[str] = ()

    def __post_init__(self) -> None:
        for index, name in enumerate(self.names):
            if name in self.names[:index]:
                raise DataError(
                    f"{self.path}, line 1: the column {name[:40]!r} is named twice. The first line"
                    " must be a header."
                )

    def __getitem__(self, name: str) -> Column:
        """Return a column: of strings where the format is text, else of the file's own types."""
        try:
            values = self.load(name)
        except DAMAGED as error:
            raise DataError(f"{self.path}: {name} is damaged: {reason(error)}.") from error
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
            values = values.cast(pa.string())
        return Column(self, name, values)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    table: Table
    name: str
    values: pa.ChunkedArray

    def refuse(self, row: int, why: str) -> NoReturn:
        """Raise a DataError about a row, by its number from 0."""
        raise DataError(f"{self.table.path}, {self.table.locate(row)}: {self.name} {why}")
