"""Who begins a race, and how long its first rung is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ncfbench.advice.candidate_runs import TURNS, CandidateRuns
from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.search import Search
from ncfbench.errors import NcfbenchError, UsageError
from ncfbench.racing.rungs import plan_rungs

FIRST_SHARE, MOST = 1 / 60, 1 / 40
"""Share of the budget that the first rung's clock is, and that it is at most where evaluations take
long: of the portfolio's curves on six data sets the best four after 8 s hold the best after 45 s on
each, those after 4 s on three (benchmarks/results/portfolio-cpu.json).
"""
LEAST_GROWTHS = ((4.0, 3), (2.8, 3), (2.0, 2))
"""Wanted growth of the clock from the first rung to the last, and the least candidates to begin
with. Fewer begin until the first of these is reached, else the second, and so on.
"""
TIMED_SECONDS = 0.5
"""Seconds of training that the first candidate is timed by."""


@dataclass(frozen=True)
class FirstField:
    """Chooses the candidates of a race that has not begun, by the first turns of one of them."""

    search: Search
    runs: CandidateRuns

    def choose(self) -> None:
        """Put into the state who begins, who may follow, and the clock of the first rung.

        Raises:
            KeyboardInterrupt: interrupted.
            NcfbenchError: every candidate failed.
            UsageError: one candidate only, or the budget is too small for two and one rung.
        """
        field, runs, clock = self.search.first_field(), self.runs, self.runs.clock
        if len(field) == 1 and not self.search.neighbours(field[0], ()):
            raise UsageError(
                f"There is one candidate only, {field[0].name}: nothing to race. Let more be tried,"
                " or train it with ncfbench run."
            )
        runs.progress.say(f"Search: begins with {len(field)} candidates; timing the first.")
        runs.progress.move(int(clock.spent), "timing")
        state = runs.state
        state.entrants = []
        for first in field:
            state.entrants.append(first)
            self._time(first)
            if first.status is Status.RACING:
                break
        else:
            raise NcfbenchError(f"No candidate is left. {field[0].name} {field[0].reason}")
        wanted = [first, *(each for each in field if each not in state.entrants)]
        self._begin(wanted)
        runs.progress.say(f"{clock.spent:.0f} s: {len(state.racing)} race first; others follow.")

    def _time(self, first: Candidate) -> None:
        """Train a candidate for two turns, and evaluate it after each."""
        seconds = min(TIMED_SECONDS, FIRST_SHARE * self.runs.clock.budget_seconds / TURNS)
        for turns in (1, 2):
            self.runs.train([first], 0, turns * seconds)
            self.runs.keep()

    def _begin(self, wanted: Sequence[Candidate]) -> None:
        """Let as many begin as there is time for, those of other encoders if they fit.

        Raises:
            UsageError: the budget is too small for two candidates and one rung.
        """
        runs, state, clock, first = self.runs, self.runs.state, self.runs.clock, wanted[0]
        alike_first = sorted(wanted, key=lambda each: each.config.encoder != first.config.encoder)
        state.first_clock, state.pace = self._first_clock(first), runs.pace([first])

        def needs(arms: Sequence[Candidate], growth: float) -> float:
            pace = runs.pace(arms)
            each = pace.opening + growth * pace.training * state.first_clock + 2 * pace.saving
            return len(arms) * each - state.pace.opening

        for order, (growth, fewest) in product((wanted, alike_first), LEAST_GROWTHS):
            for size in range(len(order), min(fewest, len(order)) - 1, -1):
                left = clock.left - needs(order[:size], 1)
                pace = runs.pace(order[:size])
                plan = plan_rungs(left, state.first_clock, size, pace)
                if plan is not None and plan.horizon >= growth * state.first_clock:
                    state.entrants += order[1:size]
                    state.pool, state.horizon = list(order[size:]), plan.horizon
                    return
        seconds = clock.spent + needs(alike_first[:2], LEAST_GROWTHS[-1][0]) + clock.reserve_seconds
        raise UsageError(
            f"--budget: {clock.budget_seconds:.0f} s are too short: two candidates need about"
            f" {math.ceil(1.2 * seconds / 10) * 10} s here."
        )

    def _first_clock(self, first: Candidate) -> float:
        """Return the clock of the first rung; a candidate has trained its first turns."""
        budget, record = self.runs.clock.budget_seconds, self.runs.read(first, 0)
        summary = {} if record is None else record.summary
        seconds, trained = (summary.get(f"{of}_seconds") for of in ("full_iteration", "train"))
        clock = max(FIRST_SHARE * budget, TURNS * self.runs.costs.evaluation(first.config.encoder))
        # More than all its epochs take, twice for the noise of times, a run of few does not train.
        epochs, batch_size = first.config.epochs, first.config.batch_size
        iterations = 2 * epochs * self.runs.dataset.graph.n_links / batch_size
        whole = iterations * seconds if epochs and seconds else math.inf
        return max(min(clock, MOST * budget, whole), trained or 0.0)
