"""A session of a run: sample and step on the clock; probe, recall, checkpoints, tables off it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from ncfbench.distributed.process_group import AgreedInterrupt, ProcessGroup
from ncfbench.errors import DivergedError, shown
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.quality import COMPARED, Evaluation
from ncfbench.runs.recorder import Recorder
from ncfbench.sampling import plan_capacity
from ncfbench.sampling.batch import rounded_up
from ncfbench.storage import schemas, tables
from ncfbench.timing import environment
from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.timing.contention import OtherPrograms
from ncfbench.training.checkpoint import Best, Checkpoints, Saved
from ncfbench.training.evaluation_cost import describe_waits, forecast_evaluation
from ncfbench.training.loop import TimedLoop
from ncfbench.training.plan import RunPlan
from ncfbench.training.probe import Probe
from ncfbench.training.recall import make_evaluators
from ncfbench.training.recommend import Recommender
from ncfbench.training.state import Parameters, TrainState
from ncfbench.training.step import Trainer

TRACE_ITERATIONS = 10
CHECKPOINT_SECONDS = 30.0
"""Seconds between checkpoints, which are written at the next end of an epoch."""


class Session:
    """Trains a run from its last checkpoint. Use as a context manager.

    Args:
        plan: of the run.
        recorder: takes the run's rows.
        interrupted: called after each iteration; when it is true, the run is saved and raises
            KeyboardInterrupt.
        content: the texts on the device, where several runs share them.
        turns: an id of the sessions that take turns with this one
            (:func:`ncfbench.runs.folder.are_interleaved`); None where it trains alone.
    """

    def __init__(
        self,
        plan: RunPlan,
        recorder: Recorder,
        interrupted: Callable[[], bool],
        *,
        content: DeviceContent | None = None,
        turns: str | None = None,
    ) -> None:
        self.plan, self.recorder = plan, recorder
        self.is_saved = False
        """True if a checkpoint holds everything that was trained."""
        self._interrupted = interrupted
        self._config, self._schedule = plan.config, plan.schedule
        self._ledger, self._progress = recorder.ledger, recorder.progress
        self._group = ProcessGroup.current()
        self._trace = plan.trace
        self._losses: list[float] = []
        """Losses of the batches since the last row of the curve."""
        self._best: Best | None = None
        self._catch_up_epochs = 0
        self._checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS

        if content is None:
            with self._ledger.line("transfer"):
                content = jax.block_until_ready(DeviceContent.of(plan.dataset))
        self._trainer, fresh = Trainer.create(plan.config, plan.dataset, plan.layout)
        self._embedder = self._trainer.embedder(content)
        self._embedder.watch = self._progress.embedded
        self._probe = Probe(plan.dataset.graph, plan.config, self._embedder)
        self._evaluators, recall_reason = make_evaluators(plan.config, plan.dataset, self._embedder)
        self._checkpoints = (
            Checkpoints(recorder.folder / "checkpoints", self._progress.say)
            if recorder.folder
            else None
        )
        self._environment = environment.describe(plan.layout.describe()) | {
            "iterations_per_dispatch": self._trainer.per_dispatch
        }
        with self._ledger.line("checkpoint"):
            state, slots, earlier = self._restore(fresh)
        if earlier is None:
            slots = plan_capacity(plan.dataset.graph, plan.config)
        self._environment["interleaved"] = [*(earlier or []), turns]
        self._start = int(state.iteration)
        continued = None if earlier is None else self._start
        recorder.begin(self._environment, recall_reason, continued)
        for split, evaluator in self._evaluators.items():
            if len(evaluator.items) <= COMPARED:
                self._progress.say(
                    f"There are {len(evaluator.items)} {split} items: their recall@{COMPARED} is 1"
                    " by construction."
                )
        self._epoch_was_cut = self._start > 0 and not self._schedule.ends_epoch(self._start)
        """True if an interruption cut the current epoch: its times do not count."""
        self._loop = TimedLoop(
            trainer=self._trainer,
            state=state,
            content=content,
            sampler=plan.sampler,
            item_slots=slots,
            start=self._start,
            say=self._progress.say,
            ledger=self._ledger,
            embedder=self._embedder,
        )

    def __enter__(self) -> Self:
        self._write_environment()
        config = self._config
        title = f"{config.dataset} {config.encoder} {config.loss} {config.sampler}"
        self._progress.begin(title, self._schedule.last, self._start)
        if self._embedder.by_length and not self.is_done:
            self._announce_waits()
        with self._ledger.line("initialising"):
            self._others = OtherPrograms() if self._group.count == 1 else None
        self._loop.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self._loop.__exit__(*raised)
        finally:
            self._progress.end()
            self._environment["load_average_at_end"] = environment.load_average()
            self._environment["other_programs_cores"] = (
                None if self._others is None else round(self._others.cores(), 2)
            )
            self._write_environment()

    @property
    def iteration(self) -> int:
        """Iterations that are done."""
        return self._loop.iteration

    @property
    def epoch(self) -> int:
        """Whole epochs that are done."""
        return int(self._schedule.epoch_of(self._loop.iteration))

    @property
    def is_done(self) -> bool:
        """True if nothing is left to train."""
        return self._loop.iteration >= self._schedule.last

    def catch_up_until(self, epoch: int) -> None:
        """Exclude the times up to an epoch: the runs that this one takes turns with wait for it."""
        self._catch_up_epochs = epoch

    def advance_epoch(self) -> None:
        """Train to the end of the epoch, recording on the way.

        Raises:
            DivergedError: the loss stopped being finite.
            KeyboardInterrupt: interrupted; :attr:`is_saved` says whether the state was saved.
        """
        while not self.is_done:
            self.advance()
            if self._schedule.ends_epoch(self._loop.iteration):
                break

    def advance(self) -> None:
        """Train to the next probe, and record there, as :meth:`advance_epoch` does."""
        if self._loop.iteration == 0:
            self._record()
        # After the first block the step is compiled, and the queue of batches full.
        if self._trace is not None and self._loop.iteration > self._start:
            self._trace_block(self._trace)
        self._train_block()

    def evaluate(self) -> None:
        """Evaluate at the last probe too, though no epoch ends there; the curve's row gets it."""
        iteration = self._loop.iteration
        if iteration and not self._schedule.ends_epoch(iteration):
            self.recorder.add_evaluations(iteration, self._evaluated(self._parameters()))
            self._keep_best()

    def finish(self) -> None:
        """Save the state and write the records of a run that is done."""
        if self._trace is not None:
            self._progress.say(
                "No trace was written: too few iterations between two probes, or after the first."
                " Train for more epochs, or with a larger --probe-every."
            )
        self._write("running")  # the tables must have every sample before a checkpoint
        self._save_checkpoint()
        self._write("finished")
        if self.plan.recommend is not None and self.recorder.folder is not None:
            with self._timed("recommendation"):
                best = Recommender(self.plan.dataset, self._embedder, self.plan.recommend)
                saved = Saved(self._trainer.to_host(self._loop.state), {}, self._best)
                chosen = saved.reported(self.recorder.reported_iteration)
                best.write(self.recorder.folder, chosen, self._schedule)
            self._write("finished")

    def save(self) -> None:
        """Save the state of a run that is to continue later."""
        self._write("running")
        self._save_checkpoint()
        self._write("interrupted")
        self.is_saved = True

    def _train_block(self) -> None:
        self.is_saved = False
        first = self._loop.iteration
        stop = self._schedule.next_stop(first)
        slots = float(self._loop.item_slots)

        def after_iteration() -> bool:
            self._progress.advance(self._loop.iteration, slots)
            # Several processes stop together, at the end of a block.
            return self._group.count == 1 and self._interrupted()

        losses = self._loop.full_block(stop - first, stop=after_iteration)
        is_cut = self._loop.iteration < stop
        catches_up = self._schedule.epoch_of(first) < self._catch_up_epochs
        self.recorder.take(
            self._loop.take_samples(), resumed=self._epoch_was_cut or is_cut or catches_up
        )
        if self._schedule.ends_epoch(stop):
            self._epoch_was_cut = False
        self._losses += losses
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad):
            self._diverge(first + int(bad[0]) + 1, "the loss")
        if not is_cut:
            if self._schedule.ends_epoch(stop):
                self._loop.step_block(most=self._schedule.step_batches)
                self.recorder.take(self._loop.take_samples())
            self._record()
        with self._ledger.line("collective"):
            is_due = (
                self._checkpoints is not None
                and self._schedule.ends_epoch(stop)
                and time.perf_counter() >= self._checkpoint_due
            )
            interrupted, is_due = self._group.any(self._interrupted(), is_due)
        if interrupted and not self.is_done:
            self.save()
            raise AgreedInterrupt(self.recorder.folder)
        if is_due:
            self._write("running")
            self._save_checkpoint()
            self._checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS

    def _trace_block(self, folder: Path) -> None:
        # Tracing costs time, so these samples have a kind of their own.
        to_probe = self._schedule.next_stop(self._loop.iteration) - self._loop.iteration
        count = min(TRACE_ITERATIONS, to_probe - 1)
        if count < 1:
            return
        with (
            tables.storage_errors(folder),
            self._ledger.line("trace"),
            jax.profiler.trace(str(folder)),
        ):
            self._losses += self._loop.full_block(count, kind="traced")
        self.recorder.take(self._loop.take_samples())
        self._progress.say(f"A trace of {count} iterations is in {shown(folder)}.")
        self._trace = None

    def _record(self) -> None:
        iteration = self._loop.iteration
        parameters = self._parameters()
        with self._timed("probe"):
            probe_loss = self._probe(parameters)
        if not math.isfinite(probe_loss):
            self._diverge(iteration, "the probe")
        row: dict[str, Any] = dict.fromkeys(schemas.CURVE.names)
        row |= {
            "iteration": iteration,
            "epoch": self._schedule.epoch_of(iteration),
            "probe_loss": probe_loss,
            "batch_loss": float(np.mean(self._losses)) if self._losses else None,
        }
        evaluated = self._evaluated(parameters) if self._schedule.ends_epoch(iteration) else {}
        if self._schedule.ends_epoch(iteration):
            row |= self._observe_carry()
        self._losses = []
        self.recorder.record(row, evaluated)
        if evaluated:
            self._keep_best()

    def _keep_best(self) -> None:
        """Copy the parameters to the host if they are those of the best validation so far."""
        iteration = self._loop.iteration
        with self._ledger.line("collective"):
            (is_best,) = self._group.any(self.recorder.best_iteration == iteration)
        if is_best:
            with self._ledger.line("checkpoint"):
                shapes, state = self._trainer.shapes, self._loop.state
                parameters = self._trainer.layout.to_host(state.parameters, shapes.parameters)
                self._best = Best(iteration, jax.tree.map(np.array, parameters))

    def _observe_carry(self) -> dict[str, Any]:
        if not self._trainer.carry.is_observed:
            return {}
        with self._timed("probe"):
            found = self._trainer.carry.observe(self._loop.state, self._embedder)
        if found is None:
            return {}
        columns, text = found
        self._progress.say(text)
        return columns

    def _parameters(self) -> Parameters:
        return self._trainer.layout.to_one_device(self._loop.state.parameters)

    def _evaluated(self, parameters: Parameters) -> dict[str, Evaluation]:
        with self._timed("evaluation"):
            return {split: evaluator(parameters) for split, evaluator in self._evaluators.items()}

    def _announce_waits(self) -> None:
        parameters = self._parameters()
        with self._ledger.line("probe"):
            seconds = forecast_evaluation(self._embedder, self._probe, self._evaluators, parameters)
        held_out = sum(len(evaluator.items) for evaluator in self._evaluators.values())
        items = len(self._probe.links.nodes), held_out
        done = self._schedule.epoch_of(self._start)
        message = describe_waits(seconds, items, self._schedule, done)
        if message is not None:
            self._progress.say(message)

    def _diverge(self, iteration: int, what: str) -> None:
        message = (
            f"{what.capitalize()} is not finite at iteration {iteration}. Use a smaller"
            f" --learning-rate (now {self._config.learning_rate:g})."
        )
        self._write("diverged", message)
        folder = self.recorder.folder
        kept = f" What was recorded before is kept in {folder}." if folder else ""
        raise DivergedError(message + kept)

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        """Charge what happens inside to a line of the ledger, and record a sample of it."""
        watch = Stopwatch()
        with self._ledger.line(kind):
            watch.start()
            yield
            watch.stop()
        self.recorder.take([Sample(kind, self._loop.iteration, 1, watch.seconds)])

    def _restore(self, fresh: TrainState) -> tuple[TrainState, int, list[str | None] | None]:
        """Return the state to continue from, its item slots, and the ids of earlier sessions.

        Every process gets what the first one has read. Without a checkpoint these are the fresh
        state, 0 and None.
        """
        found = self._checkpoints.restore(self._trainer.shapes) if self._checkpoints else None
        (is_there,) = self._group.any(found is not None)
        if not is_there:
            return fresh, 0, None
        state, extra, self._best = found or (self._trainer.shapes, {}, None)
        self._losses = [float(loss) for loss in extra.get("pending_losses", [])]
        with self._ledger.line("collective"):
            slots = int(self._group.from_first(np.int32(extra.get("item_slots", 0))))
            state = self._trainer.from_host(self._group.from_first(state))
        return state, rounded_up(slots, self._config.devices), extra.get("interleaved", [None])

    def _save_checkpoint(self) -> None:
        with self._timed("checkpoint"):
            extra = {
                "item_slots": self._loop.item_slots,
                "pending_losses": self._losses,
                "interleaved": self._environment["interleaved"],
            }
            state = self._trainer.to_host(self._loop.state)
            if self._checkpoints:
                self._checkpoints.save(state, extra, self._best)

    def _write(self, status: str, message: str = "") -> None:
        self.recorder.write(status, self._loop.iteration, message)

    def _write_environment(self) -> None:
        if self.plan.layout.size > 1:
            sizes = self._trainer.sizes(self.plan.sampler, self._loop.item_slots, self.plan.dataset)
            self._environment["sent_bytes"] = sizes.sent(self._config.share)
        self.recorder.write_environment(self._environment)
