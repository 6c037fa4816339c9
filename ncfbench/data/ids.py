"""Ids as a source spells them, and their numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.errors import DataError, reason

MOST_PIECES = 32
"""Pieces of a column that are held before their names are merged."""


class Names:
    """A long column of names: a number per row (4 bytes), and each different name once."""

    def __init__(self) -> None:
        self._pieces: list[pa.DictionaryArray] = []

    def add(self, values: pa.StringArray) -> None:
        """Add the next rows; none is null."""
        self._pieces.append(values.dictionary_encode())
        if len(self._pieces) > MOST_PIECES:
            self._pieces = [self._merged()]

    def finish(self) -> tuple[NDArray[np.int32], pa.StringArray]:
        """Return int32[rows], and the different names in natural order."""
        if not self._pieces:
            return np.zeros(0, np.int32), pa.array([], pa.string())
        merged = self._merged()
        self._pieces = []
        order = natural_order(merged.dictionary)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank[merged.indices.to_numpy()], merged.dictionary.take(pa.array(order))

    def _merged(self) -> pa.DictionaryArray:
        try:
            return pa.chunked_array(self._pieces).unify_dictionaries().combine_chunks()
        except pa.ArrowException as error:
            raise DataError(
                f"The different ids of a column take more than 2 GiB: {reason(error)}. Use shorter"
                " ones."
            ) from error


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


def positions(names: pa.StringArray, among: pa.StringArray) -> NDArray[np.int32]:
    """Return int32[n]: the index of each name among distinct others; -1 where it is missing."""
    found: NDArray[np.int32] = pc.index_in(names, value_set=among).fill_null(-1).to_numpy()
    return found
