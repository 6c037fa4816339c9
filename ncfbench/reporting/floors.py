"""Floors beside the arms of an answer: what is reached without training, and when an arm passes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from ncfbench.reporting.arms import ArmResult
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.quality import RECALL, Quality, standard_error

TITLES = {
    "popularity": "popularity",
    "profile": "TF-IDF profiles",
    "ridge": "ridge regression",
    "ease": "EASE",
    "ials": "iALS",
}
TEST_RECALL = f"test_{RECALL}"
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
        title = TITLES[self.row["floor"]]
        return title.replace("TF-IDF", "feature") if self.row["content"] == "features" else title

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
    def facts(self) -> dict[str, Any]:
        """What JSON says of it."""
        return {
            "floor": self.row["floor"],
            "title": self.name,
            "penalty": self.row["penalty"],
            "chosen_by": self.row["chosen_by"],
            "seconds": self.seconds,
            RECALL: self.recall,
            f"{RECALL}_error": self.error,
        }

    @property
    def error(self) -> float | None:
        """Standard error of the recall, over users and items."""
        return standard_error([self.row], TEST_RECALL)

    @property
    def at_end(self) -> Quality:
        """Its recall as that of an arm."""
        return Quality(("end",), 0.0, {RECALL: self.recall, f"{RECALL}_error": self.error})


class Peak(NamedTuple):
    """The largest recall@50 of an arm, on average over its seeds.

    Attributes:
        error: its standard error, over users, items and seeds.
        seconds: when it was evaluated, as in :meth:`ncfbench.reporting.arms.ArmResult.rows`.
    """

    recall: float
    error: float | None
    seconds: float


class Standing(NamedTuple):
    """How an arm stands to a floor, or to the largest recall of another arm.

    Attributes:
        word: ``passes`` if its largest recall is above the floor's, ``level`` if they differ by no
            more than the error of their difference, else ``below``; ``unknown`` without recall.
        seconds: at the first evaluation above the floor, of an arm that passes it: those of
            training and of derived item features.
        is_first: whether that is its first evaluation of all.
    """

    word: Literal["passes", "level", "below", "unknown"]
    seconds: float | None = None
    is_first: bool = False


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


def peak_of(arm: ArmResult) -> Peak | None:
    """Return the largest recall of an arm at common evaluations of its seeds; None without any."""
    rows = arm.rows(TEST_RECALL)
    if not rows:
        return None
    seconds, top = max(rows, key=lambda row: _mean_recall(row[1]))
    return Peak(_mean_recall(top), standard_error(top, TEST_RECALL), seconds)


def reported_recall(summary: Mapping[str, Any]) -> Peak | None:
    """Return the recall of test links that a run reports, by its summary; None without any."""
    if summary[TEST_RECALL] is None:
        return None
    return Peak(
        summary[TEST_RECALL], standard_error([summary], TEST_RECALL), summary["train_seconds"]
    )


def compare(own: Peak, floor: FloorResult | Peak) -> Literal["passes", "level", "below"]:
    """Return how a recall stands to another: level if they differ by no more than the error of
    their difference.

    It has both errors in quadrature: the floor's recall of each user is not kept.
    """
    if abs(own.recall - floor.recall) <= math.hypot(own.error or 0.0, floor.error or 0.0):
        return "level"
    return "passes" if own.recall > floor.recall else "below"


def standing(arm: ArmResult, floor: FloorResult | Peak) -> Standing:
    """Return how an arm stands to a floor, by the means over its seeds at common evaluations."""
    peak = peak_of(arm)
    if peak is None:
        return Standing("unknown")
    word, means = compare(peak, floor), arm.means(TEST_RECALL)
    above = [seconds for seconds, recall in means if recall > floor.recall]
    if word != "passes" or not above:
        return Standing(word)
    return Standing(word, above[0], above[0] == means[0][0])


def arm_beside(arms: Sequence[ArmResult], best: ArmResult | None) -> ArmResult | None:
    """Return the arm that is set beside others: the best one, or the one with the largest recall
    where that has none; None where no arm has any.
    """
    if best is not None and best.rows(TEST_RECALL):
        return best
    peaks = [(peak.recall, arm) for arm in arms if (peak := peak_of(arm)) is not None]
    return max(peaks, key=itemgetter(0))[1] if peaks else None


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
        sentences.append(f"{_reaches(passed)}; {name} {when}.")
    if passed is not highest:
        sentences.append(_unpassed(highest, own, name, known, is_falling=is_falling))
    return " ".join(sentences)


def run_sentence(floors: Sequence[FloorResult], own: Peak) -> str:
    """Return how the recall of a run stands to the floors of its data.

    Args:
        floors: one at least, the highest recall first.
        own: see :func:`reported_recall`.
    """
    words = {"passes": "above", "level": "level with", "below": "below"}
    names: dict[str, list[str]] = {word: [] for word in words}
    for floor in floors:
        names[compare(own, floor)].append(floor.row["floor"])
    stands = ", ".join(f"{words[word]} {' and '.join(of)}" for word, of in names.items() if of)
    recall = f"{own.recall:.3f}" + (f" ± {own.error:.3f}" if own.error is not None else "")
    reached = ", ".join(floor.label for floor in floors)
    return f"Without training: {reached}. This run's recall@50, {recall}, is {stands}."


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
    is_level = standing(own, floor).word == "level"
    passing = [
        (seconds, arm.name) for arm in arms if (seconds := standing(arm, floor).seconds) is not None
    ]
    if passing:
        seconds, other = min(passing)
        return (
            f"{_reaches(floor)}; {name} {'is level with' if is_level else 'does not pass'}"
            f" {_it(floor)}, {other} passes {_it(floor)} after {three_digits(seconds)} s."
        )
    if is_level:
        return f"{_reaches(floor)}; {name} is level with {_it(floor)}, and no arm passes."
    reached = f"{floor.recall:.3f} in {three_digits(floor.seconds)} s"
    until = " yet: train longer, or only for" if is_falling else ": train only for"
    return f"No arm passes {floor.name} ({reached}){until} what it cannot do."


def _reaches(floor: FloorResult) -> str:
    verb = "reach" if _is_plural(floor) else "reaches"
    name = f"{floor.name[0].upper()}{floor.name[1:]}" if floor.name.islower() else floor.name
    return f"{name} {verb} {floor.recall:.3f} in {three_digits(floor.seconds)} s without training"


def _it(floor: FloorResult) -> str:
    return "them" if _is_plural(floor) else "it"


def _is_plural(floor: FloorResult) -> bool:
    return floor.name.endswith("s")


def _mean_recall(rows: Sequence[Mapping[str, Any]]) -> float:
    return fmean(row[TEST_RECALL] for row in rows)


def _preference(row: Mapping[str, Any]) -> tuple[bool, float]:
    return row["chosen_by"] != "given", row[f"validation_{RECALL}"] or 0.0
