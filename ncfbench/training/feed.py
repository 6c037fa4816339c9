"""Batches for the training loop: built when it asks, or ahead of it in a thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ncfbench.sampling.batch import Batch

DEPTH = 8
"""Most batches built ahead."""


class Feed:
    """Batches for a timed loop, none of which is built while it is paused, untimed.

    On a CPU nothing is won by a thread: a step keeps all cores busy.

    Args:
        batches: only the feed uses it.
        transfer: moves a batch to the device.
        depth: most batches that a thread builds ahead; 0: each is built in :meth:`get`.
    """

    def __init__(
        self, batches: Iterator[Batch], transfer: Callable[[Batch], Batch], depth: int = 0
    ) -> None:
        self._batches, self._transfer, self._depth = batches, transfer, depth
        self._thread = ThreadPoolExecutor(1, "sampler")
        self._ready: deque[Future[Batch]] = deque()
        self.sampling_seconds = 0.0
        """Seconds spent on building batches."""
        self.transfer_seconds = 0.0
        """Seconds spent on moving them to the device."""

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    def resume(self) -> None:
        """Build batches again: the clock runs."""
        while len(self._ready) < self._depth:
            self._ready.append(self._thread.submit(self._build))

    def pause(self) -> None:
        """Begin no other batch, and wait until the one that is being built is complete."""
        while self._ready and self._ready[-1].cancel():
            self._ready.pop()
        wait(self._ready)

    def get(self) -> Batch:
        """Return the next batch. An error that its building raised is raised here."""
        if not self._depth:
            return self._build()
        self.resume()
        return self._ready.popleft().result()

    def _build(self) -> Batch:
        begin = time.perf_counter()
        drawn = next(self._batches)
        built = time.perf_counter()
        batch = self._transfer(drawn)
        self.sampling_seconds += built - begin
        self.transfer_seconds += time.perf_counter() - built
        return batch
