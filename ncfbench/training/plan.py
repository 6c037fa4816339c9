"""Validate a run before its folder is created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed.layout import Layout, make_layout
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import UsageError
from ncfbench.models.contracts import require_contracts
from ncfbench.models.tables import names_of
from ncfbench.rng import Streams
from ncfbench.runs.quality import COMPARED, can_rank, most_ranked
from ncfbench.runs.schedule import Schedule
from ncfbench.sampling import Sampler, make_sampler
from ncfbench.storage.free_space import memory_limit
from ncfbench.timing.ledger import Ledger
from ncfbench.training.optimizer import tables_by_row
from ncfbench.training.step import state_shapes


@dataclass(frozen=True)
class RunPlan:
    """A run that can work, and what is made for it before its folder."""

    config: RunConfig
    locations: Locations
    dataset: Dataset
    sampler: Sampler
    layout: Layout
    schedule: Schedule

    @classmethod
    def of(
        cls,
        config: RunConfig,
        locations: Locations,
        *,
        dataset: Dataset | None = None,
        ledger: Ledger | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> RunPlan:
        """Open the data set, and refuse what cannot work.

        All processes of a run call it together.

        Args:
            dataset: the data set of these settings, if it is open already.
            ledger: charged with the time of loading.
            say: shows messages, for instance that the synthetic data set is made.

        Raises:
            DataError: the data set is not prepared.
            UsageError: a plug-in returns another shape than it must, the batch does not
                fit the data, the memory or devices do not suffice, or the processes differ.
        """
        if dataset is None:
            with (ledger or Ledger()).line("loading"):
                dataset = open_dataset(config.dataset, data_dir=locations.data_dir, say=say)
        require_contracts(config, dataset)
        sampler = make_sampler(dataset.graph, config, Streams(config.seed))
        is_chosen = (
            can_rank(config.encoder, dataset)
            and len(dataset.links("validation")[0]) > 0
            and most_ranked(dataset, "validation") > COMPARED
        )
        schedule = Schedule.of(config, dataset.graph.n_links, has_validation=is_chosen)
        layout = make_layout(config)
        _require_room(config, dataset)
        ProcessGroup.current().require_alike(config, dataset.fingerprint)
        return cls(config, locations, dataset, sampler, layout, schedule)


def _require_room(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a state that a device's memory cannot hold; what a step makes beside is not counted.

    It holds the state, the gradient of what is not updated by row, and the content.
    """
    shapes = state_shapes(config, dataset)
    by_row = tables_by_row(config, shapes.parameters)

    def bytes_of(tree: Any) -> int:
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    gradient = jax.tree.map_with_path(
        lambda path, leaf: None if names_of(path) in by_row else leaf, shapes.parameters
    )
    histories = 0
    if config.reads_histories:
        features = dataset.item_features if config.reads_history_features else None
        width = 0 if features is None else features.shape[1]
        histories = dataset.graph.n_links + dataset.n_users * (1 + width) + 1
    needed = bytes_of(shapes) + bytes_of(gradient) + np.dtype(np.int32).itemsize * histories
    content = dataset.tokens_IxL, dataset.lengths, dataset.item_features
    needed += sum(array.nbytes for array in content if array is not None)
    device = jax.local_devices()[0]
    available = (device.memory_stats() or {}).get("bytes_limit", memory_limit())
    if needed > available:
        raise UsageError(
            "The parameters with the optimiser's moments, their gradient and the content take"
            f" {needed / 2**30:.1f} GiB, and {device.device_kind} has {available / 2**30:.1f} GiB."
            " Use a smaller --dimension."
        )
