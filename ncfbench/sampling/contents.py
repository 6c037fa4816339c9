"""Contents of the batches of each sampler: distinct users and items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ncfbench.catalog import SAMPLERS, baseline_sampler
from ncfbench.config import RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.errors import NcfbenchError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import Sampler, make_sampler
from ncfbench.sampling.batch import Batch, Listed

BATCHES = 20
"""Batches described for each sampler."""
COUNTED = ("distinct_users", "distinct_items", "encoded_items")
"""Counts of a batch."""
SHOWN_SETTINGS = (
    *("batch_size", "negatives", "stratum_size", "strata", "uniform_items", "noise", "seed"),
)


def configurations(settings: Mapping[str, Any]) -> dict[str, RunConfig | UsageError]:
    """Return complete settings for each built-in sampler, or its reason to refuse them.

    Raises:
        UsageError: all of them refuse.
    """
    configs: dict[str, RunConfig | UsageError] = {}
    for name in SAMPLERS:
        try:
            configs[name] = complete({**settings, "sampler": name})
        except UsageError as error:
            configs[name] = error
    refused = [config for config in configs.values() if isinstance(config, UsageError)]
    if len(refused) == len(configs):
        raise refused[0]
    return configs


def describe(
    dataset: Dataset, configs: Mapping[str, RunConfig | UsageError], batches: int = BATCHES
) -> dict[str, Any]:
    """Return what is in the batches of each sampler, beside the settings of one.

    A row of ``batches`` has mean distinct nodes, or the ``reason`` why there are none.
    ``fewer_items`` is IID's encoded items over the sampler's own: above 1 is less work for the item
    encoder.

    Args:
        configs: of :func:`configurations`.
        batches: how many are measured for each sampler.
    """
    rows, baseline = [], baseline_sampler(RunConfig.loss)
    for name, config in configs.items():
        row: dict[str, Any] = dict.fromkeys(("sampler", *COUNTED, "fewer_items", "reason"))
        try:
            if isinstance(config, UsageError):
                raise config
            sampler = make_sampler(dataset.graph, config, Streams(config.seed))
            row |= batch_counts(sampler, batches)
        except NcfbenchError as error:
            row["reason"] = str(error)
        rows.append(row | {"sampler": name})
    of_baseline = next((row for row in rows if row["sampler"] == baseline), {})
    for row in rows:
        if of_baseline.get("encoded_items") and row["encoded_items"]:
            row["fewer_items"] = of_baseline["encoded_items"] / row["encoded_items"]
    used = next(config for config in configs.values() if isinstance(config, RunConfig))
    settings = {name: getattr(used, name) for name in SHOWN_SETTINGS}
    return {"batch_settings": settings, "measured_batches": batches, "batches": rows}


def batch_counts(sampler: Sampler, batches: int) -> dict[str, float]:
    """Return means of :data:`COUNTED` over the first batches of the stream that a run trains on.

    ``encoded_items`` are the item slots in use, which are the distinct items where these are
    embedded once.
    """
    counts = [
        (*distinct_nodes(batch), int(batch.n_items))
        for batch in map(sampler.assemble, sampler.draw(0, batches))
    ]
    return dict(zip(COUNTED, np.mean(counts, axis=0).tolist(), strict=True))


def distinct_nodes(batch: Batch) -> tuple[int, int]:
    """Return the numbers of distinct users and items that a batch's links name.

    Masked links count: their nodes are embedded all the same.
    """
    users, negatives = [batch.users[batch.pos_user]], batch.negatives
    if isinstance(negatives, Listed):
        users.append(batch.users[negatives.user].reshape(-1))
    items = batch.items[: int(batch.n_items)]
    return len(np.unique(np.concatenate(users))), len(np.unique(items))
