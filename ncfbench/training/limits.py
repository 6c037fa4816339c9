"""Refuse a run that its plug-ins, devices or memory rule out, before its folder is made."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.distributed.layout import Layout, make_layout
from ncfbench.errors import UsageError
from ncfbench.models.contracts import require_contracts
from ncfbench.models.tables import names_of
from ncfbench.storage.free_space import memory_limit
from ncfbench.training.optimizer import tables_by_row
from ncfbench.training.step import state_shapes


def layout_for(config: RunConfig, dataset: Dataset) -> Layout:
    """Return the layout of a run's step.

    A device holds the state, the gradient of what is not updated by row, and the content; what a
    step makes beside is not counted.

    Raises:
        UsageError: a plug-in returns another shape than it must, or devices or memory do not
            suffice.
    """
    require_contracts(config, dataset)
    layout = make_layout(config)
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
    return layout
