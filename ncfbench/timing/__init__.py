"""Clocks and what they depend on: statistics of times and seeds, the ledger, the environment."""
