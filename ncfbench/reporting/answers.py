"""The answer about a data set: arms of all its losses, encoders and samplers side by side, and its
caveats: what it rests on, and what speaks against it.

The probes of two objectives do not compare, and the quality of their rankings does. The rule is
that of :mod:`ncfbench.reporting.arms`, for finished runs and for a race.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ncfbench.catalog import BUILT_IN
from ncfbench.config import RunConfig
from ncfbench.data.content import Split
from ncfbench.reporting.arms import Arm, rank_soonest
from ncfbench.reporting.floors import BlendResult, FloorResult, best_of, blend_of
from ncfbench.reporting.formats import counted, three_digits
from ncfbench.reporting.frames import Run, compared_by, grouped
from ncfbench.reporting.quality import RECALL, TEST_RECALL
from ncfbench.reporting.table import slug
from ncfbench.runs.convergence import above_chance_at
from ncfbench.runs.curves import curves_of
from ncfbench.runs.folder import are_interleaved
from ncfbench.runs.labels import NO_CHOICES, choices_label, seeds_label
from ncfbench.statistics.intervals import QUALITY_SPREAD
from ncfbench.statistics.ranking import NEAR
from ncfbench.statistics.speedups import BUSY_SPREAD

FALLING = 0.03
"""A measure that improved by a larger share in the last doubling of the clock still improves."""
NUMBERS = ("learning_rate", "batch_size", "stratum_size")
"""Settings of which an answer says that its value is the largest or the smallest that was tried."""


Code = Literal[
    "undertrained",
    "busy",
    "few_arms",
    "few_seeds",
    "decided_by_test",
    "other_machine",
    "not_interleaved",
    "note",
    "edge",
]
"""What a caveat is about, the largest doubts first; ``edge``: the best of a setting's values is the
last one that was tried.
"""


class Caveat(NamedTuple):
    """A reason to doubt an answer, or that there is none: a code for programs, and a sentence."""

    code: Code
    sentence: str


class Worth(NamedTuple):
    """A value of a choice that was not recommended, with the best arm that has it."""

    choice: str
    value: str
    arm: Arm


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer about arms of different losses, encoders and models.

    Attributes:
        arms: the best first; at least one.
        target: the level that decides, a quality with its sign changed; None where no arm is known
            to be better than chance.
        reasons: what was left out.
        floors: of the data set, the highest recall first; none where none were fitted.
        metric: what ranking is judged by, such as ``recall@50``.
        split: the held-out links that decide.
        chance: test recall@50 by chance; None where it is not known.
        split_chance: the metric of the links that decide by chance; None where it is not known.
    """

    config: RunConfig
    data_fingerprint: str
    arms: Sequence[Arm]
    target: float | None = None
    reasons: Sequence[Caveat] = ()
    floors: Sequence[FloorResult] = ()
    metric: str = "recall@50"
    split: Split = "validation"
    chance: float | None = None
    split_chance: float | None = None

    @cached_property
    def beside_floors(self) -> Arm | None:
        """The arm that is set beside floors: the recommended one, else that of the largest
        recall of validation links.
        """
        return self.best if self.best and self.best.reported else best_of(self.arms)

    @cached_property
    def blends(self) -> list[BlendResult]:
        """The kept blend of the arm that stands beside floors; none where there is none."""
        arm = self.beside_floors if self.floors else None
        blend = None if arm is None else blend_of([*arm.shown.values()], self.floors)
        return [] if blend is None else [blend]

    @property
    def is_decided(self) -> bool:
        """Whether enough was trained for an answer."""
        return True

    @property
    def title(self) -> str:
        """The question, with the data set and the metric."""
        return f"What ranks best soonest: {self.config.dataset}, {self.metric}"

    def named(self, kind: str) -> str:
        """Return the name of a table or figure of a kind."""
        return slug(kind, self.config.dataset, self.data_fingerprint[:6])

    @property
    def best(self) -> Arm | None:
        """The recommended arm; None where nothing was learned."""
        return next((arm for arm in self.arms if arm.status == "recommended"), None)

    @property
    def main(self) -> Sequence[Arm]:
        """The recommended arm and the best one with each other choice; all where none is."""
        alternatives = [row.arm for row in worth(self)]
        chosen = [arm for arm in self.arms if arm is self.best or arm in alternatives]
        return chosen if self.best else self.arms

    @property
    def ties(self) -> Sequence[Arm]:
        """Arms that cannot be told from the best."""
        return [arm for arm in self.arms if arm.status == "tied"]

    @property
    def feature_seconds(self) -> float:
        """Seconds that the derived item features took which the recommended arm reads."""
        return self.best.feature_seconds if self.best else 0.0

    @property
    def spread(self) -> float:
        """Largest spread of the times of an arm's blocks."""
        return max((arm.spread for arm in self.main), default=0.0)

    @property
    def fall(self) -> float:
        """Share by which the best one's measure improved in the last doubling of its clock; beyond
        :data:`FALLING` longer training may change the order.
        """
        curve = self.best.curve if self.best else None
        before = curve.at(curve.clock / 2) if curve else 0.0
        return curve.gain() / abs(before) if curve and before else 0.0


def find_answers(
    runs: Iterable[Run], floors: Mapping[str, Sequence[FloorResult]] | None = None
) -> list[Answer]:
    """Return the answer of each data set that has runs with recall of test links.

    Args:
        floors: by fingerprint of the data set.
    """
    floors, by_data = floors or {}, grouped(runs, lambda run: run.data_fingerprint)
    answers = [_answer(of_data, floors.get(digits, ())) for digits, of_data in by_data.items()]
    return [answer for answer in answers if answer is not None]


def worth(answer: Answer) -> list[Worth]:
    """Return the best arm with every other value of sampler, loss, encoder and so on, and the best
    one with another value of each number; the choices that matter most first.

    Such arms may differ in other settings too: each value stands at its best.
    """
    best = answer.best
    if best is None:
        return []
    alternatives = sorted(
        (arm for arm in answer.arms if math.isfinite(arm.level) and arm is not best),
        key=lambda arm: (arm.expected, arm.level, arm.first.name),
    )
    rows: list[Worth] = []
    for name, best_value in best.config.to_dict().items():
        if name in NO_CHOICES or not reads(best, name):
            continue
        of_value: dict[Any, Arm] = {}
        for arm in alternatives:
            value = arm.config.to_dict().get(name, best_value)
            if value != best_value and reads(arm, name):
                of_value.setdefault(value, arm)
        shown = of_value.items() if name in BUILT_IN else [*of_value.items()][:1]
        rows += [Worth(name, str(value), arm) for value, arm in shown]
    first = {row.choice: row.arm for row in reversed(rows)}
    matters = {choice: (-arm.expected, -arm.level) for choice, arm in first.items()}
    return sorted(rows, key=lambda row: (row.choice not in BUILT_IN, *matters[row.choice]))


def _answer(runs: Sequence[Run], floors: Sequence[FloorResult]) -> Answer | None:
    """Return the answer of a data set's runs in the newest environment of those whose best arm is
    within :data:`~ncfbench.statistics.ranking.NEAR` of that of all; None where no run has recall.
    Runs with recall of validation links come before those without.
    """
    runs = [run for run in runs if run.evaluated(TEST_RECALL) and not run.is_simulated]
    runs = sorted(runs, key=lambda run: str(run.environment.get("time")), reverse=True)
    alike = grouped(runs, lambda run: run.environment["key"]).values()
    answers = [
        _answer_alike(of_key, len(runs) - len(of_key), floors, has_newer=index > 0)
        for index, of_key in enumerate(alike)
    ]
    answers = [answer for answer in answers if answer.split == "validation"] or answers
    tops = [
        max((-arm.level for arm in answer.arms if not arm.has_diverged), default=-math.inf)
        for answer in answers
    ]
    near = (answer for answer, top in zip(answers, tops, strict=True) if top >= NEAR * max(tops))
    return next(near, None)


def _answer_alike(
    here: Sequence[Run], left: int, floors: Sequence[FloorResult], *, has_newer: bool
) -> Answer:
    """Return the answer of runs of one environment.

    Args:
        left: number of those of others.
        has_newer: whether some of these are newer.
    """
    arms = _arms_of(here)
    reasons = []
    if left:
        newer = ", newer ones with less recall among them" if has_newer else ""
        text = f"{counted(left, 'run')} of another machine or environment left out{newer}."
        reasons.append(Caveat("other_machine", text))
    if left := len(here) - sum(map(len, arms)):
        text = f"{counted(left, 'run')} left out: a longer one has its arm and seed."
        reasons.append(Caveat("note", text))
    validation = f"validation_{RECALL}"
    chances = {name: kept_chance(here, name) for name in (validation, TEST_RECALL)}
    # A recall that is 1 by construction decides nothing.
    is_validated = (chances[validation] or 0.0) < 1
    is_validated &= all(next(iter(arm.values())).evaluated(validation) for arm in arms)
    split: Split = "validation" if is_validated else "test"
    chance = chances[f"{split}_{RECALL}"]
    ranked, level = rank_soonest([_unranked(arm, split, chance) for arm in arms])
    return Answer(
        config=here[0].config,
        data_fingerprint=here[0].data_fingerprint,
        arms=sorted(ranked, key=lambda arm: arm.place),
        target=level,
        reasons=reasons,
        floors=floors,
        split=split,
        chance=chances[TEST_RECALL],
        split_chance=chance,
    )


def _arms_of(runs: Iterable[Run]) -> list[dict[int, Run]]:
    """Return the runs of each arm by seed, of those that differ in epochs alone the longest."""
    arms: dict[tuple[Any, ...], dict[int, Run]] = {}
    for run in runs:
        by_seed = arms.setdefault((run.variant, *compared_by(run, but={"epochs"})), {})
        longest = by_seed.get(run.config.seed, run)
        if run.summary["epochs"] >= longest.summary["epochs"]:
            by_seed[run.config.seed] = run
    return [dict(sorted(arm.items())) for arm in arms.values()]


def _unranked(arm: Mapping[int, Run], split: Split, chance: float | None) -> Arm:
    """Return an arm of an answer with the curves that decide.

    Args:
        arm: its runs by seed.
        chance: for runs that keep none.
    """
    runs = [run for run in arm.values() if run.is_timed] or [*arm.values()]
    first = runs[0]
    return Arm(
        name=choices_label(first.config),
        config=first.config,
        runs={run.config.seed: run for run in runs},
        status="diverged" if any(run.has_diverged for run in arm.values()) else "tied",
        measured=curves_of(runs, f"{split}_{RECALL}", chance),
        learned_at=above_chance_at(first, split, chance or 0.0),
    )


def kept_chance(runs: Iterable[Run], column: str) -> float | None:
    """Return the chance of a column that some run kept; it is that of the data set."""
    known = (row.get(f"{column}_chance") for run in runs for row in run.curve)
    return next((chance for chance in known if chance is not None), None)


def reads(arm: Arm, name: str) -> bool:
    """Return whether an arm has a setting, and reads it."""
    config = arm.config
    setting = config.settings.get(name)
    return setting is not None and config.reads(setting)


def caveats(answer: Answer) -> list[Caveat]:
    """Return what an answer about finished runs rests on, and what speaks against it."""
    best, found = answer.best, list(answer.reasons)
    if best is None:
        return found + floor_caveats(answer)
    if {*best.deciding} != {seed for arm in answer.arms for seed in arm.runs}:
        text = f"Decided by {seeds_label(best.deciding)}: not all arms have the others."
        found.append(Caveat("few_seeds", text))
    if len(answer.arms) == 1:
        found.append(Caveat("few_arms", "No other arm was tried."))
    if answer.split == "test":
        text = "Test links decided: some runs have no recall of validation links."
        found.append(Caveat("decided_by_test", text))
    found += best_caveats(answer, best)
    if not all(are_interleaved(best.first, arm.first) for arm in answer.main if arm is not best):
        text = "Some runs did not take turns, so a change of the machine's speed counts."
        found.append(Caveat("not_interleaved", text))
    return found + floor_caveats(answer) + busy_caveats(answer.spread)


def best_caveats(answer: Answer, best: Arm) -> list[Caveat]:
    """Return whether the best arm still learns or has one seed, and which of its numbers are at an
    end of those that were tried.
    """
    found = []
    if answer.fall > FALLING:
        epochs, seconds = best.first.summary["epochs"], three_digits(best.curve.clock)
        text = f"The best trained {seconds} s ({epochs:.3g} epochs), and its recall rose by"
        text += f" {answer.fall:.0%} in the latter half: longer training may change the order."
        found = [Caveat("undertrained", text)]
    if len(best.deciding) == 1:
        text = "One seed: errors are of users and items alone, and intervals of times assume that"
        found.append(Caveat("few_seeds", f"{text} {QUALITY_SPREAD.text}."))
    return found + _edges(answer, best)


def floor_caveats(answer: Answer) -> list[Caveat]:
    """Return a warning if floors are known to be of another machine than the runs."""
    # Some kept runs do not say which machine theirs was.
    runs = [run for arm in answer.arms for run in arm.runs.values()]
    hosts = {run.environment.get("host_key") for run in runs} - {None}
    fitted = {floor.row["environment_key"] for floor in answer.floors}
    if not hosts or not fitted or len(hosts | fitted) == 1:
        return []
    text = "The floors were fitted on another machine than the runs, or in another environment:"
    again = f"their seconds do not compare. There ncfbench floor {answer.config.dataset} fits them."
    return [Caveat("other_machine", f"{text} {again}")]


def busy_caveats(spread: float) -> list[Caveat]:
    """Return a warning if times spread so widely that something else was at work."""
    if spread <= BUSY_SPREAD:
        return []
    text = f"The machine was busy: times of blocks of iterations spread by {spread:.0%}."
    return [Caveat("busy", text)]


def _edges(answer: Answer, best: Arm) -> list[Caveat]:
    """Return a caveat on each number of the best arm that is at an end of those that were tried
    with its loss and sampler.
    """
    config, found = best.config, []
    alike = [arm.config for arm in answer.arms if arm.has_run]
    alike = [own for own in alike if (own.loss, own.sampler) == (config.loss, config.sampler)]
    for name in NUMBERS:
        value, tried = getattr(config, name), {getattr(other, name) for other in alike}
        if reads(best, name) and len(tried) > 1 and value in (min(tried), max(tried)):
            end = "largest" if value == max(tried) else "smallest"
            text = f"Its {name} is the {end} that was tried: a {end[:-3]}er one may be better."
            found.append(Caveat("edge", text))
    return found
