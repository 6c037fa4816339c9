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
from dataclasses import asdict, dataclass
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


def limit_columns(demand: Demand | None, peaks: Peaks, step_seconds: float) -> dict[str, Any]:
    """Return a step's work and limit, columns of :data:`ncfbench.storage.schemas.COSTMODEL`; null
    where they are not counted.
    """
    names = ("step_flops", "step_bytes", "limit_seconds", "limit_share", "bound")
    if demand is None:
        return dict.fromkeys(names)
    arithmetic = demand.flops / peaks.flops_per_second
    memory = demand.bytes / peaks.bytes_per_second
    seconds, bound = max((memory, "memory"), (arithmetic, "arithmetic"))
    values = demand.flops, demand.bytes, seconds, seconds / step_seconds, bound
    return dict(zip(names, values, strict=True))


def demand(
    config: RunConfig, dataset: Dataset, content: DeviceContent, batch: Batch
) -> Demand | None:
    """Count operations and bytes of one step.

    None where the backend does not count them, and where the step repeats something in a loop: XLA
    counts a loop as if it went round once.
    """
    # A trainer of its own: the one that is timed must not be compiled again.
    trainer, state = Trainer.create(config, dataset)
    (on_device,) = trainer.layout.keep([trainer.layout.put(batch)])
    traced = trainer.trace(state, on_device, trainer.layout.replicate(content))
    if has_loops(traced.jaxpr.jaxpr):
        return None
    counted = traced.lower().compile().cost_analysis()
    counts = counted[0] if isinstance(counted, list) and counted else counted
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


def _is_program(value: Any) -> bool:
    return hasattr(value, "eqns")


def peaks(cache: Path, environment_key: str, precision: str = "float32") -> Peaks:
    """Return this machine's rates: the best that any profile in this environment has measured.

    A busy machine shows less than its peak, never more: measurements are kept in ``cache``, and
    only higher ones replace them.
    """
    suffix = "" if precision == "float32" else f"-{precision}"
    path = cache / "peaks" / f"{environment_key}{suffix}.json"
    best = asdict(measure_peaks(precision))
    with contextlib.suppress(DataError, TypeError):
        before = asdict(Peaks(**tables.read_json(path)))
        best = {name: max(rate, before[name]) for name, rate in best.items()}
    # A cache that cannot be written costs a measurement, no more.
    with contextlib.suppress(OSError, DataError):
        path.parent.mkdir(parents=True, exist_ok=True)
        tables.write_json(path, best)
    return Peaks(**best)


def measure_peaks(precision: str = "float32") -> Peaks:
    """Measure both rates; the best of several repetitions."""
    matrix = jnp.ones((MATRIX_SIZE, MATRIX_SIZE), jnp.float32)
    product = jax.jit(at(precision, lambda matrix: matrix @ matrix))
    # In place: new memory would have to be handed out by the system first.
    copy = jax.jit(lambda array: array + 1, donate_argnums=0)
    array = jnp.zeros(COPY_BYTES // 4, jnp.float32)

    def in_place() -> Any:
        nonlocal array
        array = copy(array)
        return array

    return Peaks(
        flops_per_second=2 * MATRIX_SIZE**3 / _fewest_seconds(lambda: product(matrix)),
        bytes_per_second=2 * COPY_BYTES / _fewest_seconds(in_place),
    )


def _fewest_seconds(call: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
