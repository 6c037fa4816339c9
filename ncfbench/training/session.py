"""A run that is open: sample -> step on the clock; probe, recall, checkpoint and tables off it;
records that outlive it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.distributed.process_group import AgreedInterrupt, ProcessGroup
from ncfbench.errors import DivergedError
from ncfbench.models.interaction import make_interaction
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.runs.recorder import Records
from ncfbench.runs.schedule import Schedule
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import rounded_up
from ncfbench.storage import schemas, tables
from ncfbench.storage.schemas import CUTOFFS
from ncfbench.timing import environment
from ncfbench.timing.ledger import Ledger
from ncfbench.training.checkpoint import Checkpoints
from ncfbench.training.evaluators import evaluators
from ncfbench.training.inference import Embedder
from ncfbench.training.loop import Sample, Stopwatch, TimedLoop
from ncfbench.training.probe import Probe
from ncfbench.training.recommend import Recommender
from ncfbench.training.step import Trainer, TrainState

TRACE_ITERATIONS = 10
CHECKPOINT_SECONDS = 30.0
"""At the first end of an epoch after so long: a killed run loses at most this much and an epoch."""


class OpenRun:
    """The state of one run while it runs."""

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        folder: Path | None,
        progress: Progress,
        interrupted: Callable[[], bool],
        ledger: Ledger,
        trace: Path | None = None,
        content: Content | None = None,
        session: str | None = None,
    ) -> None:
        self.config, self.dataset, self.folder = config, dataset, folder or Path()
        self.group = ProcessGroup.current()
        self.progress, self.interrupted = progress, interrupted
        self.ledger, self.trace = ledger, trace
        self.schedule = Schedule(
            dataset.graph.n_links, config.batch_size, config.epochs, config.probe_every
        )
        self.pending: list[float] = []
        """Losses of the batches since the last row of the curve."""
        self.recommend: int | None = None
        """Test items of each user to write at the end."""
        self.is_saved = False
        """Whether a checkpoint holds everything that was trained."""

        if content is None:
            with ledger.line("transfer"):
                content = jax.block_until_ready(Content.of(dataset))
        self.trainer, fresh = Trainer.create(config, dataset)
        self.environment = environment.describe(self.trainer.layout.describe()) | {
            "iterations_per_dispatch": self.trainer.per_dispatch
        }
        self.environment |= {"interleaved": [session]}
        self.records = Records(
            self.folder, config, dataset.fingerprint, self.schedule, ledger, self.environment
        )
        embedder = self.embedder = Embedder(self.trainer.towers, content)
        self.probe = Probe(dataset.graph, config, embedder)
        self.evaluators, self.records.recall_reason = evaluators(config, dataset, embedder)
        self.checkpoints = Checkpoints(folder / "checkpoints", progress.say) if folder else None
        self.checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS
        with ledger.line("checkpoint"):
            iteration, slots, state = self._restore(fresh)
        self.is_broken = iteration > 0 and not self.schedule.ends_epoch(iteration)
        """Whether an interruption cut the epoch at work: none of its times count."""
        self.alone_until = 0
        """Epochs that it catches up by itself, while runs that it takes turns with wait: their
        times do not count either.
        """
        self.sampler = make_sampler(dataset.graph, config, Streams(config.seed))
        self.loop = TimedLoop(
            trainer=self.trainer,
            state=state,
            content=content,
            sampler=self.sampler,
            item_slots=slots,
            start=iteration,
            say=progress.say,
            ledger=ledger,
        )

    def go(self) -> None:
        """Train to the end, recording on the way."""
        with self:
            while not self.done:
                self.advance_epoch()
            self.finish()

    def __enter__(self) -> Self:
        self._write_environment()
        title = (
            f"{self.config.dataset} {self.config.encoder} {self.config.loss} {self.config.sampler}"
        )
        self.progress.begin(title, self.schedule.last, self.loop.iteration)
        self.began = self.loop.iteration
        self.loop.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.loop.__exit__(kind, error, trace)
        finally:
            self.progress.end()
            self._write_environment({"load_average_at_end": environment.load_average()})

    @property
    def epoch(self) -> int:
        """Passes over the links that are behind it, whole ones."""
        return int(self.schedule.epoch_of(self.loop.iteration))

    @property
    def done(self) -> bool:
        """Whether nothing is left to train."""
        return self.loop.iteration >= self.schedule.last

    def advance_epoch(self) -> None:
        """Train to the end of the epoch, recording on the way.

        Raises:
            DivergedError: the loss stopped being finite.
            KeyboardInterrupt: interrupted; ``is_saved`` says whether the state was saved.
        """
        if (
            self.loop.iteration == 0 and not self.records.curve
        ):  # where it went on, only the first process has the curve
            self._record()
        while not self.done:
            # After the first block: what is compiled is compiled by then, and the queue of batches
            # is full.
            if (
                self.trace is not None
                and self.loop.iteration > self.began
                and self._trace_block(self.trace)
            ):
                self.trace = None
            self._train_block()
            if self.schedule.ends_epoch(self.loop.iteration):
                break

    def finish(self) -> None:
        """Save the state and write the records of a run that is done."""
        if self.trace is not None:
            few = "too few iterations between two probes, or after the first"
            self.progress.say(
                f"No trace was written: {few}. Train for more epochs, or with a larger"
                " --probe-every."
            )
        self._write("running")  # a checkpoint never knows of samples that the tables lack
        self._save_checkpoint()
        if self.recommend is not None:
            with self._timed("recommendation"):
                best = Recommender(
                    self.dataset, self.embedder, make_interaction(self.config), self.recommend
                )
                best.write(self.folder, self.trainer.to_host(self.loop.state), self.schedule)
            self._collect_samples(resumed=False)
        self._write("finished")

    def save(self) -> None:
        """Save the state of a run that is to go on later."""
        self._write("running")
        self._save_checkpoint()
        self._write("interrupted")
        self.is_saved = True

    def _train_block(self) -> None:
        """Train to the next probe; there, record and save. Stops where it was interrupted."""
        self.is_saved = False
        stop = self.schedule.next_stop(self.loop.iteration)
        slots = float(self.loop.item_slots)

        def after_iteration() -> bool:
            self.progress.advance(self.loop.iteration, slots)
            return (
                self.group.count == 1 and self.interrupted()
            )  # several processes stop together, at the end of a block

        first = self.loop.iteration
        losses = self.loop.full_block(stop - first, stop=after_iteration)
        cut = self.loop.iteration < stop
        self._collect_samples(
            resumed=self.is_broken or cut or self.schedule.epoch_of(first) < self.alone_until
        )
        if self.schedule.ends_epoch(stop):
            self.is_broken = False
        self.pending += losses
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad):
            self._diverged(first + int(bad[0]) + 1, "the loss")
        if not cut:
            if self.schedule.ends_epoch(stop):
                self.loop.step_block()
            self._record()
        with self.ledger.line("collective"):
            due = (
                self.group.is_first
                and self.schedule.ends_epoch(stop)
                and time.perf_counter() >= self.checkpoint_due
            )
            interrupted, due = self.group.any(self.interrupted(), due)
        if interrupted and self.loop.iteration < self.schedule.last:
            self.save()
            raise AgreedInterrupt
        if due:
            self._write("running")
            self._save_checkpoint()
            self.checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS

    def _trace_block(self, folder: Path) -> bool:
        """Train for a few iterations under JAX's profiler, if the next probe is that far off; else
        do nothing.

        Their samples are kept apart, for tracing costs time.
        """
        count = min(
            TRACE_ITERATIONS, self.schedule.next_stop(self.loop.iteration) - self.loop.iteration - 1
        )
        if count < 1:
            return False
        with (
            tables.storage_errors(folder),
            self.ledger.line("trace"),
            jax.profiler.trace(str(folder)),
        ):
            self.pending += self.loop.full_block(count)
        self.loop.samples[-1] = dataclasses.replace(self.loop.samples[-1], kind="traced")
        self._collect_samples(resumed=False)
        self.progress.say(f"A trace of {count} iterations is in {folder}.")
        return True

    def _record(self) -> None:
        """Probe, and at an epoch's end recall; then write the tables."""
        iteration = self.loop.iteration
        parameters = self.trainer.layout.to_one_device(self.loop.state.parameters)
        with self._timed("probe"):
            probe_loss = self.probe(parameters)
        if not math.isfinite(probe_loss):
            self._diverged(iteration, "the probe")
        row: dict[str, Any] = dict.fromkeys(schemas.CURVE.names)
        row |= {
            "iteration": iteration,
            "epoch": self.schedule.epoch_of(iteration),
            "train_seconds": self.records.train_seconds,
            "probe_loss": probe_loss,
            "batch_loss": float(np.mean(self.pending)) if self.pending else None,
        }
        if self.schedule.ends_epoch(iteration):
            with self._timed("evaluation"):
                for split, evaluator in self.evaluators.items():
                    values = evaluator(parameters)
                    row |= {f"{split}_recall_at_{m}": values[m] for m in CUTOFFS}
        self._collect_samples(resumed=False)
        self.pending = []
        self.records.curve.append(row)
        self.progress.record(row)
        if self.records.are_due:
            self._write("running")

    def _diverged(self, iteration: int, what: str) -> None:
        self.records.message = (
            f"{what.capitalize()} is not finite at iteration {iteration}. Use a smaller"
            f" --learning-rate (now {self.config.learning_rate:g})."
        )
        self._collect_samples(resumed=False)
        self._write("diverged")
        kept = f" What was recorded before is kept in {self.folder}." if self.group.is_first else ""
        raise DivergedError(self.records.message + kept)

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        watch = Stopwatch()
        with self.ledger.line(kind):
            watch.start()
            yield
            watch.stop()
        self.loop.samples.append(Sample(kind, self.loop.iteration, 1, watch.seconds))

    def _collect_samples(self, *, resumed: bool) -> None:
        self.records.take(map(dataclasses.asdict, self.loop.samples), resumed=resumed)
        self.loop.samples.clear()

    def _restore(self, fresh: TrainState) -> tuple[int, int, TrainState]:
        """Iteration, item slots and state to go on from; the records are cut back to that
        iteration.
        """
        found = self.checkpoints.restore(self.trainer.shapes) if self.checkpoints else None
        (is_there,) = self.group.any(found is not None)
        if not is_there:
            if self.checkpoints and (self.folder / "summary.parquet").exists():
                self.progress.say("No checkpoint to go on from: starting this run again.")
            return 0, plan_capacity(self.dataset.graph, self.config), fresh
        state, extra = found or (self.trainer.shapes, {})
        if found is not None:
            self._take_up(int(state.iteration), extra)
        with self.ledger.line("collective"):
            slots = int(self.group.from_first(np.int32(extra.get("item_slots", 0))))
            state = self.trainer.from_host(self.group.from_first(state))
        return int(state.iteration), rounded_up(slots, self.config.devices), state

    def _take_up(self, iteration: int, extra: dict[str, Any]) -> None:
        """The records of earlier sessions, up to a checkpoint's iteration."""
        self.records.go_on_from(runs.read(self.folder), iteration)
        self.pending = [float(loss) for loss in extra["pending_losses"]]
        self.environment["interleaved"] = [
            *extra.get("interleaved", [None]),
            *self.environment["interleaved"],
        ]
        if not self.records.is_of_one_environment:
            self.progress.say(
                "The environment has changed since this run began: its times will be those from"
                " here on."
            )

    def _save_checkpoint(self) -> None:
        with self._timed("checkpoint"):
            extra = {
                "item_slots": self.loop.item_slots,
                "pending_losses": self.pending,
                "interleaved": self.environment["interleaved"],
            }
            state = self.trainer.to_host(self.loop.state)
            if self.checkpoints:
                self.checkpoints.save(self.loop.iteration, state, extra)
        self._collect_samples(resumed=False)

    def _write(self, status: str) -> None:
        if self.group.is_first:
            self.records.write(status, self.loop.iteration)

    def _write_environment(self, more: dict[str, Any] | None = None) -> None:
        if self.group.is_first:
            sent: dict[str, Any] = {}
            if self.trainer.layout.size > 1:
                sizes = self.trainer.sizes(self.sampler, self.loop.item_slots, self.dataset)
                sent = {"sent_bytes": sizes.sent(self.config.share)}
            tables.write_json(
                self.folder / "environment.json", self.environment | sent | (more or {})
            )
