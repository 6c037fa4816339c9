"""Claims of a sampler about its batches: audits test them, and tables of costs print them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import SamplerInfo
from ncfbench.errors import UsageError


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
    """None where the sampler's record has no ``symbols``."""
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


def nominal(info: SamplerInfo, strata: str, letters: Mapping[str, int]) -> Nominal | None:
    """Return the values of a record's ``symbols``: b(1+k) is 8 with b = 2 and k = 3."""
    negatives, users, items, *_ = info.with_strata(strata).symbols
    if "-" in (users, items):
        return None
    return Nominal(*(_value(symbol, letters) for symbol in (users, items, negatives)))


def _value(symbol: str, letters: Mapping[str, int]) -> int:
    python = symbol.replace("k'", "K").replace("^", "**").replace("/", "//")
    with_products = re.sub(r"(?<=[\w)])(?=[A-Za-z(])", "*", python)
    try:
        return int(eval(with_products, {}, dict(letters)))
    except (NameError, SyntaxError, TypeError, ArithmeticError) as error:
        raise UsageError(
            f"symbols: {symbol!r} of a sampler's record is no formula of {', '.join(letters)}."
        ) from error
