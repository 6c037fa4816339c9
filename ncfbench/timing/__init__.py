"""Clocks, the ledger of wall time, statistics of times and seeds, the environment of times."""
