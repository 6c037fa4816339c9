"""Ids as files spell them, by the rule for every format in docs/data.md, and their numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.data.columns import Column
from ncfbench.errors import DataError, reason

Int32 = NDArray[np.int32]
MISSING = ("", "<NA>", "NA", "NULL", "NaN", "None", "\\N", "nan", "null")
"""Spellings of a missing id: those that pandas, R, databases and Python write. Nan is a name."""
_AROUND = r"^[\p{Z}\p{Cc}\x{FEFF}]+|[\p{Z}\p{Cc}\x{FEFF}]+$"
_LONG_FLOAT = r"^[+-]?([0-9]{16,}\.[0-9]*|[0-9]+(\.[0-9]*[eE]\+?|[eE]\+)[0-9]{1,3})$"
_PLAIN = r"^-?(0|[1-9][0-9]*)$"
_POINTED = r"^-?(0|[1-9][0-9]*)\.0+$|^-?[0-9](\.[0-9]+[eE]\+?|[eE]\+)[0-9]{1,2}$"


@dataclass(frozen=True)
class Ids:
    """A column of ids; make some with :func:`encode`.

    Args:
        codes: int32[n], indices into ``names``; -1 where an id is missing.
        names: the different ids, in the order in which they occur.
        missing: the rows of each spelling of a missing id.
    """

    column: Column
    codes: Int32
    names: pa.StringArray
    missing: Counter[str]

    def renamed(self, names: pa.StringArray) -> Ids:
        """Return the same column with other names, some of which may be equal, or null."""
        encoded = names.dictionary_encode()
        # The last index is that of rows without an id.
        index = np.append(encoded.indices.fill_null(-1).to_numpy(), -1)
        return replace(self, codes=index[self.codes].astype(np.int32), names=encoded.dictionary)

    def in_natural_order(self) -> Ids:
        """Return the same column with its names sorted by :func:`natural_order`."""
        order = natural_order(self.names)
        index = np.append(np.argsort(order), -1).astype(np.int32)
        return replace(self, codes=index[self.codes], names=self.names.take(pa.array(order)))

    def first_rows(self) -> NDArray[np.int64]:
        """Return int64[names]: the first row of each id."""
        codes, rows = np.unique(self.codes, return_index=True)
        return rows[codes >= 0]


def encode(column: Column) -> Ids:
    """Return a column's ids without spaces around them; a DataError names the row of others."""
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
    # All chunks share the dictionary of the last.
    different = chunks[-1].dictionary if chunks else pa.array([], pa.string())
    names = _as_text(different, column, codes)
    names = pc.replace_substring_regex(names, _AROUND, "")
    _require_exact(names, column, codes)
    broken = pc.index(pc.match_substring_regex(names, "[\\r\\n]"), True).as_py()
    if broken >= 0:
        row = int(np.argmax(codes == broken))
        column.refuse(row, "has more than one line. Is a quotation mark never closed?")
    is_missing = pc.is_in(names, value_set=pa.array(MISSING))
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    missing: Counter[str] = Counter()
    for index in np.flatnonzero(is_missing.to_numpy(False)):
        missing[names[int(index)].as_py()] += int(counts[index])
    missing.pop("", None)
    ids = Ids(column, codes, names, missing)
    return ids.renamed(pc.if_else(is_missing, pa.scalar(None, pa.string()), names))


def _require_exact(names: pa.StringArray, column: Column, codes: Int32) -> None:
    """Refuse the first id that is a whole number from 2^53 spelled as a float."""
    matches = pc.fill_null(pc.match_substring_regex(names, _LONG_FLOAT), False)
    for index in np.flatnonzero(matches.to_numpy(False)):
        if (whole := _whole(names[int(index)].as_py())) and abs(int(whole)) >= 2**53:
            column.refuse(
                int(np.argmax(codes == index)),
                f"{names[int(index)]} is a float of 2^53 or more, which has lost digits. Export the"
                " ids as text.",
            )


def _as_text(different: pa.Array, column: Column, codes: Int32) -> pa.StringArray:
    """Return the different values of a column as texts; null for NaN."""
    kind = column.values.type
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return different.cast(pa.string())
    limit, exact = math.inf, ""
    if pa.types.is_floating(kind):
        digits = np.finfo(f"f{kind.bit_width // 8}").nmant + 1
        limit, exact = 2**digits, f" below 2^{digits}, up to which {kind} is exact"
    texts = []
    for code, value in enumerate(different.to_pylist()):
        text = _whole(value) if value == value and abs(value) < limit else None
        if text is None and value == value:
            row = int(np.argmax(codes == code))
            advice = "ids are strings or these. Export the ids as text."
            column.refuse(row, f"{value} is not a whole number{exact}; {advice}")
        texts.append(text)
    return pa.array(texts, pa.string())


def _whole(number: str | float | Decimal) -> str | None:
    """Return a whole number without its point and exponent; None where it is not whole."""
    value = Decimal(number)
    return str(int(value)) if value == value.to_integral_value() else None


def unify(columns: Sequence[Ids], say: Callable[[str], None]) -> list[Ids]:
    """Return columns that name the same things, by one rule for all; say what counts as equal."""
    texts = [ids for ids in columns if pa.types.is_string(ids.column.values.type)]
    names = pa.chunked_array([ids.names for ids in texts], pa.string())
    is_pointed = pc.match_substring_regex(names, _POINTED)
    spelled = {text: _whole(text) for text in names.filter(is_pointed).unique().to_pylist()}
    if not spelled:
        return list(columns)
    is_plain = pc.match_substring_regex(names, _PLAIN)
    odd = names.filter(pc.invert(pc.or_(is_pointed, is_plain)))[:1].to_pylist()
    odd += [text for text, whole in spelled.items() if not whole]
    if not odd:
        example, whole = next(iter(spelled.items()))
        say(f"Ids of {texts[0].column.name} are whole numbers: {example} counts as {whole}.")
        return [
            ids.renamed(pa.array([spelled.get(id_, id_) for id_ in ids.names.to_pylist()]))
            for ids in columns
        ]
    known = {name for ids in columns for name in ids.names.to_pylist()}
    if both := [text for text, whole in spelled.items() if whole in known]:
        say(
            f"Warning: {len(both):,} ids of {texts[0].column.name} are spelled in two ways, such as"
            f" {both[0]} and {spelled[both[0]]}, and count as different, since not all ids are"
            f" whole numbers ({odd[0][:40]!r})."
        )
    return list(columns)


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
    return np.asarray(order.to_numpy().astype(np.int64))


def positions(names: pa.StringArray, among: pa.StringArray) -> Int32:
    """Return int32[n]: the index of each name among distinct others; -1 where it is missing."""
    return np.asarray(pc.index_in(names, value_set=among).fill_null(-1).to_numpy())
