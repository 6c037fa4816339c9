"""Ids as a source spells them, and the numbers that stand for them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.errors import DataError, reason

MERGED = 32
"""Pieces of a column before their names are put together."""


class Names:
    """A long column of names, as a number for each row and each different name once: 4 bytes a row,
    and the names.
    """

    def __init__(self) -> None:
        self._pieces: list[pa.DictionaryArray] = []

    def add(self, values: pa.StringArray) -> None:
        """The next rows; none is null."""
        self._pieces.append(values.dictionary_encode())
        if len(self._pieces) > MERGED:
            self._pieces = [self._merged()]

    def finish(self) -> tuple[NDArray[np.int32], pa.StringArray]:
        """int32[rows], and the names in their natural order."""
        if not self._pieces:
            return np.zeros(0, np.int32), pa.array([], pa.string())
        merged = self._merged()
        self._pieces = []
        order = in_order(merged.dictionary)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return place[merged.indices.to_numpy()], merged.dictionary.take(pa.array(order))

    def _merged(self) -> pa.DictionaryArray:
        try:
            return pa.chunked_array(self._pieces).unify_dictionaries().combine_chunks()
        except pa.ArrowException as error:
            raise DataError(
                f"The different ids of a column take more than 2 GiB: {reason(error)}. Use shorter"
                " ones."
            ) from error


def in_order(names: pa.StringArray) -> NDArray[np.int64]:
    """int64[n]: the places of distinct names in natural order: 9 before 10, ``N9`` before ``N10``,
    else by character.
    """
    parts = pc.extract_regex(names, r"^(?P<head>[^0-9]*)0*(?P<digits>[0-9]+)$")
    digits = pc.fill_null(pc.struct_field(parts, "digits"), "")
    keys = {
        "head": pc.coalesce(pc.struct_field(parts, "head"), names),
        "length": pc.binary_length(
            digits
        ),  # without leading zeros, the longer number is the larger one
        "digits": digits,
        "name": names,
    }
    order = pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])
    found: NDArray[np.int64] = order.to_numpy().astype(np.int64)
    return found


def places(names: pa.StringArray, among: pa.StringArray) -> NDArray[np.int32]:
    """int32[n]: where each name stands among distinct others; -1 where it does not."""
    found: NDArray[np.int32] = pc.index_in(names, value_set=among).fill_null(-1).to_numpy()
    return found
