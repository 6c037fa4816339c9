"""Checkpoints of a run (Orbax): the training state, and what the records do not hold.

``checkpoints/<iteration>/`` holds ``state/`` (Orbax) and ``progress.json``. It is built under a
temporary name and renamed when it is complete, so that each one is whole or absent.
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
from ncfbench.training.step import TrainState

KEPT = 2
SPACE_FACTOR, SPACE_MARGIN = 1.5, 2**20
"""Free bytes wanted on the disk before a checkpoint: this many times its arrays, and some."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, DataError)
"""What Orbax and TensorStore raise over damaged files."""


class Checkpoints:
    """The newest checkpoints of a run.

    Args:
        folder: where they are kept.
        say: told of checkpoints that cannot be read.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        import orbax.checkpoint as ocp

        # Orbax warns, through absl, that it merges no OCDBT parts; there are none to merge.
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.folder, self.say = folder.resolve(), say
        # One file for each array, without OCDBT: merging its parts goes wrong in folders with
        # brackets in their name. Only the first of several processes is here: it must not wait for
        # the others.
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
        """The iterations that have a checkpoint, ascending."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def save(self, iteration: int, state: TrainState, progress: dict[str, Any]) -> None:
        """Keep the state after ``iteration`` steps, and a JSON object beside it, in place of what
        was kept of that step.

        Raises:
            DataError: it cannot be written, for instance because the disk is full; older
                checkpoints stay.
        """
        plain = _plain(state)
        temporary, final = self.folder / f".{iteration}", self.folder / str(iteration)
        try:
            with tables.storage_errors(self.folder):
                # Orbax meets a full disk with pages of traces from its threads; so ask before.
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
        """The newest checkpoint that can be read, and its JSON object; None where there is none.

        Those that cannot be read are named and removed. ``like`` gives the structure.
        """
        shapes = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
            for name, leaf in _plain(like).items()
        }
        for iteration in reversed(self.iterations()):
            place = self.folder / str(iteration)
            try:
                progress = tables.read_json(place / "progress.json")
                found = self._orbax.restore(
                    place / "state", item=shapes, restore_args=self._restore_arguments(shapes)
                )
                # Copies: the step donates its state, and must not be handed memory that Orbax still
                # holds.
                leaves = [jnp.array(found[name]) for name in sorted(shapes)]
                if any(
                    leaf.shape != shapes[name].shape
                    for leaf, name in zip(leaves, sorted(shapes), strict=True)
                ):
                    raise ValueError("an array has another shape")
                if (
                    int(leaves[-1]) != iteration
                    or not {"item_slots", "pending_losses"} <= progress.keys()
                ):
                    raise ValueError("it is of another iteration, or incomplete")
            except UNREADABLE as error:
                self.say(
                    f"Checkpoint {iteration} cannot be read and is removed:"
                    f" {str(error).splitlines()[0][:200]}"
                )
                shutil.rmtree(place, ignore_errors=True)
                continue
            state: TrainState = jax.tree.unflatten(jax.tree.structure(like), leaves)
            return state, progress
        return None


def _plain(state: TrainState) -> dict[str, Any]:
    """The state as numbered arrays, the iteration last: a form that does not depend on Flax's or
    Optax's classes.
    """
    return {f"{place:04d}": leaf for place, leaf in enumerate(jax.tree.leaves(state))}
