"""Training of a run: sample and step on the clock; probes, recall, checkpoints, records untimed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import DivergedError, Interrupted
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.folder import held
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.recorder import Recorder
from ncfbench.sampling import plan_capacity
from ncfbench.storage import schemas
from ncfbench.timing import environment
from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.timing.contention import OtherPrograms
from ncfbench.timing.ledger import Ledger
from ncfbench.training.checkpoint import Best, Checkpoints
from ncfbench.training.evaluation import Evaluators
from ncfbench.training.limits import layout_for
from ncfbench.training.loop import TimedLoop
from ncfbench.training.state import Parameters, TrainState, copy_state
from ncfbench.training.step import Trainer

CHECKPOINT_SECONDS = 30.0
"""Seconds between checkpoints, which are written at the next probe."""
LONG_BLOCK_SECONDS = 600.0
"""Seconds without a checkpoint after which one process writes one between probes, too."""


def train(run: Run) -> Iterator[float]:
    """Train a run to its end; yield the epochs that are done at each probe.

    Between two probes other runs may have their turn: the run's ledger counts its own turns alone.
    A generator that is dropped and made anew trains on.

    Raises:
        DivergedError: the loss stopped being finite.
        KeyboardInterrupt: interrupted; :attr:`Run.is_saved` says whether the state was saved.
    """
    while not run.is_done:
        with run.ledger.turn():
            if run.iteration == 0:
                run.record()
            if not run.is_over():
                run.train_to_probe()
            if run.is_over():
                run.finish()
        yield run.epochs


def train_epoch(run: Run) -> None:
    """Train a run to the end of its epoch, by :func:`train`."""
    for epochs in train(run):
        if epochs.is_integer():
            break


class Run:
    """A run that is open, from its last checkpoint on; to be closed.

    The first of several processes holds the run's folder and writes the records.

    Args:
        ledger: charged with what the run does.
        progress: shows the run to its user.
        interrupted: called after each iteration; when it is true, the run is saved and raises
            KeyboardInterrupt.
        content: the texts on the device, where several runs share them.
        again: delete what the folder holds, and start again.
        turns: an id of the runs that take turns with this one
            (:func:`ncfbench.runs.folder.are_interleaved`); None where it trains alone.
        stops_at_epochs: probe, evaluate and time steps at the end of each epoch. Else the run is
            probed as often as its settings say, and :meth:`evaluate` alone evaluates.

    Attributes:
        iteration_seconds: of the last block; None before the first.
        is_done: whether the run is trained to its end and written.
        is_saved: whether a checkpoint holds everything that was trained.

    Raises:
        DataError: a folder cannot be written, or its records are damaged.
        UsageError: see :func:`ncfbench.training.limits.layout_for`; or another process holds the
            folder.
    """

    def __init__(
        self,
        plan: RunPlan,
        ledger: Ledger,
        progress: Progress,
        interrupted: Callable[[], bool],
        *,
        content: DeviceContent | None = None,
        again: bool = False,
        turns: str | None = None,
        stops_at_epochs: bool = True,
    ) -> None:
        self.plan, self.ledger = plan, ledger
        self.is_done = self.is_saved = False
        self.iteration_seconds: float | None = None
        self._progress, self._interrupted = progress, interrupted
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
            self._layout, folder = layout_for(plan.config, plan.dataset), None
            if self._group.is_first:
                given = plan.locations.runs_dir, plan.config, plan.dataset
                folder = stack.enter_context(held(*given, again=again))
            self._prepare(folder, content, turns)
            stack.enter_context(self._session())
            stack.enter_context(self._loop)
            self._stack = stack.pop_all()

    def _prepare(
        self, folder: Path | None, content: DeviceContent | None, turns: str | None
    ) -> None:
        """Make what training needs, and restore the last checkpoint."""
        plan, say = self.plan, self._progress.say
        if content is None:
            with self.ledger.line("transfer"):
                content = jax.block_until_ready(DeviceContent.of(plan.dataset, [plan.config]))
        parts = plan.config, plan.dataset, self._layout
        self._checkpoints = None if folder is None else Checkpoints(folder / "checkpoints", say)
        is_begun = self._checkpoints is not None and bool(self._checkpoints.iterations())
        (is_begun,) = self._group.any(is_begun)
        restored = None
        if is_begun:  # memory holds one state: no initial one
            self._trainer = Trainer.without_state(*parts)
            with self.ledger.line("checkpoint"):
                restored = self._restore()
        if restored is None:
            self._trainer, state = Trainer.create(*parts)
            slots = plan_capacity(plan.dataset.graph, plan.config)
        else:
            state, slots = restored
        self._evaluators = Evaluators(self._trainer, plan.dataset, content)
        self._evaluators.embedder.watch = self._progress.embedded
        start = int(state.iteration)
        self._epoch_was_cut = start > 0 and not self._schedule.ends_epoch(start)
        """True if an interruption cut the current epoch: its times do not count."""
        self._environment = environment.describe(self._layout.describe()) | {
            "updated_by_row": ["/".join(name) for name in self._trainer.optimizer.tables],
            "interleaved": [*self._turns, turns],
        }
        kept = plan.config, plan.dataset.fingerprint, plan.schedule, self.ledger, self._progress
        session = self._environment, self._evaluators.recall_reason, start if restored else None
        self.recorder = Recorder(*kept, folder, *session)
        timed = self._trainer, state, content, plan.sampler, slots, start
        self._loop = TimedLoop(*timed, say=say, ledger=self.ledger)

    @contextmanager
    def _session(self) -> Iterator[None]:
        """Show the run, and write its environment at both ends."""
        config = self.plan.config
        title = f"{config.dataset} {config.encoder} {config.loss} {config.sampler}"
        programs = OtherPrograms() if self._group.count == 1 else None
        try:
            self.recorder.write_environment()
            self._progress.begin(title, self._schedule.last, self.iteration)
            for note in self._evaluators.notes():
                self._progress.say(note)
            yield
        finally:
            self._progress.end()
            cores = programs and round(programs.cores(), 2)
            self._environment["other_programs_cores"] = cores
            self.recorder.write_environment()

    def close(self) -> None:
        """Release the run's folder and memory."""
        with self.ledger.turn():
            self._stack.close()

    @property
    def iteration(self) -> int:
        """Iterations that are done."""
        return self._loop.iteration

    @property
    def epochs(self) -> float:
        """Epochs that are done; whole at an epoch's end."""
        return self._schedule.epoch_of(self.iteration)

    def is_over(self) -> bool:
        """Return whether all is trained; several processes ask together."""
        is_last = self.iteration == self._schedule.last
        if self.plan.config.epochs or is_last:
            return is_last
        with self.ledger.line("collective"):
            return bool(self._group.any(self.recorder.is_over)[0])

    def finish(self) -> None:
        """Save a run that is over, and close it."""
        if self.iteration < self._schedule.last:
            self._progress.say(
                f"Stopped after epoch {self.epochs:g}: validation recall has not risen for"
                f" {self.plan.config.patience} epochs."
            )
        self._save_checkpoint()
        self.recorder.write("finished", self.iteration)
        self.is_done = True
        self.close()

    def save(self) -> None:
        """Save the state of a run that is to continue later."""
        with self.ledger.turn():
            self._save_checkpoint()
            self.recorder.write("interrupted", self.iteration)
            self.is_saved = True

    def catch_up_until(self, epoch: float) -> None:
        """Mark times before an epoch as unused, because this run catches up alone."""
        self._catch_up_epochs = int(epoch)

    def train_for(self, seconds: float) -> None:
        """Train for some seconds, to half an iteration, whatever its iterations take, or to the end
        of the run, which it then finishes.

        Nothing is recorded at the probes on the way. One iteration is the least, and the first one
        shows how many fit. The numbers that a run trains do not depend on such stops.

        Raises:
            DivergedError, KeyboardInterrupt: see :func:`train`.
        """
        with self.ledger.turn():
            left = seconds
            while self.iteration < self._schedule.last:
                stop, pace = self._schedule.next_stop(self.iteration), self.iteration_seconds
                fitting = max(round(left / pace) if pace else 1, 1)
                left -= self._train_block(min(stop, self.iteration + fitting), seconds=left)
                if self.iteration == stop:
                    self._settle()
                self._agree_to_stop(is_at_probe=False)
                if left <= (self.iteration_seconds or 0.0) / 2:
                    break
            if self.is_over():
                if not self._is_recorded:
                    self.record()
                self.finish()

    def train_to_probe(self) -> None:
        """Train to the next probe, and record there."""
        stop = self._schedule.next_stop(self.iteration)
        while self.iteration < stop:
            self._train_block(stop)
            if self.iteration < stop:
                if self._interrupted():
                    break
                self._save_checkpoint()  # the last one is long ago
        if is_at_probe := self.iteration == stop:
            self._settle()
            self.record()
        self._agree_to_stop(is_at_probe=is_at_probe)

    def _train_block(self, stop: int, seconds: float | None = None) -> float:
        """Train to an iteration, or less far: for some seconds, or until one process is interrupted
        or has had no checkpoint for long. Return the seconds of training.
        """
        self.is_saved = False
        first, slots, began = self.iteration, float(self._loop.item_slots), time.perf_counter()
        overdue = self._checkpoint_due + LONG_BLOCK_SECONDS - CHECKPOINT_SECONDS
        catches_up = self._schedule.epoch_of(first) < self._catch_up_epochs

        def after_iteration() -> bool:
            self._progress.advance(self.iteration, slots)
            now = time.perf_counter()
            if seconds is not None and now - began >= seconds:
                return True
            is_overdue = seconds is None and now >= overdue
            # Several processes stop together, at the end of a block.
            return self._group.count == 1 and (self._interrupted() or is_overdue)

        losses = self._loop.full_block(stop - first, stop=after_iteration)
        samples = self._loop.take_samples()
        was_cut = seconds is None and self.iteration < stop and self._interrupted()
        self.recorder.take(samples, resumed=self._epoch_was_cut or catches_up or was_cut)
        self._losses += losses
        infinite = np.flatnonzero(~np.isfinite(losses))
        if len(infinite):
            self._diverge(first + int(infinite[0]) + 1, "The loss")
        trained = math.fsum(sample.seconds for sample in samples if sample.kind == "full")
        self.iteration_seconds = trained / len(losses)
        if not self._schedule.stops_at_epochs:
            self._epoch_was_cut = False
        return trained

    def _settle(self) -> None:
        """Bring all rows up to date at a probe, and time steps at an epoch's end."""
        with self.ledger.line("probe"):
            self._loop.settle()
        if self._schedule.stops_at_epochs and self._schedule.ends_epoch(self.iteration):
            self._epoch_was_cut = False
            self._time_steps()

    def _time_steps(self) -> None:
        """Time the step account, which runs on a copy of the state, where memory can hold one."""
        with self.ledger.line("collective"):
            (has_none,) = self._group.any(not self._loop.has_room_for_copy())
        if not has_none:
            self._loop.step_block(self._schedule.step_batches)
            self.recorder.take(self._loop.take_samples())
        elif self._times_steps:
            self._progress.say(
                "Steps are not timed by themselves: memory has no room for a copy of the state."
            )
        self._times_steps = not has_none

    def _agree_to_stop(self, *, is_at_probe: bool) -> None:
        """Save a run that is interrupted, and raise; write a checkpoint at a probe where one is
        due.
        """
        is_due = is_at_probe and time.perf_counter() >= self._checkpoint_due
        with self.ledger.line("collective"):
            flags = self._interrupted(), is_due and self._checkpoints is not None
            interrupted, is_due = self._group.any(*flags)
        if interrupted and self.iteration < self._schedule.last:
            self.save()
            raise Interrupted(self.recorder.folder)
        if is_due:
            self._save_checkpoint()

    def record(self) -> None:
        """Probe, and evaluate where that is due; add a row to the curve."""
        iteration, parameters = self.iteration, self._parameters()
        with self._timed("probe"):
            probe_loss = self._evaluators.probe(parameters)
        if not math.isfinite(probe_loss):
            self._diverge(iteration, "The probe")
        row: dict[str, Any] = dict.fromkeys(schemas.CURVE.names)
        row["iteration"], row["epoch"] = iteration, self.epochs
        row["probe_loss"] = probe_loss
        row["batch_loss"] = float(np.mean(self._losses)) if self._losses else None
        self._losses = []
        is_due = self._schedule.stops_at_epochs or iteration == self._schedule.last
        ends_epoch = self._schedule.ends_epoch(iteration)
        evaluated = self._evaluated(parameters) if ends_epoch and is_due else {}
        self.recorder.record(row, evaluated)
        if evaluated:
            self._keep_best()

    def evaluate(self) -> None:
        """Evaluate at this iteration, unless that was done; the curve's row gets it."""
        with self.ledger.turn():
            if self.iteration and not self._is_recorded:
                self.record()
            if self.iteration and not self.recorder.is_evaluated:
                self.recorder.add_evaluations(self._evaluated(self._parameters()))
                self._keep_best()

    def forecast_evaluation(self) -> float:
        """Return about how many seconds a probe and an evaluation embed costly items; the first
        call times a block of them.
        """
        with self.ledger.turn(), self.ledger.line("probe"):
            return self._evaluators.forecast(self._parameters())

    @property
    def is_evaluated(self) -> bool:
        """Whether this iteration has been evaluated."""
        return self._is_recorded and self.recorder.is_evaluated

    @property
    def _is_recorded(self) -> bool:
        row = self.recorder.last_row
        return row is not None and row["iteration"] == self.iteration

    def _keep_best(self) -> None:
        """Copy the parameters to the host if their epoch is the one to report so far."""
        with self.ledger.line("collective"):
            (is_best,) = self._group.any(self.recorder.reported_iteration == self.iteration)
        if is_best:
            with self.ledger.line("checkpoint"):
                parameters = self._trainer.layout.to_host(self._settled().parameters)
                self._best = Best(self.iteration, jax.tree.map(np.array, parameters))

    def _evaluated(self, parameters: Parameters) -> dict[str, Evaluation]:
        with self._timed("evaluation"):
            return self._evaluators.evaluate(parameters)

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

    def _diverge(self, iteration: int, value: str) -> None:
        message = (
            f"{value} is not finite at iteration {iteration}. Use a smaller"
            f" --learning-rate (now {self.plan.config.learning_rate:g})."
        )
        self.recorder.write("diverged", self.iteration, message)
        folder = self.recorder.folder
        kept = f" What was recorded before is kept in {folder}." if folder else ""
        raise DivergedError(message + kept)

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        """Charge what happens inside to a line of the ledger, and record a sample of it."""
        watch = Stopwatch()
        with self.ledger.line(kind):
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
        put = jnp.array if self._layout.size == 1 else np.asarray
        saved = self._checkpoints.restore(shapes, put) if self._checkpoints else None
        (is_there,) = self._group.any(saved is not None)
        if not is_there:
            return None
        state, extra, self._best = saved or (shapes, {}, None)
        self._losses, self._turns = extra.get("pending_losses", []), extra.get("interleaved", [])
        with self.ledger.line("collective"):
            slots = int(self._group.from_first(np.int32(extra.get("item_slots", 0))))
            state = self._trainer.layout.replicate(self._group.from_first(state))
        return state, slots

    def _save_checkpoint(self) -> None:
        # The tables must have every sample before a checkpoint.
        self.recorder.write("running", self.iteration)
        with self._timed("checkpoint"):
            extra = {
                "item_slots": self._loop.item_slots,
                "pending_losses": self._losses,
                "interleaved": self._environment["interleaved"],
            }
            state = self._trainer.layout.to_host(self._loop.state)
            if self._checkpoints:
                self._checkpoints.save(state, extra, self._best)
        self._checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS
