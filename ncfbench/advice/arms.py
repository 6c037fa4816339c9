"""The arms of a race for recall, each an ordinary run, and what they share. All contact with the
training of runs is here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncfbench.advice.costs import FORECAST, Costs
from ncfbench.catalog import MAX_SEED
from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError, first_line
from ncfbench.models.towers import DeviceContent
from ncfbench.racing.engine import Arm, Clock, Over, Status
from ncfbench.racing.rule import Standing
from ncfbench.runs import folder as runs
from ncfbench.runs.convergence import above_chance_at
from ncfbench.runs.curves import curve_of
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress, describe_quality
from ncfbench.runs.quality import chance
from ncfbench.training.train import Run
from ncfbench.training.turns import Turns

EVALUATED = 1.4
"""Growth of a run's clock between two evaluations in a rung."""
RATION = 2.0
"""Times its seconds that must be trained between two evaluations in a rung."""


class OutOfTimeError(Exception):
    """Raised while items are embedded, where no time is left; nothing is lost."""


@dataclass
class Runs:
    """What the arms of a race share: the data, the clock and the open runs, below its folder.

    Nothing begins that would leave too little time to evaluate and save all open runs.

    Args:
        locations: of the data, and of the race's own runs.
        column: of a curve, which decides.
        interrupted: when it is true, all is saved and KeyboardInterrupt raised, while the
            :attr:`turns` are entered.
    """

    dataset: Dataset
    content: DeviceContent
    locations: Locations
    column: str
    clock: Clock
    progress: Progress
    interrupted: Callable[[], bool]
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        self.turns: Turns[RunArm] = Turns(
            self.dataset, self.content, self.locations, self.interrupted, RunArm.fail
        )
        self.chance = chance(self.dataset, "validation")

    @property
    def open(self) -> list[RunArm]:
        """The arms whose runs are open."""
        return [*self.turns.runs]

    def keep(self) -> None:
        """Evaluate the open runs, the cheapest first, while there is time, and save all."""
        self.give_up()
        for arm in sorted(self.open, key=lambda arm: arm.evaluation):
            if self.clock.left - self.saving() >= arm.evaluation:
                arm.evaluate()
        for arm in self.open:
            arm.save()

    def saving(self, besides: RunArm | None = None) -> float:
        """Return the seconds that it takes to save what open runs have trained."""
        unsaved = [arm for arm, run in self.turns.runs.items() if not run.is_saved]
        more = [] if besides is None or besides in unsaved else [besides]
        return sum(self.costs.saving(arm.encoder) for arm in [*unsaved, *more])

    def left(self, trains: RunArm | None = None) -> float:
        """Return the seconds left but for evaluating and saving the open runs.

        Args:
            trains: one that is to train on, and has to be evaluated and saved after that.
        """
        evaluations = sum(arm.evaluation for arm in self.open if arm is not trains)
        if trains is not None:
            evaluations += self.costs.evaluation(trains.encoder)
        return self.clock.left - evaluations - self.saving(trains)

    def give_up(self) -> None:
        """Let runs leave that had no evaluation, that which takes longest first, until there is
        time to evaluate all.
        """
        while self.left() < 0:
            runs = self.turns.runs.items()
            never = [arm for arm, run in runs if run.recorder.last_row is None]
            if not never:
                return
            arm = max(never, key=lambda arm: arm.evaluation)
            arm.status = Status.LEFT
            seconds = f"{arm.evaluation:.3g} s"
            arm.reason = f"no time to evaluate it, which takes about {seconds}"
            arm.end()


class RunArm(Arm):
    """An arm of a race for recall: a run.

    Attributes:
        config: settings of the run; seeds count from the first run's.
        first: the arm of the first seed.
        record: what the run had written at the end of the last rung; None before.
        is_cut: True for a repeat whose run the budget ended too soon to be compared.
    """

    def __init__(
        self, name: str, config: RunConfig, runs: Runs, seed: int = 0, first: RunArm | None = None
    ) -> None:
        super().__init__(name, seed, Status.RACING)
        self.config = dataclasses.replace(config, seed=(config.seed + seed) % (MAX_SEED + 1))
        self.runs, self.first = runs, first or self
        self.record: RunRecord | None = None
        self.is_cut = False
        self._folder: Path | None = None
        self._opened: float | None = None
        """Seconds that opening took, until it trains."""
        self._evaluated = 0.0
        """Clock at the latest evaluation."""

    @property
    def encoder(self) -> str:
        """Name of its encoder, whose costs are its own."""
        return self.config.encoder

    @property
    def run(self) -> Run | None:
        """Its run while that is open."""
        return self.runs.turns.runs.get(self)

    @property
    def seconds(self) -> float:
        """Seconds that its open run has trained."""
        return self.run.recorder.train_seconds if self.run else 0.0

    @property
    def can_train(self) -> bool:
        """True while its run is open."""
        return self.run is not None

    @property
    def is_done(self) -> bool:
        """True if its run has begun and trained all its epochs."""
        return self._folder is not None and self.run is None

    @property
    def standing(self) -> Standing | None:
        """Its curve at the end of the last rung; None before it was evaluated."""
        if self.record is None:
            return None
        return Standing(
            curve_of(self.record, self.runs.column),
            self.config.sampler,
            learned_at=above_chance_at(self.record, "validation", self.runs.chance),
            loss=self.config.loss,
            encoder=self.encoder,
            learning_rate=self.config.learning_rate,
        )

    @property
    def opening(self) -> float:
        """Seconds that its run takes before it is worth anything."""
        costs = self.runs.costs
        parts = costs.opening, costs.evaluation, costs.saving
        return sum(part(self.encoder) for part in parts)

    @property
    def evaluation(self) -> float:
        """Seconds to evaluate its open run, if that is not done."""
        is_done = self.run is not None and self.run.is_evaluated
        return 0.0 if is_done else self.runs.costs.evaluation(self.encoder)

    @property
    def least_seconds(self) -> float:
        """Seconds of an iteration; 0 before one was measured."""
        return (self.run.iteration_seconds if self.run else None) or 0.0

    def repeat(self, seed: int) -> RunArm:
        """Return the arm with a further seed."""
        return RunArm(self.name, self.config, self.runs, seed, first=self)

    def start(self) -> None:
        """Open its run, unless it has one or there is no time."""
        if self._folder is not None or self.runs.left() < self.opening:
            return
        began, runs = time.perf_counter(), self.runs
        shown = ArmProgress(runs, self.name)
        runs.turns.open(self, self.config, shown, stops_at_epochs=False)
        if self.run is not None:
            self._folder = self.run.recorder.folder
            self._opened = time.perf_counter() - began

    def advance(self, seconds: float, is_over: Over) -> None:
        """Train for some seconds; evaluate the run where that is due, and takes at most half as
        long as what was trained since the last time.
        """
        costs, began, before = self.runs.costs, time.perf_counter(), self.seconds
        run, opened = self.run, self._opened
        assert run is not None
        self._take(lambda run: run.train_for(seconds))
        clock = run.recorder.train_seconds
        if opened is not None:
            self._take(self._forecast)
        is_due = clock >= EVALUATED * self._evaluated
        if is_due and RATION * costs.evaluation(self.encoder) <= clock - self._evaluated:
            self.evaluate(is_timed=opened is None)  # the first one compiles
        wall, trained = time.perf_counter() - began, clock - before
        if opened is not None:
            costs.measured["opening", self.encoder].append(opened + wall - trained)
            self._opened = None
        else:
            costs.measured["turn", self.encoder].append(wall)
            costs.measured["training", self.encoder].append(trained)

    def evaluate(self, *, is_timed: bool = True) -> None:
        """Evaluate its run, if it is open and that is not done."""

        def work(run: Run) -> None:
            timed = self.runs.costs.timed("evaluation", self.encoder)
            with timed if is_timed else nullcontext():
                run.evaluate()
            self._evaluated = run.recorder.train_seconds

        if self.run is not None and not self.run.is_evaluated:
            self._take(work)

    def save(self) -> None:
        """Save its run, if it is open and that is not done."""
        if self.run is not None and not self.run.is_saved:
            with self.runs.costs.timed("saving", self.encoder):
                self._take(lambda run: run.save())

    def measure(self) -> None:
        """Read what its run has written."""
        if self._folder is not None and (self._folder / "summary.parquet").exists():
            self.record = runs.read(self._folder)

    def end(self) -> None:
        """Close its run, whose records stay."""
        self.runs.turns.close(self)

    def fail(self, error: BaseException) -> None:
        """Leave the race with all seeds, for an error."""
        arm, status = self.first, Status.FAILED
        if isinstance(error, DivergedError):
            status = Status.DIVERGED
        arm.status, arm.reason = status, f"{status}: {first_line(error)}"
        self.runs.progress.say(f"{arm.name} {arm.reason}")

    def _forecast(self, run: Run) -> None:
        self.runs.costs.forecasts[self.encoder] = FORECAST * run.forecast_evaluation()

    def _take(self, work: Callable[[Run], None]) -> None:
        """Give its run, if it is open, a piece of work, which may run out of time."""

        def in_time(run: Run) -> None:
            with suppress(OutOfTimeError):
                work(run)

        if self.run is not None:
            self.runs.turns.take(self, in_time)


class ArmProgress(Progress):
    """Shows an arm in the bar of the race, which counts seconds; ends what embeds items where no
    time is left.
    """

    _measure = ""

    def __init__(self, shared: Runs, name: str) -> None:
        super().__init__(name=name)
        self.shared = shared

    def move(self, done: int, text: str | None = None, state: str = "") -> None:
        """Show the arm's iteration, and its last measure."""
        self._draw(f"iteration {done:,}{self._measure}")

    def record(self, row: Mapping[str, Any]) -> None:
        """Keep the recall of a row for what is shown next."""
        for recall in describe_quality(row)[1:2]:
            self._measure = f", {recall}"

    def embedded(self, done: int, total: int) -> None:
        """Show the items in place of the iteration."""
        super().embedded(done, total)
        if self.shared.clock.left < self.shared.saving():
            raise OutOfTimeError

    def _draw(self, text: str | None, **more: Any) -> None:
        self.shared.progress.move(int(self.shared.clock.spent), self.name, f", {text}")
