"""How a number of things, links or words, is spread over nodes: summary, concentration, logarithmic
bins. Pure NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Bin:
    """The nodes that have ``low`` .. ``high`` things each, and how many things these are
    together.
    """

    low: int
    high: int
    nodes: int
    total: int


@dataclass(frozen=True)
class Distribution:
    """A summary of one count for each node.

    ``top_1_percent``: the share of all things that the hundredth of the nodes with most has,
    rounded up to whole nodes. ``gini``: half the mean difference of two nodes' counts over the mean
    count, 0 where all have alike. Both are None where there is nothing to share. ``bins``: 0, 1, 2
    to 3, 4 to 7, ... from the first to the last that has a node; the last ends with the largest
    count.
    """

    nodes: int
    total: int
    smallest: int
    median: float
    mean: float
    largest: int
    top_1_percent: float | None
    top_10_percent: float | None
    gini: float | None
    bins: tuple[Bin, ...]

    @classmethod
    def of(cls, counts: NDArray[np.integer]) -> Distribution | None:
        """The distribution of whole numbers, 0 or above, one for each node; None where there is no
        node.

        Some 40 bytes of scratch a node.
        """
        n = len(counts)
        if n == 0:
            return None
        ranked = np.sort(counts).astype(np.int64)
        upto = np.concatenate([np.zeros(1, np.int64), np.cumsum(ranked)])
        total = int(upto[-1])

        def share_of_top(parts: int) -> float | None:
            return float(total - upto[n - -(-n // parts)]) / total if total else None

        return cls(
            nodes=n,
            total=total,
            smallest=int(ranked[0]),
            median=float(np.median(ranked)),
            mean=total / n,
            largest=int(ranked[-1]),
            top_1_percent=share_of_top(100),
            top_10_percent=share_of_top(10),
            # What the i poorest nodes have together, summed over i, is the area below the Lorenz
            # curve.
            gini=(
                float((n + 1 - 2 * (upto[1:].sum(dtype=np.float64) / total)) / n) if total else None
            ),
            bins=_bins(ranked, upto),
        )


def _bins(ranked: NDArray[np.int64], upto: NDArray[np.int64]) -> tuple[Bin, ...]:
    largest = int(ranked[-1])
    lows = [0, *(2**power for power in range(largest.bit_length()))]
    highs = [*(low - 1 for low in lows[1:]), largest]
    places = [*np.searchsorted(ranked, lows).tolist(), len(ranked)]
    bins = [
        Bin(low, high, end - begin, int(upto[end] - upto[begin]))
        for low, high, begin, end in zip(lows, highs, places[:-1], places[1:], strict=True)
    ]
    first = next(place for place, each in enumerate(bins) if each.nodes)
    return tuple(bins[first:])
