"""Settings of small batches, for each sampler."""

from __future__ import annotations

from typing import Any

from ncfbench.catalog import SAMPLERS
from ncfbench.config import RunConfig, complete

NAMES = tuple(SAMPLERS)
SIZE = 32


def configure(sampler: str, **settings: Any) -> RunConfig:
    usual = {"batch_size": SIZE, "stratum_size": 4, "negatives": 3}
    return complete({"sampler": sampler} | usual | settings)
