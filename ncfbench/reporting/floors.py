"""Floors beside the arms of an answer: what is reached without training, and when an arm passes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ncfbench.errors import either
from ncfbench.reporting.arms import TEST_NDCG, TEST_RECALL, ArmResult, Peak
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.quality import RECALL, Quality, standard_error
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.quality import Evaluation, difference
from ncfbench.storage.schemas import OF_USERS
from ncfbench.timing import intervals

TITLES = {
    "popularity": "popularity",
    "profile": "TF-IDF profiles",
    "ridge": "ridge regression",
    "ease": "EASE",
    "ials": "iALS",
}
Word: TypeAlias = Literal["passes", "level", "below", "unknown"]
SECONDS = ("content_seconds", "choice_seconds", "fit_seconds")
"""Columns of a floor's row that make up its time; training takes none of them."""


@dataclass(frozen=True)
class FloorResult:
    """A floor as a row of an answer, beside its :class:`ncfbench.reporting.arms.ArmResult`.

    Attributes:
        row: of :data:`ncfbench.storage.schemas.FLOOR`.
    """

    row: Mapping[str, Any]
    items = iteration_seconds = iterations = sooner = None
    status = "floor"

    @property
    def name(self) -> str:
        """Its title."""
        content = (self.row["content"] or "TF-IDF").replace("features", "feature")
        return TITLES[self.row["floor"]].replace("TF-IDF", content)

    @property
    def label(self) -> str:
        """Its short name with recall and seconds, such as ``ridge 0.567 (19 s)``."""
        return f"{self.row['floor']} {self.recall:.3f} ({three_digits(self.seconds)} s)"

    @property
    def seconds(self) -> float:
        """Seconds of its content, the choice of its penalty, and its fit."""
        return math.fsum(self.row[name] for name in SECONDS)

    total_seconds = seconds

    @property
    def recall(self) -> float:
        """Recall@50 of the test links."""
        return float(self.row[TEST_RECALL])

    @property
    def ndcg(self) -> float | None:
        """NDCG@50 of the test links; None of a floor that an earlier version kept."""
        ndcg: float | None = self.row[TEST_NDCG]
        return ndcg

    @property
    def facts(self) -> dict[str, Any]:
        """Its values in JSON."""
        return {
            "floor": self.row["floor"],
            "title": self.name,
            "content": self.row["content"],
            "penalty": self.row["penalty"],
            "chosen_by": self.row["chosen_by"],
            "seconds": self.seconds,
            RECALL: self.recall,
            f"{RECALL}_error": self.error,
            "ndcg_at_50": self.ndcg,
        }

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """That of the test links; None of a floor that an earlier version kept."""
        lists = [self.row[name] for name in OF_USERS]
        if None in lists:
            return None
        return Evaluation({}, *(np.asarray(values, np.float32) for values in lists))

    @property
    def error(self) -> float | None:
        """Standard error of the recall, over users and items."""
        return standard_error([self.row], TEST_RECALL)

    @property
    def at_end(self) -> Quality:
        """Its recall as that of an arm."""
        return Quality(("end",), 0.0, {RECALL: self.recall, f"{RECALL}_error": self.error})


class Standing(NamedTuple):
    """How an arm stands to a floor.

    Attributes:
        word: ``passes`` if its recall is above the floor's, ``level`` if they differ by no more
            than the error of their difference, else ``below``; ``unknown`` without recall.
        above_by, error: the difference and its standard error; None where it is not known.
        is_paired: whether the error is that of paired users and items.
        seconds: at the first evaluation above the floor, of an arm that passes it: those of
            training and of derived item features.
        is_first: whether that is its first evaluation of all.
    """

    word: Word
    above_by: float | None = None
    error: float | None = None
    is_paired: bool = False
    seconds: float | None = None
    is_first: bool = False

    @property
    def difference(self) -> dict[str, float | None]:
        """The difference in JSON."""
        return {"above_by": self.above_by, "above_by_error": self.error}

    @property
    def note(self) -> str:
        """A paired difference in brackets, such as `` (+0.018 ± 0.004)``; else nothing."""
        return f" ({self.above_by:+.3f} ± {self.error:.3f})" if self.is_paired else ""


def floors_of(rows: Iterable[Mapping[str, Any]]) -> list[FloorResult]:
    """Return the kept floors of a data set, the highest recall first.

    Of a floor with several settings the one with a chosen penalty counts, else the one with the
    best recall of validation links.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=_preference):
        if row["floor"] in TITLES:
            best[row["floor"]] = row
    return sorted(map(FloorResult, best.values()), key=lambda floor: -floor.recall)


def reported_recall(run: RunRecord) -> Peak | None:
    """Return the recall of test links that a run reports; None without any."""
    summary = run.summary
    if summary[TEST_RECALL] is None:
        return None
    error, at = standard_error([summary], TEST_RECALL), [(run.folder, run.reported_iteration)]
    own = [summary[TEST_RECALL]], error, summary[TEST_NDCG]
    return Peak(*own, summary["train_seconds"], at)


def compare(own: Peak | None, other: FloorResult) -> Standing:
    """Return how a recall, if there is any, stands to a floor's of the same users and items.

    Where each user's recall and each item's share of it are known of both, the error of the
    difference is that of :func:`ncfbench.runs.quality.difference`, and of the seeds; else it has
    both errors in quadrature, which is rather too large. Recalls over other users are not compared:
    an earlier version kept one of them.
    """
    if own is None:
        return Standing("unknown")
    above_by, errors = own.recall - other.recall, [own.error, other.error]
    theirs = other.evaluation
    ours = own.evaluation if theirs else None
    paired = None
    if ours and theirs:
        if len(ours.user_recalls) != len(theirs.user_recalls):
            return Standing("unknown")
        paired = difference(ours, theirs)
    if paired is not None:
        errors = [paired.error, intervals.standard_error(own.recalls) or 0.0]
    error = math.hypot(*(part or 0.0 for part in errors))
    word: Word = "passes" if above_by > 0 else "below"
    return Standing(
        "level" if abs(above_by) <= error else word,
        above_by,
        None if None in errors else error,
        is_paired=paired is not None,
    )


def standing(arm: ArmResult, floor: FloorResult) -> Standing:
    """Return how an arm stands to a floor, by its recall where its validation recall is largest."""
    stands, means = compare(arm.chosen, floor), arm.means(TEST_RECALL)
    above = [seconds for seconds, recall in means if recall > floor.recall]
    if stands.word != "passes" or not above:
        return stands
    return stands._replace(seconds=above[0], is_first=above[0] == means[0][0])


def arm_beside(arms: Sequence[ArmResult], best: ArmResult | None) -> ArmResult | None:
    """Return the arm that is set beside floors: the best one, or the one with the largest recall
    where there is none, or none of its own; None where no arm that did not diverge has any.
    """
    if best is not None and best.rows(TEST_RECALL):
        return best
    known = [(arm.chosen.recall, arm) for arm in arms if arm.chosen and not arm.has_diverged]
    return max(known, key=itemgetter(0))[1] if known else None


def floors_sentence(
    floors: Sequence[FloorResult],
    arms: Sequence[ArmResult],
    best: ArmResult | None,
    *,
    is_falling: bool = False,
) -> str:
    """Return the highest floor that the best arm passes, and the highest of all if that is another;
    nothing without floors, or where times are simulated.

    Args:
        floors: the highest recall first.
        best: without one, the arm that has the highest recall is named.
        is_falling: whether longer training may help, since the loss still falls.
    """
    arms = [arm for arm in arms if not arm.has_diverged]
    if not floors or any(run.is_simulated for arm in arms for run in arm.runs.values()):
        return ""
    highest = floors[0]
    own = arm_beside(arms, best)
    if own is None:
        return f"{_reaches(highest)}; no arm has a recall to compare."
    known = [arm for arm in arms if arm.rows(TEST_RECALL)]
    name = "this arm" if own is best else own.name
    passed = next((floor for floor in floors if standing(own, floor).word == "passes"), None)
    sentences = []
    if passed is not None:
        at = standing(own, passed)
        when = f"passes {_it(passed)} after {three_digits(at.seconds or 0.0)} s"
        if at.is_first:
            when = f"is above {_it(passed)} at its first evaluation"
            when += f", after {three_digits(at.seconds)} s" if at.seconds else ", before training"
        sentences.append(f"{_reaches(passed)}; {name} {when}{at.note}.")
    if passed is not highest:
        sentences.append(_unpassed(highest, own, name, known, is_falling=is_falling))
    return " ".join([*sentences, *_by_ndcg(own.chosen, name, highest)])


def run_sentence(floors: Sequence[FloorResult], own: Peak) -> str:
    """Return how the recall of a run stands to the floors of its data.

    Args:
        floors: one at least, the highest recall first.
        own: see :func:`reported_recall`.
    """
    words = {"passes": "above", "level": "level with", "below": "below"}
    names: dict[str, list[str]] = {word: [] for word in words}
    for floor in floors:
        stands = compare(own, floor)
        names[stands.word].append(floor.row["floor"] + stands.note)
    parts = ", ".join(f"{words[word]} {either(of, 'and')}" for word, of in names.items() if of)
    recall = f"{own.recall:.3f}" + (f" ± {own.error:.3f}" if own.error is not None else "")
    reached = ", ".join(floor.label for floor in floors)
    return f"Without training: {reached}. This run's recall@50, {recall}, is {parts}."


def floor_command(dataset: str, data_dir: Path | str | None) -> str:
    """Return the sentence that names the command for floors of a data set.

    Args:
        data_dir: as the user gave it, to be repeated.
    """
    words = ["ncfbench", "floor", dataset, *(["--data-dir", str(data_dir)] if data_dir else [])]
    return f"To see what is reached without training: {shlex.join(words)}"


def _unpassed(
    floor: FloorResult, own: ArmResult, name: str, arms: Sequence[ArmResult], *, is_falling: bool
) -> str:
    """Return how the arms stand to a floor that one of them does not pass."""
    stands, it = standing(own, floor), _it(floor)
    is_level = stands.word == "level"
    beside = f"is level with {it}{stands.note}" if is_level else f"does not pass {it}"
    passing = [
        (seconds, arm.name) for arm in arms if (seconds := standing(arm, floor).seconds) is not None
    ]
    if passing:
        seconds, other = min(passing)
        return (
            f"{_reaches(floor)}; {name} {beside}, {other} passes {it} after"
            f" {three_digits(seconds)} s."
        )
    if is_level:
        return f"{_reaches(floor)}; {name} {beside}, and no arm passes."
    reached = f"{floor.recall:.3f} in {three_digits(floor.seconds)} s"
    until = " yet: train longer, or only for" if is_falling else ": train only for"
    return f"No arm passes {floor.name} ({reached}){until} what it cannot do."


def _by_ndcg(own: Peak | None, name: str, floor: FloorResult) -> list[str]:
    """Return who is ahead by NDCG@50, in the digits shown, where by recall@50 it is the other."""
    if own is None or own.ndcg is None or floor.ndcg is None:
        return []
    ours, theirs = (f"{ndcg:.3f}" for ndcg in (own.ndcg, floor.ndcg))
    if ours == theirs or (own.ndcg > floor.ndcg) == (own.recall > floor.recall):
        return []
    if ours > theirs:
        return [f"By NDCG@50 {name} is ahead, with {ours} to {theirs}."]
    verb = "are" if is_plural(floor) else "is"
    return [f"By NDCG@50 {floor.name} {verb} ahead, with {theirs} to {ours}."]


def _reaches(floor: FloorResult) -> str:
    verb = "reach" if is_plural(floor) else "reaches"
    name = f"{floor.name[0].upper()}{floor.name[1:]}" if floor.name.islower() else floor.name
    return f"{name} {verb} {floor.recall:.3f} in {three_digits(floor.seconds)} s without training"


def _it(floor: FloorResult) -> str:
    return "them" if is_plural(floor) else "it"


def is_plural(floor: FloorResult) -> bool:
    """Return whether a floor's name is a plural: profiles."""
    return floor.name.endswith("s")


def _preference(row: Mapping[str, Any]) -> tuple[bool, float]:
    return row["chosen_by"] != "given", row[f"validation_{RECALL}"] or 0.0
