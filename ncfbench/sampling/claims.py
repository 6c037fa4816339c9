"""Claims of a sampler about its batches: audits test them, and tables of costs print them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Nominal(NamedTuple):
    """Contents of a batch by the paper's count (KDD 2017, table 2): equal nodes count as often as
    they are named.
    """

    users: int
    items: int
    negatives: int


class Claims(NamedTuple):
    """Claims of a sampler about its batches."""

    nominal: Nominal | None
    """None where the sampler's record has none."""
    drawn_items: NDArray[np.float64] | None
    """float64[I]: the distribution of the items that it draws; None where they are not independent.
    """
    shuffled_bias: float | None = None
    """Relative bias of the negative term when positives are shuffled over an epoch instead of drawn
    with replacement, an order of magnitude; None where it is not known.
    """
    bias: str = ""
    """Why the estimate is biased on purpose; empty where it is not. An audit measures such a bias,
    says so, and does not count it as a fault.
    """
