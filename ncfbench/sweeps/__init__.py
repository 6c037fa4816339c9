"""Grids of runs: expand them, and train their cells in turn."""
