"""Explicit negatives of users' own data: pairs that were shown and not chosen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.sources.custom_options import Options
from ncfbench.data.table import Column
from ncfbench.data.values import are_false, at_most


def are_negative(columns: Mapping[str, Column], options: Options) -> NDArray[np.bool_]:
    """Return bool[rows of the links]: which rows are explicit negatives, as the options say.

    Raises:
        DataError: the column holds something else than marks.
    """
    if options.negative_column is not None:
        return are_false(columns["negative"], "is neither 0 (shown and not chosen) nor 1.")
    if options.negative_threshold is not None:
        return at_most(columns["rating"], options.negative_threshold)
    return np.zeros(len(columns["user"].values), bool)
