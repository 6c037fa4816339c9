"""The answer of a race: what to use, how much sooner than the best baseline, and how surely."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.curves import (
    Ratio,
    Runs,
    best_of,
    chance,
    curve_of,
    is_ahead,
    learned_at,
    soonest,
    times_sooner,
    times_to_level,
)
from ncfbench.advice.question import Question
from ncfbench.advice.rule import Curve
from ncfbench.advice.state import State
from ncfbench.catalog import find_encoder, find_loss
from ncfbench.data import Dataset
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import ArmResult
from ncfbench.reporting.frames import Run
from ncfbench.reporting.quality import RECALL, quality_of
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import speedups

QUARTILES_OF_NORMAL = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""
MEDIAN_OVER_MEAN = 1.25
"""Standard error of a median over that of a mean, for normal values."""
AT_END = 0.85
"""One that trained for this share of the best one's clock trained to the end; rungs are further
apart, and in one rung arms stop at clocks that differ by a block.
"""
FALLING = 0.03
"""A loss that fell by a larger share in the last doubling of the clock is still falling."""
STAYED = ("recommended", "tied", "slower")
"""Statuses of entrants that stayed to the end."""
PLACES = {"recommended": 0, "tied": 1, "slower": 2, "left": 2}
"""Order of the statuses in the answer; those that are not here come last."""


@dataclass(frozen=True, kw_only=True)
class RacedArm(ArmResult):
    """How an entrant ended; iterations and seconds are those of its first seed to the level.

    Attributes:
        measured: the curves that decide, of the runs that have times.
        status: recommended, tied, slower (to the end), left, diverged, failed, not begun.
        behind: how many times sooner the recommended one is, at the latest level of both; None of
            an entrant that is not known to be better than chance.
        expected: the same as the answer orders by it. Of one that left early it is what its effort
            lets expect, since what it showed was early. Of one that trained to the end it is what
            was measured, but no less than that: the level of both is an easier one than the best
            one's. One that a smaller learning rate has overtaken is expected to go on as it fell
            last, which may bring it to the recommended one's level late, or never: then infinity.
    """

    entrant: Candidate
    measured: Runs
    learned_at: float | None
    behind: Ratio | None
    expected: float

    @property
    def has_run(self) -> bool:
        """True if it has a curve with times."""
        return bool(self.measured.curves)

    @property
    def curve(self) -> Curve:
        """Curve of the first seed, if it :attr:`has_run`."""
        return next(iter(self.measured.curves.values()))

    @property
    def level(self) -> float:
        """The lowest value of all its seeds; infinity unless it :attr:`has_run`."""
        return min((curve.level for curve in self.measured.curves.values()), default=math.inf)

    @property
    def first(self) -> Run:
        """Its first run, if it has begun."""
        return next(iter(self.runs.values()))

    @property
    def judged_at(self) -> float:
        """Seconds of training at the last evaluation of its first seed; 0 before any."""
        judged = (row["iteration"] for row in self.first.curve if row[f"test_{RECALL}"] is not None)
        return float(max(judged, default=0) * self.first.seconds)

    def rows(self, column: str) -> list[tuple[float, list[Mapping[str, Any]]]]:
        """Return the rows of the first seed's curve: others may have trained for less."""
        alone = ArmResult(self.name, self.config, dict([*self.runs.items()][:1]))
        return alone.rows(column)


@dataclass(frozen=True, kw_only=True)
class RaceAnswer(Answer):
    """The answer of a race, about all entrants.

    Attributes:
        arms: of all entrants, the best first.
        baseline: the best baseline; None where none raced.
        target: the latest level of the best and the baseline, of the first seed.
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

    @property
    def asks(self) -> str:
        """The question, as titles have it."""
        return "What ranks best soonest" if self.question.target == "recall" else super().asks

    @property
    def subject(self) -> str:
        """Data set, and encoder and loss where these are fixed."""
        if self.question.target == "recall":
            return f"{self.config.dataset}, {self.question.metric}"
        loss = find_loss(self.question.losses[0]).title
        return f"{self.config.dataset}, {find_encoder(self.config.encoder).title}, {loss}"

    @property
    def measures(self) -> dict[str, str]:
        """Columns of the curves that the figure shows: the one that decides, and test recall."""
        loss, recall = super().measures.items()
        measure = self.question.measure
        decides = f"validation_{measure}", f"{self.question.metric} of validation links"
        return dict([loss if self.question.target == "loss" else decides, recall])

    @property
    def best(self) -> RacedArm | None:
        """The recommended arm; None where nothing was learned."""
        return next((arm for arm in self.arms if arm.status == "recommended"), None)

    @property
    def main(self) -> list[RacedArm]:
        """The entrants that stayed to the end."""
        return [arm for arm in self.arms if arm.status in STAYED]

    @property
    def fall(self) -> float:
        """Share by which the best one's measure improved in the last doubling of its clock."""
        if self.best is None:
            return 0.0
        curve = self.best.curve
        before = curve.at(curve.clock / 2)
        return curve.gain() / abs(before) if before else 0.0

    @property
    def is_still_falling(self) -> bool:
        """True if longer training may change the order, or find one."""
        return self.best is None or self.fall > FALLING

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
    arms = {}
    for entrant in state.entrants:
        runs = [Run.of(record) for record in records[entrant.name]]
        arms[entrant.name] = _unranked(question, entrant, runs, dataset)
    ranked = _by_loss if question.target == "loss" else _by_ranking
    arms, known = ranked(state, arms)
    for name, arm in arms.items():
        quality = quality_of(arm.runs) or quality_of(dict([*arm.runs.items()][:1]))
        arms[name] = replace(arm, quality=quality)
    removed = dataset.manifest.get("removed", {})
    return RaceAnswer(
        config=question.base,
        data_fingerprint=state.fingerprint,
        data_label="",
        settings="",
        arms=sorted(arms.values(), key=_place),
        baseline=arms.get(known.pop("baseline", None)),
        question=question,
        state=state,
        chance=chance(dataset, "test"),
        budget_seconds=budget_seconds,
        sample_users=dataset.n_users if removed.get("users_not_drawn") else None,
        **known,
    )


def _unranked(
    question: Question, entrant: Candidate, runs: Sequence[Run], dataset: Dataset
) -> RacedArm:
    has_times = any(run.is_timed for run in runs)
    measured = _measured(question, runs) if has_times else Runs({})
    timed = [run for run in runs if run.is_timed] or runs
    return RacedArm(
        entrant.name,
        entrant.config,
        {run.config.seed: run for run in timed},
        is_baseline=question.target == "loss" and entrant.shape.is_baseline,
        status=_left(entrant, has_run=bool(measured.curves)) or "tied",
        entrant=entrant,
        measured=measured,
        learned_at=learned_at(runs[0], dataset) if has_times else None,
        behind=None,
        expected=entrant.effort,
    )


def _by_ranking(
    state: State, arms: Mapping[str, RacedArm]
) -> tuple[dict[str, RacedArm], dict[str, Any]]:
    """Return the arms with how they stand to the best by ranking, and the level that decides."""
    able = {
        name: arm.measured
        for name, arm in arms.items()
        if arm.learned_at is not None and arm.has_run
    }
    racing = {each.name for each in state.racing}
    found = soonest({name: able[name] for name in able if name in racing} or able)
    if found is None:
        return dict(arms), {}
    best, level = found
    ranked = {}
    for name, arm in arms.items():
        behind, status = None, arm.status
        if name in able and name != best:
            behind = times_to_level(able[best], able[name], level)
        if status == "tied" and (behind is None or behind.lower > 1):
            status = "slower"
        expected = behind.value if behind is not None else math.inf
        arm = replace(arm, behind=behind, status=status, expected=expected)
        ranked[name] = _to_level(arm, level)
    ranked[best] = replace(ranked[best], status="recommended", expected=1.0)
    return ranked, {"target": level}


def _by_loss(
    state: State, arms: Mapping[str, RacedArm]
) -> tuple[dict[str, RacedArm], dict[str, Any]]:
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
            ranked = {name: _to_level(arm, level) for name, arm in ranked.items()}
        else:
            bound = ranked[base].judged_at / max(ranked[best].learned_at or 0.0, 1e-9)
            known["sooner_at_least"] = bound if bound > 1 else None
    return ranked, known


def _place(arm: RacedArm) -> tuple[int, float, float]:
    return PLACES.get(arm.status, len(PLACES)), arm.expected, arm.level


def _left(entrant: Candidate, *, has_run: bool) -> str:
    """Return the status of an entrant that left or did not begin; empty of one that stayed."""
    if entrant.status in (Status.DIVERGED, Status.FAILED):
        return entrant.status.value
    if not has_run:
        return "not begun"
    return "left" if entrant.status is Status.LEFT else ""


def _to_level(arm: RacedArm, level: float) -> RacedArm:
    seconds = arm.curve.time_to(level) if arm.has_run else None
    if seconds is None:
        return arm
    return replace(arm, iterations=seconds / arm.first.seconds, seconds=seconds)


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


def _measured(question: Question, runs: Sequence[Run]) -> Runs:
    """Return the curves of an entrant's runs, by seed from 0, and the noise of their times."""
    first = runs[0].config.seed
    curves = {
        run.config.seed - first: curve_of(run, question.column)
        for run in runs
        if run.is_timed and not run.has_diverged
    }
    # The spread of the times of blocks over the square root of their number.
    noises = [
        (speedups.spread(run.timing, "full") or 0.0)
        / math.sqrt(max(sum(row["kind"] == "full" for row in run.timing), 1))
        for run in runs
    ]
    noise = MEDIAN_OVER_MEAN / QUARTILES_OF_NORMAL * statistics.fmean(noises)
    return Runs(curves, noise, statistics.fmean(run.feature_seconds for run in runs))
