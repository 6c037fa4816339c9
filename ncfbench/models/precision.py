"""Refuse a precision of the training step's products that the device does not have.

The names are JAX's (``jax.default_matmul_precision``): ``float32``, ``tensorfloat32`` and
``BF16_BF16_F32``. The last two need the tensor cores of an NVIDIA GPU from Ampere on.
"""

from __future__ import annotations

import jax

from ncfbench.errors import UsageError

TENSOR_CORE_CAPABILITY = 8.0


def compute_capability() -> float:
    """Return an NVIDIA GPU's compute capability, 8.0 for the first with TF32; 0 elsewhere."""
    try:
        return float(getattr(jax.devices()[0], "compute_capability", ""))
    except ValueError:  # none at all, or the name of another maker's architecture
        return 0.0


def require(precision: str) -> None:
    """Refuse a precision that the device does not have.

    Raises:
        UsageError: TF32 or bfloat16 on a device without tensor cores for them.
    """
    if precision != "float32" and compute_capability() < TENSOR_CORE_CAPABILITY:
        raise UsageError(
            f"precision = {precision} needs an NVIDIA GPU of compute capability"
            f" {TENSOR_CORE_CAPABILITY} or more, and JAX computes on"
            f" {jax.devices()[0].device_kind} here. Use --set precision=float32."
        )
