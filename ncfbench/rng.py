"""Named random streams: the only module in which a seed becomes randomness.

A stream is named by (seed, role, epoch), and depends on nothing that was drawn before it. So a
resumed run, another chunk size or another process sees the same batches.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Streams:
    """A family of independent NumPy generators under one seed."""

    seed: int

    def generator(self, role: str, epoch: int = 0) -> np.random.Generator:
        """Return a fresh generator at the beginning of the stream (seed, role, epoch)."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(role.encode()), epoch))
        return np.random.Generator(np.random.PCG64(sequence))
