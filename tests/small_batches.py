"""Settings of small batches, for each sampler."""

from __future__ import annotations

from typing import Any

from ncfbench.catalog import SAMPLERS
from ncfbench.config import RunConfig, complete

NAMES = tuple(SAMPLERS)


def configure(sampler: str, **settings: Any) -> RunConfig:
    usual = {"batch_size": size_of(sampler), "stratum_size": 4, "negatives": 3, "memory": 80}
    return complete({"sampler": sampler} | usual | settings)


def size_of(sampler: str) -> int:
    """b; without duplicates, ``tiny`` has no batches of more than 30 links."""
    return 24 if sampler == "ns-distinct" else 32
