"""Ranking quality of a row of an answer: an arm, a floor or a blend."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ncfbench.data.content import Split
from ncfbench.reporting.formats import with_error
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.quality import Evaluation, comparable
from ncfbench.runs.reported import reported_row, validation_recall
from ncfbench.storage.schemas import MEASURES, OF_USERS, PARTS, QUALITY

Row = Mapping[str, Any]
RECALL, NDCG = "recall_at_50", "ndcg_at_50"
TEST_RECALL = f"test_{RECALL}"
COLD_USERS, NEW_ITEMS, KNOWN_ITEMS = (f"{RECALL}_{part}" for part in PARTS)
MEASURED = (*MEASURES, COLD_USERS, NEW_ITEMS, KNOWN_ITEMS)
ERROR = "±: standard error over users and items, and over seeds where there are several"
"""Meaning of ± in every table and sentence (:func:`standard_error`)."""
EPOCH_NOTE = "recall@50: of test links, at the epoch that validation chose, else the last one"
"""Meaning of the recall of an arm in every table and sentence."""


@dataclass(frozen=True)
class Quality:
    """Measures of a split's links: of an arm at the epoch that it reports, on average over seeds,
    of a floor, or of a blend.

    Attributes:
        values: measures, their standard errors (:func:`standard_error`) and chance levels, by the
            names of :data:`ncfbench.storage.schemas.QUALITY`; None where a run has none.
        split: the links.
        epoch: the mean over seeds; None of a floor.
        recalls: recall@50 of each seed.
        validation: recall@50 of validation links there, the mean over seeds; None where it chooses
            nothing.
        kept: returns the evaluation of each seed, None of one that was not kept.
    """

    values: Mapping[str, float | None]
    split: Split = "test"
    epoch: float | None = None
    recalls: Sequence[float] = ()
    validation: float | None = None
    kept: Callable[[], Sequence[Evaluation | None]] = tuple

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        split: Split,
        kept: Callable[[], Sequence[Evaluation | None]] = tuple,
        epoch: float | None = None,
    ) -> Quality:
        """Return the quality of some rows, one of each seed."""
        means = {name: mean_of(row.get(f"{split}_{name}") for row in rows) for name in QUALITY}
        errors = {f"{name}_error": standard_error(rows, f"{split}_{name}") for name in MEASURED}
        recalls = [row[f"{split}_{RECALL}"] for row in rows]
        validation = mean_of(map(validation_recall, rows))
        epoch = mean_of(row.get("epoch") for row in rows) if epoch is None else epoch
        return cls(means | errors, split, epoch, recalls, validation, kept)

    @property
    def recall(self) -> float:
        """Recall@50, if it has any."""
        return float(self.values[RECALL] or 0.0)

    def error(self, measure: str = RECALL) -> float | None:
        """Return a measure's standard error; None where it is not known."""
        return self.values.get(f"{measure}_error")

    def text(self, measure: str = RECALL) -> str:
        """Return a measure with its error, such as ``0.414 ± 0.006``."""
        value = self.values.get(measure)
        return "-" if value is None else with_error((value, self.error(measure)))

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """The mean over seeds; None where some was not kept, or is over other users."""
        kept = self.kept()
        known = [evaluation for evaluation in kept if evaluation is not None]
        if not known or len(known) < len(kept) or not comparable(known):
            return None
        names = ("user_recalls", "item_shares")
        lists = ([getattr(evaluation, name) for evaluation in known] for name in names)
        return Evaluation({}, *(np.mean(of_seeds, axis=0, dtype=float) for of_seeds in lists))

    @property
    def kinds(self) -> str:
        """Recall@50 of links to new items and to known ones, in words; empty where all links are of
        one kind.
        """
        if self.values.get(NEW_ITEMS) is None:
            return ""
        text = f"new items {self.text(NEW_ITEMS)}, known items {self.text(KNOWN_ITEMS)}"
        return text if self.error(KNOWN_ITEMS) is None else f"{text}, with errors over users alone"


def quality_of(runs: Iterable[RunRecord]) -> Quality | None:
    """Return the quality of an arm's runs on test links; None where some run was not evaluated."""
    reported = [(run, reported_row(run)) for run in runs]
    known = [
        (run, row) for run, row in reported if row is not None and row.get(TEST_RECALL) is not None
    ]
    if not known or len(known) < len(reported):
        return None

    def kept() -> list[Evaluation | None]:
        return [run.evaluation(row["iteration"], "test") for run, row in known]

    return Quality.of([row for _, row in known], "test", kept)


def quality_of_rows(rows: Sequence[Row], split: Split, epoch: float | None = None) -> Quality:
    """Return the quality in the row of a floor, or in those of blends, one of each seed: they have
    the values of all users and items in the columns of :data:`ncfbench.storage.schemas.OF_USERS`.
    """

    def kept() -> list[Evaluation | None]:
        lists = ([row[name] for name in OF_USERS[split]] for row in rows)
        return [
            None if None in both else Evaluation({}, *(np.asarray(of, np.float32) for of in both))
            for both in lists
        ]

    return Quality.of(rows, split, kept, epoch)


def standard_error(rows: Sequence[Row], measure: str) -> float | None:
    """Return the standard error of a measure's mean over seeds; None where some run kept no error.

    It has a part of the users, for recall@50 one of the items, and one of the seeds where there are
    several. All seeds rank the same users and items, so only the part of the seeds falls with their
    number.

    Args:
        rows: a row of each seed, of a curve or a summary.
    """
    ends = ("_error", "_item_error") if measure.endswith("recall_at_50") else ("_error",)
    parts = [row.get(f"{measure}{end}") for row in rows for end in ends]
    if None in parts:
        return None
    shared = math.fsum(part**2 for part in parts if part is not None)
    values = [row[measure] for row in rows]
    of_seeds = statistics.variance(values) if len(values) > 1 else 0.0
    return math.sqrt((shared + of_seeds) / len(rows))


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of some values; None where one of them is None, or there are none."""
    present = [*values]
    known = [value for value in present if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(present) else None
