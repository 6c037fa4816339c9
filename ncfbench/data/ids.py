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

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NoReturn

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
_PLAIN = r"^-?(0|[1-9][0-9]*)$"
_POINTED = r"^-?(0|[1-9][0-9]*)\.0+$|^-?[0-9](\.[0-9]+[eE]\+?|[eE]\+)[0-9]{1,2}$"


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
    values, kind = column.values, column.values.type
    if pa.types.is_null(kind) or pa.types.is_floating(kind):
        values = values.cast(pa.string() if pa.types.is_null(kind) else pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind)):
        column.refuse(0, f"is of type {kind}; ids are strings or whole numbers.")
    try:
        chunks = values.dictionary_encode().chunks
    except pa.ArrowException as error:
        raise DataError(
            f"{column.table.path}: the different ids of {column.name} take more than 2 GiB"
            f" ({reason(error)}). Use shorter ones."
        ) from error
    indices = [chunk.indices.fill_null(-1).to_numpy() for chunk in chunks]
    codes = np.concatenate([np.zeros(0, np.int32), *indices])

    def refuse(code: int, why: str) -> NoReturn:
        column.refuse(int(np.argmax(codes == code)), why)

    # All chunks share the dictionary of the last.
    different = chunks[-1].dictionary if chunks else pa.array([], pa.string())
    names = pc.utf8_trim_whitespace(_as_text(different, kind, refuse))
    names = pc.utf8_trim_whitespace(pc.utf8_trim(names, characters=_INVISIBLE))
    broken = pc.index(pc.match_substring_regex(names, "[\\r\\n]"), True).as_py()
    if broken >= 0:
        refuse(broken, "has more than one line. Is a quotation mark never closed?")
    is_missing = pc.is_in(names, value_set=pa.array(MISSING))
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    missing: Counter[str] = Counter()
    for index in np.flatnonzero(is_missing.to_numpy(False)):
        missing[names[int(index)].as_py()] += int(counts[index])
    missing.pop("", None)
    ids = Ids(column, codes, names, missing, not pa.types.is_string(kind))
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
    is_pointed = pc.match_substring_regex(every, _POINTED)
    pointed = every.filter(is_pointed).unique().to_pylist()
    if not pointed:
        return list(columns), []
    name, spelled = texts[0].column.name, {text: _whole(text) for text in pointed}
    other = every.filter(pc.invert(pc.or_(is_pointed, pc.match_substring_regex(every, _PLAIN))))
    if not len(other) and all(spelled.values()):
        renamed = [
            ids.renamed(pa.array([spelled.get(id_, id_) for id_ in ids.names.to_pylist()]))
            for ids in columns
        ]
        first = pointed[0]
        return renamed, [f"Ids of {name} are whole numbers: {first} counts as {spelled[first]}."]
    every_id = pa.chunked_array([ids.names for ids in columns], pa.string()).combine_chunks()
    known = pc.is_in(pa.array(spelled.values(), pa.string()), value_set=every_id).to_pylist()
    both = [text for text, is_known in zip(pointed, known, strict=True) if is_known]
    if not both:
        return list(columns), []
    odd = other[0].as_py() if len(other) else next(text for text in pointed if not spelled[text])
    return list(columns), [
        f"Warning: {len(both):,} ids of {name} are spelled in two ways, such as {both[0]} and"
        f" {spelled[both[0]]}, and count as different, since not all ids are whole numbers"
        f" ({odd[:40]!r})."
    ]


def _whole(number: str | float | Decimal) -> str | None:
    """Return a whole number without its point and exponent; None where it is not whole."""
    value = Decimal(number)
    return str(int(value)) if value == value.to_integral_value() else None


def _as_text(values: pa.Array, kind: pa.DataType, refuse: Callable[[int, str], NoReturn]) -> Any:
    """Return different values of a column as texts; null for NaN."""
    is_float = pa.types.is_floating(kind)
    if is_float or pa.types.is_decimal(kind):
        digits = np.finfo(kind.to_pandas_dtype()).nmant + 1 if is_float else 0
        exact = f" below 2^{digits}, up to which {kind} is exact" if is_float else ""
        texts: list[str | None] = []
        for code, value in enumerate(values.to_pylist()):
            is_id = value != value or not is_float or abs(value) < 2**digits
            texts.append(_whole(value) if is_id and value == value else None)
            if value == value and texts[code] is None:
                refuse(code, f"{value} is not a whole number{exact}; ids are strings or these.")
        return pa.array(texts, pa.string())
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
