"""Grids of runs: expanded, tuned, forecast, trained in turn, launched on a cluster."""
