"""The memory of a training step, known from its compiled program before it runs."""

from __future__ import annotations

from typing import Any

import jax

from ncfbench.config import RunConfig
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.sampling.batch import Batch
from ncfbench.storage.free_space import available_memory
from ncfbench.training.state import TrainState
from ncfbench.training.step import Trainer


def step_bytes(trainer: Trainer, state: TrainState, batch: Batch, content: DeviceContent) -> int:
    """Return the bytes that a step needs beside its arguments, by XLA's analysis.

    A backend without that analysis gives 0. The step is compiled once, here or where it runs.
    """
    step: Any = trainer.step
    found = step.trace(state, batch, content).lower().compile().memory_analysis()
    if found is None:
        return 0
    return int(found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes)


def require_memory(config: RunConfig, needed: int) -> None:
    """Refuse a step that would run out of memory, before it is tried.

    Args:
        needed: :func:`step_bytes`.

    Raises:
        UsageError: it is more than is free.
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
