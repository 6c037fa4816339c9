"""Checkpoints of a run: the training state and what the tables do not hold, a file each.

``checkpoints/<iteration>.npz`` holds the arrays of the state and those of the reported epoch's
parameters, unless these are the state's, by their paths in the trees; a JSON text; and behind the
archive its checksum, by which a torn file is known.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr

from ncfbench.errors import DataError
from ncfbench.storage import tables
from ncfbench.training.state import Parameters, TrainState

KEPT = 2
"""Checkpoints kept."""
SEAL = b"crc32 "
"""Begins the last bytes of a file, which end with the CRC-32 of all before them."""
SEAL_BYTES = len(SEAL) + 4
BLOCK_BYTES = 2**20
"""Bytes of a file in memory while its checksum is computed."""
UNCHANGED = "Nothing was changed: make it readable, and try again."
"""Advice where the system refuses to read: no checkpoint is torn by that."""
NAMED = 3
"""Differences of a checkpoint that a message names."""


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
    """The newest checkpoints of a run in a folder, each whole or absent. Reading changes nothing.

    Args:
        say: shows which ones are skipped.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self.folder, self.say = folder, say
        self._torn: set[int] = set()
        """Iterations of those that were skipped; a writing run replaces them."""

    def iterations(self) -> list[int]:
        """Return the iterations that have a checkpoint, ascending.

        Raises:
            DataError: the folder cannot be read.
        """
        with tables.reading(self.folder, UNCHANGED):
            paths = [*self.folder.iterdir()] if self.folder.exists() else []
        names = [path.stem for path in paths if path.suffix == ".npz"]
        return sorted(int(name) for name in names if name.isdecimal())

    def path(self, iteration: int) -> Path:
        """Return the file of a checkpoint."""
        return self.folder / f"{iteration}.npz"

    def save(
        self, state: TrainState, progress: Mapping[str, Any], best: Best | None = None
    ) -> None:
        """Write a state; replace an earlier one of its iteration, and those that were skipped.

        Args:
            progress: a JSON object that is kept beside the state.

        Raises:
            DataError: it cannot be written, for instance on a full disk; older checkpoints stay.
        """
        iteration = int(state.iteration)
        document: dict[str, Any] = {"progress": progress, "arrays": _describe(state)}
        arrays: dict[str, Any] = {keystr(path): np.asarray(leaf) for path, leaf in _leaves(state)}
        if best is not None:
            document["best"] = best.iteration
            # Between two stops the state's own rows are not up to date, as the best ones are.
            is_settled = all(np.all(rows == iteration) for rows in state.touched.values())
            if best.iteration != iteration or not is_settled:
                named = _leaves(best.parameters)
                arrays |= {f"best{keystr(path)}": np.asarray(leaf) for path, leaf in named}
        arrays["document"] = np.array(json.dumps(document))
        with tables.storage_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
            for leftover in self.folder.glob(".*.tmp"):
                leftover.unlink()
        with tables.atomic_path(self.path(iteration)) as temporary, temporary.open("w+b") as file:
            np.savez(file, **arrays)
            file.write(_seal(file, file.seek(0, 2)))
        self._torn.discard(iteration)
        present = self.iterations()
        whole = [at for at in present if at <= iteration and at not in self._torn]
        with tables.storage_errors(self.folder):
            for other in {*present}.difference(whole[-KEPT:]):
                self.path(other).unlink()

    def restore(
        self, like: TrainState, put: Callable[[np.ndarray], Any] = jnp.array
    ) -> Saved | None:
        """Return the newest checkpoint that is not torn; None without. Torn ones are reported.

        Args:
            like: shapes and dtypes of the state.
            put: makes the arrays of the state, one by one, so that memory holds one state. They
                must be copies: a step takes over its state's memory.

        Raises:
            DataError: a checkpoint cannot be read, or does not fit ``like``; the message says in
                what.
        """
        for iteration in reversed(self.iterations()):
            path = self.path(iteration)
            with tables.reading(path, UNCHANGED), path.open("rb") as file:
                if _is_whole(file):
                    return _read(file, path, like, put)
            self._torn.add(iteration)
            self.say(f"Checkpoint {iteration} is damaged, and is skipped: {path}.")
        return None


def _seal(file: IO[bytes], size: int) -> bytes:
    """Return the seal of the first bytes of a file, and move behind them."""
    checksum = 0
    file.seek(0)
    while size > 0 and (block := file.read(min(size, BLOCK_BYTES))):
        checksum = zlib.crc32(block, checksum)
        size -= len(block)
    return SEAL + checksum.to_bytes(4)


def _is_whole(file: IO[bytes]) -> bool:
    """Return whether a file ends with the seal of all that is before it."""
    seal = _seal(file, file.seek(0, 2) - SEAL_BYTES)
    return file.read() == seal


def _read(
    opened: IO[bytes], path: Path, like: TrainState, put: Callable[[np.ndarray], Any]
) -> Saved:
    opened.seek(0)
    with np.load(opened) as file:
        document = json.loads(str(file["document"]))
        _require_alike(path, document["arrays"], _describe(like))
        state = jax.tree.map_with_path(
            lambda path, leaf: put(_array(file, keystr(path), leaf)), like
        )
        progress, iteration = document["progress"], document.get("best")
        if iteration is None:
            return Saved(state, progress, None)
        prefix = "best" if any(name.startswith("best") for name in file) else ".parameters"
        parameters = jax.tree.map_with_path(
            lambda path, leaf: _array(file, prefix + keystr(path), leaf), like.parameters
        )
        return Saved(state, progress, Best(iteration, parameters))


def _array(file: Mapping[str, np.ndarray], name: str, leaf: Any) -> np.ndarray:
    # A view, since NumPy does not know JAX's types of 16 bits by name.
    return file[name].view(leaf.dtype)


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_leaves_with_path(tree)


def _describe(state: TrainState) -> dict[str, str]:
    """Return dtype and shape of each array of a state by its path, the parameters' first."""
    return {
        keystr(path): f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]"
        for path, leaf in _leaves(state)
    }


def _require_alike(path: Path, saved: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Refuse a checkpoint whose arrays are not the model's, by a DataError."""
    differing = [
        f"it has no {name}"
        if name not in saved
        else f"the model has no {name}"
        if name not in wanted
        else f"{name} is {saved[name]} there and {wanted[name]} in the model"
        for name in {**wanted, **saved}
        if saved.get(name) != wanted.get(name)
    ]
    if differing:
        more = f"; and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
        raise DataError(
            f"{path} does not fit the model: {'; '.join(differing[:NAMED])}{more}. If a plug-in was"
            " edited or a library upgraded since, undo that; else train the run again: ncfbench run"
            " --again."
        )
