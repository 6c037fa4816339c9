"""Blends: an arm's runs, each with a floor, as a row of an answer beside both parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean as mean
from typing import Any

import numpy as np

from ncfbench.blending import blend
from ncfbench.data.content import Split
from ncfbench.errors import DataError
from ncfbench.reporting.arms import NDCG, ArmRecall, ArmResult
from ncfbench.reporting.floors import FloorResult, Standing, standing_by
from ncfbench.reporting.quality import RECALL, Quality, mean_of, quality_of_rows, standard_error
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.quality import Evaluation, difference
from ncfbench.storage.schemas import OF_USERS
from ncfbench.timing import intervals

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BlendRecall(ArmRecall):
    """A recall@50 of blends.

    Attributes:
        rows: of :data:`ncfbench.storage.schemas.BLEND`, one of each seed.
    """

    rows: Sequence[Row] = ()

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """The mean over seeds."""
        names = OF_USERS["test" if self.split == "test" else "validation"]
        lists = (np.mean([row[name] for row in self.rows], axis=0, dtype=float) for name in names)
        return Evaluation({}, *lists)


@dataclass(frozen=True)
class BlendResult:
    """The runs of an arm, each blended with a floor.

    Attributes:
        rows: of :data:`ncfbench.storage.schemas.BLEND`, one of each run.
    """

    runs: Sequence[RunRecord]
    floor: FloorResult
    rows: Sequence[Row]
    of: str = "this run"
    epoch: float | None = None
    total_seconds = None
    status = "both"

    @property
    def name(self) -> str:
        """Both parts."""
        return f"{self.floor.row['floor']} and {self.of}, both"

    @property
    def weight(self) -> float:
        """That of the runs, the mean over seeds."""
        return mean(row["weight"] for row in self.rows)

    def judged(self, split: Split) -> ArmRecall:
        """Return the recall@50 of a split's links."""
        column = f"{split}_{RECALL}"
        return BlendRecall(
            recalls=[row[column] for row in self.rows],
            error=standard_error(self.rows, column),
            ndcg=mean_of(self.rows, f"{split}_{NDCG}"),
            kept_in=(),
            validation=mean_of(self.rows, f"validation_{RECALL}"),
            split=split,
            rows=self.rows,
        )

    @property
    def reported(self) -> Quality:
        """Its measures of test links as those of an arm."""
        return quality_of_rows(self.rows, self.epoch or 0.0)

    @property
    def facts(self) -> dict[str, Any]:
        """Its values in JSON."""
        own, names = self.judged("test"), ("recall_at_10", NDCG)
        return {
            "floor": self.floor.row["floor"],
            "run": self.of,
            "weight": self.weight,
            "metric": self.rows[0]["metric"],
            RECALL: own.recall,
            f"{RECALL}_error": own.error,
            f"validation_{RECALL}": own.validation,
            **{name: mean_of(self.rows, f"test_{name}") for name in names},
        }


def blend_of_runs(
    runs: Sequence[RunRecord], floors: Iterable[FloorResult], of: str = "this run"
) -> BlendResult | None:
    """Return the kept blends of some runs; None where some run has none of what it reports, they
    are of several floors, or of one that is not among the floors.
    """
    rows: list[Row | None] = []
    for run in runs:
        rows.append(None)
        with suppress(DataError):  # a damaged one is made again by `ncfbench run`
            rows[-1] = blend.read(run.folder)
    known = [
        row
        for run, row in zip(runs, rows, strict=True)
        if row is not None and row["iteration"] == run.reported_iteration
    ]
    parts = {(row["floor"], row["penalty"]) for row in known}
    floor = next(
        (each for each in floors if {(each.row["floor"], each.row["penalty"])} == parts), None
    )
    if not runs or len(known) < len(runs) or floor is None:
        return None
    epoch = mean_of([run.summary for run in runs], "reported_epoch")
    return BlendResult(runs, floor, known, of, epoch)


def blend_of(arm: ArmResult, floors: Iterable[FloorResult]) -> BlendResult | None:
    """Return the kept blends of an arm's runs; see :func:`blend_of_runs`."""
    return blend_of_runs([*arm.shown.values()], floors, arm.name)


def above(one: ArmRecall, other: ArmRecall) -> Standing:
    """Return how a recall stands to another one of the same seeds, users and items."""
    above_by = one.recall - other.recall
    both = one.evaluation, other.evaluation
    paired = difference(both[0], both[1]) if both[0] and both[1] else None
    if paired is None or len(one.recalls) != len(other.recalls):
        return Standing("unknown", above_by)
    apart = [own - theirs for own, theirs in zip(one.recalls, other.recalls, strict=True)]
    error = math.hypot(paired.error, intervals.standard_error(apart) or 0.0)
    return standing_by(above_by, error, len(apart))
