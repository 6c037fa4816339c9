"""The benchmark of optimisers, on small tables."""

from __future__ import annotations

import bench_optimizers as bench
import pytest


def test_ratios_are_over_the_quickest_of_the_smallest() -> None:
    """Of two rounds each: 20 rows take 2 ms whole and 4 ms by row, 1,000 take 6 ms by row."""
    seconds = {"adam 20": [0.002, 0.002], "row-adam 20": [0.004, 0.004]}
    cell = {"cell": "users", "seconds": seconds | {"row-adam 1000": [0.005, 0.007]}}
    small, large = bench.rows_of(cell)
    assert (small["rows"], small["adam"], small["ratio"]) == (20, 2.0, 2.0)
    assert (large["rows"], large["adam"], large["range"]) == (1000, None, (5.0, 7.0))
    assert large["ratio"] == pytest.approx(3.0)
    assert bench.Optimizers().missed([cell]) == [
        "20 users: 2.00 times the smallest",
        "1,000 users: 3.00 times the smallest",
    ]
