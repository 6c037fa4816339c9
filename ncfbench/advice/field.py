"""Who begins a race, and how long its first rung is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ncfbench.advice.calibration import Calibration, calibrate
from ncfbench.advice.candidate_runs import Clock
from ncfbench.advice.candidates import FIRST_PROBES, Candidate
from ncfbench.advice.search import Search
from ncfbench.advice.state import State
from ncfbench.data import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.racing.rungs import plan_rungs
from ncfbench.runs.progress import Progress

FIRST_EPOCHS = 0.5
"""Epochs of the fastest candidate in the first rung."""
FIRST_SHARE = 1 / 40
"""Share of the budget that the first rung's clock is at most."""
EPOCHS_SHARES = (1 / 300, 1 / 120)
"""The least and the most where its epochs decide: most of the recall is there long before half of
an epoch of a large data set, and none after half of one of a small one.
"""
LEAST_GROWTHS = ((4.0, 3), (2.8, 3), (2.0, 2))
"""Wanted growth of the clock from the first rung to the last, and the least candidates to begin
with. Fewer begin until the first of these is reached, else the second, and so on.
"""


@dataclass(frozen=True)
class FirstField:
    """Chooses the candidates of a race that has not begun."""

    dataset: Dataset
    content: DeviceContent
    clock: Clock
    progress: Progress
    interrupted: Callable[[], bool]

    def choose(self, search: Search) -> State:
        """Return the state of a race before its first rung.

        Raises:
            KeyboardInterrupt: ``interrupted()`` was true.
            UsageError: one candidate only, or the budget is too small for two and one rung.
        """
        field = search.first_field()
        if len(field) == 1 and not search.neighbours(field[0], ()):
            raise UsageError(
                f"There is one candidate only, {field[0].name}: nothing to race. Let more be tried,"
                " or train it with ncfbench run."
            )
        self.progress.say(f"Search: begins with {len(field)} candidates; timing the first.")
        self.progress.move(int(self.clock.spent), "timing")
        if self.interrupted():
            raise KeyboardInterrupt
        calibrated = calibrate(self.dataset, self.content, field[0].config)
        for each in field:
            each.iteration_seconds = calibrated.iteration_seconds
        state = self._begun(field, calibrated)
        self.progress.say(
            f"{self.clock.spent:.0f} s: {len(state.entrants)} race first; others follow."
        )
        return state

    def _begun(self, wanted: list[Candidate], calibrated: Calibration) -> State:
        """Return the state of a race that as many begin as there is time for; the others follow.

        Raises:
            UsageError: the budget is too small for two candidates and one rung.
        """
        n_links, budget = self.dataset.graph.n_links, self.clock.budget_seconds
        epoch = n_links * min(each.iteration_seconds / each.config.batch_size for each in wanted)
        probed = FIRST_PROBES * (calibrated.probe_seconds + calibrated.evaluation_seconds)
        least, most = EPOCHS_SHARES
        epochs = min(max(FIRST_EPOCHS * epoch, least * budget), most * budget)
        first = min(max(epochs, probed), FIRST_SHARE * budget)
        pace = calibrated.pace(first / FIRST_PROBES, first)

        def needs(size: int, growth: float) -> float:
            return size * (pace.opening + growth * pace.training * first + 2 * pace.saving)

        for growth, fewest in LEAST_GROWTHS:
            for size in range(len(wanted), min(fewest, len(wanted)) - 1, -1):
                plan = plan_rungs(self.clock.left - needs(size, 1), first, size, pace, seeds=1)
                if plan is not None and plan.horizon >= growth * first:
                    for each in wanted:
                        each.schedule_probes(first / FIRST_PROBES)
                    begin, pool = wanted[:size], wanted[size:]
                    fingerprint = self.dataset.fingerprint
                    return State(fingerprint, begin, pool, first, pace, horizon=plan.horizon)
        shortest = needs(min(len(wanted), 2), LEAST_GROWTHS[-1][0])
        shortest += self.clock.spent + self.clock.reserve_seconds
        raise UsageError(
            f"--budget: {budget:.0f} s are too few for one rung of two"
            f" candidates, which need about {math.ceil(1.2 * shortest / 10) * 10} s."
        )
