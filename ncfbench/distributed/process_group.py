"""The processes of one run as they talk at its stops: what all must decide alike, and what the
first has read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np

from ncfbench import __version__
from ncfbench.config import RunConfig
from ncfbench.errors import UsageError

Tree: TypeAlias = Any
AGREED = "all processes stop together"
"""Of an interruption that all processes take part in."""
PIECE_BYTES = 2**26
"""Of an array that passes from the first process to all others at a time."""


@dataclass(frozen=True)
class Team:
    """All processes that JAX has joined, this one among them. Every method must be called by all of
    them, in one order.
    """

    index: int
    count: int

    @classmethod
    def here(cls) -> Team:
        """As JAX knows it."""
        return cls(jax.process_index(), jax.process_count())

    @property
    def devices(self) -> int:
        """Of all processes together."""
        return jax.device_count()

    @property
    def is_first(self) -> bool:
        """Whether this process writes the records."""
        return self.index == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Each flag, true where it is true in some process."""
        if self.count == 1:
            return flags
        from jax.experimental.multihost_utils import process_allgather

        return tuple(map(bool, np.any(process_allgather(np.array(flags)), axis=0)))

    def require_alike(self, config: RunConfig, data_fingerprint: str) -> None:
        """See to it that all train the same.

        Raises:
            UsageError: settings, data or the version of this program are not those of the first
                process.
        """
        if self.count > 1:
            text = json.dumps([config.to_dict(), data_fingerprint, __version__], sort_keys=True)
            own = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
            from jax.experimental.multihost_utils import process_allgather

            digests = np.asarray(process_allgather(own))
            if different := [
                index for index, digest in enumerate(digests) if bytes(digest) != bytes(digests[0])
            ]:
                raise UsageError(
                    f"Process {', '.join(map(str, different))} has other settings, other data or"
                    " another version of ncfbench than process 0. Start all with the same command,"
                    " but for --process-id, and prepare the same data."
                )

    def from_first(self, tree: Tree) -> Tree:
        """The first process's tree of NumPy arrays; elsewhere ``tree`` gives shapes and dtypes. In
        pieces.
        """
        return tree if self.count == 1 else jax.tree.map(self._array_from_first, tree)

    def _array_from_first(self, array: Any) -> np.ndarray:
        from jax.experimental.multihost_utils import broadcast_one_to_all

        found = np.zeros(array.shape, array.dtype)
        if not array.ndim:
            return np.asarray(broadcast_one_to_all(np.asarray(array) if self.is_first else found))
        rows = max(1, int(PIECE_BYTES // max(found.nbytes / max(len(found), 1), 1)))
        for start in range(0, len(found), rows):
            piece = array[start : start + rows] if self.is_first else found[start : start + rows]
            found[start : start + rows] = broadcast_one_to_all(np.asarray(piece))
        return found
