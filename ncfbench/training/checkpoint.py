"""Checkpoints of a run: the training state (Orbax), and what the tables do not hold.

``checkpoints/<iteration>/`` holds ``state/`` (Orbax) and ``progress.json``. It is written under a
temporary name and renamed when it is complete, so that each checkpoint is whole or absent.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ncfbench.errors import DataError
from ncfbench.storage import tables
from ncfbench.training.state import TrainState

KEPT = 2
"""Checkpoints kept."""
SPACE_FACTOR, SPACE_MARGIN = 1.5, 2**20
"""Free bytes required before a checkpoint is written: a multiple of its arrays, and a margin."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, DataError)
"""Errors that Orbax and TensorStore raise over damaged files."""


class Checkpoints:
    """The newest checkpoints of a run.

    Args:
        folder: holds the checkpoints.
        say: prints a message on each checkpoint that cannot be read.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        import orbax.checkpoint as ocp

        # Orbax warns, through absl, that it merges no OCDBT parts; there are none to merge.
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.folder, self.say = folder.resolve(), say
        # One file for each array, without OCDBT, whose merging fails in folders with brackets in
        # their name. Only the first of several processes is here: it must not wait for the others.
        alone = ocp.options.MultiprocessingOptions(
            primary_host=0, active_processes={0}, barrier_sync_key_prefix="first"
        )
        options = alone if jax.process_count() > 1 else ocp.options.MultiprocessingOptions()
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, multiprocessing_options=options)
        self._orbax = ocp.Checkpointer(handler, multiprocessing_options=options)
        self._restore_arguments = ocp.checkpoint_utils.construct_restore_args
        with tables.storage_errors(folder):
            self.folder.mkdir(exist_ok=True)
            for leftover in self.folder.glob(".*"):
                shutil.rmtree(leftover, ignore_errors=True)

    def iterations(self) -> list[int]:
        """Return the iterations that have a checkpoint, ascending."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def save(self, iteration: int, state: TrainState, progress: dict[str, Any]) -> None:
        """Write the state after ``iteration`` steps; replace an earlier one of that iteration.

        Args:
            progress: a JSON object that is kept beside the state.

        Raises:
            DataError: it cannot be written, for instance because the disk is full; older
                checkpoints stay.
        """
        plain = _plain(state)
        temporary, final = self.folder / f".{iteration}", self.folder / str(iteration)
        try:
            with tables.storage_errors(self.folder):
                # On a full disk Orbax prints pages of traces from its threads; so check before.
                if (
                    shutil.disk_usage(self.folder).free
                    < SPACE_FACTOR * sum(a.nbytes for a in plain.values()) + SPACE_MARGIN
                ):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                temporary.mkdir()
                self._orbax.save(temporary / "state", plain)
                tables.write_json(temporary / "progress.json", progress)
                if final.exists():
                    shutil.rmtree(final)
                temporary.rename(final)
                tables.sync(self.folder)
        except (ValueError, RuntimeError) as error:
            raise DataError(f"Cannot write {final}: {str(error)[:200]}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for older in self.iterations()[:-KEPT]:
            shutil.rmtree(self.folder / str(older), ignore_errors=True)

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]] | None:
        """Return the newest readable checkpoint and its JSON object; None if there is none.

        Checkpoints that cannot be read are reported and removed.

        Args:
            like: a state with the shapes of the saved one.
        """
        shapes = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
            for name, leaf in _plain(like).items()
        }
        for iteration in reversed(self.iterations()):
            checkpoint = self.folder / str(iteration)
            try:
                progress = tables.read_json(checkpoint / "progress.json")
                found = self._orbax.restore(
                    checkpoint / "state", item=shapes, restore_args=self._restore_arguments(shapes)
                )
                # Copies: the step takes over its state's memory, which Orbax must not hold.
                leaves = [jnp.array(found[name]) for name in sorted(shapes)]
                if any(
                    leaf.shape != shapes[name].shape
                    for leaf, name in zip(leaves, sorted(shapes), strict=True)
                ):
                    raise ValueError("an array has another shape")
                state: TrainState = jax.tree.unflatten(jax.tree.structure(like), leaves)
                if (
                    int(state.iteration) != iteration
                    or not {"item_slots", "pending_losses"} <= progress.keys()
                ):
                    raise ValueError("it is of another iteration, or incomplete")
            except UNREADABLE as error:
                self.say(
                    f"Checkpoint {iteration} cannot be read and is removed:"
                    f" {str(error).splitlines()[0][:200]}"
                )
                shutil.rmtree(checkpoint, ignore_errors=True)
                continue
            return state, progress
        return None


def _plain(state: TrainState) -> dict[str, Any]:
    """Return the state as numbered arrays, without Flax's or Optax's classes."""
    return {f"{index:04d}": leaf for index, leaf in enumerate(jax.tree.leaves(state))}
