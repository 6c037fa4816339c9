"""Mini-batch samplers in pure NumPy: which nodes a batch embeds, and which links join them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ncfbench.catalog import find_sampler
from ncfbench.config import RunConfig
from ncfbench.config.checks import batch_unit
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import DataError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import PILOT_SEED, Draw, Sampler
from ncfbench.sampling.batch import Batch, rounded_up

__all__ = ["Draw", "Sampler", "batches", "make_sampler", "plan_capacity"]

PILOT_BATCHES = 400
"""Batches of the pilot that plans the item slots: an epoch of CiteULike, and enough to estimate the
spread on larger data.
"""
SLOT_MULTIPLE = 8


def make_sampler(
    graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
) -> Sampler:
    """Build the sampler that ``config`` names, bound to a graph and a seed.

    Raises:
        DataError: every user has every item, so that there is no negative link.
        UsageError: the batch does not fit the graph.
    """
    users, items = int(np.count_nonzero(graph.user_degrees)), len(graph.items_in_use)
    if graph.n_links == users * items:
        raise DataError(
            f"No negative link exists: the training links join each of {users:,} users with each of"
            f" {items:,} items. Prepare data in which some user has no link with some item."
        )
    if config.batch_size > graph.n_links:
        raise UsageError(
            f"batch_size = {config.batch_size} is larger than the {graph.n_links:,} training links."
            f" Use {_smaller_batch(config, graph.n_links)}."
        )
    sampler: Sampler = find_sampler(config.sampler).load()(graph, config, streams, **options)
    return sampler


def _smaller_batch(config: RunConfig, n_links: int) -> str:
    unit, least = batch_unit(config.to_dict(), find_sampler(config.sampler))
    if least <= n_links:
        return f"--batch-size {n_links // unit * unit} or less"
    smallest = {"devices": 1, "stratum_size": 1}
    fewer = [
        " ".join(config.settings[name].arguments(value))
        for name, value in smallest.items()
        if getattr(config, name) != value
    ]
    return " ".join([*fewer, f"--batch-size {n_links}"])


def batches(
    graph: BipartiteGraph, config: RunConfig, streams: Streams, start: int = 0
) -> Iterator[Batch]:
    """Yield batches ``start``, ``start + 1``, ... of the configured sampler without end."""
    return make_sampler(graph, config, streams).batches(start, plan_capacity(graph, config))


def plan_capacity(graph: BipartiteGraph, config: RunConfig) -> int:
    """Return the item slots that a run's batches need: the largest count of a pilot epoch, or its
    mean plus four standard deviations.

    It depends on the graph and the settings only, not on the seed, so that all seeds do the same
    work.
    """
    pilot = make_sampler(graph, config, Streams(PILOT_SEED))
    count = min(PILOT_BATCHES, math.ceil(graph.n_links / config.batch_size))
    sizes = np.array([pilot.required_capacity(draw) for draw in pilot.draws(0, count)])
    largest = int(sizes.max())
    wanted = max(largest, math.ceil(float(sizes.mean()) + 4 * float(sizes.std())))
    most = max(largest, len(graph.items_in_use))
    return rounded_up(min(rounded_up(wanted, SLOT_MULTIPLE), most), config.devices)
