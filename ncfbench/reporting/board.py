"""The board: ways to train beside each other on several data sets.

A *contestant* is a combination of settings, such as ``softmax strat-ns``; the learning rate, and
settings that all arms of a data set share, are no part of it. Of arms that differ in these alone
the best one counts. Floors are contestants too. On each data set the target is a share of the best
quality that a contestant reached there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.labels import choices_label, choices_of, data_headings
from ncfbench.reporting.overall import Overall
from ncfbench.reporting.ranked import RankedArm, Ratio, times_to_level

TARGET = 0.97
"""The target, as a share of the best quality of all."""
LEAST_SECONDS = 1e-3
"""Shorter times count as this in factors: popularity is known at once."""


class TargetTime(NamedTuple):
    """How a contestant stands on a data set.

    Attributes:
        seconds: of features and training to the target; infinity where it never came there.
        is_tied: whether it is the soonest, or cannot be told from it over seeds.
    """

    seconds: float = math.inf
    is_tied: bool = False


Times = Sequence[TargetTime | None]
"""The times of a contestant on each data set; None where a floor was not fitted."""


@dataclass(frozen=True)
class Board:
    """Contestants on several data sets.

    Attributes:
        names: of the data sets.
        standings: by contestant, the best first.
        left_out: contestants without an arm on some data set.
        differences: settings that all arms of a data set share, and that data sets differ in: the
            value of each data set.
        seeds: the fewest that decide on a data set.
        metric: what ranking is judged by.
        split: held-out links that decide.
        fingerprints: of the data sets.
        runs: names of the runs of each contestant that trains, on each data set.
    """

    names: Sequence[str]
    standings: Mapping[str, Times]
    left_out: Sequence[str]
    differences: Mapping[str, Sequence[str]]
    seeds: int
    metric: str
    split: str
    fingerprints: Sequence[str]
    runs: Mapping[str, Sequence[Sequence[str]]]


def find_board(answers: Sequence[Overall]) -> Board | None:
    """Return the board of the answers about several data sets; None of fewer than two, where they
    are not judged alike, where fewer than two contestants have arms on all of them, or all
    diverged. Data sets on
    which no arm is known to be better than chance are left out, and those whose ranked items are
    all among the first 50.
    """
    answers = [answer for answer in answers if any(arm.learned_at for arm in answer.arms)]
    alike = {(answer.metric, answer.split) for answer in answers}
    if len(answers) < 2 or len(alike) > 1:
        return None
    settings = [[_settings(arm) for arm in answer.arms] for answer in answers]
    names = {name for of_arms in settings for name in _differing(of_arms)}
    arms: list[dict[str, RankedArm]] = []
    for answer in answers:
        arms.append({})
        for arm in sorted(answer.arms, key=_place):
            own = {name: value for name, value in _settings(arm).items() if name in names}
            arms[-1].setdefault(choices_label(own), arm)
    shared = [name for name in arms[0] if all(name in own for own in arms)]
    if len(shared) < 2:
        return None
    seeds = [len(own[name].deciding) for own in arms for name in shared if _is_able(own[name])]
    if not seeds:
        return None
    floors = [{floor.row["floor"]: floor for floor in answer.floors} for answer in answers]
    found = [
        _standings({**{name: own[name] for name in shared}, **without}, answer)
        for own, without, answer in zip(arms, floors, answers, strict=True)
    ]
    contestants = dict.fromkeys([*shared, *(name for own in floors for name in own)])
    firsts = [of_arms[0] for of_arms in settings]
    data = [(answer.config.dataset, answer.data_fingerprint) for answer in answers]
    return Board(
        list(data_headings(data).values()),
        ordered({name: [own.get(name) for own in found] for name in contestants}),
        sorted(set().union(*arms).difference(shared)),
        {
            name: [str(first.get(name, "-")) for first in firsts]
            for name in _differing(firsts)
            if name not in names
        },
        min(seeds),
        *alike.pop(),
        [digits for _, digits in data],
        {name: [[run.name for run in own[name].runs.values()] for own in arms] for name in shared},
    )


def ordered(standings: Mapping[str, Times]) -> dict[str, Times]:
    """Return contestants by the number of data sets on which they came to the target, then by the
    mean factor over the soonest there.
    """
    first = soonest(standings)

    def key(name: str) -> tuple[int, float]:
        logs = [math.log(factor) for factor in factors(standings[name], first)]
        return -len(logs), math.fsum(logs) / max(len(logs), 1)

    return {name: standings[name] for name in sorted(standings, key=key)}


def soonest(standings: Mapping[str, Times]) -> list[float]:
    """Return the seconds of the soonest contestant on each data set, a millisecond at least."""
    columns = zip(*standings.values(), strict=True)
    return [
        max(min(each.seconds for each in column if each is not None), LEAST_SECONDS)
        for column in columns
    ]


def factors(own: Times, first: Sequence[float]) -> list[float]:
    """Return how many times as long as the soonest one a contestant takes, 1 at least, on each data
    set where it came to the target.
    """
    return [
        max(each.seconds / at, 1.0)
        for each, at in zip(own, first, strict=True)
        if each is not None and each.seconds < math.inf
    ]


def _differing(settings: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names of the settings that differ."""
    known = dict.fromkeys(name for own in settings for name in own)
    return [name for name in known if len({str(own.get(name)) for own in settings}) > 1]


def _settings(arm: RankedArm) -> dict[str, object]:
    choices = choices_of(arm.config).items()
    return {name: value for name, value in choices if name != "learning_rate"}


def _place(arm: RankedArm) -> tuple[int, float, float, list[str]]:
    """Return the key of an arm in the order of an answer; names of runs decide between equals."""
    return *arm.place, [run.name for run in arm.runs.values()][:1]


def _standings(
    contestants: Mapping[str, RankedArm | FloorResult], answer: Overall
) -> dict[str, TargetTime]:
    """Return how contestants stand on a data set."""
    level = TARGET * max(_quality(each, answer) for each in contestants.values())
    seconds = {name: _seconds_to(each, answer, level) for name, each in contestants.items()}
    first = contestants[min(seconds, key=lambda name: seconds[name])]
    return {
        name: TargetTime(at, at < math.inf and _is_tied(first, contestants[name], level))
        for name, at in seconds.items()
    }


def _seconds_to(one: RankedArm | FloorResult, answer: Overall, level: float) -> float:
    if isinstance(one, FloorResult):
        return one.seconds if _quality(one, answer) >= level else math.inf
    at = one.curve.time_to(-level) if _is_able(one) else None
    return math.inf if at is None else one.measured.feature_seconds + at


def _quality(one: RankedArm | FloorResult, answer: Overall) -> float:
    if isinstance(one, FloorResult):
        column = f"{answer.split}_{answer.metric.replace('@', '_at_')}"
        return one.row.get(column) or 0.0
    return -one.level if _is_able(one) else 0.0


def _is_able(arm: RankedArm) -> bool:
    """Return whether an arm has times, and none of its seeds diverged."""
    return arm.has_run and arm.status != "diverged"


def _is_tied(first: RankedArm | FloorResult, other: RankedArm | FloorResult, level: float) -> bool:
    """Return whether one that came to a level cannot be told from the first one there."""
    if first is other:
        return True
    if isinstance(first, FloorResult) or isinstance(other, FloorResult):
        return False
    behind: Ratio | None = times_to_level(first.measured, other.measured, -level)
    return behind is not None and behind.lower <= 1
