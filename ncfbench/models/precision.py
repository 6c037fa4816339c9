"""The precision of matrix products and convolutions, of a function and of its gradient.

``float32``
    Full float32. JAX by itself would use TF32 on an NVIDIA GPU.
``tf32``
    Operands rounded to TF32's 10 bits of mantissa, sums in float32.
``bfloat16``
    Operands rounded to bfloat16's 7 bits, sums in float32. Matrix products give float32,
    convolutions bfloat16.

The last two need the tensor cores of an NVIDIA GPU from Ampere on. Everything else is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from ncfbench.errors import UsageError

TENSOR_CORE_CAPABILITY = 8.0
BFLOAT16 = "BF16_BF16_F32"
JAX_NAMES = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": BFLOAT16}
"""JAX's names; its ``bfloat16`` is TF32 on an NVIDIA GPU."""

Function = TypeVar("Function", bound=Callable[..., Any])


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
            f"--precision {precision} needs an NVIDIA GPU of compute capability"
            f" {TENSOR_CORE_CAPABILITY} or more, and JAX computes on"
            f" {jax.devices()[0].device_kind} here. Use --precision float32."
        )


def at(precision: str, function: Function) -> Function:
    """Return ``function`` with its products at a precision, also while ``jax.jit`` traces it."""

    @wraps(function)
    def computed(*arguments: Any, **options: Any) -> Any:
        with jax.default_matmul_precision(JAX_NAMES[precision]):
            return function(*arguments, **options)

    return computed  # type: ignore[return-value]


def full(function: Function) -> Function:
    """Return ``function`` in full float32, as everything that measures quality computes."""
    return at("float32", function)


def convolve(inputs_NxLxE: jax.Array, kernel_JxExF: jax.Array) -> jax.Array:
    """Return a convolution over L with padding "SAME", float32[N, L, F], at the set precision.

    For convolutions at ``bfloat16`` JAX asks TF32 (0.10), so their operands are rounded here.
    """
    kind = inputs_NxLxE.dtype
    if jax.config.jax_default_matmul_precision == BFLOAT16:  # type: ignore[attr-defined]
        kind = jnp.dtype(jnp.bfloat16)
    product = jax.lax.conv_general_dilated(
        inputs_NxLxE.astype(kind),
        kernel_JxExF.astype(kind),
        window_strides=(1,),
        padding="SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
    return product.astype(inputs_NxLxE.dtype)
