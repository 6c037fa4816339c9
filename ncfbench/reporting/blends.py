"""Blends: an arm's runs, each with a floor, as a row of an answer beside both parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean as mean
from typing import Any

from ncfbench.blending import blend
from ncfbench.data.content import Split
from ncfbench.errors import DataError
from ncfbench.floors.kept import key_of
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.quality import RECALL, Quality, mean_of, quality_of_rows
from ncfbench.runs.folder import RunRecord
from ncfbench.storage.schemas import EVALUATED

Row = Mapping[str, Any]


@dataclass(frozen=True)
class BlendResult:
    """The runs of an arm, each blended with a floor.

    Attributes:
        rows: of :data:`ncfbench.storage.schemas.BLEND`, one of each run.
        epoch: that of the runs, the mean over seeds.
    """

    floor: FloorResult
    rows: Sequence[Row]
    epoch: float | None = None
    total_seconds = None
    status = "both"

    @property
    def name(self) -> str:
        """The floor that the runs are blended with."""
        return f"both, with {self.floor.row['floor']}"

    @property
    def weight(self) -> float:
        """That of the runs, the mean over seeds."""
        return mean(row["weight"] for row in self.rows)

    def quality(self, split: Split) -> Quality:
        """Return its quality on a split's links."""
        return self._qualities[split]

    @cached_property
    def _qualities(self) -> Mapping[Split, Quality]:
        return {split: quality_of_rows(self.rows, split, self.epoch) for split in EVALUATED}

    @property
    def reported(self) -> Quality:
        """Its quality on test links."""
        return self.quality("test")

    @property
    def facts(self) -> dict[str, Any]:
        """Its parts in JSON."""
        names = {"floor": self.floor.row["floor"], "metric": self.rows[0]["metric"]}
        recall = {f"validation_{RECALL}": self.quality("validation").recall}
        return names | {"weight": self.weight} | recall


def blend_of(runs: Sequence[RunRecord], floors: Iterable[FloorResult]) -> BlendResult | None:
    """Return the kept blends of an arm's runs; None where some run has none of what it reports,
    they are of several floors, or of one that is not among the floors.
    """
    known = []
    for run in runs:
        with suppress(DataError):  # a damaged one is made again by `ncfbench run`
            row = blend.read(run.folder)
            if row is not None and row["iteration"] == run.reported_iteration:
                known.append(row)
    parts = {(row["floor"], row["penalty"]) for row in known}
    of_floors = {(key_of(each.row), each.row["penalty"]): each for each in floors}
    if not runs or len(known) < len(runs) or len(parts) > 1 or not parts <= of_floors.keys():
        return None
    epoch = mean_of([run.summary for run in runs], "reported_epoch")
    return BlendResult(of_floors[parts.pop()], known, epoch)
