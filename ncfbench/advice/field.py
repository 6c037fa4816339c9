"""Who begins a race, and how long its first rung is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ncfbench.advice.calibration import Calibration, calibrate
from ncfbench.advice.candidates import (
    FIRST_PROBES,
    Candidate,
    LeftOut,
    by_promise,
    count_work,
    first_wave,
    leave_out,
    list_candidates,
)
from ncfbench.advice.question import Question, Target
from ncfbench.advice.race import Clock
from ncfbench.advice.search import Search
from ncfbench.advice.state import State
from ncfbench.data import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.racing.rungs import Pace, plan_rungs
from ncfbench.runs.progress import Progress

CALIBRATION_SHARE = 0.1
"""Share of the budget after which the calibration begins no further shape."""
FIRST_EPOCHS = {"loss": 2.0, "recall": 0.5}
"""Epochs of the fastest candidate in the first rung, by target."""
LEAST_BLOCK = {"loss": 5.0, "recall": 1.0}
"""Times of a probe that a block between two probes lasts at least, by target; where ranking decides
a probe and an evaluation.
"""
FIRST_SHARE = 1 / 40
"""Share of the budget that the first rung's clock is at most."""
EPOCHS_SHARES = {"loss": (0.0, FIRST_SHARE), "recall": (1 / 300, 1 / 120)}
"""The least and the most where its epochs decide, by target: most of the recall is there long
before half of an epoch of a large data set, and none after half of one of a small one.
"""
LEAST_GROWTHS = ((16.0, 4), (11.0, 4), (8.0, 4), (5.7, 4), (4.0, 3), (2.8, 3), (2.0, 2))
"""Wanted growth of the clock from the first rung to the last, and the least candidates to begin
with. Fewer begin until the first of these is reached, else the second, and so on. A race for a loss
that ends earlier judges arms that mostly rest on the loss of popularity alone. In one for recall
there is more to choose from, and the growths above 4 do not count.
"""


@dataclass(frozen=True)
class FirstField:
    """Chooses the candidates of a race that has not begun.

    Raises:
        KeyboardInterrupt: ``interrupted()`` was true.
        UsageError: one candidate only, or the budget is too small for two and one rung.
    """

    dataset: Dataset
    content: DeviceContent
    clock: Clock
    progress: Progress
    interrupted: Callable[[], bool]

    def of_loss(self, question: Question) -> State:
        """Return the state of a race for a loss."""
        graph = self.dataset.graph
        candidates, refused = list_candidates(question, graph.n_links)
        configs = {each.shape: each.config for each in reversed(candidates)}
        if len(candidates) == 1:
            raise UsageError(
                f"There is one candidate only, {candidates[0].shape.label}: nothing to race. Name"
                " more samplers, batch sizes or learning rates, or train it with ncfbench run."
            )
        self.progress.say(
            f"{len(candidates)} candidates of {len(configs)} shapes; timing some of them."
        )
        self.progress.move(int(self.clock.spent), "timing shapes")
        work = {shape: count_work(graph, config) for shape, config in configs.items()}
        limit = CALIBRATION_SHARE * self.clock.budget_seconds
        data = self.dataset, self.content
        calibrated = calibrate(*data, configs, work, limit, self.interrupted)
        slow = leave_out(work, calibrated.seconds)
        able = [each for each in candidates if each.shape not in slow]
        for each in able:
            each.expect(calibrated.seconds[each.shape], work[each.shape].negatives)
        pool = by_promise(able)
        state = self._chosen(first_wave(pool), pool, calibrated, "loss")
        state.left_out = [*refused, *(LeftOut(shape.label, why) for shape, why in slow.items())]
        hopeless = f" {len(slow)} shapes cannot win." if slow else ""
        self.progress.say(
            f"{self.clock.spent:.0f} s: {len(state.entrants)} race first, {len(state.pool)} may"
            f" follow.{hopeless}"
        )
        return state

    def of_ranking(self, search: Search) -> State:
        """Return the state of a race for the best ranking."""
        field = search.first_field()
        if len(field) == 1 and not search.neighbours(field[0], ()):
            raise UsageError(
                f"There is one candidate only, {field[0].name}: nothing to race. Let more be tried,"
                " or train it with ncfbench run."
            )
        self.progress.say(f"Search: begins with {len(field)} candidates; timing the first.")
        self.progress.move(int(self.clock.spent), "timing")
        first = field[0]
        work = {first.shape: count_work(self.dataset.graph, first.config)}
        data, configs = (self.dataset, self.content), {first.shape: first.config}
        calibrated = calibrate(*data, configs, work, self.clock.left, self.interrupted)
        for each in field:
            each.iteration_seconds = calibrated.seconds[first.shape]
        state = self._chosen(field, field, calibrated, "recall")
        self.progress.say(
            f"{self.clock.spent:.0f} s: {len(state.entrants)} race first; others follow."
        )
        return state

    def _chosen(
        self,
        wanted: list[Candidate],
        pool: Sequence[Candidate],
        calibrated: Calibration,
        target: Target,
    ) -> State:
        """Return the state of a race before its first rung, of some that begin and others that may
        follow.

        Raises:
            UsageError: the budget is too small for two candidates and one rung.
        """
        n_links = self.dataset.graph.n_links
        epoch = n_links * min(each.iteration_seconds / each.shape.batch_size for each in wanted)
        stop = calibrated.probe_seconds
        stop += calibrated.evaluation_seconds if target == "recall" else 0.0
        probed = LEAST_BLOCK[target] * FIRST_PROBES[target] * stop
        least, most = EPOCHS_SHARES[target]
        budget = self.clock.budget_seconds
        epochs = min(max(FIRST_EPOCHS[target] * epoch, least * budget), most * budget)
        first = min(max(epochs, probed), FIRST_SHARE * budget)

        def pace_of(field: Sequence[Candidate]) -> Pace:
            every = first if target == "recall" else None
            block = first / FIRST_PROBES[target]
            paces = [calibrated.pace(each, n_links, block, every) for each in field]
            training = sum(each.training for each in paces) / len(paces)
            return dataclasses.replace(paces[0], training=training)

        def needs(field: Sequence[Candidate], growth: float) -> float:
            pace = pace_of(field)
            return len(field) * (pace.opening + growth * pace.training * first + 2 * pace.saving)

        for growth, fewest in LEAST_GROWTHS if target == "loss" else LEAST_GROWTHS[4:]:
            for size in range(len(wanted), min(fewest, len(wanted)) - 1, -1):
                field, pace = wanted[:size], pace_of(wanted[:size])
                plan = plan_rungs(self.clock.left - needs(field, 1), first, size, pace, seeds=1)
                if plan is not None and plan.horizon >= growth * first:
                    for each in pool:
                        each.schedule_probes(first / FIRST_PROBES[target])
                    rest = [each for each in pool if each not in field]
                    return State(
                        self.dataset.fingerprint, field, rest, [], first, pace, horizon=plan.horizon
                    )
        least = needs(wanted[:2], LEAST_GROWTHS[-1][0])
        least += self.clock.spent + self.clock.reserve_seconds
        raise UsageError(
            f"--budget: {self.clock.budget_seconds:.0f} s are too few for one rung of two"
            f" candidates, which need about {math.ceil(1.2 * least / 10) * 10} s."
        )
