"""One run: sample -> step on the clock; probe, recall, checkpoint and tables off it; records that survive being killed."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ncfbench import analysis, environment, interrupts, runs, schemas, tables
from ncfbench.checkpoint import Checkpoints
from ncfbench.config import Locations, RunConfig
from ncfbench.datasets import Dataset, open_dataset
from ncfbench.embedding import Embedder
from ncfbench.errors import DivergedError
from ncfbench.evaluation import RecallEvaluator
from ncfbench.ledger import Ledger
from ncfbench.model import Content
from ncfbench.precision import require
from ncfbench.probe import Probe
from ncfbench.progress import Progress
from ncfbench.registry import find_encoder
from ncfbench.samplers import make_sampler, plan_capacity
from ncfbench.schedule import Schedule
from ncfbench.schemas import CUTOFFS
from ncfbench.step import Trainer, TrainState
from ncfbench.streams import Streams
from ncfbench.timing import Sample, Stopwatch, TimedLoop

TABLES_SECONDS = 1.0
"""Between writes of the tables: four synced files for each probe would take longer than a small run's training."""
TRAINING = ("full", "traced")
"""Kinds of samples whose iterations changed the parameters."""
TRACE_ITERATIONS = 10
STOPPING = "Stopping after this iteration, then saving. Ctrl-C again stops at once, back to the last checkpoint."
CHECKPOINT_SECONDS = 30.0
"""A killed run loses at most this much, or one epoch where that is longer."""


def run(
    config: RunConfig,
    places: Locations,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    trace: Path | None = None,
) -> runs.RunRecord:
    """Train, and leave a run folder behind.

    Args:
        trace: write a trace of JAX's profiler of a few iterations into this folder.
        resume: continue the newest run with these settings and data, if there is one; its curve ends as if it had never
            been interrupted.

    Returns:
        The run as its folder holds it.

    Raises:
        DataError: the data set is not prepared, or a folder cannot be written.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        KeyboardInterrupt: interrupted; the run can be resumed.
        UsageError: the device cannot compute at the precision.
    """
    require(config.precision)
    progress = progress or Progress()
    ledger = Ledger()
    if trace is not None:
        with tables.storage_errors(trace):
            trace.mkdir(parents=True, exist_ok=True)
    with ledger.line("loading"):
        dataset = open_dataset(places.data_dir, config.dataset, progress.say)
    make_sampler(dataset.graph, config, Streams(config.seed))  # refuses before a folder is made
    folder = runs.find(places.runs_dir, config, dataset.fingerprint) if resume else None
    if folder is None:
        if resume:
            progress.say("No run with these settings and data to resume: starting a new one.")
        folder = runs.create(places.runs_dir, config, dataset.fingerprint)
    with tables.lock(folder, "writing"):
        if resume and (folder / "summary.parquet").exists():
            record = runs.read(folder)
            if record.summary["status"] == "finished":
                progress.say(f"Already finished: {folder}" + (" (no trace was written)" if trace else ""))
                return record
        with interrupts.noted(progress.say, STOPPING) as interrupted, ledger.noticing_compilation():
            with ledger.line("initialising"):
                begun = _Run(config, dataset, folder, progress, interrupted, ledger, trace)
            begun.go()
        return runs.read(folder)


class _Run:
    """The state of one run while it runs."""

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        folder: Path,
        progress: Progress,
        interrupted: Callable[[], bool],
        ledger: Ledger,
        trace: Path | None = None,
    ) -> None:
        self.config, self.dataset, self.folder = config, dataset, folder
        self.progress, self.interrupted = progress, interrupted
        self.ledger, self.trace = ledger, trace
        self.schedule = Schedule(dataset.graph.n_links, config.batch_size, config.epochs, config.probe_every)
        self.curve: list[dict[str, Any]] = []
        self.timing: list[dict[str, Any]] = []
        self.pending: list[float] = []
        """Losses of the batches since the last row of the curve."""
        self.earlier_ledger: list[dict[str, Any]] = []
        """Rows of the sessions before this one."""
        self.sampler_seconds = {"sampling": 0.0, "transfer": 0.0}
        """Of the sampling thread, which works beside the main one."""
        self.message = ""

        with ledger.line("transfer"):
            content = jax.block_until_ready(Content.of(dataset))
        self.trainer, fresh = Trainer.create(config, dataset)
        self.environment = environment.describe() | {"iterations_per_dispatch": self.trainer.per_dispatch}
        embedder = Embedder(self.trainer.towers, content)
        self.probe = Probe(dataset.graph, config, embedder)
        self.evaluators, self.recall_reason = self._evaluators(embedder)
        self.checkpoints = Checkpoints(folder / "checkpoints", progress.say)
        self.checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS
        self.tables_due = time.perf_counter()
        with ledger.line("checkpoint"):
            iteration, slots, state = self._restore(fresh)
        self.resumed_inside_block = bool(self.pending)
        self.loop = TimedLoop(
            trainer=self.trainer,
            state=state,
            content=content,
            sampler=make_sampler(dataset.graph, config, Streams(config.seed)),
            item_slots=slots,
            start=iteration,
            say=progress.say,
            ledger=ledger,
        )

    def go(self) -> None:
        """Train to the end, recording on the way."""
        tables.write_json(self.folder / "environment.json", self.environment)
        title = f"{self.config.dataset} {self.config.encoder} {self.config.loss} {self.config.sampler}"
        self.progress.begin(title, self.schedule.last, self.loop.iteration)
        try:
            with self.loop:
                if not self.curve:
                    self._record()
                began = self.loop.iteration
                while self.loop.iteration < self.schedule.last:
                    # After the first block: what is compiled is compiled by then, and the queue of batches is full.
                    if self.trace is not None and self.loop.iteration > began and self._trace_block(self.trace):
                        self.trace = None
                    self._train_block()
                if self.trace is not None:
                    self.progress.say(
                        "No trace was written: too few iterations between two probes, or after the first. Train for more "
                        "epochs, or with a larger --probe-every."
                    )
                self._write("running")  # a checkpoint never knows of samples that the tables lack
                self._save_checkpoint()
                self._write("finished")
        finally:
            self.progress.end()
            at_end = {"load_average_at_end": environment.load_average()}
            tables.write_json(self.folder / "environment.json", self.environment | at_end)

    def _train_block(self) -> None:
        """Train to the next probe; there, record and save. Stops where it was interrupted."""
        stop = self.schedule.next_stop(self.loop.iteration)
        slots = float(self.loop.item_slots)

        def after_iteration() -> bool:
            self.progress.advance(self.loop.iteration, slots)
            return self.interrupted()

        first = self.loop.iteration
        losses = self.loop.full_block(stop - first, stop=after_iteration)
        cut = self.loop.iteration < stop
        self._collect_samples(resumed=self.resumed_inside_block or cut)
        self.resumed_inside_block = False
        self.pending += losses
        bad = np.flatnonzero(~np.isfinite(losses))
        if len(bad):
            self._diverged(first + int(bad[0]) + 1, "the loss")
        if not cut:
            if self.schedule.ends_epoch(stop):
                self.loop.step_block()
            self._record()
        if self.interrupted() and self.loop.iteration < self.schedule.last:
            self._write("running")
            self._save_checkpoint()
            self._write("interrupted")
            raise KeyboardInterrupt
        if self.schedule.ends_epoch(stop) and time.perf_counter() >= self.checkpoint_due:
            self._write("running")
            self._save_checkpoint()
            self.checkpoint_due = time.perf_counter() + CHECKPOINT_SECONDS

    def _trace_block(self, folder: Path) -> bool:
        """Train for a few iterations under JAX's profiler, if the next probe is that far off; else do nothing.

        Their samples are kept apart, for tracing costs time.
        """
        count = min(TRACE_ITERATIONS, self.schedule.next_stop(self.loop.iteration) - self.loop.iteration - 1)
        if count < 1:
            return False
        with tables.storage_errors(folder), self.ledger.line("trace"), jax.profiler.trace(str(folder)):
            self.pending += self.loop.full_block(count)
        self.loop.samples[-1] = dataclasses.replace(self.loop.samples[-1], kind="traced")
        self._collect_samples(resumed=False)
        self.progress.say(f"A trace of {count} iterations is in {folder}.")
        return True

    def _record(self) -> None:
        """Probe, and at an epoch's end recall; then write the tables."""
        iteration = self.loop.iteration
        parameters = self.loop.state.parameters
        with self._timed("probe"):
            probe_loss = self.probe(parameters)
        if not math.isfinite(probe_loss):
            self._diverged(iteration, "the probe")
        row: dict[str, Any] = dict.fromkeys(schemas.CURVE.names)
        row |= {
            "iteration": iteration,
            "epoch": self.schedule.epoch_of(iteration),
            "train_seconds": self._train_seconds(),
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
        self.curve.append(row)
        self.progress.record(row)
        if time.perf_counter() >= self.tables_due:
            self._write("running")

    def _diverged(self, iteration: int, what: str) -> None:
        self.message = (
            f"{what.capitalize()} is not finite at iteration {iteration}. Use a smaller --learning-rate "
            f"(now {self.config.learning_rate:g})."
        )
        self._collect_samples(resumed=False)
        self._write("diverged")
        raise DivergedError(f"{self.message} What was recorded before is kept in {self.folder}.")

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        watch = Stopwatch()
        with self.ledger.line(kind):
            watch.start()
            yield
            watch.stop()
        self.loop.samples.append(Sample(kind, self.loop.iteration, 1, watch.seconds))

    def _collect_samples(self, *, resumed: bool) -> None:
        for sample in self.loop.samples:
            self.sampler_seconds["sampling"] += sample.sampling_seconds or 0.0
            self.sampler_seconds["transfer"] += sample.transfer_seconds or 0.0
            more = {"resumed": resumed and sample.kind == "full", "environment_key": self.environment["key"]}
            self.timing.append(dataclasses.asdict(sample) | more)
        self.loop.samples.clear()

    def _train_seconds(self) -> float:
        return math.fsum(row["seconds"] for row in self.timing if row["kind"] in TRAINING)

    def _evaluators(self, embedder: Embedder) -> tuple[dict[str, RecallEvaluator], str | None]:
        if not find_encoder(self.config.encoder).scores_cold_items:
            return {}, f"{self.config.encoder} learns a vector for each item, and held-out items have none"
        made = {split: RecallEvaluator(self.dataset, split, embedder) for split in ("validation", "test")}
        reason = "no user has a held-out test item" if made["test"].empty else None
        return {split: evaluator for split, evaluator in made.items() if not evaluator.empty}, reason

    def _restore(self, fresh: TrainState) -> tuple[int, int, TrainState]:
        """Iteration, item slots and state to go on from; the records are cut back to that iteration."""
        found = self.checkpoints.restore(fresh)
        if found is None:
            if (self.folder / "summary.parquet").exists():
                self.progress.say("No checkpoint to go on from: starting this run again.")
            return 0, plan_capacity(self.dataset.graph, self.config), fresh
        state, extra = found
        iteration = int(state.iteration)
        record = runs.read(self.folder)
        self.curve = [row for row in record.curve if row["iteration"] <= iteration]
        self.timing = [
            row
            for row in record.timing
            if row["first_iteration"] + (row["kind"] in TRAINING) * row["iterations"] <= iteration
        ]
        self.pending = [float(loss) for loss in extra["pending_losses"]]
        self.earlier_ledger = record.ledger
        if any(row["environment_key"] != self.environment["key"] for row in self.timing):
            self.progress.say("The environment has changed since this run began: its times will be those from here on.")
        return iteration, int(extra["item_slots"]), state

    def _save_checkpoint(self) -> None:
        with self._timed("checkpoint"):
            extra = {"item_slots": self.loop.item_slots, "pending_losses": self.pending}
            self.checkpoints.save(self.loop.iteration, self.loop.state, extra)
        self._collect_samples(resumed=False)

    def _write(self, status: str) -> None:
        """Write the three tables; the summary last, so that it never speaks of rows that are not there."""
        with self.ledger.line("tables"):
            ledger = self._ledger_rows()
            tables.write_rows(self.folder / "curve.parquet", self.curve, schemas.CURVE)
            tables.write_rows(self.folder / "timing.parquet", self.timing, schemas.TIMING)
            tables.write_rows(self.folder / "ledger.parquet", ledger, schemas.LEDGER)
            tables.write_rows(self.folder / "summary.parquet", [self._summary(status, ledger)], schemas.SUMMARY)
            self.tables_due = time.perf_counter() + TABLES_SECONDS

    def _ledger_rows(self) -> list[dict[str, Any]]:
        session = max((row["session"] for row in self.earlier_ledger), default=0) + 1
        threads = {"main": self.ledger.seconds(), "sampler": self.sampler_seconds}
        return [
            *self.earlier_ledger,
            *(
                {"session": session, "thread": thread, "line": line, "seconds": seconds}
                for thread, lines in threads.items()
                for line, seconds in lines.items()
            ),
        ]

    def _summary(self, status: str, ledger: list[dict[str, Any]]) -> dict[str, Any]:
        reported = analysis.reported_row(self.curve, self.config.patience) or {}
        # Times of another environment are kept, but not mixed with this one's.
        timing = [row for row in self.timing if row["environment_key"] == self.environment["key"]]
        recalls = {name: reported.get(name) for name in schemas.SUMMARY.names if "_recall_at_" in name}
        full = [row for row in timing if row["kind"] == "full"]
        sampled = math.fsum(row["sampling_seconds"] for row in full)
        return {
            "run": self.folder.name,
            "status": status,
            **{name: getattr(self.config, name) for name in ("dataset", "sampler", "encoder", "loss", "seed")},
            "config": json.dumps(self.config.to_dict(), sort_keys=True),
            "data_fingerprint": self.dataset.fingerprint,
            "environment_key": self.environment["key"],
            "iterations": self.loop.iteration,
            "planned_iterations": self.schedule.last,
            "epochs": self.schedule.epoch_of(self.loop.iteration),
            "smallest_probe_loss": min((row["probe_loss"] for row in self.curve), default=None),
            "full_iteration_seconds": analysis.seconds_per_iteration(timing, "full"),
            "step_iteration_seconds": analysis.seconds_per_iteration(timing, "step"),
            "sampling_iteration_seconds": sampled / sum(row["iterations"] for row in full) if full else None,
            "train_seconds": self._train_seconds(),
            "wall_seconds": math.fsum(row["seconds"] for row in ledger if row["thread"] == "main"),
            "item_slots": analysis.weighted_mean(self.timing, "item_slots"),
            "reported_epoch": reported.get("epoch"),
            **recalls,
            "recall_reason": self.recall_reason,
            "message": self.message,
        }
