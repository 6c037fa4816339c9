"""Ids as files spell them, and their numbers. One rule holds for every format:

- An id is a string or a whole number. The number 5 and the text ``5`` are the same id.
- ``5.0`` is 5 where it is a number (Parquet, JSON). Text, as in CSV, is compared as it stands, but
  where every id of a column, and of the columns that it is matched with, is a whole number such as
  ``5``, ``5.0``, ``1e+17`` or ``1.0E7``: programs write whole numbers so where some are missing.
- ``007`` is text, and not 7. Spaces and zero bytes around an id do not count.
- Accents are compared as they are encoded, but where ids differ in nothing else (NFC and NFD).
- Spellings of a missing value are no ids: :data:`MISSING`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.data.table import Column
from ncfbench.errors import DataError, reason

Int32 = NDArray[np.int32]
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "(NULL)", "(null)", "-1.#IND", "-1.#QNAN", "-NaN", "-nan",
    "1.#IND", "1.#QNAN", "<NA>", "<NULL>", "<null>", "N/A", "NA", "NAN", "NONE", "NULL", "NaN",
    "NaT", "None", "Null", "\\N", "n/a", "nan", "none", "null", "undefined",
)  # fmt: skip
"""Spellings of a missing id: those that pandas, databases and programs write. Nan is a name."""
_INVISIBLE = "\0\u200b\ufeff"
_WHOLE = r"^-?(0|[1-9][0-9]*)(\.0+)?$"
_EXPONENT = r"^-?[0-9](\.[0-9]+[eE]\+?|[eE]\+)[0-9]{1,2}$"


@dataclass(frozen=True)
class Ids:
    """A column of ids; make some with :func:`read_ids`.

    Args:
        codes: int32[n], indices into ``names``; -1 where an id is missing.
        names: the different ids.
        missing: the rows of each spelling of a missing id.
        are_numbers: the file stores numbers.
    """

    column: Column
    codes: Int32
    names: pa.StringArray
    missing: dict[str, int] = field(default_factory=dict)
    are_numbers: bool = False

    def renamed(self, names: pa.StringArray) -> Ids:
        """Return the same column with other names, some of which may be equal, or null."""
        encoded = names.dictionary_encode()
        # The last index is that of rows without an id.
        index = np.append(encoded.indices.fill_null(-1).to_numpy(), -1)
        return replace(self, codes=index[self.codes].astype(np.int32), names=encoded.dictionary)

    def only(self, rows: NDArray[np.bool_]) -> Ids:
        """Return some rows, and of the names those that occur there, in natural order."""
        codes = self.codes[rows]
        order = natural_order(self.names)
        order = order[np.bincount(codes, minlength=len(order))[order] > 0]
        rank = np.full(len(self.names), -1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return replace(self, codes=rank[codes], names=self.names.take(pa.array(order)))


def read_ids(*columns: Column) -> tuple[list[Ids], list[str]]:
    """Return columns that name the same things as ids, and messages about what counts as equal.

    Raises:
        DataError: a value is no id; the message names the row.
    """
    return unify([encode(column) for column in columns])


def encode(column: Column) -> Ids:
    """Return a column's ids without spaces around them, and which are missing."""
    try:
        chunks = _as_text(column).dictionary_encode().chunks
    except pa.ArrowException as error:
        raise DataError(
            f"{column.table.path}: the different ids of {column.name} take more than 2 GiB"
            f" ({reason(error)}). Use shorter ones."
        ) from error
    # All chunks share the dictionary of the last.
    dictionary = chunks[-1].dictionary if chunks else pa.array([], pa.string())
    indices = [chunk.indices.fill_null(-1).to_numpy() for chunk in chunks]
    codes = np.concatenate([np.zeros(0, np.int32), *indices])
    names = pc.utf8_trim_whitespace(dictionary)
    names = pc.utf8_trim_whitespace(pc.utf8_trim(names, characters=_INVISIBLE))
    broken = np.flatnonzero(pc.match_substring_regex(names, "[\\r\\n]").to_numpy(False))
    if len(broken):
        row = int(np.argmax(np.isin(codes, broken)))
        column.refuse(row, "has more than one line. Is a quotation mark never closed?")
    is_missing = pc.is_in(names, value_set=pa.array(MISSING))
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    missing: dict[str, int] = {}
    for index in np.flatnonzero(is_missing.to_numpy(False)):
        spelling = names[int(index)].as_py()
        missing[spelling] = missing.get(spelling, 0) + int(counts[index])
    missing.pop("", None)
    are_numbers = not pa.types.is_string(column.values.type)
    ids = Ids(column, codes, names, missing, are_numbers)
    return ids.renamed(pc.if_else(is_missing, pa.scalar(None, pa.string()), names))


def unify(columns: Sequence[Ids]) -> tuple[list[Ids], list[str]]:
    """Return columns that name the same things, by one rule for all; and messages."""
    columns, messages = _composed(columns)
    columns, more = _as_whole_numbers(columns)
    return columns, messages + more


def _composed(columns: Sequence[Ids]) -> tuple[list[Ids], list[str]]:
    """Return columns whose ids have one form of Unicode, if some differ in nothing else."""
    every = pa.chunked_array([ids.names for ids in columns], pa.string())
    if pc.all(pc.string_is_ascii(every)).as_py() in (True, None):
        return list(columns), []
    composed = pc.utf8_normalize(every, "NFC")
    if len(composed.unique()) == len(every.unique()):
        return list(columns), []
    example = pc.filter(composed, pc.not_equal(composed, every))[0].as_py()[:40]
    return [ids.renamed(pc.utf8_normalize(ids.names, "NFC")) for ids in columns], [
        f"Ids of {columns[0].column.name} that differ only in how accents are encoded (NFC or NFD)"
        f" count as one, such as {example}."
    ]


def _as_whole_numbers(columns: Sequence[Ids]) -> tuple[list[Ids], list[str]]:
    """Return columns with whole numbers in one spelling, if all ids are whole numbers."""
    texts = [ids for ids in columns if not ids.are_numbers]
    every = pa.chunked_array([ids.names for ids in texts], pa.string())
    is_pointed = pc.or_(pc.match_substring(every, "."), pc.match_substring_regex(every, _EXPONENT))
    is_whole = pc.or_(
        pc.match_substring_regex(every, _WHOLE), pc.match_substring_regex(every, _EXPONENT)
    )
    pointed = pc.filter(every, pc.and_(is_pointed, is_whole))
    if not len(pointed):
        return list(columns), []
    example, whole = pointed[0].as_py(), [_whole(text) for text in pointed.to_pylist()]
    name = texts[0].column.name
    if pc.all(is_whole).as_py() and all(whole):
        spelled = dict(zip(pointed.to_pylist(), whole, strict=True))
        renamed = [
            ids.renamed(pa.array([spelled.get(id_, id_) for id_ in ids.names.to_pylist()]))
            if not ids.are_numbers
            else ids
            for ids in columns
        ]
        return renamed, [f"Ids of {name} are whole numbers: {example} counts as {whole[0]}."]
    every_id = pa.chunked_array([ids.names for ids in columns], pa.string())
    both = pc.is_in(pa.array(whole, pa.string()), value_set=every_id.combine_chunks())
    if not (number := pc.sum(both).as_py()):
        return list(columns), []
    at = pc.index(both, True).as_py()
    other = pc.filter(every, pc.invert(is_whole))
    return list(columns), [
        f"Warning: {number:,} ids of {name} are spelled in two ways, such as"
        f" {pointed[at].as_py()} and {whole[at]}, and count as different, since not all ids are"
        f" whole numbers ({other[0].as_py()[:40] if len(other) else example!r})."
    ]


def _whole(number: str | Decimal) -> str | None:
    """Return a whole number without its point and exponent; None where it is not whole."""
    value = Decimal(number)
    return str(int(value)) if value == value.to_integral_value() else None


def _as_text(column: Column) -> pa.ChunkedArray:
    values, kind = column.values, column.values.type
    if pa.types.is_floating(kind):
        numbers = values.to_numpy().astype(np.float64)
        digits = np.finfo(kind.to_pandas_dtype()).nmant + 1
        is_id = np.isnan(numbers) | ((numbers == np.floor(numbers)) & (np.abs(numbers) < 2**digits))
        if not is_id.all():
            row = int(np.argmin(is_id))
            column.refuse(
                row,
                f"{numbers[row]} is not a whole number below 2^{digits}, up to which {kind} is"
                " exact; ids are strings or whole numbers.",
            )
        mask = np.isnan(numbers)
        integers = np.where(mask, 0, numbers).astype(np.int64)
        return pa.chunked_array([pa.array(integers, mask=mask).cast(pa.string())])
    if pa.types.is_decimal(kind):
        whole = []
        for row, value in enumerate(values.to_pylist()):
            whole.append(None if value is None else _whole(value))
            if value is not None and whole[row] is None:
                column.refuse(row, f"{value} is not a whole number.")
        return pa.chunked_array([pa.array(whole, pa.string())])
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_null(kind)):
        column.refuse(0, f"is of type {kind}; ids are strings or whole numbers.")
    return values.cast(pa.string())


def first_rows(ids: Ids) -> NDArray[np.int64]:
    """Return int64[names]: the first row of each id."""
    found = np.full(len(ids.names) + 1, len(ids.codes), np.int64)
    found[ids.codes[::-1]] = np.arange(len(ids.codes))[::-1]
    return found[:-1]


def natural_order(names: pa.StringArray) -> NDArray[np.int64]:
    """Return int64[n], which sorts distinct names: 9 before 10, ``N9`` before ``N10``, else by
    character.
    """
    parts = pc.extract_regex(names, r"^(?P<head>[^0-9]*)0*(?P<digits>[0-9]+)$")
    digits = pc.fill_null(pc.struct_field(parts, "digits"), "")
    keys = {
        "head": pc.coalesce(pc.struct_field(parts, "head"), names),
        # Without leading zeros, the longer number is the larger one.
        "length": pc.binary_length(digits),
        "digits": digits,
        "name": names,
    }
    order = pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])
    found: NDArray[np.int64] = order.to_numpy().astype(np.int64)
    return found


def positions(names: pa.StringArray, among: pa.StringArray) -> Int32:
    """Return int32[n]: the index of each name among distinct others; -1 where it is missing."""
    found: Int32 = pc.index_in(names, value_set=among).fill_null(-1).to_numpy()
    return found
