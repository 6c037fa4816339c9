"""Arms of an answer: the runs of a sampler with its settings, aggregated over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data.content import Split
from ncfbench.reporting.frames import Run, common_rows
from ncfbench.reporting.quality import (
    RECALL,
    Quality,
    mean_of,
    reported_row,
    standard_error,
    validation_recall,
)
from ncfbench.runs import evaluations
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.quality import Evaluation, comparable
from ncfbench.timing import speedups

TEST_RECALL, VALIDATION_RECALL = f"test_{RECALL}", f"validation_{RECALL}"
NDCG = "ndcg_at_50"


@dataclass(frozen=True)
class ArmRecall:
    """A recall@50 of an arm, at an evaluation of all its seeds.

    Attributes:
        recalls: of each seed.
        error: standard error of their mean, over users, items and seeds.
        ndcg: NDCG@50, the mean over seeds; None where some seed has none.
        kept_in: the folder of each run, and the iteration.
        validation: recall@50 of validation links there, the mean over seeds; None where it chooses
            nothing.
        split: the links, those of the test mostly.
    """

    recalls: Sequence[float]
    error: float | None
    ndcg: float | None
    kept_in: Sequence[tuple[Path, int | None]]
    validation: float | None = None
    split: Split = "test"

    @classmethod
    def of(
        cls, runs: Iterable[RunRecord], rows: Sequence[Mapping[str, Any]], split: Split = "test"
    ) -> ArmRecall:
        """Return the recall of some rows, one of each run."""
        folders = (run.folder for run in runs)
        validation = mean_of([{RECALL: validation_recall(row)} for row in rows], RECALL)
        kept_in = list(zip(folders, (row["iteration"] for row in rows), strict=False))
        recalls = [row[f"{split}_{RECALL}"] for row in rows]
        error, ndcg = standard_error(rows, f"{split}_{RECALL}"), mean_of(rows, f"{split}_{NDCG}")
        return cls(recalls, error, ndcg, kept_in, validation, split=split)

    @property
    def recall(self) -> float:
        """The mean over seeds."""
        return mean(self.recalls)

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """The mean over seeds; None where some run has not kept it, or over other users."""
        kept = [evaluations.find(folder, at, self.split) for folder, at in self.kept_in]
        found = [evaluation for evaluation in kept if evaluation is not None]
        if len(found) < len(kept) or not comparable(found):
            return None
        names = ("user_recalls", "item_shares")
        lists = ([getattr(evaluation, name) for evaluation in found] for name in names)
        return Evaluation({}, *(np.mean(of_seeds, axis=0, dtype=float) for of_seeds in lists))


@dataclass(frozen=True)
class ArmResult:
    """An arm of an answer: a model, a loss and a sampler with their settings.

    Attributes:
        runs: its rows of the frame ``arms``, by seed.
        status: how it stands beside the best of the answer.
        iterations, seconds: to the level that decides; None if it never came there.
        reported: quality at the epoch that each seed reports, which is that of the arm wherever one
            number stands for it; None where some seed was not evaluated.
    """

    name: str
    config: RunConfig
    runs: Mapping[int, Run]
    status: str = "tied"
    iterations: float | None = None
    seconds: float | None = None
    reported: Quality | None = None

    @property
    def has_diverged(self) -> bool:
        """True if any of its seeds diverged."""
        return any(run.has_diverged for run in self.runs.values())

    @property
    def is_timed(self) -> bool:
        """True if all its runs have times."""
        return bool(self.runs) and all(run.is_timed for run in self.runs.values())

    @property
    def iteration_seconds(self) -> float | None:
        """Median seconds of an iteration, on average over seeds; None without times."""
        return mean(run.seconds for run in self.runs.values()) if self.is_timed else None

    @property
    def feature_seconds(self) -> float:
        """Seconds that the derived item features took which its runs read, on average."""
        return mean(run.feature_seconds for run in self.runs.values()) if self.runs else 0.0

    @property
    def total_seconds(self) -> float | None:
        """Seconds to the target, those of the item features included."""
        return None if self.seconds is None else self.feature_seconds + self.seconds

    @property
    def items(self) -> float | None:
        """Items embedded for a batch."""
        known = [run.summary["item_slots"] for run in self.runs.values()]
        return mean(known) if known and None not in known else None

    @property
    def spread(self) -> float:
        """Largest spread of the times of a run's blocks."""
        spreads = (speedups.spread(run.timing, "full") for run in self.runs.values())
        return max((spread or 0.0 for spread in spreads), default=0.0)

    @property
    def epoch(self) -> float | None:
        """The epoch that is reported, the mean over seeds."""
        return None if self.reported is None else self.reported.epoch

    @property
    def shown(self) -> Mapping[int, Run]:
        """The runs that :meth:`rows` are of, by seed."""
        return self.runs

    @cached_property
    def chosen(self) -> ArmRecall | None:
        """The recall@50 of test links at the epoch that each seed reports; None where some seed was
        not evaluated.
        """
        return self._reported("test")

    @cached_property
    def validated(self) -> ArmRecall | None:
        """The same of validation links."""
        return self._reported("validation")

    def judged(self, split: Split) -> ArmRecall | None:
        """Return the recall@50 of a split's links at the epoch that each seed reports."""
        return self.chosen if split == "test" else self.validated

    def _reported(self, split: Split) -> ArmRecall | None:
        rows = [reported_row(run) or {} for run in self.shown.values()]
        if not rows or any(row.get(f"{split}_{RECALL}") is None for row in rows):
            return None
        return ArmRecall.of(self.shown.values(), rows, split)

    def rows(self, column: str) -> list[tuple[float, list[Mapping[str, Any]]]]:
        """Return the rows of the curve, one of each seed, at the evaluations at which all have a
        column, by seconds of training (full account) after those of the item features; none if it
        has no times.
        """
        runs = self.shown.values()
        if not runs or not all(run.is_timed for run in runs):
            return []
        begin, length = (
            mean(getattr(run, name) for run in runs) for name in ("feature_seconds", "seconds")
        )
        common = common_rows(runs, column).items()
        return [(begin + at * length, rows) for at, rows in common]

    def means(self, column: str) -> list[tuple[float, float]]:
        """Return a column of :meth:`rows`, the mean over seeds."""
        return [(seconds, mean(row[column] for row in rows)) for seconds, rows in self.rows(column)]
