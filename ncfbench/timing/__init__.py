"""Clocks, the ledger of wall time, and the environment that times depend on."""
