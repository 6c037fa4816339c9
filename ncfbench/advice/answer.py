"""The answer of a race: what to use, how much sooner than the best baseline, and how surely."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import permutations

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.comparison import Ratio, Runs, best_of, is_ahead, times_sooner
from ncfbench.advice.curves import chance, curve_of, learned_at
from ncfbench.advice.question import Question
from ncfbench.advice.rule import Curve
from ncfbench.advice.state import State
from ncfbench.data import Dataset
from ncfbench.reporting.contenders import Contender
from ncfbench.reporting.quality import RECALL, Quality, quality_at_end
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import statistics as analysis

QUARTILES_OF_NORMAL = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""
MEDIAN_OVER_MEAN = 1.25
"""Standard error of a median over that of a mean, for normal values."""
FALLING = 0.03
"""A loss that fell by a larger share in the last doubling of the clock is still falling."""

AT_END = 0.85
"""One that trained for this share of the best one's clock trained to the end; rungs are further
apart, and in one rung arms stop at clocks that differ by a block.
"""

STAYED = ("recommended", "tied", "slower")
"""Statuses of entrants that stayed to the end."""
PLACES = {"recommended": 0, "tied": 1, "slower": 2, "left": 2}
"""Order of the statuses in the answer; those that are not here come last."""


@dataclass(frozen=True)
class Standing:
    """How an entrant ended.

    Attributes:
        contender: its records by seed; none where it did not begin.
        runs: the curves that decide, of those that have times.
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
    contender: Contender
    runs: Runs
    learned_at: float | None
    status: str
    behind: Ratio | None
    expected: float

    @property
    def name(self) -> str:
        """The entrant's."""
        return self.entrant.name

    @property
    def has_run(self) -> bool:
        """True if it has a curve with times."""
        return bool(self.runs.curves)

    @property
    def curve(self) -> Curve:
        """Curve of the first seed, if it :attr:`has_run`."""
        return next(iter(self.runs.curves.values()))

    @property
    def level(self) -> float:
        """The lowest value of all its seeds, if it :attr:`has_run`."""
        return min(curve.level for curve in self.runs.curves.values())

    def to_level(self, level: float) -> tuple[float, float] | None:
        """Return the iterations and seconds of the first seed to a level; None if it never got
        there.
        """
        seconds = self.curve.time_to(level)
        if seconds is None:
            return None
        run = next(iter(self.contender.runs.values()))
        return seconds / run.summary["full_iteration_seconds"], seconds

    @property
    def at_end(self) -> Quality | None:
        """Quality at the last evaluation, of the first seed alone where another has none yet."""
        runs = self.contender.runs
        return quality_at_end(runs) or quality_at_end(dict([*runs.items()][:1]))

    @property
    def judged_at(self) -> float:
        """Seconds of training at the last evaluation of its first seed; 0 before any."""
        run = next(iter(self.contender.runs.values()))
        found = [row["iteration"] for row in run.curve if row[f"test_{RECALL}"] is not None]
        return float(max(found, default=0) * run.summary["full_iteration_seconds"])

    @property
    def epochs(self) -> float:
        """Epochs that its first seed trained."""
        return float(next(iter(self.contender.runs.values())).summary["epochs"])


@dataclass(frozen=True)
class Answer:
    """The answer of a race.

    Attributes:
        standings: of all entrants, the best first.
        best: the recommended entrant; None where nothing was learned.
        baseline: the best baseline; None where none raced.
        sooner: how many times sooner the best reaches the baseline's lowest level.
        sooner_at_least: the same as a bound, where the baseline was evaluated and had not learned
            anything.
        level: the latest level of both, of the first seed.
    """

    question: Question
    state: State
    standings: Sequence[Standing]
    best: Standing | None
    baseline: Standing | None
    sooner: Ratio | None
    sooner_at_least: float | None
    level: float | None
    chance: float
    budget_seconds: float
    sample_users: int | None

    @property
    def ties(self) -> list[Standing]:
        """Candidates that stayed to the end and cannot be told from the best."""
        return [each for each in self.standings if each.status == "tied"]

    @property
    def others(self) -> list[Standing]:
        """The other entrants that stayed to the end."""
        return [each for each in self.standings if each.status == "slower"]

    @property
    def time_spread(self) -> float:
        """Largest spread of the times of blocks among those that stayed to the end."""
        found = [self.best, self.baseline, *self.ties, *self.others]
        return max((each.contender.spread for each in found if each), default=0.0)

    @property
    def fall(self) -> float:
        """Share by which the best one's measure improved in the last doubling of its clock."""
        if self.best is None:
            return 0.0
        curve = self.best.curve
        before = curve.at(curve.clock / 2)
        return curve.gain() / abs(before) if before else 0.0

    @property
    def undecided(self) -> int:
        """Number of entrants that left and could not yet be told from the best."""
        return sum(
            each.status == "left" and (each.behind is None or each.behind.is_tie)
            for each in self.standings
        )


def make_answer(
    question: Question,
    state: State,
    records: Mapping[str, Sequence[RunRecord]],
    dataset: Dataset,
    budget_seconds: float,
) -> Answer:
    """Compare all entrants, and return the answer so far.

    Args:
        records: runs of each entrant, by seed; those of one that did not begin are none.
    """
    runs = {
        each.name: _runs_of(question, records[each.name], dataset)
        for each in state.entrants
        if any(record.summary["full_iteration_seconds"] for record in records[each.name])
    }
    learned = {name: learned_at(records[name][0], dataset) for name in runs}
    racing = [each.name for each in state.racing if each.name in runs]
    able = [name for name in racing if learned[name] is not None]
    best = best_of({name: runs[name] for name in able}) if able else None
    least = next((each.effort for each in state.entrants if each.name == best), 1.0)
    curves = {name: run.curves[0] for name, run in runs.items() if run.curves}
    taught = {name for name, at in learned.items() if at is not None}
    overtaken = _overtaken([each for each in state.entrants if each.name in curves], curves, taught)
    standings = {}
    for each in state.entrants:
        own = runs.get(each.name, Runs({}))
        # At chance, differences between arms say nothing of what follows.
        is_ratio = best is not None and best != each.name and learned.get(each.name) is not None
        behind = times_sooner(runs[best], own) if is_ratio and best is not None else None
        is_behind = is_ratio and best is not None and is_ahead(runs[best], own)
        status = _status(
            each, best, learned.get(each.name), is_behind=is_behind, has_run=bool(own.curves)
        )
        timed = [run for run in records[each.name] if run.summary["full_iteration_seconds"]]
        by_seed = {run.config.seed: run for run in timed or records[each.name]}
        contender = Contender(each.name, each.config, by_seed)
        expected = each.effort / least
        if best is not None and each.name in curves:
            is_overtaken = each.name in overtaken
            expected = _expected(
                expected, behind, curves[each.name], curves[best], is_overtaken=is_overtaken
            )
        standings[each.name] = Standing(
            each, contender, own, learned.get(each.name), status, behind, expected
        )
    baselines = [each.name for each in state.racing if each.shape.is_baseline and each.name in runs]
    able = [name for name in baselines if learned[name] is not None]
    baseline = best_of({name: runs[name] for name in able or baselines}) if baselines else None
    sooner, at_least, level = None, None, None
    if best is not None and baseline is not None and best != baseline:
        if learned[baseline] is not None:
            sooner = standings[baseline].behind
            level = max(runs[name].curves[0].level for name in (best, baseline))
        else:
            bound = standings[baseline].judged_at / max(learned[best] or 0.0, 1e-9)
            at_least = bound if bound > 1 else None
    return Answer(
        question,
        state,
        sorted(standings.values(), key=_place),
        standings[best] if best else None,
        standings[baseline] if baseline else None,
        sooner,
        at_least,
        level,
        chance(dataset, "test"),
        budget_seconds,
        dataset.n_users if dataset.manifest.get("removed", {}).get("users_not_drawn") else None,
    )


def _place(each: Standing) -> tuple[int, float, float]:
    """Return what orders the answer: how an entrant ended, how far behind it is expected to be, and
    its level.
    """
    level = each.level if each.has_run else math.inf
    return PLACES.get(each.status, len(PLACES)), each.expected, level


def _status(
    each: Candidate,
    best: str | None,
    learned: float | None,
    *,
    is_behind: bool,
    has_run: bool,
) -> str:
    if each.name == best:
        return "recommended"
    if each.status in (Status.DIVERGED, Status.FAILED):
        return each.status.value
    if not has_run:
        return "not begun"
    if each.status is Status.LEFT:
        return "left"
    if best is not None and learned is None:
        return "slower"
    return "slower" if is_behind else "tied"


def _expected(
    by_effort: float, behind: Ratio | None, own: Curve, best: Curve, *, is_overtaken: bool
) -> float:
    """Return how many times sooner the best one is expected to be, see :class:`Standing`."""
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
    for each, other in permutations(entrants, 2):
        own, theirs = curves[each.name], curves[other.name]
        until = min(own.clock, theirs.clock)
        if (
            other.name in learned
            and each.shape == other.shape
            and each.config.learning_rate > other.config.learning_rate
            and 2 * until >= longest
            and theirs.at(until) < own.at(until)
        ):
            found.add(each.name)
    return found


def _runs_of(question: Question, records: Sequence[RunRecord], dataset: Dataset) -> Runs:
    first = records[0].config.seed
    curves = {
        record.config.seed - first: curve_of(record, question.target, dataset)
        for record in records
        if record.summary["full_iteration_seconds"] and record.summary["status"] != "diverged"
    }
    noises = [_noise(record) for record in records]
    return Runs(curves, MEDIAN_OVER_MEAN / QUARTILES_OF_NORMAL * statistics.fmean(noises))


def _noise(record: RunRecord) -> float:
    """Return the spread of a run's times of blocks over the square root of their number."""
    blocks = sum(row["kind"] == "full" for row in record.timing)
    return (analysis.spread(record.timing, "full") or 0.0) / math.sqrt(max(blocks, 1))
