"""Claims of a sampler about its batches: audits test them, and tables of costs print them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import SamplerInfo
from ncfbench.config import RunConfig
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
    draws_links_uniformly: bool = True
    """With replacement each positive link of a batch is any link, all alike."""
    shuffled_bias: float | None = None
    """Relative bias of the negative term when positives are shuffled over an epoch instead of drawn
    with replacement, an order of magnitude; None where it is not known.
    """
    reach: int = 0
    """How many earlier batches have links whose items a batch of an epoch has too."""
    objective: str = ""
    """The objective that the batches estimate, in words, where it is not L; empty where it is."""
    bias: str = ""
    """Why the estimate is biased on purpose; empty where it is not. An audit measures such a bias,
    says so, and does not count it as a fault.
    """
    weighs_biased: bool = False
    """The bias lies in the weights of its batches, with replacement; otherwise these are right, and
    the model makes something else of them.
    """

    def with_bias(self, reason: str) -> Claims:
        """Return the claims with one more bias, the first to be named."""
        return self._replace(bias="; ".join(filter(None, (reason, self.bias))))


def below(config: RunConfig) -> str:
    """Return the words that hard negatives have a margin, empty where they have none."""
    margin = config.sampler_settings.get("positive_margin", 0)
    return f", if these are below the positive link's by {margin:g}" if margin else ""


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
