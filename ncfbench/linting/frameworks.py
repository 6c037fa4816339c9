"""The value of a loss and its gradients, by the framework that it is written in."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ncfbench.errors import UsageError
from ncfbench.linting.scenes import Float

Arrays: TypeAlias = Mapping[str, Any]
Call: TypeAlias = Callable[..., Any]
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""XLA's options that compile a loss four times as fast; other versions of jaxlib refuse them."""


class Framework(ABC):
    """Calls a loss with arrays of NumPy, and returns numbers of NumPy."""

    name: str
    is_double = True
    """Whether it computes in double precision."""

    def inputs(self, arrays: Arrays) -> dict[str, Any]:
        """Return a call's arguments: copies, which the loss may change."""
        return {
            name: self.tensor(array) if isinstance(array, np.ndarray) else array
            for name, array in arrays.items()
        }

    def tensor(self, array: Any) -> Any:
        """Return a copy of an array of NumPy as the framework has it."""
        return array.copy()

    def value(self, call: Call, arrays: Arrays) -> float:
        """Return the loss."""
        # PyTorch's gradients stay on: some losses differentiate within themselves.
        return scalar(call(**self.inputs(arrays)))

    @abstractmethod
    def gradients(self, call: Call, arrays: Arrays, names: Sequence[str]) -> list[Float]:
        """Return the gradients by some arrays."""

    @abstractmethod
    def key(self) -> Any:
        """Return a source of randomness, for an argument that asks for one."""


class Torch(Framework):
    """Gradients of PyTorch."""

    name = "PyTorch"

    def __init__(self, *, double: bool = True) -> None:
        import torch

        self.torch, self.is_double = torch, double
        self.floats = torch.float64 if double else torch.float32

    def tensor(self, array: Any) -> Any:
        """See :class:`Framework`."""
        tensor = self.torch.tensor(array)
        if tensor.is_floating_point():
            return tensor.to(self.floats)
        return tensor if tensor.dtype == self.torch.bool else tensor.long()

    def gradients(self, call: Call, arrays: Arrays, names: Sequence[str]) -> list[Float]:
        """See :class:`Framework`."""
        tensors = self.inputs(arrays)
        # A model's outputs are no leaves, so that a loss may change them in place.
        outputs = {name: tensors[name].requires_grad_().clone() for name in names}
        loss = single(call(**{**tensors, **outputs}))
        if not isinstance(loss, self.torch.Tensor):
            raise UsageError(
                f"The loss returns {type(loss).__name__}, through which no gradient comes: return"
                " the tensor itself, without .item()."
            )
        if loss.requires_grad:
            loss.backward()
        return [
            np.zeros(tensors[name].shape)
            if tensors[name].grad is None
            else tensors[name].grad.double().numpy()
            for name in names
        ]

    def key(self) -> Any:
        """See :class:`Framework`."""
        return self.torch.Generator().manual_seed(0)


class Jax(Framework):
    """Gradients of JAX, compiled where the loss allows it."""

    name = "JAX"

    def __init__(self, *, double: bool = True) -> None:
        import jax
        from jaxlib import version

        self.jax, self.is_double = jax, double
        self._quick = QUICK if version.__version__.startswith("0.10.") else None
        self._compiled: dict[Any, Any] = {}
        self._is_eager = False

    def _run(self, call: Call, arrays: Arrays, names: Sequence[str]) -> Any:
        """Return the loss, with its gradients by some arrays if there are names."""
        constants = {n: part for n, part in arrays.items() if not isinstance(part, np.ndarray)}
        wanted = [arrays[name] for name in names]
        rest = {n: part for n, part in arrays.items() if n not in {*names, *constants}}
        key = (call, tuple(names), tuple(map(str, constants.items())))

        def function(wanted: Any, rest: Any) -> Any:
            return single(call(**dict(zip(names, wanted, strict=True)), **rest, **constants))

        run = self.jax.value_and_grad(function) if names else function
        # Ranks are promoted as in a program outside of this one.
        with self.jax.enable_x64(self.is_double), self.jax.numpy_rank_promotion("allow"):
            if not self._is_eager:
                if key not in self._compiled:
                    self._compiled[key] = self.jax.jit(run, compiler_options=self._quick)
                try:
                    return self._compiled[key](wanted, rest)
                except (self.jax.errors.JAXTypeError, self.jax.errors.JAXIndexError):
                    self._is_eager = True  # it looks at the values, as a compiled one cannot
            # Arrays of JAX, so that ``.at`` is there.
            return run(*self.jax.tree.map(self.jax.numpy.asarray, (wanted, rest)))

    def value(self, call: Call, arrays: Arrays) -> float:
        """See :class:`Framework`."""
        return scalar(self._run(call, arrays, []))

    def gradients(self, call: Call, arrays: Arrays, names: Sequence[str]) -> list[Float]:
        """See :class:`Framework`."""
        _, gradients = self._run(call, arrays, names)
        return [np.asarray(part, np.float64) for part in gradients]

    def key(self) -> Any:
        """See :class:`Framework`."""
        return self.jax.random.key(0)


def single(loss: Any) -> Any:
    """Return a loss, which may stand in a dictionary, as models of transformers return it.

    Raises:
        UsageError: it is no single number.
    """
    if isinstance(loss, dict) and "loss" in loss:
        loss = loss["loss"]
    shape = getattr(loss, "shape", () if isinstance(loss, int | float) else None)
    if shape is None or math.prod(shape) != 1:
        of_shape = "" if shape is None else f" of shape {tuple(shape)}"
        raise UsageError(
            f"The loss returns {type(loss).__name__}{of_shape}: it must return one number, such as"
            " the mean over the batch; wrap it in a function that does."
        )
    return loss


def scalar(loss: Any) -> float:
    """Return a loss as a number.

    Raises:
        UsageError: it is none.
    """
    loss = single(loss)
    return float(np.asarray(loss.detach() if hasattr(loss, "detach") else loss).reshape(()))


def frameworks() -> list[Framework]:
    """Return the frameworks that a loss may be written in: PyTorch where it is loaded, and JAX.

    A loss fails with the arrays of another framework, so that trying finds its own.
    """
    loaded = [Torch(), Torch(double=False)] if "torch" in sys.modules else []
    return [*loaded, Jax(), Jax(double=False)]
