"""A session of a run: sample and step on the clock; probe, recall, checkpoints, tables off it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import DivergedError, Interrupted
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import Evaluation
from ncfbench.sampling import plan_capacity
from ncfbench.storage import schemas
from ncfbench.timing import environment
from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.timing.contention import OtherPrograms
from ncfbench.timing.ledger import Ledger
from ncfbench.training.checkpoint import Best, Checkpoints
from ncfbench.training.evaluation import Evaluators
from ncfbench.training.loop import TimedLoop
from ncfbench.training.plan import RunPlan
from ncfbench.training.state import Parameters, TrainState, copy_state
from ncfbench.training.step import Trainer

CHECKPOINT_SECONDS = 30.0
"""Seconds between checkpoints, which are written at the next probe."""
LONG_BLOCK_SECONDS = 600.0
"""Seconds without a checkpoint after which one process writes one between probes, too."""


class Session:
    """Trains a run from its last checkpoint, alone or in turn with others; to be closed.

    The first of several processes holds the run's folder and writes the records.

    Args:
        ledger: charged with what the session does.
        progress: shows the run to its user.
        interrupted: called after each iteration; when it is true, the run is saved and raises
            KeyboardInterrupt.
        folder: the folder of a run to continue; by default a new one is made.
        content: the texts on the device, where several runs share them.
        turns: an id of the sessions that take turns with this one
            (:func:`ncfbench.runs.folder.are_interleaved`); None where it trains alone.
        stops_at_epochs: probe, evaluate and time steps at the end of each epoch. Else the run is
            probed as often as its settings say, and :meth:`evaluate` alone evaluates.

    Attributes:
        iteration_seconds: of the last block; None before the first.

    Raises:
        DataError: a folder cannot be written, or its records are damaged.
        UsageError: another process holds the folder.
    """

    def __init__(
        self,
        plan: RunPlan,
        ledger: Ledger,
        progress: Progress,
        interrupted: Callable[[], bool],
        *,
        folder: Path | None = None,
        content: DeviceContent | None = None,
        turns: str | None = None,
        stops_at_epochs: bool = True,
    ) -> None:
        self.plan = plan
        self.is_done = False
        """True if the run is trained to its end and written."""
        self.is_saved = False
        """True if a checkpoint holds everything that was trained."""
        self.iteration_seconds: float | None = None
        self._ledger, self._progress, self._interrupted = ledger, progress, interrupted
        self._config = plan.config
        self._schedule = replace(plan.schedule, stops_at_epochs=stops_at_epochs)
        self._group = ProcessGroup.current()
        self._losses: list[float] = []
        """Losses of the batches since the last row of the curve."""
        self._best: Best | None = None
        self._turns: list[str | None] = []
        """Those of the earlier sessions of the run."""
        self._catch_up_epochs = 0
        self._times_steps = True
        self._checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS
        with ExitStack() as stack, ledger.line("initialising"):
            self.recorder = stack.enter_context(plan.open_recorder(ledger, progress, folder))
            self._prepare(content, turns)
            stack.callback(self._end)
            self._begin()
            stack.enter_context(self._loop)
            self._stack = stack.pop_all()

    def _prepare(self, content: DeviceContent | None, turns: str | None) -> None:
        """Make what training needs, and restore the last checkpoint."""
        plan, say = self.plan, self._progress.say
        if content is None:
            with self._ledger.line("transfer"):
                content = jax.block_until_ready(DeviceContent.of(plan.dataset, [plan.config]))
        folder, parts = self.recorder.folder, (plan.config, plan.dataset, plan.layout)
        self._checkpoints = None if folder is None else Checkpoints(folder / "checkpoints", say)
        is_begun = self._checkpoints is not None and bool(self._checkpoints.iterations())
        (is_begun,) = self._group.any(is_begun)
        restored = None
        if is_begun:  # memory holds one state: no initial one
            self._trainer = Trainer.without_state(*parts)
            with self._ledger.line("checkpoint"):
                restored = self._restore()
        if restored is None:
            self._trainer, state = Trainer.create(*parts)
            slots = plan_capacity(plan.dataset.graph, plan.config)
        else:
            state, slots = restored
        self._evaluators = Evaluators(self._trainer, plan.dataset, content)
        self._evaluators.embedder.watch = self._progress.embedded
        self._start = int(state.iteration)
        self._epoch_was_cut = self._start > 0 and not self._schedule.ends_epoch(self._start)
        """True if an interruption cut the current epoch: its times do not count."""
        self._environment = environment.describe(plan.layout.describe()) | {
            "updated_by_row": ["/".join(name) for name in self._trainer.optimizer.tables],
            "interleaved": [*self._turns, turns],
        }
        self.recorder.begin(
            self._environment, self._evaluators.recall_reason, self._start if restored else None
        )
        loop = partial(TimedLoop, say=say, ledger=self._ledger)
        self._loop = loop(self._trainer, state, content, plan.sampler, slots, self._start)

    def _begin(self) -> None:
        config, schedule = self._config, self._schedule
        self.recorder.write_environment()
        title = f"{config.dataset} {config.encoder} {config.loss} {config.sampler}"
        self._progress.begin(title, schedule.last, self._start)
        for note in self._evaluators.notes():
            self._progress.say(note)
        self._others = OtherPrograms() if self._group.count == 1 else None

    def _end(self) -> None:
        self._progress.end()
        self._environment["other_programs_cores"] = self._others and round(self._others.cores(), 2)
        self.recorder.write_environment()

    def close(self) -> None:
        """Release the run's folder and memory."""
        with self._ledger.turn():
            self._stack.close()

    @property
    def iteration(self) -> int:
        """Iterations that are done."""
        return self._loop.iteration

    @property
    def epoch(self) -> int:
        """Whole epochs that are done."""
        return int(self._schedule.epoch_of(self.iteration))

    def catch_up_until(self, epoch: int) -> None:
        """Exclude the times up to an epoch: the runs that this one takes turns with wait for it."""
        self._catch_up_epochs = epoch

    def advance_epoch(self) -> bool:
        """Train to the end of the epoch like :meth:`advance`; return whether the run is done."""
        self.advance()
        while not (self.is_done or self._schedule.ends_epoch(self.iteration)):
            self.advance()
        return self.is_done

    def advance(self, seconds: float | None = None) -> None:
        """Train to the next probe, and record there; after the last, finish the run and close it.

        Args:
            seconds: of training, after which it stops between two iterations, whatever these take;
                nothing is recorded there, nor at probes. One iteration is the least; the first one
                shows how many fit. The numbers that a run trains do not depend on such stops.

        Raises:
            DivergedError: the loss stopped being finite.
            KeyboardInterrupt: interrupted; :attr:`is_saved` says whether the state was saved.
        """
        with self._ledger.turn():
            if seconds is not None:
                self._train_for(seconds)
            elif self.iteration == 0:
                self._record()
            if seconds is None and not self._is_over():
                self._train_block()
            if self._is_over():
                if seconds is not None and not self._is_recorded:
                    self._record()
                self._finish()
                self.close()

    def _is_over(self) -> bool:
        is_last = self.iteration == self._schedule.last
        if self._config.epochs or is_last:
            return is_last
        with self._ledger.line("collective"):
            return bool(self._group.any(self.recorder.is_over)[0])

    def evaluate(self) -> None:
        """Evaluate at this iteration, unless that was done; the curve's row gets it."""
        with self._ledger.turn():
            if self.iteration and not self._is_recorded:
                self._record()
            if self.iteration and not self.recorder.is_evaluated:
                evaluated = self._evaluated(self._parameters())
                self.recorder.add_evaluations(self.iteration, evaluated)
                self._keep_best()

    def forecast_evaluation(self) -> float:
        """Return about how many seconds a probe and an evaluation embed costly items; the first
        call times a block of them.
        """
        with self._ledger.turn(), self._ledger.line("probe"):
            return self._evaluators.forecast(self._parameters())

    @property
    def is_evaluated(self) -> bool:
        """Whether this iteration has been evaluated."""
        return self._is_recorded and self.recorder.is_evaluated

    @property
    def _is_recorded(self) -> bool:
        row = self.recorder.last_row
        return row is not None and row["iteration"] == self.iteration

    def save(self) -> None:
        """Save the state of a run that is to continue later."""
        with self._ledger.turn():
            self._save_checkpoint()
            self._write("interrupted")
            self.is_saved = True

    def _finish(self) -> None:
        self._save_checkpoint()
        self._write("finished")
        self.is_done = True

    def _train_for(self, seconds: float) -> None:
        """Train for some seconds, to half an iteration, or to the end of the run."""
        left = seconds
        while self.iteration < self._schedule.last:
            left -= self._train_block(left)
            if left <= (self.iteration_seconds or 0.0) / 2:
                break

    def _train_block(self, seconds: float | None = None) -> float:
        """Train to the next stop, or for some seconds if these are over before; return the seconds
        of training.
        """
        self.is_saved = False
        first, slots, began = self.iteration, float(self._loop.item_slots), time.perf_counter()
        stop = wanted = self._schedule.next_stop(first)
        ends_epoch = self._schedule.ends_epoch(stop)
        if seconds is not None:
            pace = self.iteration_seconds
            wanted = min(stop, first + max(round(seconds / pace) if pace else 1, 1))

        catches_up = self._schedule.epoch_of(first) < self._catch_up_epochs
        # Several processes stop together, at the end of a block.
        is_alone = self._group.count == 1

        def is_overdue() -> bool:
            late = LONG_BLOCK_SECONDS - CHECKPOINT_SECONDS
            return time.perf_counter() >= self._checkpoint_due + late

        def after_iteration() -> bool:
            self._progress.advance(self.iteration, slots)
            if seconds is not None and time.perf_counter() - began >= seconds:
                return True
            return is_alone and (self._interrupted() or (seconds is None and is_overdue()))

        while True:
            first = self.iteration
            losses = self._loop.full_block(wanted - first, stop=after_iteration)
            samples, is_cut = self._loop.take_samples(), self.iteration < stop
            goes_on = seconds is None and is_cut and not self._interrupted()
            was_cut = seconds is None and is_cut and not goes_on
            self.recorder.take(samples, resumed=self._epoch_was_cut or catches_up or was_cut)
            self._losses += losses
            bad = np.flatnonzero(~np.isfinite(losses))
            if len(bad):
                self._diverge(first + int(bad[0]) + 1, "The loss")
            if not goes_on:
                break
            self._save_checkpoint()
        trained = math.fsum(sample.seconds for sample in samples if sample.kind == "full")
        self.iteration_seconds = trained / len(losses)
        if ends_epoch or not self._schedule.stops_at_epochs:
            self._epoch_was_cut = False
        if not is_cut:
            with self._ledger.line("probe"):
                self._loop.settle()
            if ends_epoch and self._schedule.stops_at_epochs:
                self._time_steps()
            if seconds is None:
                self._record()
        with self._ledger.line("collective"):
            is_due = not is_cut and time.perf_counter() >= self._checkpoint_due
            interrupted, is_due = self._group.any(
                self._interrupted(), is_due and self._checkpoints is not None
            )
        if interrupted and self.iteration < self._schedule.last:
            self.save()
            raise Interrupted(self.recorder.folder)
        if is_due and seconds is None:
            self._save_checkpoint()
        return trained

    def _time_steps(self) -> None:
        """Time the step account, which runs on a copy of the state, where memory can hold one."""
        with self._ledger.line("collective"):
            (has_none,) = self._group.any(not self._loop.has_room_for_copy())
        if not has_none:
            self._loop.step_block(self._schedule.step_batches)
            self.recorder.take(self._loop.take_samples())
        elif self._times_steps:
            self._progress.say(
                "Steps are not timed by themselves: memory has no room for a copy of the state."
            )
        self._times_steps = not has_none

    def _record(self) -> None:
        iteration, state = self.iteration, self._settled()
        parameters = self._trainer.layout.to_one_device(state.parameters)
        ends_epoch = self._schedule.ends_epoch(iteration)
        with self._timed("probe"):
            probe_loss = self._evaluators.probe(parameters)
        if not math.isfinite(probe_loss):
            self._diverge(iteration, "The probe")
        row: dict[str, Any] = dict.fromkeys(schemas.CURVE.names)
        row["iteration"], row["epoch"] = iteration, self._schedule.epoch_of(iteration)
        row["probe_loss"] = probe_loss
        row["batch_loss"] = float(np.mean(self._losses)) if self._losses else None
        is_due = self._schedule.stops_at_epochs or iteration == self._schedule.last
        evaluated = self._evaluated(parameters) if ends_epoch and is_due else {}
        self._losses = []
        self.recorder.record(row, evaluated)
        if evaluated:
            self._keep_best()

    def _keep_best(self) -> None:
        """Copy the parameters to the host if their epoch is the one to report so far."""
        with self._ledger.line("collective"):
            (is_best,) = self._group.any(self.recorder.reported_iteration == self.iteration)
        if is_best:
            with self._ledger.line("checkpoint"):
                state = self._settled()
                parameters = self._trainer.layout.to_host(state.parameters)
                self._best = Best(self.iteration, jax.tree.map(np.array, parameters))

    def _parameters(self) -> Parameters:
        return self._trainer.layout.to_one_device(self._settled().parameters)

    def _settled(self) -> TrainState:
        """Return the state with all rows up to date: a copy between two stops, since that rounds,
        and a run trains the same numbers wherever it is evaluated.
        """
        state, iteration = self._loop.state, self.iteration
        is_stop = not iteration or self._schedule.next_stop(iteration - 1) == iteration
        if is_stop or not self._trainer.optimizer.tables:
            return state
        return self._trainer.settle(copy_state(state))

    def _evaluated(self, parameters: Parameters) -> dict[str, Evaluation]:
        with self._timed("evaluation"):
            return self._evaluators.evaluate(parameters)

    def _diverge(self, iteration: int, value: str) -> None:
        message = (
            f"{value} is not finite at iteration {iteration}. Use a smaller"
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
        self.recorder.take([Sample(kind, self.iteration, 1, watch.seconds)])

    def _restore(self) -> tuple[TrainState, int] | None:
        """Return the state to continue from and its item slots; None without a checkpoint.

        Every process gets what the first one has read.
        """
        shapes = self._trainer.shapes
        # Several devices get copies of what is read, one of them the arrays themselves.
        put = jnp.array if self.plan.layout.size == 1 else np.asarray
        saved = self._checkpoints.restore(shapes, put) if self._checkpoints else None
        (is_there,) = self._group.any(saved is not None)
        if not is_there:
            return None
        state, extra, self._best = saved or (shapes, {}, None)
        self._losses, self._turns = extra.get("pending_losses", []), extra.get("interleaved", [])
        with self._ledger.line("collective"):
            slots = int(self._group.from_first(np.int32(extra.get("item_slots", 0))))
            state = self._trainer.from_host(self._group.from_first(state))
        return state, slots

    def _save_checkpoint(self) -> None:
        self._write("running")  # the tables must have every sample before a checkpoint
        with self._timed("checkpoint"):
            extra = {
                "item_slots": self._loop.item_slots,
                "pending_losses": self._losses,
                "interleaved": self._environment["interleaved"],
            }
            state = self._trainer.to_host(self._loop.state)
            if self._checkpoints:
                self._checkpoints.save(state, extra, self._best)
        self._checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS

    def _write(self, status: str, message: str = "") -> None:
        self.recorder.write(status, self.iteration, message)
