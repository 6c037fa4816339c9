"""Where the training loop gets its batches: built when it asks, or ahead of it in a thread."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

from ncfbench.sampling.batch import Batch

DEPTH = 8
"""Most batches built ahead."""


class Feed:
    """Batches for a timed loop. Use as a context manager; it builds nothing off the clock.

    Args:
        batches: only the feed uses it.
        transfer: moves a batch to the device.
    """

    def __init__(self, batches: Iterator[Batch], transfer: Callable[[Batch], Batch]) -> None:
        self._batches, self._transfer = batches, transfer
        self.sampling_seconds = 0.0
        """Seconds spent on building batches."""
        self.transfer_seconds = 0.0
        """Seconds spent on moving them to the device."""
        self.built = 0
        """Batches built so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """End what works for the feed; here nothing does."""

    def resume(self) -> None:
        """Allow batches to be built: the clock runs."""

    def request_pause(self) -> None:
        """Begin no other batch: the clock will stop."""

    def wait_until_paused(self) -> None:
        """Wait until the batch that is being built is complete."""

    def allow(self, count: int) -> None:
        """Allow this many batches in all to be built; without a call any number of them."""

    def get(self) -> Batch:
        """Return the next batch."""
        raise NotImplementedError


class DirectFeed(Feed):
    """Builds a batch when the loop asks for it, in the loop's own thread.

    The steps that were dispatched before go on meanwhile. On a CPU nothing is won by a thread: a
    step keeps all cores busy. *full* over *step* was 1.03 to 1.12 with one, 1.03 to 1.08 without
    (CiteULike, CNN, two cores).
    """

    def get(self) -> Batch:
        """See :class:`Feed`."""
        begin = time.perf_counter()
        drawn = next(self._batches)
        built = time.perf_counter()
        batch = self._transfer(drawn)
        self.built += 1
        self.sampling_seconds += built - begin
        self.transfer_seconds += time.perf_counter() - built
        return batch


class PrefetchingFeed(Feed):
    """Runs an iterator of batches in a thread, for a device that needs no core of the host's.

    While paused it builds nothing, so that no batch is built off the clock: the batches that are
    ready at the beginning of a timed block were built on the clock of an earlier one.

    Args:
        depth: most batches built ahead.
    """

    def __init__(
        self, batches: Iterator[Batch], transfer: Callable[[Batch], Batch], depth: int = DEPTH
    ) -> None:
        super().__init__(batches, transfer)
        self._depth = depth
        self._ready: deque[Batch] = deque()
        self._change = threading.Condition()
        self._running = False
        self._building = False
        self._closed = False
        self._allowed = math.inf
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join()

    def resume(self) -> None:
        """Let the thread build batches."""
        with self._change:
            self._running = True
            self._change.notify_all()

    def request_pause(self) -> None:
        """Keep the thread from beginning another batch."""
        with self._change:
            self._running = False

    def wait_until_paused(self) -> None:
        """Wait until the thread has completed its batch."""
        with self._change:
            self._change.wait_for(lambda: not self._building)

    def allow(self, count: int) -> None:
        """See :class:`Feed`."""
        with self._change:
            self._allowed = count
            self._change.notify_all()

    def get(self) -> Batch:
        """Wait for the next batch and return it. An error of the thread is raised here."""
        with self._change:
            self._change.wait_for(lambda: self._ready or self._error)
            if self._error is not None and not self._ready:
                raise self._error
            batch = self._ready.popleft()
            self._change.notify_all()
            return batch

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(
                    lambda: (
                        self._closed
                        or (
                            self._running
                            and len(self._ready) < self._depth
                            and self.built < self._allowed
                        )
                    )
                )
                if self._closed:
                    return
                self._building = True
            begin = built = time.perf_counter()
            try:
                drawn = next(self._batches)
                built = time.perf_counter()
                batch, error = self._transfer(drawn), None
            except BaseException as problem:  # noqa: BLE001 - handed to the loop, which raises it
                batch, error = None, problem
            with self._change:
                self.sampling_seconds += built - begin
                self.transfer_seconds += time.perf_counter() - built
                self._building = False
                if batch is not None:
                    self._ready.append(batch)
                    self.built += 1
                self._error = error
                self._change.notify_all()
                if error is not None:
                    return
