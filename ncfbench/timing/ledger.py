"""The ledger: the main thread's time by line; the lines add up to the wall time.

A line's time is exclusive: while an inner line is open, the outer one is paused. Time that no line
claims is ``other``. Compilation inside another line, a probe for example, is moved to the line
``compile`` when JAX reports it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINES = {
    "loading": "reading the data set",
    "transfer": "moving the texts to the device; batches are moved by the feed",
    "initialising": "parameters, sampler, probe, evaluators, a look at other programs",
    "waiting": "building batches, or waiting for the thread that does",
    "step": "dispatching training steps, and waiting for them",
    "step account": "repeating steps on batches that are already on the device, to time them",
    "compile": "compiling; for the step also tracing and one execution on a copy of the state",
    "probe": "the probe of the objective",
    "evaluation": "recall on held-out items",
    "collective": (
        "agreeing with other processes at stops; collectives inside a step are part of the step"
    ),
    "checkpoint": "saving and restoring the state",
    "tables": "writing the records",
    "other": "time that no other line claims",
}
"""Every line of a run's ledger, and its meaning."""
COMPILE_EVENTS = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
"""JAX's reports of a compilation; tracing is left out, since traces nest and would count twice."""


class Ledger:
    """Exclusive seconds of each line, for the thread that made the ledger.

    Args:
        clock: returns seconds, and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = dict.fromkeys(LINES, 0.0)
        self._open = ["other"]
        self._last = clock()
        self._thread = threading.get_ident()

    @contextmanager
    def line(self, name: str) -> Iterator[None]:
        """Charge the time inside to a line, without that of inner lines."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def seconds(self) -> dict[str, float]:
        """Return each line's seconds; they add up to the wall time since the ledger was made."""
        self._charge()
        return dict(self._seconds)

    def move_to_compile(self, seconds: float) -> None:
        """Move seconds that have just passed from the open line to ``compile``, or all it has."""
        if threading.get_ident() != self._thread or self._open[-1] == "compile":
            return
        self._charge()
        moved = min(seconds, self._seconds[self._open[-1]])
        self._seconds[self._open[-1]] -= moved
        self._seconds["compile"] += moved

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count the time inside and its compilations, but not the time since the turn before.

        It serves several ledgers that take turns: the lines of each add up to the time of its own
        turns. A turn within another one changes nothing.
        """
        if self in _ledgers:
            yield
            return
        self._last = self._clock()
        _listen()
        _ledgers.append(self)
        try:
            yield
        finally:
            _ledgers.remove(self)
            self._charge()

    def _charge(self) -> None:
        now = self._clock()
        self._seconds[self._open[-1]] += now - self._last
        self._last = now


_ledgers: list[Ledger] = []


@functools.cache
def _listen() -> None:
    """Register one listener for the process: JAX cannot unregister one."""
    from jax import monitoring

    monitoring.register_event_duration_secs_listener(_on_duration)


def _on_duration(event: str, duration_secs: float, **_: str | int) -> None:
    if event in COMPILE_EVENTS:
        for ledger in _ledgers:
            ledger.move_to_compile(duration_secs)
