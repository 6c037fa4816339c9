"""Floors and blends beside the arms of an answer: what is reached without training, when an arm
passes, and what both reach together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean as mean
from typing import Any, Literal, NamedTuple, TypeAlias

from ncfbench.data.content import Split
from ncfbench.data.store import read_manifest
from ncfbench.errors import DataError
from ncfbench.floors import kept
from ncfbench.floors.kept import one_of_each
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.quality import (
    NDCG,
    RECALL,
    Quality,
    mean_of,
    quality_of_rows,
)
from ncfbench.runs.folder import RunRecord, is_exported
from ncfbench.runs.quality import CLEAR_ERRORS, difference
from ncfbench.runs.reported import validation_recall
from ncfbench.statistics import intervals
from ncfbench.storage.schemas import EVALUATED

TITLES = {
    "popularity": "popularity",
    "profile": "TF-IDF profiles",
    "ridge": "ridge regression",
    "denoised": "ridge regression of denoised links",
    "ease": "EASE",
    "ials": "iALS",
}
Word: TypeAlias = Literal["passes", "level", "below", "unknown"]
SECONDS = ("content_seconds", "choice_seconds", "fit_seconds")
"""Columns of a floor's row that make up its time; training takes none of them."""


@dataclass(frozen=True)
class FloorResult:
    """A floor as a row of an answer, beside its :class:`ncfbench.reporting.arms.Arm`.

    Attributes:
        row: of :data:`ncfbench.storage.schemas.FLOOR`.
    """

    row: Mapping[str, Any]
    epoch = None
    status = "floor"

    @property
    def name(self) -> str:
        """Its title."""
        content = (self.row["content"] or "TF-IDF").replace("features", "feature")
        return TITLES[self.row["floor"]].replace("TF-IDF", content)

    def label(self, split: Split = "test") -> str:
        """Return its short name with the recall of a split's links and seconds, such as ``ridge
        0.567 (19 s)``.
        """
        recall, seconds = self.value(split), three_digits(self.seconds)
        shown = "-" if recall is None else f"{recall:.3f}"
        return f"{self.row['floor']} {shown} ({seconds} s)"

    @property
    def seconds(self) -> float:
        """Seconds of its content, the choice of its penalty, and its fit."""
        return math.fsum(self.row[name] for name in SECONDS)

    total_seconds = seconds

    def value(self, split: Split, name: str = RECALL) -> float | None:
        """Return a value of :data:`ncfbench.storage.schemas.QUALITY` of a split's links; None where
        it is not known.
        """
        value: float | None = self.row[f"{split}_{name}"]
        return value

    @cached_property
    def reported(self) -> Quality:
        """Its quality on test links, which all floors rank."""
        return quality_of_rows([self.row], "test")

    @property
    def facts(self) -> dict[str, Any]:
        """Its settings and seconds in JSON."""
        names = ("floor", "content", "penalty", "chosen_by")
        recalls = {f"validation_{name}": self.value("validation", name) for name in (RECALL, NDCG)}
        return {name: self.row[name] for name in names} | {"seconds": self.seconds} | recalls

    @property
    def rank(self) -> tuple[bool, float]:
        """Its key in the order of floors, the largest for the best."""
        judged = validation_recall(self.row)
        return judged is not None, (self.value("test") or 0.0) if judged is None else judged


class Standing(NamedTuple):
    """How an arm stands to a floor.

    Attributes:
        word: ``passes`` if its recall is above the floor's by
            :data:`ncfbench.runs.quality.CLEAR_ERRORS`, ``level`` if they differ by less, else
            ``below``; ``unknown`` without recall, or where an error is not known.
        above_by, error: the difference and its standard error; None where it is not known.
        seconds: at the first evaluation that is above the floor by as many errors, of an arm that
            passes it: those of training and of derived item features. None without times.
    """

    word: Word
    above_by: float | None = None
    error: float | None = None
    seconds: float | None = None

    @property
    def difference(self) -> dict[str, float | None]:
        """The difference in JSON."""
        return {"above_by": self.above_by, "above_by_error": self.error}

    @property
    def text(self) -> str:
        """The difference in words, such as ``+0.018 ± 0.004``."""
        if self.above_by is None:
            return "not compared"
        error = "unknown" if self.error is None else f"{self.error:.3f}"
        return f"{self.above_by:+.3f} ± {error}"


def find_floors(
    runs: Sequence[RunRecord], runs_dir: Path, data_dir: Path
) -> tuple[dict[str, list[FloorResult]], list[str]]:
    """Return the kept floors by fingerprint, those beside the data before those beside the runs,
    but for those of exported runs, and messages about what cannot be read. Data that are here have
    an entry, if an empty one.
    """
    by_fingerprint: dict[str, list[FloorResult]] = {}
    problems: list[str] = []
    for run in {run.data_fingerprint: run for run in runs}.values():
        name, fingerprint = run.config.dataset, run.data_fingerprint
        folders = [data_dir / name, runs_dir][:: -1 if is_exported(runs_dir) else 1]
        of_data, unreadable = read_floors(folders, fingerprint)
        problems += unreadable
        prepared = read_manifest(data_dir, name)
        if of_data or (prepared or {}).get("fingerprint") == fingerprint:
            by_fingerprint[fingerprint] = of_data
    return by_fingerprint, [*dict.fromkeys(problems)]


def read_floors(folders: Iterable[Path], fingerprint: str) -> tuple[list[FloorResult], list[str]]:
    """Return the floors of some data that the first folder with any keeps, and messages about what
    cannot be read.
    """
    problems = []
    for folder in folders:
        try:
            rows = kept.read(folder, fingerprint)
        except DataError as error:
            problems.append(f"Skipped {kept.FILE}: {error}")
            continue
        if rows:
            return floors_of(rows), problems
    return [], problems


def floors_of(rows: Iterable[Mapping[str, Any]]) -> list[FloorResult]:
    """Return the kept floors of a data set, the best first: by recall of validation links; those
    without, by recall of test links, come last.

    Of a floor with several settings one counts (:func:`ncfbench.floors.kept.one_of_each`).
    """
    floors = [FloorResult(row) for row in one_of_each(rows) if row["floor"] in TITLES]
    return sorted(floors, key=lambda floor: floor.rank, reverse=True)


def compare(own: Quality | None, other: Quality | None) -> Standing:
    """Return how a recall, if there is any, stands to another one of the same users and items.

    Where each user's recall and each item's share of it are known of both, the error of the
    difference is that of :func:`ncfbench.runs.quality.difference`, and of the seeds where there are
    several; else it has both errors in quadrature, which is rather too large. Recalls over other
    users are not compared.
    """
    if own is None or other is None:
        return Standing("unknown")
    above_by, errors = own.recall - other.recall, [own.error(), other.error()]
    theirs = other.evaluation
    ours = own.evaluation if theirs else None
    if ours and theirs and len(ours.user_recalls) != len(theirs.user_recalls):
        return Standing("unknown")
    paired = difference(ours, theirs) if ours and theirs else None
    if paired is not None:
        # A floor has no seeds.
        others = other.recalls if len(other.recalls) > 1 else [0.0] * len(own.recalls)
        if len(others) != len(own.recalls):
            return Standing("unknown", above_by)
        apart = [mine - their for mine, their in zip(own.recalls, others, strict=True)]
        errors = [paired.error, intervals.standard_error(apart) or 0.0]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return Standing("unknown", above_by)
    error = math.hypot(*known)
    word: Word = "passes" if above_by > 0 else "below"
    return Standing("level" if abs(above_by) <= CLEAR_ERRORS * error else word, above_by, error)


def standing(arm: Arm, floor: FloorResult) -> Standing:
    """Return how an arm stands to a floor, by test links at the epoch that it reports."""
    stands = compare(arm.reported, floor.reported)
    means = arm.means(f"test_{RECALL}")
    least = (floor.value("test") or 0.0) + CLEAR_ERRORS * (stands.error or 0.0)
    above = [seconds for seconds, recall in means if recall > least]
    return stands._replace(seconds=above[0]) if stands.word == "passes" and above else stands


def best_of(arms: Iterable[Arm]) -> Arm | None:
    """Return the arm of the largest recall of validation links, at the epoch that it reports; of
    test links where some arm has none of these that chooses; of equal ones that whose runs
    have the first names. None without an arm that has recall and did not diverge.
    """
    ordered = sorted(arms, key=lambda arm: sorted(run.name for run in arm.runs.values()))
    known = [(own, arm) for arm in ordered if (own := arm.reported) and not arm.has_diverged]
    is_judged = all(own.validation is not None for own, _ in known)
    best = max(
        known,
        key=lambda each: (each[0].validation or 0.0) if is_judged else each[0].recall,
        default=None,
    )
    return best and best[1]


@dataclass(frozen=True)
class BlendResult:
    """The runs of an arm, each blended with a floor.

    Attributes:
        rows: of :data:`ncfbench.storage.schemas.BLEND`, one of each run.
        epoch: that of the runs, the mean over seeds.
    """

    floor: FloorResult
    rows: Sequence[Mapping[str, Any]]
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
    """Return the kept blends of an arm's runs with one floor, of which their recall of validation
    links is the largest; None where there is none with which all are blended as they report, or
    one part has all the weight.
    """
    known = []
    for run in runs:
        with suppress(DataError):  # a damaged one is made again by `ncfbench run`
            at = run.reported_iteration
            rows = [row for row in run.blends if row["iteration"] == at]
            known.append({(row["floor"], row["penalty"]): row for row in rows})
    if not runs or len(known) < len(runs):
        return None
    epoch = mean_of(run.summary["reported_epoch"] for run in runs)
    blends = [
        BlendResult(floor, [of_run[key] for of_run in known], epoch)
        for floor in floors
        if (key := (floor.row["floor"], floor.row["penalty"]))
        and all(key in of_run for of_run in known)
    ]
    best = max(blends, key=lambda both: both.quality("validation").recall, default=None)
    return None if best is None or best.weight in (0, 1) else best
