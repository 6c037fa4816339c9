"""Abilities of the device that JAX computes on."""

from __future__ import annotations

from typing import TypeVar

import jax

CPU_ITERATIONS_PER_DISPATCH = 1
"""A convolution inside ``lax.scan`` runs 15 to 30 times slower on XLA's CPU backend: a known fault,
still open.
"""
ACCELERATOR_ITERATIONS_PER_DISPATCH = 8
"""Not measured. Where a step takes less than a millisecond, the host's share of each dispatch
counts.
"""

Tree = TypeVar("Tree")
"""A tree of arrays."""


def compute_capability() -> float | None:
    """Return an NVIDIA GPU's compute capability, 8.0 for the first with TF32; None elsewhere."""
    try:
        return float(getattr(jax.devices()[0], "compute_capability", ""))
    except ValueError:  # none at all, or the name of another maker's architecture
        return None


def transferred(arrays: Tree) -> Tree:
    """Return NumPy arrays as a compiled function takes them at once; wait until they are there.

    A CPU computes in the host's memory: a compiled function takes its arguments there in a tenth of
    the time that the interpreter needs to move them beforehand (0.02 instead of 0.2 ms for a batch
    of 512 links).
    """
    if jax.default_backend() == "cpu":
        return arrays
    moved: Tree = jax.block_until_ready(jax.device_put(arrays))
    return moved


def iterations_per_dispatch(asked: int) -> int:
    """Return the iterations in one call of the compiled step: ``asked``, or the backend's for 0."""
    if asked:
        return asked
    on_cpu = jax.default_backend() == "cpu"
    return CPU_ITERATIONS_PER_DISPATCH if on_cpu else ACCELERATOR_ITERATIONS_PER_DISPATCH
