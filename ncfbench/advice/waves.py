"""A race for the best ranking, which neighbours of the leader enter in waves once it is at rest, or
much of the budget is spent.

Training on would show little new then, and others may rank better. A wave trains to the clock of
the race in rungs of its own, from a fourth of it, each of twice the clock of the one before; at the
end of each, those leave that cannot win, and half of the others. One that comes to lead draws its
own neighbours.
"""

from __future__ import annotations

import math

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.race import NEWCOMERS, Race
from ncfbench.racing.rule import Arm, Curve
from ncfbench.timing.ranking import NEAR, SHARE, soonest

RESTED = NEAR
"""Share of its best metric that a leader at rest had after half of its training: arms within it are
told apart by time.
"""
LEAST_REST = 1 / 60
"""Share of the budget that a leader trains before it counts as at rest: where recall is noisy, it
seems to be at rest from its first evaluations on.
"""
LATEST = 0.4
"""Share of the budget after which waves begin although the leader still learns: else a few arms
that learn slowly leave no time for others.
"""
BEGINS = 1 / 4
"""Share of the clock of the race to which a wave trains before any of it leave: small learning
rates and large dimensions learn late (``benchmarks/search_choices.py``).
"""
SEEDED = 2
"""Best candidates that get further seeds: what is recommended, and the next one."""
SEEDS_SHARE = 0.15
"""Share of the budget that waves leave for further seeds of the finalists."""
TRAINING_SHARE = 0.4
"""Share of the budget that waves leave to train the best on, where the leader still learns."""


class SearchRace(Race):
    """A race whose question is the best ranking."""

    last = ""  # a wave may begin, or training go on, where no rung was planned

    def _after_rung(self, target: float | None) -> float | None:
        # Without another rung there may be nothing left to train, or no time.
        while (target is None or self._is_at_rest() or self._is_late) and self._wave():
            target = self._next_rung()
        if self._is_at_rest():
            return None
        if target is None and not self._is_all_done():
            seeds = SEEDS_SHARE if self.question.seeds > 1 else 0.0
            return self._next_rung(seeds * self.clock.budget_seconds)
        return target

    def _next_rung(self, kept: float = 0.0) -> float | None:
        """Return the clock of one more rung; None where there is no time but what is kept."""
        plan = self._plan(self.state.clock, 1, kept)
        return plan.clocks[0] if plan is not None and plan.clocks else None

    def _admit(self, *_: object) -> None:
        """Let nobody enter before the leader is at rest."""

    def _is_at_rest(self) -> bool:
        leader, least = self._leader(), LEAST_REST * self.clock.budget_seconds
        return leader is not None and leader[1].curve.clock >= least and rests(leader[1].curve)

    @property
    def _is_late(self) -> bool:
        return self.clock.spent >= LATEST * self.clock.budget_seconds

    def _leader(self) -> tuple[Candidate, Arm] | None:
        """Return the candidate of the best metric so far; None while all are at chance."""
        arms = self._arms()
        able = [each for each in self.state.racing if arms[each.name].learned_at is not None]
        best = min(able, key=lambda each: arms[each.name].curve.level, default=None)
        return None if best is None else (best, arms[best.name])

    def _wave(self) -> bool:
        """Train a wave of neighbours; return False where there is no time for one, or nobody."""
        state, found = self.state, self._leader()
        wave = [] if found is None else self._newcomers()
        if found is None or not wave:
            return False
        _, ahead = found
        for each in wave:
            state.entrants.append(each)
            if each in state.pool:
                state.pool.remove(each)
        target, entered = self._first_rung, len(wave)
        while wave:
            self._train(wave, 0, target)
            self._judge()
            self._save()
            wave = self._promising(wave, ahead.curve, target)
            self._write()
            if target >= state.clock or self._left <= 0:
                break
            target = min(2 * target, state.clock)
        stay = ", ".join(each.name for each in wave) or "none"
        tried = f"{entered} beside {found[0].name} were tried"
        self.progress.say(f"{self.clock.spent:.0f} s: {tried}; of these stay: {stay}.")
        return True

    @property
    def _first_rung(self) -> float:
        """Clock of the first rung of a wave."""
        return max(self.state.first_clock, BEGINS * self.state.clock)

    @property
    def _left(self) -> float:
        """Seconds left for waves."""
        share = SEEDS_SHARE if self.question.seeds > 1 else 0.0
        if not self._is_at_rest():
            share = TRAINING_SHARE
        return self.clock.left - share * self.clock.budget_seconds

    def _finalists(self) -> list[Candidate]:
        curves = {name: arm.curve for name, arm in self._arms().items()}
        tops = {name: -curve.level for name, curve in curves.items()}
        level = -SHARE * max(tops.values())
        times = {name: curve.time_to(level) for name, curve in curves.items()}
        seconds = {name: math.inf if at is None else at for name, at in times.items()}
        order: list[str] = []
        while tops and len(order) < SEEDED:
            order.append(soonest(tops, seconds))
            del tops[order[-1]]
        return [each for name in order for each in self.state.racing if each.name == name]

    def _with_time(self, finalists: int) -> int:
        return min(int(max(self.clock.left, 0.0) / self._seed_seconds), finalists)

    def _newcomers(self) -> list[Candidate]:
        """Return as many as there is time for of those beside the leader, then beside others."""
        pace, state = self.clock.pace, self.state
        rungs = 1 + math.ceil(math.log2(max(state.clock / self._first_rung, 1.0)))
        each = pace.opening + pace.training * self._first_rung * (1 + rungs / 2)
        if self._left < pace.opening + pace.training * state.clock:
            return []
        arms = self._arms()
        order = sorted(state.racing, key=lambda each: arms[each.name].curve.level)
        found = {near.name: near for leader in order for near in self.near(leader)}
        return list(found.values())[: min(NEWCOMERS, max(int(self._left / each), 1))]

    def _promising(self, wave: list[Candidate], ahead: Curve, target: float) -> list[Candidate]:
        """Return those of a wave that train on; the others leave."""
        arms = self._arms()
        racing = [each for each in wave if each.status is Status.RACING]
        racing.sort(key=lambda each: arms[each.name].curve.level)
        keep = math.ceil(len(racing) / 2) if target < self.state.clock else len(racing)
        for place, each in enumerate(racing):
            curve, reason = arms[each.name].curve, f"place {place + 1} of {len(racing)} in a wave"
            if curve.best(self.state.clock) > NEAR * ahead.level:
                reason = "cannot come near its leader"
            elif place < keep:
                continue
            each.leave(Status.LEFT, f"after {curve.clock:.3g} s: {reason}")
            self._turns.close((each.name, 0))
        return [each for each in racing if each.status is Status.RACING]


def rests(curve: Curve) -> bool:
    """Return whether a curve of rankings was about as low after half of its clock."""
    return curve.clock > 0 and curve.at(curve.clock / 2) <= RESTED * curve.level < 0
