"""The precision of products: matrix products and convolutions, of a function and of its gradient.

``float32``
    Full float32. JAX by itself would use TF32 on an NVIDIA GPU.
``tf32``
    Operands rounded to TF32's 10 bits of mantissa, sums in float32: tensor cores of NVIDIA GPUs
    from Ampere on.
``bfloat16``
    Operands rounded to bfloat16's 7 bits. Matrix products add up and give float32; convolutions add
    up in float32 and give bfloat16, for cuDNN's give what they take. cuDNN's LSTM, which JAX has
    for float32 only, computes in TF32. A CPU rounds in the same places and multiplies float32: the
    same numbers, and no faster.

Everything else, such as sums, losses, parameters and the optimiser, is float32 always. So are
products of vectors that are written as sums of element-wise products, as the scores of listed links
are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend import core

from ncfbench.errors import UsageError
from ncfbench.models.device import compute_capability

TF32_CAPABILITY = 8.0
JAX_NAMES = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "tensorfloat32"}
"""What JAX calls the precision of the products that are not rounded to bfloat16."""
PRODUCTS = {"dot_general": jnp.float32, "conv_general_dilated": jnp.bfloat16}
"""JAX's primitives, and what they give for operands of bfloat16."""

Function = TypeVar("Function", bound=Callable[..., Any])


def require(precision: str) -> None:
    """Refuse what the device cannot do.

    A CPU has no TF32: computing float32 instead, under the name of TF32, would make two records of
    one thing look like a comparison.

    Raises:
        UsageError: TF32 on a device without it.
    """
    capability = compute_capability()
    if precision == "tf32" and (capability is None or capability < TF32_CAPABILITY):
        device = jax.devices()[0]
        raise UsageError(
            f"--precision tf32 needs an NVIDIA GPU of compute capability {TF32_CAPABILITY} or more,"
            f" and JAX computes on {device.device_kind} here. Use --precision float32 or bfloat16."
        )


def at(precision: str, function: Function) -> Function:
    """``function`` with its products at a precision, whether it is run or traced by ``jax.jit``.

    Args:
        function: of trees of arrays, passed by position; for bfloat16 it is traced, so that
            products in the gradients that it takes are reached too.
    """

    @wraps(function)
    def computed(*arguments: Any) -> Any:
        with jax.default_matmul_precision(JAX_NAMES[precision]):
            return (
                _rounded(function, *arguments) if precision == "bfloat16" else function(*arguments)
            )

    return computed  # type: ignore[return-value]


def full(function: Function) -> Function:
    """``function`` in full float32, as everything is that measures quality: probe, evaluation,
    audit.
    """
    return at("float32", function)


def _rounded(function: Callable[..., Any], *arguments: Any) -> Any:
    traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    leaves = core.jaxpr_as_fun(_rewritten(traced))(*jax.tree.leaves(arguments))
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)


def _rewritten(program: Any) -> Any:
    """A traced program, and those inside it, with float32 products replaced by ones of operands
    rounded to bfloat16.
    """
    if type(program) in (tuple, list):
        return type(program)(map(_rewritten, program))
    if isinstance(program, core.Jaxpr):  # first: from JAX 0.11 on there is but one kind
        return program.replace(eqns=[_rewritten_equation(equation) for equation in program.eqns])
    if isinstance(program, core.ClosedJaxpr):
        return program.replace(jaxpr=_rewritten(program.jaxpr))
    return program


def _rewritten_equation(equation: Any) -> Any:
    types = [variable.aval for variable in equation.invars]
    if equation.primitive.name in PRODUCTS and all(each.dtype == jnp.float32 for each in types):
        # A call of a function stands where the product stood: its operands and its result are
        # float32 still.
        rounded = jax.jit(lambda *operands: _product(equation, *operands))
        shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in types]
        (call,) = jax.make_jaxpr(rounded)(*shapes).jaxpr.eqns
        return equation.replace(primitive=call.primitive, params=call.params)
    return equation.replace(
        params={name: _rewritten(value) for name, value in equation.params.items()}
    )


def _product(equation: Any, *operands: jax.Array) -> jax.Array:
    multiply, given = equation.primitive, PRODUCTS[equation.primitive.name]
    if jax.default_backend() == "cpu":
        # XLA's CPU backend has no product of bfloat16 that gives float32, and takes a conversion
        # there and back for none.
        product: jax.Array = multiply.bind(*map(_to_bfloat16, operands), **equation.params)
        return _to_bfloat16(product) if given == jnp.bfloat16 else product
    parameters = equation.params | {"precision": None, "preferred_element_type": jnp.dtype(given)}
    product = multiply.bind(*(operand.astype(jnp.bfloat16) for operand in operands), **parameters)
    return product.astype(jnp.float32)


def _to_bfloat16(array: jax.Array) -> jax.Array:
    """float32, rounded."""
    return jax.lax.reduce_precision(array, exponent_bits=8, mantissa_bits=7)
