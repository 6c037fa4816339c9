"""The training loop on a clock, in blocks of iterations and two accounts.

*full*: wall time of a block of iterations as a user runs them, sampling included, until the
updated state is there. *step*: the same iterations on batches that are already on the device.
Compilation is untimed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
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
from ncfbench.sampling.batch import Batch, Shape, shape
from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.timing.ledger import Ledger
from ncfbench.training.feed import DEPTH, Feed
from ncfbench.training.state import TrainState, copy_state
from ncfbench.training.step import Trainer, free_bytes


@dataclass
class TimedLoop:
    """A training loop on a clock: one sampler, one compiled step, one state. A context manager.

    Args:
        item_slots: V at first; grows, untimed, with the first batch that needs more.
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

    def __post_init__(self) -> None:
        self.iteration = self.start
        self._compiled: set[Shape] = set()
        self._step_bytes = 0
        self._recent: deque[Batch] = deque(maxlen=STEP_BATCHES)
        self.content = self.trainer.layout.replicate(self.content)
        batches, put = self.sampler.batches(self.start, self.item_slots), self.trainer.layout.put
        depth = 0 if jax.default_backend() == "cpu" else DEPTH
        self._feed = Feed(batches, put, depth)
        with self.ledger.line("initialising"):
            # A sampler makes tables when it first needs them: here, untimed.
            draw = next(self.sampler.draws(self.start, self.start + 1))
            self.sampler.assemble(draw, self.item_slots)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._feed.close()

    def take_samples(self) -> list[Sample]:
        """Return the samples since the last call, and forget them."""
        taken, self.samples = self.samples, []
        return taken

    def full_block(
        self, iterations: int, *, stop: Callable[[], bool] = lambda: False
    ) -> list[float]:
        """Train for some iterations, record a ``full`` sample, and return their losses.

        Ends early, after an iteration, when ``stop()`` is true.

        Raises:
            CheckFailedError: the step was compiled during timed work.
        """
        losses: list[jax.Array] = []
        counts: list[Any] = []
        watch, waiting = Stopwatch(), Stopwatch()
        first, stopped, traces = self.iteration, False, self.trainer.traces
        sampled, transferred = self._feed.sampling_seconds, self._feed.transfer_seconds
        with self.ledger.line("step"):
            self._start(watch)
            try:
                while len(counts) < iterations and not stopped:
                    waiting.start()
                    with self.ledger.line("waiting"):
                        batch = self._feed.get()
                    waiting.stop()
                    if shape(batch) not in self._compiled:
                        before = self.trainer.traces
                        self._stop(watch)
                        self._compile(batch)
                        self._start(watch)
                        traces += self.trainer.traces - before
                    self.state, loss = self.trainer.step(self.state, batch, self.content)
                    losses.append(loss)
                    self.iteration += 1
                    counts.append(batch.n_items)
                    self._recent.append(batch)
                    stopped = stop()
            finally:
                self._stop(watch)
        self._require_no_compilation(traces)
        self.samples.append(
            Sample(
                kind="full",
                first_iteration=first,
                iterations=len(counts),
                seconds=watch.seconds,
                sampling_seconds=self._feed.sampling_seconds - sampled,
                transfer_seconds=self._feed.transfer_seconds - transferred,
                waiting_seconds=waiting.seconds,
                item_slots=float(np.mean([int(count) for count in counts])),
            )
        )
        return list(map(float, jax.device_get(losses)))

    def has_room_for_copy(self) -> bool:
        """Return whether memory can hold the state twice, and a step beside. Simulated devices
        share one memory.
        """
        layout, leaves = self.trainer.layout, jax.tree.leaves(self.state)
        size = sum(leaf.nbytes for leaf in leaves) * (layout.size if layout.is_simulated else 1)
        return bool(size + self._step_bytes <= free_bytes())

    def step_block(self, iterations: int | None = None) -> None:
        """Repeat the last batches on a copy of the state, and record a ``step`` sample.

        Args:
            iterations: cycles through the batches; by default each of them once.
        """
        count, traces = iterations or len(self._recent), self.trainer.traces
        with self.ledger.line("step account"):
            state, watch = copy_state(self.state), Stopwatch()
            batches = self.trainer.layout.keep(list(self._recent))
            jax.block_until_ready((state, batches))
            watch.start()
            for batch in islice(cycle(batches), count):
                state, _ = self.trainer.step(state, batch, self.content)
            jax.block_until_ready(state)
            watch.stop()
        self._require_no_compilation(traces)
        first = self.iteration - len(self._recent)
        self.samples.append(Sample("step", first, count, watch.seconds))

    def _require_no_compilation(self, traces: int) -> None:
        if self.trainer.traces != traces:
            raise CheckFailedError(
                "The step was compiled during timed work; its times cannot be trusted."
            )

    def settle(self) -> None:
        """Bring untouched rows up to date, for whoever reads the parameters.

        Call it at fixed iterations, since it rounds: an interrupted run must not do it elsewhere.
        """
        self.state = jax.block_until_ready(self.trainer.settle(self.state))

    def _start(self, watch: Stopwatch) -> None:
        watch.start()
        self._feed.resume()

    def _stop(self, watch: Stopwatch) -> None:
        # An interruption inside a step may leave a state whose memory was given away.
        if not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state.parameters)):
            jax.block_until_ready(self.state)
        with self.ledger.line("waiting"):
            self._feed.pause()
        watch.stop()

    def _compile(self, batch: Batch) -> None:
        """Compile for a batch's shape by running on a copy of the state, or without running where
        memory has no room for one; record the time.
        """
        if self._compiled:
            slots, most = len(batch.items), self.item_slots
            fewer = f"has {slots} item slots, fewer than {most}"
            other = f"needs {slots} item slots, more than {most}" if slots >= most else fewer
            self.say(f"A batch {other}: compiling again, untimed.")
        self.item_slots = max(self.item_slots, len(batch.items))
        watch = Stopwatch()
        with self.ledger.line("compile"):
            watch.start()
            has_room = True
            if self.trainer.layout.size == 1:
                needed = self.trainer.require_memory(self.state, batch, self.content)
                self._step_bytes = max(self._step_bytes, needed)
                has_room = self.has_room_for_copy()
            if has_room:  # else the analysis of its memory has compiled it
                copy = copy_state(self.state)
                jax.block_until_ready(self.trainer.step(copy, batch, self.content))
            watch.stop()
        self._compiled.add(shape(batch))
        self.samples.append(Sample("compile", self.iteration, 1, watch.seconds))


@contextmanager
def timed_loops(
    dataset: Dataset, content: DeviceContent, configs: Mapping[str, RunConfig]
) -> Iterator[dict[str, TimedLoop]]:
    """Open a loop for each of some settings, by name, at its first batch."""
    with ExitStack() as stack:
        loops = {}
        for name, config in configs.items():
            trainer, state = Trainer.create(config, dataset)
            sampler = make_sampler(dataset.graph, config, Streams(config.seed))
            loop = TimedLoop(trainer, state, content, sampler, plan_capacity(dataset.graph, config))
            loops[name] = stack.enter_context(loop)
        yield loops
