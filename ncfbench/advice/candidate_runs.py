"""The runs of a race's candidates: trained in turn on the clock of the race, kept and read."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.state import State
from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError
from ncfbench.models.towers import DeviceContent
from ncfbench.racing.rungs import Pace
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import ArmProgress, Progress
from ncfbench.training.run import first_line
from ncfbench.training.session import Session
from ncfbench.training.turns import Turns

EVALUATED = 1.4
"""Growth of a run's clock between two evaluations in a rung."""

Key = tuple[str, int]
"""The name of a candidate, and the seed of its run."""


@dataclass
class Clock:
    """Wall time of a race.

    Attributes:
        reserve_seconds: kept for the answer.
        spent_before: seconds of earlier sessions.
        guess: the pace of what is not measured yet.
        measured: wall seconds of each ``opening``, ``evaluation``, ``saving`` and ``turn`` of a
            run, and the ``training`` of each turn.
    """

    budget_seconds: float
    reserve_seconds: float
    spent_before: float = 0.0
    guess: Pace = field(default_factory=Pace)
    measured: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    began: float = field(default_factory=time.perf_counter)

    @property
    def spent(self) -> float:
        """Seconds spent, with those of earlier sessions."""
        return self.spent_before + time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds left for the race."""
        return self.budget_seconds - self.reserve_seconds - self.spent

    @contextmanager
    def timed(self, part: str, runs: int = 1) -> Iterator[None]:
        """Measure a part of the race, of several runs."""
        began = time.perf_counter()
        yield
        self.measured[part] += [(time.perf_counter() - began) / runs] * runs

    @property
    def pace(self) -> Pace:
        """Mean seconds of the parts measured so far; guesses for the others."""

        def mean(part: str, guess: float) -> float:
            return fmean(self.measured[part]) if self.measured[part] else guess

        return Pace(
            mean("opening", self.guess.opening),
            mean("turn", self.guess.training) / mean("training", 1.0),
            mean("saving", self.guess.saving) + mean("evaluation", 0.0),
        )


@dataclass
class CandidateRuns:
    """The runs of a race's candidates, below the folder of the race.

    The run with the least training clock trains next, to its next probe, so that a disturbance of
    the machine meets all of them. One that fails takes its candidate out of the race.

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
        self.turns: Turns[Key] = Turns(
            self.dataset, self.content, self.locations, self.interrupted, self._failed
        )
        self._folders: dict[Key, Path] = {}
        self._compiling: dict[Key, float] = {}
        """Seconds that opening took, of runs that have not trained since."""
        self._evaluated: dict[Key, float] = {}
        """Clocks at the latest evaluations."""

    def train(self, candidates: Sequence[Candidate], seed: int, target: float) -> None:
        """Train candidates to a training clock, in seconds, while there is time to save them."""
        saving = len(candidates) * self.clock.pace.saving
        keys = {(candidate.name, seed): candidate for candidate in candidates}
        for key, candidate in keys.items():
            if key not in self.turns.runs and self.clock.left > saving:
                self._open(key, candidate)
        while self.clock.left > saving:
            behind = self.turns.behind(lambda run: run.recorder.train_seconds, target, keys)
            if behind is None:
                break
            self._advance(behind)

    def keep(self) -> None:
        """Evaluate and save all open runs."""
        for key in list(self.turns.runs):
            with self.clock.timed("evaluation"):
                self._evaluate(key)
        if count := sum(not run.is_saved for run in self.turns.runs.values()):
            with self.clock.timed("saving", count):
                self.turns.save()

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
        key = candidate.name, seed
        if key not in self._folders:
            config = candidate.with_seed(seed)
            folder = choice.find(self.locations.runs_dir, config, self.state.fingerprint)
            if folder is None:
                return None
            self._folders[key] = folder
        has_records = (self._folders[key] / "summary.parquet").exists()
        return runs.read(self._folders[key]) if has_records else None

    def records(self) -> Iterator[RunRecord]:
        """Yield the runs of all entrants that have records."""
        for candidate in self.state.entrants:
            yield from filter(None, (self.read(candidate, seed) for seed in candidate.seeds))

    def _open(self, key: Key, candidate: Candidate) -> None:
        record, began = self.read(candidate, key[1]), time.perf_counter()
        if record is not None and record.summary["status"] in ("finished", "diverged"):
            return
        shown = ArmProgress(self.progress, candidate.name, spent=lambda: self.clock.spent)
        config, folder = candidate.with_seed(key[1]), self._folders.get(key)
        self.turns.open(key, config, folder, shown, stops_at_epochs=False)
        if key in self.turns.runs:
            made = self.turns.runs[key].recorder.folder
            assert made is not None, "only the first of several processes has none"
            self._folders[key] = made
            self._compiling[key] = time.perf_counter() - began

    def _advance(self, key: Key) -> None:
        run, began = self.turns.runs[key], time.perf_counter()
        before = run.recorder.train_seconds
        self.turns.take(key, Session.advance)
        wall, trained = time.perf_counter() - began, run.recorder.train_seconds - before
        if key in self._compiling:  # the first block compiles
            self.clock.measured["opening"].append(self._compiling.pop(key) + wall - trained)
        else:
            if run.recorder.train_seconds >= EVALUATED * self._evaluated.get(key, 0):
                self._evaluate(key)
                wall = time.perf_counter() - began
            self.clock.measured["turn"].append(wall)
            self.clock.measured["training"].append(trained)

    def _evaluate(self, key: Key) -> None:
        if key in self.turns.runs:
            self.turns.take(key, Session.evaluate)
        if key in self.turns.runs:
            self._evaluated[key] = self.turns.runs[key].recorder.train_seconds

    def _failed(self, key: Key, error: BaseException) -> None:
        (candidate,) = (each for each in self.state.entrants if each.name == key[0])
        status = Status.DIVERGED if isinstance(error, DivergedError) else Status.FAILED
        candidate.leave(status, f"{status}: {first_line(error)}")
        self.progress.say(f"{candidate.name} {candidate.reason}")
