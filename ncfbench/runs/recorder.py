"""The records of a run while it is trained: rows of its tables, and how they get to the disk."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ncfbench.config import RunConfig
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import schemas, tables
from ncfbench.timing import statistics as analysis
from ncfbench.timing.ledger import Ledger

TABLES_SECONDS = 1.0
"""Between writes of the tables: four synced files for each probe would take longer than a small
run's training.
"""
TRAINING = ("full", "traced")
"""Kinds of samples whose iterations changed the parameters."""


class Records:
    """Curve, timing, ledger and summary of a run.

    Args:
        environment: of this session; times of another one are kept, but not mixed with this one's.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        data_fingerprint: str,
        schedule: Schedule,
        ledger: Ledger,
        environment: Mapping[str, Any],
    ) -> None:
        self.folder, self.config, self.data_fingerprint = folder, config, data_fingerprint
        self.schedule, self.ledger, self.environment = schedule, ledger, environment
        self.curve: list[dict[str, Any]] = []
        self.timing: list[dict[str, Any]] = []
        self.recall_reason: str | None = None
        self.message = ""
        self._earlier_ledger: list[dict[str, Any]] = []
        """Rows of the sessions before this one."""
        self._sampler_seconds = {"sampling": 0.0, "transfer": 0.0}
        """Of the sampling thread, which works beside the main one."""
        self._due = time.perf_counter()

    def go_on_from(self, record: RunRecord, iteration: int) -> None:
        """Take over the records of earlier sessions, cut back to an iteration; times of an epoch
        that it cuts are marked.
        """
        begun = self.schedule.epoch_begin(iteration)
        self.curve = [row for row in record.curve if row["iteration"] <= iteration]
        self.timing = [
            row
            | {
                "resumed": (
                    row["resumed"]
                    or (row["kind"] == "full" and begun <= row["first_iteration"] < iteration)
                )
            }
            for row in record.timing
            if row["first_iteration"] + (row["kind"] in TRAINING) * row["iterations"] <= iteration
        ]
        self._earlier_ledger = record.ledger

    @property
    def is_of_one_environment(self) -> bool:
        """Whether all times so far are of this session's environment."""
        return all(row["environment_key"] == self.environment["key"] for row in self.timing)

    @property
    def train_seconds(self) -> float:
        """Seconds of all iterations that changed the parameters."""
        return math.fsum(row["seconds"] for row in self.timing if row["kind"] in TRAINING)

    @property
    def are_due(self) -> bool:
        """Whether the tables have not been written for a while."""
        return time.perf_counter() >= self._due

    def take(self, samples: Iterable[Mapping[str, Any]], *, resumed: bool) -> None:
        """Take over raw samples; ``resumed`` marks blocks of an epoch that an interruption cut."""
        for sample in samples:
            self._sampler_seconds["sampling"] += sample["sampling_seconds"] or 0.0
            self._sampler_seconds["transfer"] += sample["transfer_seconds"] or 0.0
            more = {
                "resumed": resumed and sample["kind"] == "full",
                "environment_key": self.environment["key"],
            }
            self.timing.append({**sample, **more})

    def write(self, status: str, iteration: int) -> None:
        """Write the four tables; the summary last, so that it never speaks of rows that are not
        there.

        Raises:
            DataError: they cannot be written.
        """
        with self.ledger.line("tables"):
            ledger = self._ledger_rows()
            tables.write_rows(self.folder / "curve.parquet", self.curve, schemas.CURVE)
            tables.write_rows(self.folder / "timing.parquet", self.timing, schemas.TIMING)
            tables.write_rows(self.folder / "ledger.parquet", ledger, schemas.LEDGER)
            summary = self._summary(status, iteration, ledger)
            tables.write_rows(self.folder / "summary.parquet", [summary], schemas.SUMMARY)
            self._due = time.perf_counter() + TABLES_SECONDS

    def _ledger_rows(self) -> list[dict[str, Any]]:
        session = max((row["session"] for row in self._earlier_ledger), default=0) + 1
        threads = {"main": self.ledger.seconds(), "sampler": self._sampler_seconds}
        return [
            *self._earlier_ledger,
            *(
                {"session": session, "thread": thread, "line": line, "seconds": seconds}
                for thread, lines in threads.items()
                for line, seconds in lines.items()
            ),
        ]

    def _summary(self, status: str, iteration: int, ledger: list[dict[str, Any]]) -> dict[str, Any]:
        reported = analysis.reported_row(self.curve, self.config.patience) or {}
        timing = [row for row in self.timing if row["environment_key"] == self.environment["key"]]
        recalls = {
            name: reported.get(name) for name in schemas.SUMMARY.names if "_recall_at_" in name
        }
        full = [row for row in timing if row["kind"] == "full"]
        sampled = math.fsum(row["sampling_seconds"] for row in full)
        return {
            "run": self.folder.name,
            "status": status,
            **{
                name: getattr(self.config, name)
                for name in ("dataset", "sampler", "encoder", "loss", "seed")
            },
            "config": json.dumps(self.config.to_dict(), sort_keys=True),
            "data_fingerprint": self.data_fingerprint,
            "environment_key": self.environment["key"],
            "iterations": iteration,
            "planned_iterations": self.schedule.last,
            "epochs": self.schedule.epoch_of(iteration),
            "smallest_probe_loss": min((row["probe_loss"] for row in self.curve), default=None),
            "full_iteration_seconds": analysis.seconds_per_iteration(timing, "full"),
            "step_iteration_seconds": analysis.seconds_per_iteration(timing, "step"),
            "sampling_iteration_seconds": (
                sampled / sum(row["iterations"] for row in full) if full else None
            ),
            "train_seconds": self.train_seconds,
            "wall_seconds": math.fsum(row["seconds"] for row in ledger if row["thread"] == "main"),
            "item_slots": analysis.weighted_mean(self.timing, "item_slots"),
            "reported_epoch": reported.get("epoch"),
            **recalls,
            "recall_reason": self.recall_reason,
            "message": self.message,
        }
