"""Checkpoints of a run: the training state and what the tables do not hold, a file each.

``checkpoints/<iteration>.npz`` holds the arrays of the state, those of the best validated epoch's
parameters, unless these are the state's, and a JSON text. The format has checksums.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.errors import reason
from ncfbench.storage import tables
from ncfbench.training.state import Parameters, TrainState

KEPT = 2
"""Checkpoints kept."""
TOUCHED = "touched/"
"""Begins the names of the arrays of ``touched``."""
UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)
"""Errors that NumPy raises over damaged files."""


class Best(NamedTuple):
    """Parameters that a run may report: those of the epoch that is to report so far."""

    iteration: int
    parameters: Parameters
    """Arrays on the host."""


class Saved(NamedTuple):
    """A checkpoint as it is read back."""

    state: TrainState
    progress: dict[str, Any]
    best: Best | None
    """None where nothing was evaluated."""


class Checkpoints:
    """The newest checkpoints of a run in a folder, each whole or absent."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self.folder, self.say = folder, say
        with tables.storage_errors(folder):
            folder.mkdir(exist_ok=True)
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink()

    def iterations(self) -> list[int]:
        """Return the iterations that have a checkpoint, ascending."""
        return sorted(int(path.stem) for path in self.folder.glob("*.npz"))

    def path(self, iteration: int) -> Path:
        """Return the file of a checkpoint."""
        return self.folder / f"{iteration}.npz"

    def save(
        self, state: TrainState, progress: Mapping[str, Any], best: Best | None = None
    ) -> None:
        """Write a state; replace an earlier one of its iteration.

        Args:
            progress: a JSON object that is kept beside the state.

        Raises:
            DataError: it cannot be written, for instance on a full disk; older checkpoints stay.
        """
        iteration, arrays = int(state.iteration), _numbered("state", state._replace(touched={}))
        arrays |= {TOUCHED + kind: np.asarray(rows) for kind, rows in state.touched.items()}
        if best is not None:
            progress = {**progress, "best": best.iteration}
            if best.iteration != iteration:
                arrays |= _numbered("best", best.parameters)
        arrays["progress"] = np.array(json.dumps(progress))
        with tables.atomic_path(self.path(iteration)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
        for older in self.iterations()[:-KEPT]:
            self.path(older).unlink()

    def restore(self, like: TrainState) -> Saved | None:
        """Return the newest readable checkpoint, with the shapes of another state, but for
        ``touched``, which is that of the run that saved it; None without.

        Checkpoints that cannot be read are reported and removed.
        """
        for iteration in reversed(self.iterations()):
            path = self.path(iteration)
            try:
                return _read(path, like)
            except UNREADABLE as error:
                self.say(
                    f"Checkpoint {iteration} cannot be read and is removed: {reason(error)[:200]}."
                )
                path.unlink()
        return None


def _read(path: Path, like: TrainState) -> Saved:
    with path.open("rb") as opened, np.load(opened) as file:
        progress = json.loads(str(file["progress"]))
        saved = _filled("state", like._replace(touched={}), file)
        kinds = [name.removeprefix(TOUCHED) for name in file if name.startswith(TOUCHED)]
        saved = saved._replace(touched={kind: file[TOUCHED + kind] for kind in kinds})
        # Copies: the step takes over its state's memory.
        state: TrainState = jax.tree.map(jnp.array, saved)
        iteration = progress.pop("best", None)
        if iteration is None:
            return Saved(state, progress, None)
        is_saved = iteration == int(state.iteration)
        parameters = saved.parameters if is_saved else _filled("best", like.parameters, file)
    return Saved(state, progress, Best(iteration, parameters))


def _numbered(name: str, tree: Any) -> dict[str, Any]:
    return {f"{name}/{at:04d}": np.asarray(leaf) for at, leaf in enumerate(jax.tree.leaves(tree))}


def _filled(name: str, like: Any, file: Mapping[str, np.ndarray]) -> Any:
    """Return a tree of the arrays of a file, which must have the shapes of another tree's."""
    leaves, structure = jax.tree.flatten(like)
    # Views, since NumPy does not know JAX's types of 16 bits by name.
    arrays = [file[f"{name}/{at:04d}"].view(leaf.dtype) for at, leaf in enumerate(leaves)]
    if [array.shape for array in arrays] != [leaf.shape for leaf in leaves]:
        raise ValueError("an array has another shape")
    return jax.tree.unflatten(structure, arrays)
