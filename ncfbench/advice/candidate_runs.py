"""The runs of a race's candidates: trained in turn on the clock of the race, kept and read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ncfbench.advice.candidates import Candidate, State, Status
from ncfbench.advice.costs import FORECAST, Costs
from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError, first_line
from ncfbench.models.towers import DeviceContent
from ncfbench.racing.rungs import Pace
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import ArmProgress, Progress
from ncfbench.training.train import Run
from ncfbench.training.turns import Turns

EVALUATED = 1.4
"""Growth of a run's clock between two evaluations in a rung."""
RATION = 2.0
"""Times its seconds that must be trained between two evaluations in a rung."""
TURNS = 3
"""Number of turns in the first rung; all turns have about the same seconds of training."""

Key = tuple[str, int]
"""The name of a candidate, and the seed of its run."""


class OutOfTimeError(Exception):
    """Raised while items are embedded, where no time is left; nothing is lost."""


@dataclass
class Clock:
    """Wall time of a race.

    Attributes:
        reserve_seconds: kept for the answer.
    """

    budget_seconds: float
    reserve_seconds: float
    began: float = field(default_factory=time.perf_counter)

    @property
    def spent(self) -> float:
        """Seconds spent."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds left for the race."""
        return self.budget_seconds - self.reserve_seconds - self.spent


@dataclass
class CandidateRuns:
    """The runs of a race's candidates, below the folder of the race.

    The run with the least training clock trains next, for a turn that ends by the clock, so that a
    disturbance of the machine meets all of them. One that fails takes its candidate out of the
    race. Nothing begins that would leave too little time to evaluate and save all open runs.

    Args:
        locations: of the data, and of the race's own runs.
        interrupted: when it is true, all is saved and KeyboardInterrupt raised, while the
            :attr:`turns` are entered.
    """

    state: State
    dataset: Dataset
    content: DeviceContent
    locations: Locations
    clock: Clock
    progress: Progress
    interrupted: Callable[[], bool]

    def __post_init__(self) -> None:
        self.costs = Costs(self.state.pace)
        self.turns: Turns[Key] = Turns(
            self.dataset, self.content, self.locations, self.interrupted, self._failed
        )
        self._folders: dict[Key, Path] = {}
        self._encoders: dict[Key, str] = {}
        self._opened: dict[Key, float] = {}
        """Seconds that opening took, of runs that have not trained since."""
        self._evaluated: dict[Key, float] = {}
        """Clocks at the latest evaluations."""

    def pace(self, candidates: Sequence[Candidate]) -> Pace:
        """Return the mean pace of some candidates."""
        return self.costs.pace([each.config.encoder for each in candidates])

    def train(self, candidates: Sequence[Candidate], seed: int, target: float) -> None:
        """Train candidates to a training clock, in seconds, while there is time."""
        keys = {(each.name, seed): each for each in candidates}
        for key, candidate in keys.items():
            if key not in self.turns.runs and self._left() >= self._opening(candidate):
                self._open(key, candidate)
        while (behind := self.turns.behind(_trained, target, keys)) is not None:
            if self._give_one_up():
                continue
            run, left = self.turns.runs[behind], self._left(behind)
            if left > (run.iteration_seconds or 0.0):
                turn = self.state.first_clock / TURNS or target
                self._advance(behind, min(turn, target - _trained(run), left))
            else:
                del keys[behind]

    def keep(self) -> None:
        """Evaluate the open runs, the cheapest first, while there is time, and save all."""
        while self._give_one_up():
            pass
        for key in sorted(self.turns.runs, key=self._evaluation):
            if self.clock.left - self._saving() >= self._evaluation(key):
                self._evaluate(key)
        for key, run in list(self.turns.runs.items()):
            if not run.is_saved:
                with self.costs.timed("saving", self._encoders[key]):
                    self.turns.take(key, Run.save)

    def leave(self, candidate: Candidate, reason: str) -> None:
        """Let a candidate leave the race, and close its first run."""
        candidate.leave(Status.LEFT, reason)
        self.turns.close((candidate.name, 0))

    def are_done(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether the first runs of candidates have begun and trained all their epochs."""
        keys = [(each.name, 0) for each in candidates]
        return all(key in self._folders and key not in self.turns.runs for key in keys)

    def read(self, candidate: Candidate, seed: int) -> RunRecord | None:
        """Return the records of a candidate's run; None before it has any."""
        folder = self._folders.get((candidate.name, seed))
        is_written = folder is not None and (folder / "summary.parquet").exists()
        return runs.read(folder) if folder is not None and is_written else None

    def records(self) -> dict[str, list[RunRecord]]:
        """Return the runs of each entrant that have records, by seed."""
        return {
            each.name: [*filter(None, (self.read(each, seed) for seed in each.seeds))]
            for each in self.state.entrants
        }

    def _opening(self, candidate: Candidate) -> float:
        """Return the seconds that a run of a candidate takes before it is worth anything."""
        costs, encoder = self.costs, candidate.config.encoder
        return costs.opening(encoder) + costs.evaluation(encoder) + costs.saving(encoder)

    def _evaluation(self, key: Key) -> float:
        is_done = self.turns.runs[key].is_evaluated
        return 0.0 if is_done else self.costs.evaluation(self._encoders[key])

    def _saving(self, besides: Collection[Key] = ()) -> float:
        """Return the seconds that it takes to save what open runs have trained."""
        return sum(
            self.costs.saving(self._encoders[key])
            for key, run in self.turns.runs.items()
            if key in besides or not run.is_saved
        )

    def _left(self, key: Key | None = None) -> float:
        """Return the seconds left but for evaluating and saving the open runs.

        Args:
            key: of a run that is to train on, and has to be evaluated and saved after that.
        """
        evaluations = sum(self._evaluation(each) for each in self.turns.runs if each != key)
        if key is not None:
            evaluations += self.costs.evaluation(self._encoders[key])
        return self.clock.left - evaluations - self._saving([] if key is None else [key])

    def _give_one_up(self) -> bool:
        """Close the run whose evaluation takes longest, of those that had none, if there is no time
        to evaluate all; return whether one was closed.
        """
        open_runs = self.turns.runs
        never = [key for key, run in open_runs.items() if run.recorder.last_row is None]
        if self._left() >= 0 or not never:
            return False
        name, seed = key = max(never, key=self._evaluation)
        seconds = f"{self._evaluation(key):.3g} s"
        for candidate in self.state.racing:
            if (candidate.name, 0) == (name, seed):
                self.leave(candidate, f"no time to evaluate it, which takes about {seconds}")
        self.turns.close(key)
        return True

    def _open(self, key: Key, candidate: Candidate) -> None:
        record, began = self.read(candidate, key[1]), time.perf_counter()
        if record is not None and record.summary["status"] in ("finished", "diverged"):
            return
        shown = _Shown(self.progress, candidate.name, self.clock, self._saving)
        config = candidate.with_seed(key[1])
        self.turns.open(key, config, shown, stops_at_epochs=False)
        if key in self.turns.runs:
            made = self.turns.runs[key].recorder.folder
            assert made is not None, "only the first of several processes has none"
            self._folders[key], self._encoders[key] = made, config.encoder
            self._opened[key] = time.perf_counter() - began

    def _advance(self, key: Key, seconds: float) -> None:
        """Give an open run a turn of some seconds of training; evaluate it where that is due, and
        takes at most half as long as what was trained since the last time.
        """
        run, encoder, began = self.turns.runs[key], self._encoders[key], time.perf_counter()
        before, evaluated = _trained(run), self._evaluated.get(key, 0.0)
        self._take(key, lambda run: run.train_for(seconds))
        clock, is_new = _trained(run), key in self._opened
        if is_new:
            self._take(key, self._forecast)
        is_due = clock >= EVALUATED * evaluated
        if is_due and RATION * self.costs.evaluation(encoder) <= clock - evaluated:
            self._evaluate(key, is_timed=not is_new)  # the first one compiles
        wall, trained = time.perf_counter() - began, clock - before
        if is_new:
            self.costs.measured["opening", encoder].append(self._opened.pop(key) + wall - trained)
        else:
            self.costs.measured["turn", encoder].append(wall)
            self.costs.measured["training", encoder].append(trained)

    def _evaluate(self, key: Key, *, is_timed: bool = True) -> None:
        def work(run: Run) -> None:
            timed = self.costs.timed("evaluation", self._encoders[key])
            with timed if is_timed else nullcontext():
                run.evaluate()
            self._evaluated[key] = _trained(run)

        if key in self.turns.runs and not self.turns.runs[key].is_evaluated:
            self._take(key, work)

    def _forecast(self, run: Run) -> None:
        seconds = FORECAST * run.forecast_evaluation()
        self.costs.forecasts[run.plan.config.encoder] = seconds

    def _take(self, key: Key, work: Callable[[Run], None]) -> None:
        """Give a run that is open a piece of work, which may run out of time."""

        def in_time(run: Run) -> None:
            with suppress(OutOfTimeError):
                work(run)

        if key in self.turns.runs:
            self.turns.take(key, in_time)

    def _failed(self, key: Key, error: BaseException) -> None:
        (candidate,) = (each for each in self.state.entrants if each.name == key[0])
        status = Status.DIVERGED if isinstance(error, DivergedError) else Status.FAILED
        candidate.leave(status, f"{status}: {first_line(error)}")
        self.progress.say(f"{candidate.name} {candidate.reason}")


class _Shown(ArmProgress):
    """Shows an arm in the bar of the race; ends what embeds items where no time is left."""

    def __init__(
        self, race: Progress, name: str, clock: Clock, saving: Callable[[], float]
    ) -> None:
        super().__init__(race, name, spent=lambda: clock.spent)
        self.clock, self.saving = clock, saving

    def embedded(self, done: int, total: int) -> None:
        """Show the items in place of the iteration."""
        super().embedded(done, total)
        if self.clock.left < self.saving():
            raise OutOfTimeError


def _trained(run: Run) -> float:
    return run.recorder.train_seconds
