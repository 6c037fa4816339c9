"""Clocks: what an iteration costs, measured in blocks, in two accounts.

*full*: wall time of a block of iterations as a user runs them, with the sampler working beside them
in its thread, until the updated state is there. *step*: the same iterations on batches that are
already on the device. Compilation is on neither clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle, groupby, islice
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, capacity
from ncfbench.timing import statistics as analysis
from ncfbench.timing.ledger import Ledger
from ncfbench.training.prefetch import DEPTH, Prefetcher
from ncfbench.training.step import Trainer, TrainState, copy_state

IN_FLIGHT = 4
"""Iterations dispatched but not done, at most, or two dispatches where these are more: enough to
keep the device busy, and few to wait for after Ctrl-C.
"""
STEP_BATCHES = 16
"""Batches kept on the device for the step account."""


@dataclass(frozen=True)
class Sample:
    """One raw sample; a row of ``timing.parquet``."""

    kind: str
    first_iteration: int
    iterations: int
    seconds: float
    sampling_seconds: float | None = None
    transfer_seconds: float | None = None
    waiting_seconds: float | None = None
    item_slots: float | None = None
    resumed: bool = False


class Stopwatch:
    """Seconds of some intervals, each closed before the next is opened."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0

    def start(self) -> None:
        """Open an interval."""
        self._begin = time.perf_counter_ns()

    def stop(self) -> None:
        """Close it."""
        self.seconds += (time.perf_counter_ns() - self._begin) * 1e-9


class InFlight:
    """The dispatches that may not be done yet; adding one waits for the oldest, so that they hold
    few iterations.

    Args:
        most: iterations that are never reached.
    """

    def __init__(self, most: int) -> None:
        self._losses: deque[jax.Array] = deque()
        self._most, self._iterations = most, 0

    def add(self, losses: jax.Array) -> None:
        """A dispatch, by the losses that it will give."""
        self._losses.append(losses)
        self._iterations += losses.size
        while self._iterations >= self._most:
            done = jax.block_until_ready(self._losses.popleft())
            self._iterations -= done.size


@dataclass
class TimedLoop:
    """A training loop on a clock: one sampler, one compiled step, one state. Use as a context
    manager.

    Batches are dispatched as many at a time as the trainer says; fewer, at the end of a block or
    where the capacity changes, go one by one. What is computed is the same.

    Args:
        item_slots: V to begin with; grows, off the clock, with the first batch that needs more.
        start: the first batch.
        ledger: where the loop's time is charged.
    """

    trainer: Trainer
    state: TrainState
    content: Content
    sampler: Sampler
    item_slots: int
    start: int = 0
    say: Callable[[str], None] = lambda text: None
    samples: list[Sample] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.iteration = self.start
        self._compiled: set[int] = set()
        self._per_dispatch = n = self.trainer.per_dispatch
        self._recent: deque[Batch] = deque(maxlen=max(STEP_BATCHES, n))
        self._held: deque[Batch] = deque()
        """Batches that were taken from the prefetcher and not used yet."""
        self.content = self.trainer.layout.replicate(self.content)
        batches = self.trainer.layout.shard(self.sampler).batches(self.start, self.item_slots)
        self._prefetcher = Prefetcher(batches, self.trainer.layout.put, depth=max(DEPTH, 2 * n))

    def __enter__(self) -> Self:
        self._prefetcher.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._prefetcher.__exit__(kind, error, trace)

    def full_block(
        self, iterations: int, *, stop: Callable[[], bool] = lambda: False
    ) -> list[float]:
        """Train for some iterations and record a ``full`` sample; returns their losses.

        Ends early, after a dispatch, when ``stop()`` is true; it is asked after every iteration,
        and while a dispatch waits for its batches.

        Raises:
            CheckFailedError: the step was compiled during timed work.
        """
        with self.ledger.line("step"):
            return self._full_block(iterations, stop)

    def _full_block(self, iterations: int, stop: Callable[[], bool]) -> list[float]:
        losses: list[jax.Array] = []
        counts: list[Any] = []
        watch, waiting, in_flight = Stopwatch(), Stopwatch(), self._in_flight()
        first, stopped = self.iteration, False
        sampled, transferred = self._prefetcher.sampling_seconds, self._prefetcher.transfer_seconds
        self._begin(watch)
        try:
            while len(counts) < iterations and not stopped:
                gathered = self._gather(
                    min(self._per_dispatch, iterations - len(counts)), waiting, stop
                )
                if capacity(gathered[0]) not in self._compiled:
                    self._end(watch)
                    self._compile(gathered[0])
                    self._begin(watch)
                for part in self._dispatches(gathered):
                    self.state, loss = self._run(self.state, part)
                    in_flight.add(loss)
                    losses.append(loss)
                    for _ in part:
                        batch = self._held.popleft()
                        self.iteration += 1
                        counts.append(batch.n_items)
                        self._recent.append(batch)
                        stopped = stop() or stopped
                    if stopped:
                        break
        finally:
            self._end(watch)
        if self.trainer.traces != len(self._compiled) * self._programs:
            raise CheckFailedError(
                "The step was compiled during timed work; its times cannot be trusted."
            )
        self.samples.append(
            Sample(
                kind="full",
                first_iteration=first,
                iterations=len(counts),
                seconds=watch.seconds,
                sampling_seconds=self._prefetcher.sampling_seconds - sampled,
                transfer_seconds=self._prefetcher.transfer_seconds - transferred,
                waiting_seconds=waiting.seconds,
                item_slots=float(np.mean([int(count) for count in counts])),
            )
        )
        found: list[float] = np.concatenate([np.atleast_1d(loss) for loss in losses]).tolist()
        return found

    def step_block(self, iterations: int | None = None) -> None:
        """Repeat the last batches on a copy of the state, and record a ``step`` sample.

        Args:
            iterations: how many, over and over the same batches; by default each of them once.
        """
        count = iterations or len(self._recent)
        with self.ledger.line("step account"):
            state, watch = copy_state(self.state), Stopwatch()
            batches = self.trainer.layout.keep(list(self._recent))
            jax.block_until_ready((state, batches))
            watch.start()
            in_flight = self._in_flight()
            for part in self._dispatches(islice(cycle(batches), count)):
                state, loss = self._run(state, part)
                in_flight.add(loss)
            jax.block_until_ready(state)
            watch.stop()
        self.samples.append(
            Sample("step", self.iteration - len(self._recent), count, watch.seconds)
        )

    def seconds_per_iteration(self, kind: str) -> float:
        """Median of the ``full`` or ``step`` samples."""
        seconds = analysis.seconds_per_iteration([asdict(sample) for sample in self.samples], kind)
        assert seconds is not None, f"no {kind} sample was taken"
        return seconds

    @property
    def _programs(self) -> int:
        """Compiled functions of each capacity: the step, and that of several iterations."""
        return 1 if self._per_dispatch == 1 else 2

    def _in_flight(self) -> InFlight:
        if self.trainer.layout.is_simulated:
            # They wait for each other in threads of one pool, which must not be full of later
            # steps.
            return InFlight(1)
        return InFlight(max(IN_FLIGHT, 2 * self._per_dispatch))

    def _gather(self, most: int, waiting: Stopwatch, stop: Callable[[], bool]) -> list[Batch]:
        """The next batches, which stay held: ``most``, or fewer where another capacity follows or
        ``stop()`` is true.
        """
        count = 0
        while count < most and not (count and stop()):
            if count == len(self._held):
                waiting.start()
                with self.ledger.line("waiting"):
                    self._held.append(self._prefetcher.get())
                waiting.stop()
            if capacity(self._held[count]) != capacity(self._held[0]):
                break
            count += 1
        return list(islice(self._held, count))

    def _dispatches(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, ...]]:
        """Batches as they are dispatched: as many as go together, of one capacity; the rest one by
        one.
        """
        for _, alike in groupby(batches, key=capacity):
            while part := tuple(islice(alike, self._per_dispatch)):
                if len(part) == self._per_dispatch:
                    yield part
                else:
                    yield from ((batch,) for batch in part)

    def _run(self, state: TrainState, part: tuple[Batch, ...]) -> tuple[TrainState, jax.Array]:
        if len(part) == 1:
            return self.trainer.step(state, part[0], self.content)
        return self.trainer.steps(state, part, self.content)

    def _begin(self, watch: Stopwatch) -> None:
        watch.start()
        self._prefetcher.resume()

    def _end(self, watch: Stopwatch) -> None:
        self._prefetcher.request_pause()
        # An interruption inside a step may leave a state whose memory was given away.
        if not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state)):
            jax.block_until_ready(self.state)
        with self.ledger.line("waiting"):
            self._prefetcher.wait_until_paused()
        watch.stop()

    def _compile(self, batch: Batch) -> None:
        """Compile for a batch's shape, by running on copies of the state, and record the time."""
        if self._compiled:
            self.say(
                f"A batch needs {capacity(batch)} item slots, more than {self.item_slots}:"
                " compiling again, off the clock."
            )
        self.item_slots = capacity(batch)
        watch = Stopwatch()
        with self.ledger.line("compile"):
            watch.start()
            for count in sorted({1, self._per_dispatch}):
                jax.block_until_ready(self._run(copy_state(self.state), (batch,) * count))
            watch.stop()
        self._compiled.add(capacity(batch))
        self.samples.append(Sample("compile", self.iteration, 1, watch.seconds))


@contextmanager
def timed_loops(
    dataset: Dataset,
    content: Content,
    configs: Mapping[str, RunConfig],
    *,
    on_one_device: bool = False,
) -> Iterator[dict[str, TimedLoop]]:
    """A loop for each of some settings, by their names, from the initial parameters and the first
    batch.

    Args:
        on_one_device: whatever the settings say; the batches are theirs.
    """
    with ExitStack() as stack:
        loops = {}
        for name, config in configs.items():
            here = config.on_one_device() if on_one_device else config
            trainer, state = Trainer.create(here, dataset)
            sampler = make_sampler(dataset.graph, config, Streams(config.seed))
            loop = TimedLoop(trainer, state, content, sampler, plan_capacity(dataset.graph, config))
            loops[name] = stack.enter_context(loop)
        yield loops


def interleave(loops: Sequence[TimedLoop], rounds: int, block: Callable[[Any], int]) -> None:
    """Measure several loops in turn, round after round, so that a disturbance of the machine meets
    all of them.

    Each loop first runs one block that is not kept, which compiles its step and fills its queue.

    Args:
        block: iterations of a loop's block.
    """
    for loop in loops:
        loop.full_block(min(block(loop), STEP_BATCHES))
        loop.step_block()
        loop.samples[:] = [sample for sample in loop.samples if sample.kind == "compile"]
    for _ in range(rounds):
        for loop in loops:
            loop.full_block(block(loop))
            loop.step_block()
