"""Statistics of runs: intervals, ties, speedups, curves of seeds."""
