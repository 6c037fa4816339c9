"""The race for the best ranking: arms train in turn until the budget is spent.

It goes in rungs, as all races do. Once the leader is at rest, or much of the budget is spent,
neighbours of the leader enter in waves: training on would show little new then, and others may rank
better. A wave trains to the clock of the race in rungs of its own, from a fourth of it, each of
twice the clock of the one before; at the end of each, those leave that cannot win, and half of the
others. One that comes to lead draws its own neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product

import numpy as np

from ncfbench.advice.arms import RunArm, Runs
from ncfbench.advice.search import Choice, Search
from ncfbench.errors import NcfbenchError, UsageError
from ncfbench.racing import engine
from ncfbench.racing.engine import Over, Status
from ncfbench.racing.rule import Standing
from ncfbench.racing.rungs import Pace, plan_rungs
from ncfbench.statistics.curves import Curve

TURNS = 3
"""Number of turns in the first rung; all turns have about the same seconds of training."""
FIRST_SHARE, MOST = 1 / 60, 1 / 40
"""Share of the budget that the first rung's clock is, and that it is at most where evaluations take
long: of the portfolio's curves on six data sets the best four after 8 s hold the best after 45 s on
each, those after 4 s on three (benchmarks/results/portfolio-cpu.json).
"""
LEAST_GROWTHS = ((4.0, 3), (2.8, 3), (2.0, 2))
"""Wanted growth of the clock from the first rung to the last, and the fewest arms to begin
with. Fewer begin until the first of these is reached, else the second, and so on.
"""
TIMED_SECONDS = 0.5
"""Seconds of training that the first arm is timed by."""


NEWCOMERS = 6
"""Largest number of arms in a wave."""
RESTED = 0.985
"""Share of its best metric that a leader at rest had after half of its training, and that one of a
wave must be able to reach.
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
rates and large dimensions learn late (docs/advise.md).
"""
SEEDED = 2
"""Best arms that get further seeds, of which one is recommended."""
SEED_SHARE = 0.3
"""Share of the budget that is kept for further seeds."""
AFTER_TOP = 1.25
"""Times the clock at which the first seeds were best that further ones train."""
LASTED = 0.9
"""Share of the clock at which the first seeds were best, after which a further one counts."""
MOST_SEEDS = 5
"""Seeds of each finalist at most."""
TRAINING_SHARE = 0.4
"""Share of the budget that waves leave to train the best on, where the leader still learns."""


@dataclass
class Race(engine.Race[RunArm]):
    """A race of runs.

    Args:
        search: names who begins, and the neighbours of a leader.
        runs: what the arms share.

    Attributes:
        pool: who may begin later, the most promising first.
        first_clock: training clock at the end of the first rung, in seconds.
    """

    search: Search = field(kw_only=True)
    runs: Runs = field(kw_only=True)
    pool: list[Choice] = field(default_factory=list, init=False)
    first_clock: float = field(default=0.0, init=False)

    @property
    def active(self) -> list[RunArm]:
        """Arms of the first seed that have not left."""
        return [arm for arm in self.firsts if arm.status is Status.RACING]

    def begin(self) -> None:
        """Choose who begins, who may follow, and the clock of the first rung, by the first turns of
        one arm.

        Raises:
            KeyboardInterrupt: interrupted.
            NcfbenchError: every arm failed.
            UsageError: the budget is too small for two arms and one rung.
        """
        choices = self.search.first_field()
        self.say(f"Search: begins with {len(choices)} arms; timing the first.")
        self.runs.progress.move(int(self.clock.spent), "timing")
        seconds = min(TIMED_SECONDS, FIRST_SHARE * self.clock.budget_seconds / TURNS)
        while choices:
            (first,) = self._enter([choices.pop(0)])
            for turns in (1, 2):
                self.train([first], turns * seconds)
                self.runs.keep()
                first.measure()
            if first.status is Status.RACING:
                break
        else:
            self._require_arms()
        self._choose(first, choices)
        self.turn_seconds = self.first_clock / TURNS
        self.say(f"{self.clock.spent:.0f} s: {len(self.active)} race first; others follow.")

    def _enter(self, choices: Sequence[Choice]) -> list[RunArm]:
        arms = [RunArm(choice.name, choice.config, self.runs) for choice in choices]
        self.arms += arms
        return arms

    def _choose(self, first: RunArm, choices: Sequence[Choice]) -> None:
        """Let as many begin as there is time for, those of the first one's encoder if others do not
        fit.

        Raises:
            UsageError: the budget is too small for two arms and one rung.
        """
        alike_first = sorted(choices, key=lambda other: other.config.encoder != first.encoder)
        self.first_clock, opening = self._first_clock(first), self.pace([first]).opening

        def pace_of(more: Sequence[Choice]) -> Pace:
            return self.runs.costs.pace([first.encoder, *(one.config.encoder for one in more)])

        def needs(more: Sequence[Choice], growth: float) -> float:
            pace = pace_of(more)
            takes = pace.opening + growth * pace.training * self.first_clock + 2 * pace.saving
            return (1 + len(more)) * takes - opening

        for order, (growth, fewest) in product((choices, alike_first), LEAST_GROWTHS):
            for size in range(len(order), min(fewest, 1 + len(order)) - 2, -1):
                left = self.clock.left - needs(order[:size], 1)
                plan = plan_rungs(left, self.first_clock, 1 + size, pace_of(order[:size]))
                if plan and plan[-1] >= growth * self.first_clock:
                    self._enter(order[:size])
                    self.pool = [*order[size:]]
                    return
        seconds = needs(alike_first[:1], LEAST_GROWTHS[-1][0])
        seconds += self.clock.spent + self.clock.reserve_seconds
        raise UsageError(
            f"--budget: {self.clock.budget_seconds:.0f} s are too short: two arms need about"
            f" {math.ceil(1.2 * seconds / 10) * 10} s here."
        )

    def _first_clock(self, first: RunArm) -> float:
        """Return the clock of the first rung; an arm has trained its first turns."""
        budget, summary = self.clock.budget_seconds, first.record.summary if first.record else {}
        seconds, trained = (summary.get(f"{of}_seconds") for of in ("full_iteration", "train"))
        clock = max(FIRST_SHARE * budget, TURNS * self.runs.costs.evaluation(first.encoder))
        # More than all its epochs take, twice for the noise of times, a run of few does not train.
        epochs, batch_size = first.config.epochs, first.config.batch_size
        iterations = 2 * epochs * self.runs.dataset.graph.n_links / batch_size
        whole = iterations * seconds if epochs and seconds else math.inf
        return max(min(clock, MOST * budget, whole), trained or 0.0)

    def train(self, arms: Sequence[RunArm], target: float, is_over: Over | None = None) -> None:
        """Open the runs of arms while there is time, and train them to a clock."""
        for arm in arms:
            arm.start()
        super().train(arms, target, is_over)

    def left_for(self, arm: RunArm) -> float:
        """Return the seconds that an arm may train, if it can be evaluated and saved then."""
        self.runs.give_up()
        left = self.runs.left(arm) if arm.can_train else 0.0
        return left if left > arm.least_seconds else 0.0

    def measure(self) -> None:
        """Evaluate and save the open runs; one that time did not suffice to begin leaves."""
        self.runs.keep()
        for arm in self.active:
            arm.measure()
            if arm.record is None:
                arm.status, arm.reason = Status.LEFT, "no time to begin"

    def judge(self) -> None:
        """Judge the arms.

        Raises:
            NcfbenchError: none is left.
        """
        self._require_arms()
        super().judge()

    def _require_arms(self) -> None:
        if not self.active:
            raise NcfbenchError(f"No arm is left. {self.arms[0].name} {self.arms[0].reason}")

    @property
    def is_done(self) -> bool:
        """True if all arms have trained all their epochs."""
        return all(arm.is_done for arm in self.active)

    def next_rung(self) -> float | None:
        """Return the clock of the next rung, after waves where it is time for them; None for none.

        Without another rung there may be nothing left to train, or no time.
        """
        if not self.reached:
            return self.first_clock
        target, late = None, LATEST * self.clock.budget_seconds
        if self.horizon > self.reached and not self.is_done:
            target = super().next_rung()
        while (target is None or self._is_at_rest() or self.clock.spent >= late) and self._wave():
            target = super().next_rung()
        if self._is_at_rest():
            return None
        return super().next_rung() if target is None and not self.is_done else target

    def pace(self, arms: Sequence[RunArm]) -> Pace:
        """Return the mean pace of some arms, by their encoders."""
        return self.runs.costs.pace([arm.encoder for arm in arms])

    @property
    def rung_seconds(self) -> float:
        """Seconds left, less those that are kept for further seeds."""
        return self.clock.left - SEED_SHARE * self.clock.budget_seconds

    def _ranked(self, arms: Sequence[RunArm] | None = None) -> list[tuple[RunArm, Standing]]:
        """Return the arms that have not left, of some or all, those of the best metric first."""
        among = self.arms if arms is None else arms
        racing = [arm for arm in among if arm in self.active]
        known = [(arm, standing) for arm in racing if (standing := arm.standing)]
        return sorted(known, key=lambda pair: pair[1].curve.level)

    def _able(self) -> list[tuple[RunArm, Standing]]:
        """Return those that are better than chance."""
        return [pair for pair in self._ranked() if pair[1].learned_at is not None]

    def _is_at_rest(self) -> bool:
        """Return whether the leader is at rest, and all others too: one that learns late may pass
        it.
        """
        least = LEAST_REST * self.clock.budget_seconds
        curves = [standing.curve for _, standing in self._able()]
        return bool(curves) and all(curve.clock >= least and rests(curve) for curve in curves)

    def _wave(self) -> bool:
        """Train a wave of neighbours; return False where there is no time for one, or nobody."""
        able = self._able()
        choices = self._newcomers() if able else []
        if not choices:
            return False
        leader, ahead = able[0]
        self.pool = [choice for choice in self.pool if choice not in choices]
        wave, target = self._enter(choices), self._first_rung
        while wave:
            self.train(wave, target)
            self.measure()
            wave = self._promising(wave, ahead.curve, target)
            if target >= self.reached or self._left <= 0:
                break
            target = min(2 * target, self.reached)
        stay = ", ".join(arm.name for arm in wave) or "none"
        tried = f"{len(choices)} beside {leader.name} were tried"
        self.say(f"{self.clock.spent:.0f} s: {tried}; of these stay: {stay}.")
        return True

    @property
    def _first_rung(self) -> float:
        """Clock of the first rung of a wave."""
        return max(self.first_clock, BEGINS * self.reached)

    @property
    def _left(self) -> float:
        """Seconds left for waves."""
        share = SEED_SHARE if self._is_at_rest() else TRAINING_SHARE
        return self.clock.left - share * self.clock.budget_seconds

    def _newcomers(self) -> list[Choice]:
        """Return as many as there is time for of those beside the leader, then beside others: what
        is left of the first field, and neighbours.
        """
        left, order = self._left, [arm for arm, _ in self._ranked()]
        rungs = 1 + math.ceil(math.log2(max(self.reached / self._first_rung, 1.0)))
        pace = self.pace(order[:1])
        if left < pace.opening + pace.training * self.reached:
            return []
        known = {*(arm.name for arm in self.arms), *(choice.name for choice in self.pool)}
        near = {choice.name: choice for choice in self.pool}
        for leader in order:
            choices = self.search.neighbours(leader.config, known)
            near |= {choice.name: choice for choice in choices}
        newcomers: list[Choice] = []
        for choice in near.values():
            pace = self.runs.costs.pace([choice.config.encoder])
            takes = pace.opening + pace.training * self._first_rung * (1 + rungs / 2)
            if left >= takes and len(newcomers) < NEWCOMERS:
                newcomers.append(choice)
                left -= takes
        return newcomers

    def _promising(self, wave: Sequence[RunArm], ahead: Curve, target: float) -> list[RunArm]:
        """Return those of a wave that train on; the others leave."""
        ranked = [(arm, standing.curve) for arm, standing in self._ranked(wave)]
        keep = math.ceil(len(ranked) / 2) if target < self.reached else len(ranked)
        for place, (arm, curve) in enumerate(ranked, 1):
            reason = f"ranked {place} of {len(ranked)} in a wave" if place > keep else ""
            if curve.best(self.reached) > RESTED * ahead.level:
                reason = "cannot come near its leader"
            if reason:
                self.leave({arm: reason}, curve.clock)
        return [arm for arm, _ in ranked if arm.status is Status.RACING]

    def repeat(self) -> None:
        """Train further seeds of the two best while there is time."""
        ranked = self._ranked()
        if not self._able():
            return
        finalists = [arm for arm, _ in ranked[:SEEDED]]
        curves = [standing.curve for _, standing in ranked[:SEEDED]]
        top = max(curve.seconds[int(np.argmin(curve.losses))] for curve in curves)
        target = min(AFTER_TOP * top, self.reached)
        for seed in range(1, MOST_SEEDS):
            finalists = finalists[: self._seeds_in_time(finalists, target)]
            if not finalists:
                return
            repeats = [arm.repeat(seed) for arm in finalists]
            self.arms += repeats
            self.say(f"Seed {seed + 1} of {', '.join(arm.name for arm in finalists)}.")
            try:
                self.train(repeats, target)
                self.runs.keep()
            finally:
                # Without the best one of them a further seed of another would decide alone.
                have_lasted = True
                for arm in repeats:
                    arm.measure()
                    have_lasted = have_lasted and self._has_lasted(arm, top)
                    arm.is_cut = not have_lasted

    def _has_lasted(self, arm: RunArm, top: float) -> bool:
        """Return whether a further seed was evaluated about as late as the first seeds were best:
        where the machine slows down, the budget ends it sooner.
        """
        if arm.record is None:
            return False
        curve, column = arm.record.curve, self.runs.column
        seconds = [row["train_seconds"] for row in curve if row[column] is not None]
        is_done = arm.record.summary["status"] == "finished"
        return is_done or max(seconds, default=0.0) >= LASTED * top

    def _seeds_in_time(self, finalists: Sequence[RunArm], least: float) -> int:
        """Return the number of finalists with time for a further run of some seconds at least."""
        paces = (self.pace([arm]) for arm in finalists)
        takes = accumulate(pace.opening + pace.training * least + pace.saving for pace in paces)
        return sum(seconds <= self.clock.left for seconds in takes)


def rests(curve: Curve) -> bool:
    """Return whether a curve of rankings was about as low after half of its clock."""
    return curve.clock > 0 and curve.at(curve.clock / 2) <= RESTED * curve.level < 0
