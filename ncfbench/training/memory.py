"""The memory that training needs, known before it starts."""

from __future__ import annotations

import jax
import psutil

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.distributed.layout import Layout
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.sampling.batch import Batch
from ncfbench.storage.free_space import available_memory
from ncfbench.training.state import TrainState
from ncfbench.training.step import Trainer

FLOAT_BYTES = 4
STATE_COPIES = 4
"""Arrays of each parameter on the device: itself, Adam's two moments, and its gradient."""


def require_room_for_vectors(config: RunConfig, dataset: Dataset, layout: Layout) -> None:
    """Refuse data whose free vectors and content exceed a device's memory.

    Raises:
        UsageError: they do. The encoder and the step, which need more, are not counted.
    """
    rows = [dataset.n_users, dataset.n_items if config.coupling == "regularised" else 0]
    if config.shard_tables:
        rows = [-(-count // layout.size) for count in rows]
    needed = sum(rows) * config.dimension * FLOAT_BYTES * STATE_COPIES
    needed += dataset.tokens_IxL.nbytes + dataset.lengths.nbytes
    for features in (dataset.user_features, dataset.item_features):
        needed += 0 if features is None else features.nbytes
    device = jax.local_devices()[0]
    available = (device.memory_stats() or {}).get("bytes_limit", psutil.virtual_memory().total)
    if needed > available:
        kinds = "users' and items'" if rows[1] else "users'"
        raise UsageError(
            f"The {kinds} vectors with Adam's moments and a gradient, and the content, take"
            f" {needed / 2**30:.1f} GiB, and {device.device_kind} has {available / 2**30:.1f} GiB."
            " Use a smaller --dimension, or --shard-tables on several --devices."
        )


def step_bytes(trainer: Trainer, state: TrainState, batch: Batch, content: DeviceContent) -> int:
    """Return the bytes that a step needs beside its arguments, by XLA's analysis.

    A backend without that analysis gives 0. The step is compiled once, here or where it runs.
    """
    analysis = trainer.trace(state, batch, content).lower().compile().memory_analysis()
    if analysis is None:
        return 0
    output = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return int(analysis.temp_size_in_bytes + output)


def require_memory(config: RunConfig, needed: int) -> None:
    """Refuse a step that needs more memory than is free.

    Args:
        needed: :func:`step_bytes`.

    Raises:
        UsageError: it would run out of memory.
    """
    device = jax.local_devices()[0].memory_stats() or {}
    free = available_memory()
    if "bytes_limit" in device:
        free = device["bytes_limit"] - device["bytes_in_use"]
    if needed > free:
        raise UsageError(
            f"A step of {config.encoder} with {config.sampler} and batches of"
            f" {config.batch_size:,} links needs {needed / 2**30:,.1f} GiB of memory, and"
            f" {free / 2**30:,.1f} GiB are free. Use a smaller --batch-size, --item-block to encode"
            " the items in pieces, or data prepared with a smaller --max-length."
        )
