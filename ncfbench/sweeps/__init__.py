"""Grids of runs: expand, tune and forecast them, train them in turn or launch them as jobs."""
