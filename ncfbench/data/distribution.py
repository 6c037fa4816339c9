"""Distribution of links or words over users or items: summary, concentration, logarithmic bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Bin:
    """The nodes with ``low`` .. ``high`` things each, and the number of their things together."""

    low: int
    high: int
    nodes: int
    total: int


@dataclass(frozen=True)
class Distribution:
    """A summary of one count per node.

    ``top_1_percent`` is the share of all things that the hundredth of the nodes with most has,
    rounded up to whole nodes. ``gini`` is half the mean difference of two nodes' counts over the
    mean count, 0 where all counts are equal. Both are None where the sum is 0. ``bins`` are 0, 1, 2
    to 3, 4 to 7, ... from the first to the last with a node; the last ends with the largest count.
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
        """Summarise whole numbers, 0 or above, one per node; None without a node.

        It takes about 40 bytes a node.
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
            # The sum of the i smallest counts, summed over i, is the area below the Lorenz curve.
            gini=(
                float((n + 1 - 2 * (upto[1:].sum(dtype=np.float64) / total)) / n) if total else None
            ),
            bins=_bins(ranked, upto),
        )


def _bins(ranked: NDArray[np.int64], upto: NDArray[np.int64]) -> tuple[Bin, ...]:
    largest = int(ranked[-1])
    lows = [0, *(2**power for power in range(largest.bit_length()))]
    highs = [*(low - 1 for low in lows[1:]), largest]
    begins = [*np.searchsorted(ranked, lows).tolist(), len(ranked)]
    bins = [
        Bin(low, high, end - begin, int(upto[end] - upto[begin]))
        for low, high, begin, end in zip(lows, highs, begins[:-1], begins[1:], strict=True)
    ]
    first = next(number for number, each in enumerate(bins) if each.nodes)
    return tuple(bins[first:])
