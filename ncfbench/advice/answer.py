"""The answer of a race: what to use, how much sooner than the best baseline, and how surely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.curves import best_of, chance, is_ahead, learned_at, times_sooner
from ncfbench.advice.question import Question
from ncfbench.advice.state import State
from ncfbench.catalog import find_encoder, find_loss
from ncfbench.data import Dataset
from ncfbench.reporting.frames import Run
from ncfbench.reporting.overall import Overall
from ncfbench.reporting.quality import RECALL
from ncfbench.reporting.ranked import RankedArm, Ratio, Runs, rank_soonest
from ncfbench.runs.folder import RunRecord
from ncfbench.timing.curves import Curve

AT_END = 0.85
"""One that trained for this share of the best one's clock trained to the end; rungs are further
apart, and in one rung arms stop at clocks that differ by a block.
"""
STAYED = ("recommended", "tied", "lower", "slower")
"""Statuses of entrants that stayed to the end."""


@dataclass(frozen=True, kw_only=True)
class RacedArm(RankedArm):
    """How an entrant ended.

    In a race to a loss ``behind`` is taken at the latest level of both. The ``expected`` of one
    that left early is what its effort lets expect, since what it showed was early. Of one that
    trained to the end it is what was measured, but no less than that: the level of both is an
    easier one than the best one's. One that a smaller learning rate has overtaken is expected to
    go on as it fell last, which may bring it to the recommended one's level late, or never.
    """

    entrant: Candidate

    @property
    def judged_at(self) -> float:
        """Seconds of training at the last evaluation of its first seed; 0 before any."""
        judged = (row["iteration"] for row in self.first.curve if row[f"test_{RECALL}"] is not None)
        return float(max(judged, default=0) * self.first.seconds)


@dataclass(frozen=True, kw_only=True)
class RaceAnswer(Overall):
    """The answer of a race, about all entrants.

    Attributes:
        baseline: the best baseline; None where none raced.
        target: the level that decides; of a race to a loss the latest level of the best and the
            baseline.
        sooner: how many times sooner the best reaches the baseline's lowest level.
        unfitted: why floors were left out, a sentence each.
        sooner_at_least: the same as a bound, where the baseline was evaluated and had not learned
            anything.
    """

    arms: Sequence[RacedArm]
    baseline: RacedArm | None = None
    question: Question
    state: State
    sooner: Ratio | None = None
    sooner_at_least: float | None = None
    chance: float
    budget_seconds: float
    sample_users: int | None
    unfitted: Sequence[str] = ()
    scope = "on this budget"

    @property
    def ranks(self) -> bool:
        """True unless the race is to a loss."""
        return self.question.target == "recall"

    @property
    def asks(self) -> str:
        """The question, as titles have it."""
        return super().asks if self.ranks else "Which sampler trains soonest"

    @property
    def subject(self) -> str:
        """Data set, and encoder and loss where these are fixed."""
        if self.ranks:
            return super().subject
        loss = find_loss(self.question.losses[0]).title
        return f"{self.config.dataset}, {find_encoder(self.config.encoder).title}, {loss}"

    @property
    def measures(self) -> dict[str, str]:
        """Columns of the curves that the figure shows: the one that decides, and test recall."""
        loss, recall = super().measures.items()
        decides = self.question.column, f"{self.metric} of validation links"
        return dict([decides if self.ranks else loss, recall])

    @property
    def main(self) -> list[RacedArm]:
        """The entrants that stayed to the end."""
        return [arm for arm in self.arms if arm.status in STAYED]

    @property
    def undecided(self) -> int:
        """Number of entrants that left and could not yet be told from the best."""
        return sum(
            arm.status == "left" and (arm.behind is None or arm.behind.is_tie) for arm in self.arms
        )


def make_answer(
    question: Question,
    state: State,
    records: Mapping[str, Sequence[RunRecord]],
    dataset: Dataset,
    budget_seconds: float,
) -> RaceAnswer:
    """Compare all entrants, and return the answer so far.

    Args:
        records: runs of each entrant, by seed; those of one that did not begin are none.
    """
    arms = [
        _unranked(question, entrant, [Run.of(record) for record in records[entrant.name]], dataset)
        for entrant in state.entrants
    ]
    known: dict[str, Any] = {}
    if question.target == "recall":
        arms, known["target"] = rank_soonest(arms)
    else:
        arms, known = _by_loss(state, {arm.name: arm for arm in arms})
    arms = [arm.with_quality() for arm in arms]
    removed = dataset.manifest.get("removed", {})
    return RaceAnswer(
        config=question.base,
        data_fingerprint=state.fingerprint,
        data_label="",
        settings="",
        arms=sorted(arms, key=lambda arm: arm.place),
        baseline=next((arm for arm in arms if arm.name == known.pop("baseline", None)), None),
        question=question,
        state=state,
        metric=question.metric,
        chance=chance(dataset, "test"),
        budget_seconds=budget_seconds,
        sample_users=dataset.n_users if removed.get("users_not_drawn") else None,
        **known,
    )


def _unranked(
    question: Question, entrant: Candidate, runs: Sequence[Run], dataset: Dataset
) -> RacedArm:
    measured = Runs.of(runs, question.column)
    timed = [run for run in runs if run.is_timed]
    return RacedArm(
        name=entrant.name,
        config=entrant.config,
        runs={run.config.seed: run for run in timed or runs},
        is_baseline=question.target == "loss" and entrant.shape.is_baseline,
        status=_left(entrant, has_run=bool(measured.curves)) or "tied",
        entrant=entrant,
        measured=measured,
        learned_at=learned_at(runs[0], dataset) if timed else None,
        expected=entrant.effort,
    )


def _by_loss(state: State, arms: Mapping[str, RacedArm]) -> tuple[list[RacedArm], dict[str, Any]]:
    """Return the arms with how they stand to the best by loss, the best baseline, and how much
    later that is.
    """
    measured = {name: arm.measured for name, arm in arms.items() if arm.has_run}
    taught = {name for name in arms if arms[name].learned_at is not None}
    racing = [entrant for entrant in state.racing if entrant.name in measured]
    best = best_of({each.name: measured[each.name] for each in racing if each.name in taught})
    baselines = {each.name: measured[each.name] for each in racing if each.shape.is_baseline}
    base = best_of({name: baselines[name] for name in baselines if name in taught} or baselines)
    curves = {name: arms[name].curve for name in measured}
    overtaken = _overtaken([each for each in state.entrants if each.name in curves], curves, taught)
    least = next((each.effort for each in state.entrants if each.name == best), 1.0)
    ranked = {}
    for name, arm in arms.items():
        behind, status = None, arm.status
        # At chance, differences between arms say nothing of what follows.
        if best is not None and best != name and name in taught:
            behind = times_sooner(measured[best], arm.measured)
            if status == "tied" and is_ahead(measured[best], arm.measured):
                status = "slower"
        elif best is not None and name not in taught and status == "tied":
            status = "slower"
        expected = arm.expected / least
        if best is not None and name in curves:
            expected = _expected(
                expected, behind, curves[name], curves[best], is_overtaken=name in overtaken
            )
        status = "recommended" if name == best else status
        ranked[name] = replace(arm, behind=behind, status=status, expected=expected)
    known: dict[str, Any] = {"baseline": base}
    if best is not None and base is not None and best != base:
        if base in taught:
            known["sooner"] = ranked[base].behind
            level = known["target"] = max(curves[name].level for name in (best, base))
            ranked = {name: arm.to_level(level) for name, arm in ranked.items()}
        else:
            bound = ranked[base].judged_at / max(ranked[best].learned_at or 0.0, 1e-9)
            known["sooner_at_least"] = bound if bound > 1 else None
    return [*ranked.values()], known


def _left(entrant: Candidate, *, has_run: bool) -> str:
    """Return the status of an entrant that left or did not begin; empty of one that stayed."""
    if entrant.status in (Status.DIVERGED, Status.FAILED):
        return entrant.status.value
    if not has_run:
        return "not begun"
    return "left" if entrant.status is Status.LEFT else ""


def _expected(
    by_effort: float, behind: Ratio | None, own: Curve, best: Curve, *, is_overtaken: bool
) -> float:
    """Return how many times sooner the best one is expected to be, see :class:`RacedArm`."""
    found = by_effort
    if behind is not None and own.clock >= AT_END * best.clock:
        found = max(by_effort, behind.value)
    return max(found, own.expected_time_to(best.level) / best.clock) if is_overtaken else found


def _overtaken(
    entrants: Sequence[Candidate], curves: Mapping[str, Curve], learned: Set[str]
) -> set[str]:
    """Return the names of entrants that a smaller learning rate of the same shape has overtaken,
    of those that trained for half of the longest clock.

    A large rate learns first, and comes to rest above a smaller one: once it is behind, what was
    measured earlier says too little.

    Args:
        curves: of their first seeds, by name.
        learned: names of those that are known to be better than chance; the smaller rate must be.
    """
    longest = max((curves[each.name].clock for each in entrants), default=0.0)
    found = set()
    for entrant, other in permutations(entrants, 2):
        own, theirs = curves[entrant.name], curves[other.name]
        until = min(own.clock, theirs.clock)
        if (
            other.name in learned
            and entrant.shape == other.shape
            and entrant.config.learning_rate > other.config.learning_rate
            and 2 * until >= longest
            and theirs.at(until) < own.at(until)
        ):
            found.add(entrant.name)
    return found
