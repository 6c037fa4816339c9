"""Settings of small batches, for each sampler."""

from ncfbench.catalog import SAMPLERS
from ncfbench.config import complete

NAMES = tuple(SAMPLERS)
SIZE = 32


def configure(sampler, **settings):
    usual = {"batch_size": SIZE, "stratum_size": 4, "negatives": 3}
    return complete({"sampler": sampler} | usual | settings)
