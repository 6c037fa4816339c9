"""The roofline: a machine's peak rates, and what a compiled step demands of them.

A step cannot take less than its floating-point operations at the rate of a large matrix product,
nor less than its bytes at the rate of a large copy; the larger of the two is its limit (the
roofline of Williams, Waterman and Patterson, 2009). XLA's count of bytes takes every fused
operation by itself, as if no cache stood before the memory: where caches hold what one operation
hands to the next, a step can beat that part of the limit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import DataError
from ncfbench.models.precision import at
from ncfbench.models.towers import DeviceContent
from ncfbench.sampling.batch import Batch
from ncfbench.storage import tables
from ncfbench.training.step import Trainer

MATRIX_SIZE = 2048
COPY_BYTES = 2**28
REPEATS = 7


@dataclass(frozen=True)
class Peaks:
    """Measured peak rates of a machine."""

    flops_per_second: float
    """Rate of a large matrix product, at the precision of the training step."""
    bytes_per_second: float
    """Read and written by a large copy."""


@dataclass(frozen=True)
class Demand:
    """Operations and bytes of a compiled step, as XLA counts them."""

    flops: float
    bytes: float

    def seconds(self, peaks: Peaks) -> float:
        """Return the limit: no step takes less."""
        return max(self.flops / peaks.flops_per_second, self.bytes / peaks.bytes_per_second)

    def bound(self, peaks: Peaks) -> str:
        """Return ``arithmetic`` or ``memory``, whichever takes longer."""
        arithmetic = self.flops / peaks.flops_per_second
        return "arithmetic" if arithmetic > self.bytes / peaks.bytes_per_second else "memory"


def demand(
    config: RunConfig, dataset: Dataset, content: DeviceContent, batch: Batch
) -> Demand | None:
    """Count operations and bytes of one step.

    None where the backend does not count them, and where the step repeats something in a loop: XLA
    counts a loop as if it went round once.
    """
    traced = _traced_step(config, dataset, content, batch)
    if has_loops(traced.jaxpr.jaxpr):
        return None
    found = traced.lower().compile().cost_analysis()
    counts = found[0] if isinstance(found, list) and found else found
    if not counts or "flops" not in counts or "bytes accessed" not in counts:
        return None
    return Demand(float(counts["flops"]), float(counts["bytes accessed"]))


def has_loops(jaxpr: Any) -> bool:
    """Say whether a traced program has a loop that may go round more than once."""
    for equation in jaxpr.eqns:
        name, settings = equation.primitive.name, equation.params
        if name == "while" or (name == "scan" and settings["length"] > 1):
            return True
        for inner in jax.tree.leaves(list(settings.values()), is_leaf=_is_program):
            if _is_program(inner) and has_loops(getattr(inner, "jaxpr", inner)):
                return True
    return False


def compiled_step(config: RunConfig, dataset: Dataset, content: DeviceContent, batch: Batch) -> Any:
    """Compile the training step for a batch's shapes, to be inspected."""
    return _traced_step(config, dataset, content, batch).lower().compile()


def _traced_step(config: RunConfig, dataset: Dataset, content: DeviceContent, batch: Batch) -> Any:
    # A trainer of its own: the one that is timed must not be compiled again.
    trainer, state = Trainer.create(config, dataset)
    (on_device,) = trainer.layout.keep([trainer.layout.put(batch)])
    return trainer.trace(state, on_device, trainer.layout.replicate(content))


def _is_program(value: Any) -> bool:
    return hasattr(value, "eqns")


def peaks(cache: Path, environment_key: str, precision: str = "float32") -> Peaks:
    """Return this machine's rates: the best that any profile in this environment has measured.

    A busy machine shows less than its peak, never more: measurements are kept in ``cache``, and
    only higher ones replace them.
    """
    suffix = "" if precision == "float32" else f"-{precision}"
    path = cache / "peaks" / f"{environment_key}{suffix}.json"
    found = measure_peaks(precision)
    try:
        before = Peaks(**tables.read_json(path))
    except (DataError, TypeError):
        before = found
    best = Peaks(*(max(pair) for pair in zip(astuple(found), astuple(before), strict=True)))
    # A cache that cannot be written costs a measurement, no more.
    with contextlib.suppress(OSError, DataError):
        path.parent.mkdir(parents=True, exist_ok=True)
        tables.write_json(path, asdict(best))
    return best


def measure_peaks(precision: str = "float32") -> Peaks:
    """Measure both rates; the best of several repetitions."""
    a = jnp.ones((MATRIX_SIZE, MATRIX_SIZE), jnp.float32)
    product = jax.jit(at(precision, lambda a: a @ a))
    # In place: new memory would have to be handed out by the system first.
    array, copy = (
        jnp.zeros(COPY_BYTES // 4, jnp.float32),
        jax.jit(lambda array: array + 1, donate_argnums=0),
    )
    product_seconds, copy_seconds = [], []
    for _ in range(REPEATS):
        product_seconds.append(_seconds(lambda: product(a)))
        begin = time.perf_counter()
        array = jax.block_until_ready(copy(array))
        copy_seconds.append(time.perf_counter() - begin)
    return Peaks(
        flops_per_second=2 * MATRIX_SIZE**3 / min(product_seconds),
        bytes_per_second=2 * COPY_BYTES / min(copy_seconds),
    )


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin
