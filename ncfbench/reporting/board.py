"""The board: ways to train beside each other on several data sets.

A *contestant* is an arm without what belongs to a data set: settings that were tuned there, and
those that all of its arms share. A floor is one too. On each data set the targets are shares of the
best quality that any contestant reached there. A performance profile says on how many data sets a
contestant takes at most a number of times as long as the soonest one (Dolan and Moré, 2002).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.labels import NO_CHOICES, SHORT, unusual_settings
from ncfbench.reporting.overall import Overall
from ncfbench.reporting.ranked import RankedArm, Ratio, times_to_level

SHARES = (0.9, 0.97)
"""Of the best quality of all: the targets."""
FACTORS = (1.3, 2.0, 4.0)
"""Of the profile: how many times as long as the soonest contestant."""
LEAST_SECONDS = 1e-3
"""Shorter times count as this in factors: popularity is known at once."""
NAMED = ("encoder", "loss", "sampler")
"""Settings that name a contestant by their values alone."""


class TargetTime(NamedTuple):
    """How a contestant stands on a data set, at one target.

    Attributes:
        seconds: of features and training to the target; infinity where it never came there.
        is_tied: whether it is the soonest, or cannot be told from it over seeds.
    """

    seconds: float = math.inf
    is_tied: bool = False


@dataclass(frozen=True)
class Board:
    """Contestants on several data sets.

    Attributes:
        names: of the data sets.
        standings: by target and contestant, one for each data set; the best contestant first.
        left_out: contestants that some data set has no arm of.
        seeds: the fewest that decide on a data set.
        metric: what ranking is judged by.
        split: held-out links that decide.
    """

    names: Sequence[str]
    standings: Mapping[float, Mapping[str, Sequence[TargetTime]]]
    left_out: Sequence[str]
    seeds: int
    metric: str
    split: str


def find_board(answers: Sequence[Overall]) -> Board | None:
    """Return the board of the answers about several data sets; None of fewer than two, or where
    they are not judged alike. Data sets on which nothing can be learned are left out: all ranked
    items are among the first 50.
    """
    answers = [answer for answer in answers if any(arm.learned_at for arm in answer.arms)]
    alike = {(answer.metric, answer.split) for answer in answers}
    if len(answers) < 2 or len(alike) > 1:
        return None
    names = _contestant_settings(answers)
    arms = [
        {_name(arm, names): arm for arm in reversed(answer.arms) if arm.has_run}
        for answer in answers
    ]
    floors = [{floor.row["floor"]: floor for floor in answer.floors} for answer in answers]
    everywhere = [name for name in arms[0] if all(name in own for own in arms)]
    known = set().union(*arms)
    shared = [
        {name: own[name] for name in everywhere} | without
        for own, without in zip(arms, floors, strict=True)
    ]
    found = [_standings(own, answer) for own, answer in zip(shared, answers, strict=True)]
    contestants = [*everywhere, *dict.fromkeys(name for own in floors for name in own)]
    return Board(
        [answer.config.dataset for answer in answers],
        {
            share: ordered(
                {
                    name: [own[share].get(name, TargetTime()) for own in found]
                    for name in contestants
                }
            )
            for share in SHARES
        },
        sorted(known.difference(everywhere)),
        min(len(arm.deciding) for own in arms for arm in own.values()),
        *alike.pop(),
    )


def ordered(standings: Mapping[str, Sequence[TargetTime]]) -> dict[str, Sequence[TargetTime]]:
    """Return contestants by the number of data sets on which they came to the target, then by the
    mean factor over the soonest there.
    """
    first = soonest(standings)

    def key(name: str) -> tuple[int, float]:
        pairs = zip(standings[name], first, strict=True)
        logs = [
            math.log(max(each.seconds / at, 1.0)) for each, at in pairs if each.seconds < math.inf
        ]
        return -len(logs), math.fsum(logs) / max(len(logs), 1)

    return {name: standings[name] for name in sorted(standings, key=key)}


def profile(
    standings: Mapping[str, Sequence[TargetTime]], factors: Iterable[float] = FACTORS
) -> dict[str, list[int]]:
    """Return on how many data sets each contestant is the soonest or tied, takes at most each of
    the factors times as long as the soonest one, and comes to the target at all.
    """
    first = soonest(standings)

    def within(own: Sequence[TargetTime], factor: float) -> int:
        pairs = zip(own, first, strict=True)
        return sum(each.seconds < math.inf and each.seconds <= factor * at for each, at in pairs)

    return {
        name: [
            sum(each.is_tied for each in own),
            *(within(own, factor) for factor in factors),
            sum(each.seconds < math.inf for each in own),
        ]
        for name, own in standings.items()
    }


def soonest(standings: Mapping[str, Sequence[TargetTime]]) -> list[float]:
    """Return the seconds of the soonest contestant on each data set, a millisecond at least."""
    columns = zip(*standings.values(), strict=True)
    return [max(min(each.seconds for each in column), LEAST_SECONDS) for column in columns]


def _contestant_settings(answers: Iterable[Overall]) -> set[str]:
    """Return the settings in which arms of some data set differ, and that nobody tuned."""
    names: set[str] = set()
    for answer in answers:
        values = [_settings(arm) for arm in answer.arms]
        known = set().union(*values)
        names |= {name for name in known if len({str(own.get(name)) for own in values}) > 1}
    return names


def _settings(arm: RankedArm) -> dict[str, object]:
    config = arm.config
    tuned = config.tuned_settings if config.tuned else ()
    unusual = {name: getattr(config, name) for name in NAMED} | dict(unusual_settings(config))
    return {name: value for name, value in unusual.items() if name not in (*NO_CHOICES, *tuned)}


def _name(arm: RankedArm, names: Iterable[str]) -> str:
    own = {name: value for name, value in _settings(arm).items() if name in names}
    words = [str(own.pop(name)) for name in NAMED if name in own]
    return " ".join([*words, *(f"{SHORT.get(name, name)}={own[name]}" for name in own)])


def _standings(
    contestants: Mapping[str, RankedArm | FloorResult], answer: Overall
) -> dict[float, dict[str, TargetTime]]:
    """Return how contestants stand on a data set, at each target."""
    best = max(_quality(each, answer) for each in contestants.values())
    return {share: _at_level(contestants, answer, share * best) for share in SHARES}


def _at_level(
    contestants: Mapping[str, RankedArm | FloorResult], answer: Overall, level: float
) -> dict[str, TargetTime]:
    seconds = {name: _seconds_to(each, answer, level) for name, each in contestants.items()}
    first = min(seconds, key=lambda name: seconds[name])
    soonest = contestants[first]
    return {
        name: TargetTime(at, at < math.inf and _is_tied(soonest, contestants[name], level))
        for name, at in seconds.items()
    }


def _seconds_to(one: RankedArm | FloorResult, answer: Overall, level: float) -> float:
    if isinstance(one, FloorResult):
        return one.seconds if _quality(one, answer) >= level else math.inf
    at = one.curve.time_to(-level)
    return math.inf if at is None else one.measured.feature_seconds + at


def _quality(one: RankedArm | FloorResult, answer: Overall) -> float:
    if isinstance(one, FloorResult):
        column = f"{answer.split}_{answer.metric.replace('@', '_at_')}"
        return one.row.get(column) or 0.0
    return -one.level


def _is_tied(first: RankedArm | FloorResult, other: RankedArm | FloorResult, level: float) -> bool:
    """Return whether one that came to a level cannot be told from the first one there."""
    if first is other:
        return True
    if isinstance(first, FloorResult) or isinstance(other, FloorResult):
        return False
    behind: Ratio | None = times_to_level(first.measured, other.measured, -level)
    return behind is not None and behind.lower <= 1
