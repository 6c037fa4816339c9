"""The answer of a race: what to use, what it reaches and when, and what each choice is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ncfbench.advice.question import Question
from ncfbench.data import Dataset
from ncfbench.racing.engine import Status
from ncfbench.reporting.answers import Answer, kept_chance
from ncfbench.reporting.arms import Arm, rank_soonest
from ncfbench.reporting.floors import TITLES, FloorResult
from ncfbench.reporting.frames import Run, grouped
from ncfbench.runs.convergence import above_chance_at
from ncfbench.runs.curves import curves_of
from ncfbench.runs.quality import chance

if TYPE_CHECKING:  # it imports JAX
    from ncfbench.advice.arms import RunArm

LEAST_TRAINING = 1 / 3
"""Share of the time that must be training for an answer."""
STAYED = ("recommended", "tied", "lower", "slower", "undecided")
"""Statuses of arms that stayed to the end."""


@dataclass(frozen=True, kw_only=True)
class RaceAnswer(Answer):
    """The answer of a race, about all arms.

    Attributes:
        is_over: False where the race was interrupted.
        notes: warnings, such as that the machine was busy.
        learned_above: validation recall@50 by chance, which an arm must clearly pass.
        unfitted: why floors were left out, a sentence each.
    """

    question: Question
    learned_above: float
    budget_seconds: float
    spent_seconds: float
    is_over: bool
    notes: Sequence[str]
    sample_users: int | None
    unfitted: Sequence[str] = ()

    @property
    def is_decided(self) -> bool:
        """Whether enough of the time was training for an answer."""
        return self.training_share >= LEAST_TRAINING

    @property
    def main(self) -> list[Arm]:
        """The arms that stayed to the end."""
        return [arm for arm in self.arms if arm.status in STAYED]

    @property
    def untried(self) -> list[Arm]:
        """The arms that time did not suffice to begin or to evaluate."""
        return [
            arm
            for arm in self.arms
            if arm.status in ("left", "not begun") and not math.isfinite(arm.level)
        ]

    @property
    def training_seconds(self) -> float:
        """Seconds of training of all runs."""
        runs = (run for arm in self.arms for run in arm.runs.values())
        return math.fsum(run.summary["train_seconds"] or 0.0 for run in runs)

    @property
    def training_share(self) -> float:
        """Share of the time that was training, not compilation, evaluation or floors."""
        return self.training_seconds / self.spent_seconds if self.spent_seconds else 0.0

    @property
    def undecided(self) -> int:
        """Number of arms that left and could not yet be told from the best."""
        left = (arm for arm in self.arms if arm.status == "left" and math.isfinite(arm.level))
        return sum(arm.behind is None or arm.behind.is_tie for arm in left)


def make_answer(
    question: Question,
    arms: Sequence[RunArm],
    dataset: Dataset,
    *,
    budget_seconds: float,
    spent_seconds: float,
    is_over: bool,
    notes: Sequence[str] = (),
) -> RaceAnswer:
    """Compare all arms by what their runs have written, and return the answer so far."""
    seeds = grouped(arms, lambda arm: arm.name)
    removed, by_chance = dataset.manifest.get("removed", {}), chance(dataset, "validation")
    unranked = [_unranked(question, repeats, by_chance) for repeats in seeds.values()]
    evaluated = {
        arm.name: [math.isfinite(curve.level) for curve in arm.measured.curves.values()]
        for arm in unranked
    }
    ranked, level = rank_soonest(unranked, [name for name, of in evaluated.items() if sum(of) > 1])
    return RaceAnswer(
        config=question.base,
        data_fingerprint=dataset.fingerprint,
        arms=sorted(ranked, key=lambda arm: arm.place),
        target=level,
        question=question,
        metric=question.metric,
        chance=chance(dataset, "test") if dataset.holds_out("test") else None,
        learned_above=by_chance,
        split_chance=kept_chance(
            (run for arm in unranked for run in arm.runs.values()), question.column
        ),
        budget_seconds=budget_seconds,
        spent_seconds=spent_seconds,
        is_over=is_over,
        notes=notes,
        sample_users=dataset.n_users if removed.get("users_not_drawn") else None,
    )


def _unranked(question: Question, repeats: Sequence[RunArm], by_chance: float) -> Arm:
    first, cut = repeats[0], [arm.config.seed for arm in repeats if arm.is_cut]
    runs = [Run.of(arm.record) for arm in repeats if arm.record is not None]
    measured = curves_of([run for run in runs if run.config.seed not in cut], question.column)
    timed = [run for run in runs if run.is_timed]
    return Arm(
        name=first.name,
        config=first.config,
        runs={run.config.seed: run for run in timed or runs},
        status=_left(first, has_run=bool(measured.curves)) or "tied",
        reason=first.reason,
        measured=measured,
        learned_at=above_chance_at(runs[0], "validation", by_chance) if timed else None,
    )


def _left(arm: RunArm, *, has_run: bool) -> str:
    """Return the status of an arm that left or did not begin; empty of one that stayed."""
    if arm.status in (Status.DIVERGED, Status.FAILED):
        return arm.status.value
    if not has_run:
        return "not begun"
    return "left" if arm.status is Status.LEFT else ""


def by_validation(floors: Iterable[FloorResult]) -> list[FloorResult]:
    """Return the floors of a race, the best first: by recall of validation links, of equal ones as
    in :data:`TITLES`. Test links choose nothing, even where validation links cannot tell.
    """
    usual = sorted(floors, key=lambda floor: [*TITLES].index(floor.row["floor"]))
    return sorted(usual, key=lambda floor: -(floor.value("validation") or 0.0))
