"""The rule of the race: from the curves so far to the arms that leave it. Pure: no clock, no file.

All arms train for the same seconds of training clock before they are judged (a rung), and each rung
ends at about twice the clock of the one before. An arm leaves because it cannot win
(:func:`can_win`), or because there is no time for all: each rung keeps about half of the arms, and
those of :func:`_protected` whatever their order. docs/advise.md says why.

Assumptions: gains for each doubling of the clock fall, once an arm has begun to learn; an arm that
lags at its own level does not turn out more than :data:`FASTER` times as fast as the leader from
there on, and is not late by more than the factor of
:data:`~ncfbench.statistics.intervals.LOSS_SPREAD`. Seeds can differ by more in times to a recall:
an arm that leaves was not told from the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ncfbench.statistics.curves import FALLING, Curve
from ncfbench.statistics.intervals import LOSS_SPREAD

FASTER = 1.25
"""An arm may learn from its present level at most this much faster than the leader did."""
LATE = 1 / 3
"""Share of the horizon up to which the best arm of every sampler, loss and encoder stays."""


@dataclass(frozen=True)
class Standing:
    """An arm as the rule judges it.

    Attributes:
        learned_at: clock at which the run was first seen to be better than chance; None before.
    """

    curve: Curve
    sampler: str
    learned_at: float | None = 0.0
    loss: str = ""
    encoder: str = ""
    learning_rate: float = 0.0


class Decision(NamedTuple):
    """The consequence of a rung: the leader's name, and the reason of each arm that leaves."""

    leader: str
    dropped: Mapping[str, str]


def rank(arms: Mapping[str, Standing], *, is_early: bool = False) -> list[str]:
    """Return the names in the order of the values at the latest clock that the curves share.

    Arms that have not learned anything come last. A curve that was last evaluated before half of
    the longest clock counts with its last value.

    Args:
        is_early: order by delay, the time that an arm took to its level over the time that the
            lowest arm took to it.
    """
    longest = max(arm.curve.clock for arm in arms.values())
    common = min(arm.curve.clock for arm in arms.values() if 2 * arm.curve.clock >= longest)
    lowest = min(_able(arms).values(), key=lambda curve: curve.at(common), default=None)

    def key(name: str) -> tuple[bool, float]:
        arm = arms[name]
        if arm.learned_at is None or lowest is None:
            return True, 0.0
        level = arm.curve.at(common)
        if not is_early:
            return False, level
        time, first = arm.curve.time_to(level), lowest.time_to(level)
        # At the value that it began with an arm shows nothing.
        return False, time / first if time and first else 1.0

    return sorted(arms, key=key)


def decide(arms: Mapping[str, Standing], horizon: float, keep: int) -> Decision:
    """Judge the arms at the end of a rung.

    While no arm has learned anything, none leaves before a third of the horizon.

    Args:
        arms: those still in the race, at about the same clock; the most promising ones first.
        horizon: clock at which the race will end.
        keep: number of arms that the next rung has time for. More stay where they are protected.
    """
    is_early = max(arm.curve.clock for arm in arms.values()) < LATE * horizon
    order = rank(arms, is_early=is_early)
    leader = order[0]
    if is_early and arms[leader].learned_at is None:
        return Decision(leader, {})
    safe = _protected(arms, order)
    dropped = {}
    for name in order:
        if name not in safe and not can_win(arms[name], arms[leader], horizon):
            dropped[name] = f"cannot catch up with {leader} within {horizon:.0f} s"
    left = [name for name in order if name not in dropped]
    if is_early:  # the best arm of every sampler, loss and encoder stays
        for kind in ("sampler", "loss", "encoder"):
            safe |= {*{getattr(arms[name], kind): name for name in reversed(left)}.values()}
    for place, name in reversed(list(enumerate(left, 1))):
        if len(arms) - len(dropped) > keep and name not in safe:
            dropped[name] = f"ranked {place} of {len(left)}; there is time for {keep}"
    return Decision(leader, dropped)


def can_win(arm: Standing, leader: Standing, horizon: float) -> bool:
    """Return whether an arm can plausibly overtake another one by the horizon: by the level that it
    stands at, not by what was ahead at the start of training. One of two is enough.

    1. It catches up: from its level, which the leader passed at the clock tau, it learns
       :data:`FASTER` than the leader did, and tau is late by the noise of a seed. An arm that has
       not learned anything may begin at once, where the leader stood when it began.
    2. It goes lower: it gains in every doubling of the clock as much as in the better of its last
       two, and the leader half of what it gained in the one before, give or take the noise of both.

    The first protects arms that start late, the second those that a leader hides which is ahead
    early and never comes down.
    """
    curve, ahead = arm.curve, leader.curve
    passed = ahead.time_to(curve.level)
    if passed is None or leader.learned_at is None:
        return True
    if arm.learned_at is None:
        passed = max(passed, leader.learned_at)
    catches_up = passed * LOSS_SPREAD.factor + FASTER * max(horizon - curve.clock, 0.0) >= horizon
    return catches_up or curve.best(horizon) <= ahead.worst(horizon) + ahead.noise


def _able(arms: Mapping[str, Standing]) -> dict[str, Curve]:
    return {name: arm.curve for name, arm in arms.items() if arm.learned_at is not None}


def _protected(arms: Mapping[str, Standing], order: Sequence[str]) -> set[str]:
    """Return the arms that stay: the leader; the best arm of another sampler, and of the leader's
    with a smaller rate; the one that will be the lowest.

    A large rate learns first, and comes to rest above a smaller one.
    """
    leader = arms[order[0]]
    rivals = [name for name in order if arms[name].sampler != leader.sampler]
    slower = [
        name
        for name in order
        if (arms[name].loss, arms[name].sampler) == (leader.loss, leader.sampler)
        and arms[name].learning_rate < leader.learning_rate
    ]
    return {order[0], *rivals[:1], *_rising(arms), *slower[:1]}


def _rising(arms: Mapping[str, Standing]) -> list[str]:
    """Return the arm that is expected to be the lowest when the clock has doubled, of those that
    have learned anything: each gains then :data:`FALLING` of what it gained in the last doubling.
    """
    levels = {name: curve.level - FALLING * curve.gain() for name, curve in _able(arms).items()}
    return sorted(levels, key=lambda name: levels[name])[:1]
