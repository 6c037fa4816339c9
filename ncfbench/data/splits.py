"""Which items are held out for the test and for validation."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ncfbench.errors import UsageError
from ncfbench.rng import Streams

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def split_items(
    n_items: int, test_fraction: float, validation_fraction: float, seed: int
) -> NDArray[np.uint8]:
    """Hold items out at random: a share for the test, then a share of the *remaining* items for
    validation.

    Raises:
        UsageError: a share outside 0..1, or nothing left to train on.
    """
    for name, share in (
        ("test-fraction", test_fraction),
        ("validation-fraction", validation_fraction),
    ):
        if not 0 <= share < 1:
            raise UsageError(f"{name} = {share}: it must be at least 0 and below 1.")
    order = Streams(seed).generator("split").permutation(n_items)
    return _held_out(order, test_fraction, validation_fraction)


def split_newest(
    first: NDArray[np.float64], test_fraction: float, validation_fraction: float
) -> NDArray[np.uint8]:
    """Hold the newest items out, the very newest for the test.

    Args:
        first: float64[n_items], when each item had its first link; where equal, the later item
            counts as newer.
    """
    return _held_out(np.argsort(first, kind="stable")[::-1], test_fraction, validation_fraction)


def _held_out(
    order: NDArray[np.int64], test_fraction: float, validation_fraction: float
) -> NDArray[np.uint8]:
    """uint8[n_items]: the first of ``order`` for the test, the next for validation."""
    n_items = len(order)
    n_test = round(n_items * test_fraction)
    n_validation = round((n_items - n_test) * validation_fraction)
    if n_test + n_validation >= n_items:
        raise UsageError(
            f"With {n_items} items, these fractions hold every item out. Use smaller ones."
        )
    split = np.zeros(n_items, dtype=np.uint8)
    split[order[:n_test]] = SPLITS.index("test")
    split[order[n_test : n_test + n_validation]] = SPLITS.index("validation")
    return split
