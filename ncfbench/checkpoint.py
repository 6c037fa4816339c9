"""Checkpoints of a run (Orbax): the training state, and what the records do not hold."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ncfbench import tables
from ncfbench.step import TrainState

KEPT = 2
SPACE_FACTOR, SPACE_MARGIN = 1.5, 2**20
"""Free bytes wanted on the disk before a checkpoint: this many times its arrays, and some."""


class Checkpoints:
    """The newest checkpoints of a run, each whole or absent."""

    def __init__(self, folder: Path) -> None:
        import orbax.checkpoint as ocp

        self._ocp = ocp
        options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=False)
        with tables.storage_errors(folder):
            self._manager = ocp.CheckpointManager(folder.resolve(), options=options)

    def save(self, iteration: int, state: TrainState, progress: dict[str, Any]) -> None:
        """Keep the state after ``iteration`` steps, and a JSON object beside it; an existing one of that step stays."""
        arguments = self._ocp.args
        if iteration in self._manager.all_steps():
            return
        folder = Path(str(self._manager.directory))
        plain = _plain(state)
        with tables.storage_errors(folder):
            # Orbax meets a full disk with pages of traces from its threads; so ask before.
            if shutil.disk_usage(folder).free < SPACE_FACTOR * sum(leaf.nbytes for leaf in plain.values()) + SPACE_MARGIN:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._manager.save(
                iteration,
                args=arguments.Composite(state=arguments.StandardSave(plain), progress=arguments.JsonSave(progress)),
            )

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """The newest checkpoint that can be read; None where there is none. ``like`` gives the structure."""
        arguments = self._ocp.args
        for iteration in sorted(self._manager.all_steps(), reverse=True):
            shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), _plain(like))
            try:
                found = self._manager.restore(
                    iteration,
                    args=arguments.Composite(state=arguments.StandardRestore(shapes), progress=arguments.JsonRestore()),
                )
            except (OSError, ValueError, KeyError, TypeError):
                continue
            # Copies: the step donates its state, and must not be handed memory that Orbax still holds.
            leaves = [jnp.array(found.state[name]) for name in sorted(found.state)]
            state: TrainState = jax.tree.unflatten(jax.tree.structure(like), leaves)
            return state, dict(found.progress)
        return None

    def close(self) -> None:
        """Wait for what is being written."""
        self._manager.close()


def _plain(state: TrainState) -> dict[str, Any]:
    """The state as numbered arrays: a form that does not depend on Flax's or Optax's classes."""
    return {f"{place:04d}": leaf for place, leaf in enumerate(jax.tree.leaves(state))}
