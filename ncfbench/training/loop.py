"""The training loop on a clock, in blocks of iterations and two accounts.

*full*: wall time of a block of iterations as a user runs them, with the sampler at work between
them or beside them, until the updated state is there. *step*: the same iterations on batches that
are already on the device. Compilation is on neither clock. Where a carry is refreshed, both hold
each iteration's share of the refreshes, which have samples of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle, groupby, islice
from typing import Any, Self

import jax
import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.runs.schedule import STEP_BATCHES
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, Shape, capacity, shape
from ncfbench.timing import statistics
from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.timing.ledger import Ledger
from ncfbench.training.carry import Carry
from ncfbench.training.feed import DEPTH, Feed
from ncfbench.training.inference import Embedder
from ncfbench.training.memory import require_memory, step_bytes
from ncfbench.training.state import TrainState, copy_state
from ncfbench.training.step import Trainer

IN_FLIGHT = 4
"""Most iterations dispatched but not done; or two dispatches, if these are more.

Enough to keep the device busy, and few to wait for after Ctrl-C.
"""
TIMED_REFRESHES = 9
"""Refreshes whose median time iterations are charged with."""


class InFlight:
    """The dispatches that may not be done yet.

    Args:
        limit: adding a dispatch waits for the oldest ones until fewer iterations are in flight.
    """

    def __init__(self, limit: int) -> None:
        self._losses: deque[jax.Array] = deque()
        self._limit, self._iterations = limit, 0

    def add(self, losses: jax.Array) -> None:
        """Add a dispatch by the losses that it returns."""
        self._losses.append(losses)
        self._iterations += losses.size
        while self._iterations >= self._limit:
            done = jax.block_until_ready(self._losses.popleft())
            self._iterations -= done.size


class Refresher:
    """Refreshes the carry of a state before every N-th iteration, and times it.

    The first is iteration 0. Which others follow depends on their numbers alone, and the carry is
    part of the state: a run that is resumed has what it would have had.

    A block of a few iterations has a refresh in it or not. Each iteration is therefore charged the
    N-th part of one: :meth:`charge`.
    """

    def __init__(self, carry: Carry, embedder: Embedder) -> None:
        self.every = carry.every
        self._carry, self._embedder = carry, embedder
        self._seconds: deque[float] = deque(maxlen=TIMED_REFRESHES)

    def until_due(self, iteration: int) -> int:
        """Return how many iterations are left before the next refresh; 0 where it is due now."""
        return -iteration % self.every

    def warm_up(self, state: TrainState, iteration: int) -> None:
        """Compile, and time a refresh unless the next iteration has one; the state stays."""
        self._carry.refreshed(state.parameters, self._embedder)
        if self.until_due(iteration):
            self._timed(state)

    def __call__(self, state: TrainState, iteration: int) -> tuple[TrainState, Sample]:
        """Return the state with a refreshed carry, and a sample of the time that it took."""
        jax.block_until_ready(state)
        carry, seconds = self._timed(state)
        return state._replace(carry=carry), Sample("refresh", iteration, self.every, seconds)

    def charge(self, iterations: int) -> float:
        """Return the share of refreshes, in seconds, that some iterations are charged."""
        return float(np.median(self._seconds)) * iterations / self.every

    def _timed(self, state: TrainState) -> tuple[Any, float]:
        watch = Stopwatch()
        watch.start()
        carry = jax.block_until_ready(self._carry.refreshed(state.parameters, self._embedder))
        watch.stop()
        self._seconds.append(watch.seconds)
        return carry, watch.seconds


@dataclass
class TimedLoop:
    """A training loop on a clock: one sampler, one compiled step, one state.

    Use as a context manager. Each dispatch takes as many batches as the trainer says. At the end of
    a block, or where the capacity changes, the rest goes one by one. The numbers are the same.

    Args:
        item_slots: V at first; grows, off the clock, with the first batch that needs more.
        start: the number of the first batch.
        ledger: the loop's time is charged to it.
    """

    trainer: Trainer
    state: TrainState
    content: DeviceContent
    sampler: Sampler
    item_slots: int
    start: int = 0
    say: Callable[[str], None] = lambda text: None
    samples: list[Sample] = field(default_factory=list)
    """Samples since the last :meth:`take_samples`."""
    ledger: Ledger = field(default_factory=Ledger)
    embedder: Embedder | None = None
    """Embeds items for the refreshes of a carry; by default one is made, and compiled."""

    def __post_init__(self) -> None:
        self.iteration = self.start
        self._compiled: set[Shape] = set()
        self._per_dispatch = n = self.trainer.per_dispatch
        self._recent: deque[Batch] = deque(maxlen=max(STEP_BATCHES, n))
        self._held: deque[Batch] = deque()
        """Batches taken from the feed and not used yet."""
        self._refresher: Refresher | None = None
        self._refresh_compiled = 0.0
        """Seconds of compiling the refresh, which no sample has yet."""
        if self.trainer.carry.every:
            embedder = self.embedder or self.trainer.embedder(self.content)
            self._refresher = Refresher(self.trainer.carry, embedder)
        self.content = self.trainer.layout.replicate(self.content)
        source = self.trainer.layout.shard(self.sampler)
        batches, put = source.batches(self.start, self.item_slots), self.trainer.layout.put
        depth = 0 if jax.default_backend() == "cpu" else max(DEPTH, 2 * n)
        self._feed = Feed(batches, put, depth)
        if self._refresher is None:
            with self.ledger.line("initialising"):
                # The tables that a sampler makes when it first needs them are made off the clock.
                source.assemble(source.draw(self.start, 1)[0], self.item_slots)
        elif self.start:
            self._hand_over()
        else:
            self._feed.allow(0)

    def __enter__(self) -> Self:
        self._feed.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._feed.__exit__(*raised)

    def take_samples(self) -> list[Sample]:
        """Return the samples since the last call, and forget them."""
        taken = list(self.samples)
        self.samples.clear()
        return taken

    def warm_up(self, iterations: int) -> None:
        """Train a block in each account and keep the samples of compilation only.

        Compiles the step, and fills the queue of batches.
        """
        self.full_block(iterations)
        self.step_block()
        self.samples += [sample for sample in self.take_samples() if sample.kind == "compile"]

    def full_block(
        self, iterations: int, *, stop: Callable[[], bool] = lambda: False, kind: str = "full"
    ) -> list[float]:
        """Train for some iterations, record a sample of ``kind``, and return their losses.

        Ends early, after a dispatch, when ``stop()`` is true. It is called after every iteration,
        and while a dispatch waits for its batches.

        Raises:
            CheckFailedError: the step was compiled during timed work.
        """
        with self.ledger.line("step"):
            return self._full_block(iterations, stop, kind)

    def _full_block(self, iterations: int, stop: Callable[[], bool], kind: str) -> list[float]:
        losses: list[jax.Array] = []
        counts: list[Any] = []
        watch, waiting, in_flight = Stopwatch(), Stopwatch(), self._in_flight()
        first, stopped = self.iteration, False
        sampled, transferred = self._feed.sampling_seconds, self._feed.transfer_seconds
        refreshes: list[Sample] = []
        if self._refresher and not self._compiled:
            self._compile_refresh(self._refresher)
        self._begin(watch)
        try:
            while len(counts) < iterations and not stopped:
                if self._refresher and not self._refresher.until_due(self.iteration):
                    self.state, sample = self._refresher(self.state, self.iteration)
                    refreshes.append(sample)
                    self._hand_over()
                most = min(self._per_dispatch, iterations - len(counts), self._before_refresh())
                gathered = self._gather(most, waiting, stop)
                if shape(gathered[0]) not in self._compiled:
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
        seconds, given = watch.seconds, self.trainer.carry.given_slots  # which are not embedded
        if self._refresher:
            seconds += self._refresher.charge(len(counts)) - sum(one.seconds for one in refreshes)
        self.samples += refreshes
        self.samples.append(
            Sample(
                kind=kind,
                first_iteration=first,
                iterations=len(counts),
                seconds=seconds,
                sampling_seconds=self._feed.sampling_seconds - sampled,
                transfer_seconds=self._feed.transfer_seconds - transferred,
                waiting_seconds=waiting.seconds,
                item_slots=float(np.mean([int(count) for count in counts])) - given,
            )
        )
        found: list[float] = np.concatenate([np.atleast_1d(loss) for loss in losses]).tolist()
        return found

    def step_block(self, iterations: int | None = None, *, most: int | None = None) -> None:
        """Repeat the last batches on a copy of the state, and record a ``step`` sample.

        Args:
            iterations: cycles through the batches; by default each of them once.
            most: without ``iterations``, no more than this.
        """
        count = iterations or min(len(self._recent), most or len(self._recent))
        with self.ledger.line("step account"):
            state, watch = copy_state(self.state), Stopwatch()
            batches = self.recent_batches()
            jax.block_until_ready((state, batches))
            watch.start()
            in_flight = self._in_flight()
            for part in self._dispatches(islice(cycle(batches), count)):
                state, loss = self._run(state, part)
                in_flight.add(loss)
            jax.block_until_ready(state)
            watch.stop()
        seconds = watch.seconds + (self._refresher.charge(count) if self._refresher else 0)
        self.samples.append(Sample("step", self.iteration - len(self._recent), count, seconds))

    def recent_batches(self) -> list[Batch]:
        """Return the last batches that were trained on, on the device, the newest last."""
        return self.trainer.layout.keep(list(self._recent))

    def seconds_per_iteration(self, kind: str) -> float:
        """Return the median over the ``full`` or ``step`` samples."""
        rows = [asdict(sample) for sample in self.samples]
        seconds = statistics.seconds_per_iteration(rows, kind)
        assert seconds is not None, f"no {kind} sample was taken"
        return seconds

    def _hand_over(self) -> None:
        """Give the sampler what it needs of the carry, and allow batches up to the next refresh."""
        self.trainer.carry.hand_over(self.state.carry, self.sampler)
        self._feed.allow(self.iteration - self.start + self._before_refresh())

    @property
    def _programs(self) -> int:
        """Compiled functions of each capacity: one step, and several in one dispatch."""
        return 1 if self._per_dispatch == 1 else 2

    def _before_refresh(self) -> int:
        if self._refresher is None:
            return self._per_dispatch
        return self._refresher.until_due(self.iteration) or self._refresher.every

    def _in_flight(self) -> InFlight:
        if self.trainer.layout.is_simulated:
            # Devices wait for each other in threads of one pool, which must not be full of later
            # steps.
            return InFlight(1)
        return InFlight(max(IN_FLIGHT, 2 * self._per_dispatch))

    def _gather(self, most: int, waiting: Stopwatch, stop: Callable[[], bool]) -> list[Batch]:
        """Return the next batches, which stay held.

        These are ``most``, or fewer where another shape follows or ``stop()`` is true.
        """
        count = 0
        while count < most and not (count and stop()):
            if count == len(self._held):
                waiting.start()
                with self.ledger.line("waiting"):
                    self._held.append(self._feed.get())
                waiting.stop()
            if shape(self._held[count]) != shape(self._held[0]):
                break
            count += 1
        return list(islice(self._held, count))

    def _dispatches(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, ...]]:
        for _, alike in groupby(batches, key=shape):
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
        self._feed.resume()

    def _end(self, watch: Stopwatch) -> None:
        # An interruption inside a step may leave a state whose memory was given away.
        if not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state.parameters)):
            jax.block_until_ready(self.state)
        with self.ledger.line("waiting"):
            self._feed.pause()
        watch.stop()

    def _compile_refresh(self, refresher: Refresher) -> None:
        # Before a clock starts; :meth:`_compile` records the time.
        watch = Stopwatch()
        with self.ledger.line("compile"):
            watch.start()
            refresher.warm_up(self.state, self.iteration)
            watch.stop()
        self._refresh_compiled = watch.seconds

    def _compile(self, batch: Batch) -> None:
        """Compile for a batch's shape by running on copies of the state; record the time."""
        if self._compiled:
            more = f"{capacity(batch)} item slots, more than {self.item_slots}"
            if capacity(batch) <= self.item_slots:
                more = "more room for linked pairs"
            self.say(f"A batch needs {more}: compiling again, off the clock.")
        self.item_slots = max(self.item_slots, capacity(batch))
        watch = Stopwatch()
        with self.ledger.line("compile"):
            watch.start()
            if self.trainer.layout.size == 1:
                needed = step_bytes(self.trainer, self.state, batch, self.content)
                require_memory(self.trainer.config, needed)
            for count in sorted({1, self._per_dispatch}):
                jax.block_until_ready(self._run(copy_state(self.state), (batch,) * count))
            watch.stop()
        self._compiled.add(shape(batch))
        seconds, self._refresh_compiled = watch.seconds + self._refresh_compiled, 0.0
        self.samples.append(Sample("compile", self.iteration, 1, seconds))


@contextmanager
def timed_loops(
    dataset: Dataset,
    content: DeviceContent,
    configs: Mapping[str, RunConfig],
    *,
    on_one_device: bool = False,
) -> Iterator[dict[str, TimedLoop]]:
    """Open a loop for each of some settings, from the initial parameters and the first batch.

    Args:
        configs: settings by the names of their loops.
        on_one_device: train on one device, with the batches that the settings give.
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


def interleave(loops: Sequence[TimedLoop], rounds: int, block: Callable[[TimedLoop], int]) -> None:
    """Measure loops in turn, round after round, so that a disturbance meets all of them.

    Each loop warms up first.

    Args:
        block: returns the iterations of a loop's block.
    """
    for loop in loops:
        loop.warm_up(min(block(loop), STEP_BATCHES))
    for _ in range(rounds):
        for loop in loops:
            loop.full_block(block(loop))
            loop.step_block()
