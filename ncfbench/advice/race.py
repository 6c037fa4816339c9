"""The race for the best ranking: candidates train in turn until the budget is spent.

It goes in rungs. In a rung all candidates train to the same clock; then they are judged, some
leave, and the rest is planned with the times measured so far.

Once the leader is at rest, or much of the budget is spent, neighbours of the leader enter in waves:
training on would show little new then, and others may rank better. A wave trains to the clock of
the race in rungs of its own, from a fourth of it, each of twice the clock of the one before; at the
end of each, those leave that cannot win, and half of the others. One that comes to lead draws its
own neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ncfbench.advice.answer import learned_at
from ncfbench.advice.candidate_runs import CandidateRuns
from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.field import FirstField
from ncfbench.advice.question import Question
from ncfbench.advice.search import Search
from ncfbench.errors import NcfbenchError
from ncfbench.racing.rule import Curve, Decision, Standing, decide
from ncfbench.racing.rungs import Plan, arms_of_rungs, plan_rungs
from ncfbench.runs.curves import curve_of

NEWCOMERS = 6
"""Most candidates of a wave."""
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
rates and large dimensions learn late (docs/advice.md).
"""
SEEDED = 2
"""Best candidates that get further seeds, of which one is recommended."""
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
class Race:
    """A race.

    Args:
        search: names the neighbours of a leader.
        runs: of the race's candidates, with its state and its clock.
    """

    question: Question
    search: Search
    runs: CandidateRuns

    def __post_init__(self) -> None:
        self.state, self.clock = self.runs.state, self.runs.clock
        self.progress = self.runs.progress

    def run(self) -> None:
        """Race until the budget is spent.

        Raises:
            KeyboardInterrupt: interrupted; after the first Ctrl-C everything was saved.
            NcfbenchError: no candidate is left.
            UsageError: see :meth:`FirstField.choose`.
        """
        with self.runs.turns:
            FirstField(self.search, self.runs).choose()
            target: float | None = self.state.first_clock
            while target is not None:
                self.runs.train(self.state.racing, 0, target)
                target = self._after_rung(self._end_rung(target))
            self._train_seeds()
        self.state.is_over = True

    def _end_rung(self, clock: float) -> float | None:
        """End a rung: keep, judge, plan the rest; return the clock of the next rung, or None."""
        state = self.state
        self.runs.keep()
        state.clock = clock
        arms = self._arms()
        if not arms:
            first = state.entrants[0]
            raise NcfbenchError(f"No candidate is left. {first.name} {first.reason}")
        plan = self._plan()
        state.horizon = plan.horizon if plan else clock
        # Without time for a rung more nobody leaves for want of it.
        keep = arms_of_rungs(len(arms), 2)[1] if plan else len(arms)
        decision = decide(arms, state.horizon, keep)
        for candidate in state.racing:
            if candidate.name in decision.dropped:
                reason = f"after {clock:.3g} s: {decision.dropped[candidate.name]}"
                self.runs.leave(candidate, reason)
        plan = None if plan is None or self.runs.are_done(state.racing) else self._plan()
        self._say_rung(arms, decision, plan.horizon if plan else None)
        return plan.clocks[0] if plan else None

    def _say_rung(
        self, arms: Mapping[str, Standing], decision: Decision, horizon: float | None
    ) -> None:
        leads = f"{decision.leader} leads"
        if arms[decision.leader].learned_at is None:
            leads = "none is better than chance yet"
        leave = f"{len(decision.dropped)} leave, " if decision.dropped else ""
        rest = f", on to {horizon:.3g} s" if horizon else ""
        self.progress.say(
            f"{self.clock.spent:.0f} s: trained {self.state.clock:.3g} s each, {leads};"
            f" {leave}{len(self.state.racing)} stay{rest}."
        )

    def _after_rung(self, target: float | None) -> float | None:
        """Return the clock of the next rung, after waves where it is time for them; None for none.

        Args:
            target: clock of the next rung as it was planned; None where none was.
        """
        # Without another rung there may be nothing left to train, or no time.
        while (target is None or self._is_at_rest() or self._is_late) and self._wave():
            target = self._next_rung()
        if self._is_at_rest():
            return None
        if target is None and not self.runs.are_done(self.state.racing):
            return self._next_rung()
        return target

    def _next_rung(self) -> float | None:
        """Return the clock of one more rung; None where there is no time for it."""
        plan = self._plan()
        return plan.clocks[0] if plan else None

    def _plan(self) -> Plan | None:
        """Plan the rest, less what is kept for further seeds."""
        seconds, racing = self.clock.left - self._kept, self.state.racing
        return plan_rungs(seconds, self.state.clock, len(racing), self.runs.pace(racing))

    @property
    def _kept(self) -> float:
        return SEED_SHARE * self.clock.budget_seconds

    def _arms(self) -> dict[str, Standing]:
        """Return the arms in the race; one that time did not suffice to begin leaves."""
        arms = {}
        for candidate in self.state.racing:
            record, config = self.runs.read(candidate, 0), candidate.config
            if record is None:
                candidate.leave(Status.LEFT, "no time to begin")
                continue
            arms[candidate.name] = Standing(
                curve_of(record, self.question.column),
                config.sampler,
                learned_at=learned_at(record, self.runs.dataset),
                loss=config.loss,
                encoder=config.encoder,
                learning_rate=config.learning_rate,
            )
        return arms

    def _leader(self) -> tuple[Candidate, Standing] | None:
        """Return the candidate of the best metric so far; None while all are at chance."""
        arms = self._arms()
        able = [each for each in self.state.racing if arms[each.name].learned_at is not None]
        best = min(able, key=lambda each: arms[each.name].curve.level, default=None)
        return None if best is None else (best, arms[best.name])

    def _is_at_rest(self) -> bool:
        """Return whether the leader is at rest, and all others too: one that learns late may pass
        it.
        """
        least, curves = LEAST_REST * self.clock.budget_seconds, []
        for arm in self._arms().values():
            curves += [] if arm.learned_at is None else [arm.curve]
        return bool(curves) and all(each.clock >= least and rests(each) for each in curves)

    @property
    def _is_late(self) -> bool:
        return self.clock.spent >= LATEST * self.clock.budget_seconds

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
            self.runs.train(wave, 0, target)
            self.runs.keep()
            wave = self._promising(wave, ahead.curve, target)
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
        share = SEED_SHARE if self._is_at_rest() else TRAINING_SHARE
        return self.clock.left - share * self.clock.budget_seconds

    def _newcomers(self) -> list[Candidate]:
        """Return as many as there is time for of those beside the leader, then beside others."""
        state, left, arms = self.state, self._left, self._arms()
        rungs = 1 + math.ceil(math.log2(max(state.clock / self._first_rung, 1.0)))
        order = sorted(state.racing, key=lambda each: arms[each.name].curve.level)
        pace = self.runs.pace(order[:1])
        if left < pace.opening + pace.training * state.clock:
            return []
        near = (other for leader in order for other in self.search.near(state, leader))
        found: list[Candidate] = []
        for other in {other.name: other for other in near}.values():
            pace = self.runs.pace([other])
            takes = pace.opening + pace.training * self._first_rung * (1 + rungs / 2)
            if left >= takes and len(found) < NEWCOMERS:
                found.append(other)
                left -= takes
        return found

    def _promising(self, wave: list[Candidate], ahead: Curve, target: float) -> list[Candidate]:
        """Return those of a wave that train on; the others leave."""
        arms = self._arms()
        racing = [each for each in wave if each.status is Status.RACING]
        racing.sort(key=lambda each: arms[each.name].curve.level)
        keep = math.ceil(len(racing) / 2) if target < self.state.clock else len(racing)
        for place, each in enumerate(racing):
            curve, reason = arms[each.name].curve, f"place {place + 1} of {len(racing)} in a wave"
            if curve.best(self.state.clock) > RESTED * ahead.level:
                reason = "cannot come near its leader"
            elif place < keep:
                continue
            self.runs.leave(each, f"after {curve.clock:.3g} s: {reason}")
        return [each for each in racing if each.status is Status.RACING]

    def _train_seeds(self) -> None:
        """Train further seeds of the two best while there is time."""
        arms = self._arms()
        if all(arm.learned_at is None for arm in arms.values()):
            return
        order = sorted(self.state.racing, key=lambda each: arms[each.name].curve.level)
        finalists = order[:SEEDED]
        top = max(_top_clock(arms[each.name].curve) for each in finalists)
        target = min(AFTER_TOP * top, self.state.clock)
        for seed in range(1, MOST_SEEDS):
            finalists = finalists[: self._seeds_in_time(finalists, target)]
            if not finalists:
                return
            for candidate in finalists:
                candidate.seeds = [*candidate.seeds, seed]
            self.progress.say(f"Seed {seed + 1} of {', '.join(each.name for each in finalists)}.")
            try:
                self.runs.train(finalists, seed, target)
                self.runs.keep()
            finally:
                # Without the best one of them a further seed of another would decide alone.
                have_lasted = True
                for candidate in finalists:
                    have_lasted = have_lasted and self._lasted(candidate, seed, top)
                    candidate.cut |= set() if have_lasted else {seed}

    def _lasted(self, candidate: Candidate, seed: int, top: float) -> bool:
        """Return whether a further seed was evaluated about as late as the first seeds were best:
        where the machine slows down, the budget ends it sooner.
        """
        record, column = self.runs.read(candidate, seed), self.question.column
        if record is None:
            return False
        seconds = [row["train_seconds"] for row in record.curve if row[column] is not None]
        is_done = record.summary["status"] == "finished"
        return is_done or max(seconds, default=0.0) >= LASTED * top

    def _seeds_in_time(self, finalists: Sequence[Candidate], least: float) -> int:
        """Return the number of finalists with time for a further run of some seconds at least."""
        paces = (self.runs.pace([each]) for each in finalists)
        takes = accumulate(pace.opening + pace.training * least + pace.saving for pace in paces)
        return sum(seconds <= self.clock.left for seconds in takes)


def _top_clock(curve: Curve) -> float:
    return curve.seconds[int(np.argmin(curve.losses))]


def rests(curve: Curve) -> bool:
    """Return whether a curve of rankings was about as low after half of its clock."""
    return curve.clock > 0 and curve.at(curve.clock / 2) <= RESTED * curve.level < 0
