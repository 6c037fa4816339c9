"""Checkpoints of a run: the training state (Orbax), and what the tables do not hold.

``checkpoints/<iteration>/`` holds ``state/`` (Orbax), ``progress.json``, and ``best/``: the
parameters of the best validated epoch so far, unless these are the state's. It is written under a
temporary name and renamed when it is complete, so that each checkpoint is whole or absent.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.errors import DataError
from ncfbench.storage import tables
from ncfbench.training.state import Parameters, TrainState

KEPT = 2
"""Checkpoints kept."""
SPACE_FACTOR, SPACE_MARGIN = 1.5, 2**20
"""Free bytes required before a checkpoint is written: a multiple of its arrays, and a margin."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, DataError)
"""Errors that Orbax and TensorStore raise over damaged files."""


class Best(NamedTuple):
    """Parameters that a run may report: those of its best validated epoch so far."""

    iteration: int
    parameters: Parameters
    """Arrays on the host."""


class Saved(NamedTuple):
    """A checkpoint as it is read back."""

    state: TrainState
    progress: dict[str, Any]
    best: Best | None
    """None where nothing was validated, or an earlier version of the program wrote it."""

    def reported(self, iteration: int | None) -> Best | None:
        """Return the parameters of the iteration that the run reports; None if it has none.

        Args:
            iteration: None for that of the state.
        """
        last = Best(int(self.state.iteration), self.state.parameters)
        found = (each for each in (last, self.best) if each and each.iteration == iteration)
        return last if iteration is None else next(found, None)


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

    def save(
        self,
        iteration: int,
        state: TrainState,
        progress: dict[str, Any],
        best: Best | None = None,
    ) -> None:
        """Write the state after ``iteration`` steps; replace an earlier one of that iteration.

        Args:
            progress: a JSON object that is kept beside the state.
            best: kept too, unless it is the state's.

        Raises:
            DataError: it cannot be written, for instance because the disk is full; older
                checkpoints stay.
        """
        trees = {"state": _plain(state)}
        if best is not None and best.iteration != iteration:
            trees["best"] = _plain(best.parameters)
        needed = sum(leaf.nbytes for tree in trees.values() for leaf in tree.values())
        temporary, final = self.folder / f".{iteration}", self.folder / str(iteration)
        try:
            with tables.storage_errors(self.folder):
                # On a full disk Orbax prints pages of traces from its threads; so check before.
                if shutil.disk_usage(self.folder).free < SPACE_FACTOR * needed + SPACE_MARGIN:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                temporary.mkdir()
                for name, tree in trees.items():
                    self._orbax.save(temporary / name, tree)
                own = progress if best is None else progress | {"best": best.iteration}
                tables.write_json(temporary / "progress.json", own)
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

    def restore(self, like: TrainState) -> Saved | None:
        """Return the newest readable checkpoint; None if there is none.

        Checkpoints that cannot be read are reported and removed.

        Args:
            like: a state with the shapes of the saved one.
        """
        for iteration in reversed(self.iterations()):
            checkpoint = self.folder / str(iteration)
            try:
                progress = tables.read_json(checkpoint / "progress.json")
                state: TrainState = self._read(checkpoint / "state", like)
                if (
                    int(state.iteration) != iteration
                    or not {"item_slots", "pending_losses"} <= progress.keys()
                ):
                    raise ValueError("it is of another iteration, or incomplete")
                best = progress.pop("best", None)
                if best is not None:
                    own = (
                        state.parameters
                        if best == iteration
                        else self._read(checkpoint / "best", like.parameters)
                    )
                    best = Best(best, jax.tree.map(np.array, own))
            except UNREADABLE as error:
                self.say(
                    f"Checkpoint {iteration} cannot be read and is removed:"
                    f" {str(error).splitlines()[0][:200]}"
                )
                shutil.rmtree(checkpoint, ignore_errors=True)
                continue
            return Saved(state, progress, best)
        return None

    def _read(self, folder: Path, like: Any) -> Any:
        """Read a tree of arrays of the shapes of another one.

        Raises:
            ValueError: an array has another shape; Orbax raises more (:data:`UNREADABLE`).
        """
        wanted = _plain(like)
        shapes = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in wanted.items()
        }
        arguments = self._restore_arguments(shapes)
        found = self._orbax.restore(folder, item=shapes, restore_args=arguments)
        # Copies: the step takes over its state's memory, which Orbax must not hold.
        leaves = [jnp.array(found[name]) for name in sorted(shapes)]
        if [leaf.shape for leaf in leaves] != [shapes[name].shape for name in sorted(shapes)]:
            raise ValueError("an array has another shape")
        return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _plain(tree: Any) -> dict[str, Any]:
    """Return a tree as numbered arrays, without Flax's or Optax's classes."""
    return {f"{index:04d}": leaf for index, leaf in enumerate(jax.tree.leaves(tree))}
