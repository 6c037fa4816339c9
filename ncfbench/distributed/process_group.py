"""The process group of a run: decisions that all processes make alike, and data from the first."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from ncfbench import __version__
from ncfbench.config import RunConfig
from ncfbench.errors import UsageError

Tree: TypeAlias = Any
BLOCK_BYTES = 2**26
"""Bytes of an array that the first process sends to the others at a time."""


class AgreedInterrupt(KeyboardInterrupt):
    """An interrupt that every process of the group raises at the same point.

    Args:
        folder: of the run, which was saved; None in processes that write nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        where = "" if folder is None else f"the run so far is in {folder}; it can be resumed"
        super().__init__(where)
        self.folder = folder


class UnlikeProcessesError(UsageError):
    """Processes that would train something else; every process of the group raises it."""


@dataclass(frozen=True)
class ProcessGroup:
    """All processes that JAX has joined.

    Every method is a collective operation: all processes must call it, in the same order.
    """

    index: int
    """This process; the first has index 0."""
    count: int

    @classmethod
    def current(cls) -> ProcessGroup:
        """Return the current JAX process group; a process that joined none is a group of one."""
        return cls(jax.process_index(), jax.process_count())

    @property
    def devices(self) -> int:
        """Devices of all processes together."""
        return jax.device_count()

    @property
    def is_first(self) -> bool:
        """True in the process that writes the records."""
        return self.index == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return each flag as true if it is true in at least one process."""
        if self.count == 1:
            return flags
        from jax.experimental.multihost_utils import process_allgather

        return tuple(map(bool, np.any(process_allgather(np.array(flags)), axis=0)))

    def require_alike(self, config: RunConfig, data_fingerprint: str) -> None:
        """Refuse processes that would train something else.

        Raises:
            UnlikeProcessesError: settings, data or the version of this program differ from those
                of the first process.
        """
        if self.count > 1:
            text = json.dumps([config.to_dict(), data_fingerprint, __version__], sort_keys=True)
            own = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
            from jax.experimental.multihost_utils import process_allgather

            digests = np.asarray(process_allgather(own))
            if different := [
                index for index, digest in enumerate(digests) if bytes(digest) != bytes(digests[0])
            ]:
                raise UnlikeProcessesError(
                    f"Process {', '.join(map(str, different))} has other settings, other data or"
                    " another version of ncfbench than process 0. Start all with the same command,"
                    " but for --process-id, and prepare the same data."
                )

    def from_first(self, tree: Tree) -> Tree:
        """Return the first process's tree of NumPy arrays in every process.

        Args:
            tree: the arrays; in other processes anything with their shapes and dtypes.
        """
        return tree if self.count == 1 else jax.tree.map(self._array_from_first, tree)

    def _array_from_first(self, array: Any) -> np.ndarray:
        from jax.experimental.multihost_utils import broadcast_one_to_all

        found = np.zeros(array.shape, array.dtype)
        if not array.ndim:
            return np.asarray(broadcast_one_to_all(np.asarray(array) if self.is_first else found))
        rows = max(1, int(BLOCK_BYTES // max(found.nbytes / max(len(found), 1), 1)))
        for start in range(0, len(found), rows):
            block = array[start : start + rows] if self.is_first else found[start : start + rows]
            found[start : start + rows] = broadcast_one_to_all(np.asarray(block))
        return found
