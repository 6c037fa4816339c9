"""Benchmark mini-batch sampling strategies for neural collaborative filtering."""

__version__ = "0.1.0"
