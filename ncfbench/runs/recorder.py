"""The recorder of a run: its rows while it is trained, and the tables that they become."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ncfbench.config import RunConfig
from ncfbench.runs.folder import RunRecord, read, write_evaluations
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.reported import choose_epoch, evaluations_of, is_chosen, measured_columns
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import schemas, tables
from ncfbench.timing.clock import Sample
from ncfbench.timing.ledger import Ledger


class Recorder:
    """Keeps curve, timing, ledger and summary of a run in a session, and writes them to its folder.

    Args:
        ledger: charged with the run's time.
        progress: shows the run to its user.
        folder: the run's folder (:mod:`ncfbench.runs.folder`). Without one nothing is kept: so in
            all processes of a run but the first.
        environment: the session's; times of another one are kept, but not mixed with these.
        recall_reason: why the run has no recall on test items.
        iteration: the checkpoint that the session continues from, to which the records of earlier
            ones are cut back; None to start again.
    """

    def __init__(
        self,
        config: RunConfig,
        data_fingerprint: str,
        schedule: Schedule,
        ledger: Ledger,
        progress: Progress,
        folder: Path | None,
        environment: Mapping[str, Any],
        recall_reason: str | None = None,
        iteration: int | None = None,
    ) -> None:
        self.folder, self.config, self.data_fingerprint = folder, config, data_fingerprint
        self.schedule, self.ledger, self.progress = schedule, ledger, progress
        self._environment, self._recall_reason = environment, recall_reason
        self._timed_key = environment["key"]
        """Key of the environment whose times count: the session's from its first iterations on."""
        self._curve: list[dict[str, Any]] = []
        self._evaluations: dict[tuple[int, str], Evaluation] = {}
        self._has_unwritten_evaluations = False
        self._timing: list[dict[str, Any]] = []
        self._earlier_ledger: list[dict[str, Any]] = []
        self._sampler_seconds = {"sampling": 0.0, "transfer": 0.0}
        """Seconds of the sampling thread, which works beside the main one."""
        if folder is not None and iteration is not None:
            self._continue_from(folder, iteration)
        elif folder is not None and (folder / "summary.parquet").exists():
            progress.say("No checkpoint to go on from: starting this run again.")

    @property
    def train_seconds(self) -> float:
        """Seconds of all iterations that changed the parameters."""
        return math.fsum(row["seconds"] for row in self._timing if row["kind"] == "full")

    @property
    def last_row(self) -> Mapping[str, Any] | None:
        """The latest row of the curve; None before the first."""
        return self._curve[-1] if self._curve else None

    @property
    def is_evaluated(self) -> bool:
        """Whether the latest row of the curve has been evaluated."""
        return bool(evaluations_of(self._curve[-1:]))

    @property
    def is_over(self) -> bool:
        """Whether the run stops where validation does, and validation has chosen."""
        return self.config.epochs == 0 and is_chosen(self._curve, self.config.patience)

    @property
    def reported_iteration(self) -> int | None:
        """The iteration of the epoch that is reported so far; None where there is none."""
        row, _ = choose_epoch(self._curve, self.config.patience)
        return None if row is None else int(row["iteration"])

    def read(self) -> RunRecord | None:
        """Return the run as its folder holds it; None without a folder."""
        return None if self.folder is None else read(self.folder)

    def write_environment(self) -> None:
        """Write the session's environment to ``environment.json``, unless the run's times are still
        those of an earlier one.
        """
        if self.folder is not None and self._timed_key == self._environment["key"]:
            tables.write_json(self.folder / "environment.json", dict(self._environment))

    def take(self, samples: Iterable[Sample], *, resumed: bool = False) -> None:
        """Take raw samples.

        Args:
            resumed: an interruption cut the epoch of these blocks.
        """
        if self.folder is None:
            return
        for sample in samples:
            self._sampler_seconds["sampling"] += sample.sampling_seconds or 0.0
            self._sampler_seconds["transfer"] += sample.transfer_seconds or 0.0
            more = {
                "resumed": resumed and sample.kind == "full",
                "environment_key": self._environment["key"],
            }
            self._timing.append(asdict(sample) | more)
            if sample.kind == "full":
                self._timed_key = self._environment["key"]

    def record(
        self, row: Mapping[str, Any], evaluated: Mapping[str, Evaluation] | None = None
    ) -> None:
        """Take a row of the curve, all but ``train_seconds`` and quality, and show it.

        Args:
            evaluated: the splits that were evaluated there.
        """
        if self.folder is None:
            return
        whole = {**row, "train_seconds": self.train_seconds}
        self._curve.append(whole)
        self.add_evaluations(evaluated or {})
        self.progress.record(whole)

    def add_evaluations(self, evaluated: Mapping[str, Evaluation]) -> None:
        """Add evaluations by split to the last row of the curve."""
        for row in self._curve[-1:]:
            for split, evaluation in evaluated.items():
                figures = evaluation.figures.items()
                row |= {f"{split}_{name}": value for name, value in figures}
                self._evaluations[row["iteration"], split] = evaluation
                self._has_unwritten_evaluations = True

    def write(self, status: str, iteration: int, message: str = "") -> None:
        """Write all tables, as a checkpoint needs them, the summary last: it names rows that are
        there.

        Args:
            status: of the run, as in ``summary.parquet``.
            message: why the run ended early.

        Raises:
            DataError: they cannot be written.
        """
        if self.folder is None:
            return
        with self.ledger.line("tables"):
            self.write_environment()
            if self._has_unwritten_evaluations:
                write_evaluations(self.folder, self._evaluations)
                self._has_unwritten_evaluations = False
            tables.write_rows(self.folder / "curve.parquet", self._curve, schemas.CURVE)
            tables.write_rows(self.folder / "timing.parquet", self._timing, schemas.TIMING)
            ledger = self._ledger_rows()  # late, so that it has the time of the tables before it
            tables.write_rows(self.folder / "ledger.parquet", ledger, schemas.LEDGER)
            summary = self._summary(status, iteration, ledger) | {"message": message}
            summary["run"] = self.folder.name
            tables.write_rows(self.folder / "summary.parquet", [summary], schemas.SUMMARY)

    def _continue_from(self, folder: Path, iteration: int) -> None:
        """Take over the records of earlier sessions up to an iteration.

        The times of an epoch that it cuts are marked.
        """
        record, begun = read(folder), self.schedule.epoch_begin(iteration)
        self._curve = [row for row in record.curve if 0 < iteration >= row["iteration"]]
        for row in record.timing:
            done = row["first_iteration"] + (row["kind"] == "full") * row["iterations"]
            is_cut = row["kind"] == "full" and begun <= row["first_iteration"] < iteration
            if done <= iteration:
                self._timing.append(row | {"resumed": row["resumed"] or is_cut})
        self._earlier_ledger = record.ledger
        self._evaluations = {
            key: evaluation
            for key, evaluation in record.evaluations.items()
            if 0 < iteration >= key[0]
        }
        self._has_unwritten_evaluations = bool(self._evaluations)
        timed = [row["environment_key"] for row in self._timing if row["kind"] == "full"]
        if timed:
            self._timed_key = timed[-1]
        if any(row["environment_key"] != self._environment["key"] for row in self._timing):
            self.progress.say(
                "The environment has changed since this run began: only times measured from now on"
                " will be reported."
            )

    def _ledger_rows(self) -> list[dict[str, Any]]:
        session = max((row["session"] for row in self._earlier_ledger), default=0) + 1
        threads = {"main": self.ledger.seconds(), "sampler": self._sampler_seconds}
        rows = (
            {"session": session, "thread": thread, "line": line, "seconds": seconds}
            for thread, lines in threads.items()
            for line, seconds in lines.items()
        )
        return [*self._earlier_ledger, *rows]

    def _summary(self, status: str, iteration: int, ledger: list[dict[str, Any]]) -> dict[str, Any]:
        timed = (row for row in self._timing if row["environment_key"] == self._timed_key)
        full = [row for row in timed if row["kind"] == "full"]
        sampled = math.fsum(row["sampling_seconds"] for row in full)
        named = ("dataset", "sampler", "encoder", "loss", "seed")
        return {
            "status": status,
            **{name: getattr(self.config, name) for name in named},
            "config": json.dumps(self.config.to_dict(), sort_keys=True),
            "data_fingerprint": self.data_fingerprint,
            "environment_key": self._timed_key,
            "iterations": iteration,
            "planned_iterations": self.schedule.last,
            "epochs": self.schedule.epoch_of(iteration),
            "sampling_iteration_seconds": (
                sampled / sum(row["iterations"] for row in full) if full else None
            ),
            "train_seconds": self.train_seconds,
            "wall_seconds": math.fsum(row["seconds"] for row in ledger if row["thread"] == "main"),
            **measured_columns(self._curve, self._timing, self._timed_key, self.config.patience),
            "recall_reason": self._recall_reason,
        }
