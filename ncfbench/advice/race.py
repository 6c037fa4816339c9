"""The race itself: candidates, which are ordinary runs, train in turn until the budget is spent."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import ClassVar

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.advice.curves import curve_of, learned_at
from ncfbench.advice.question import Question
from ncfbench.advice.state import State
from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.models.towers import DeviceContent
from ncfbench.racing.rule import Arm, Decision, decide, is_settled, rank
from ncfbench.racing.rungs import FINALISTS, Pace, Plan, arms_of_rungs, plan_rungs
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import ArmProgress, Progress
from ncfbench.training.run import first_line
from ncfbench.training.session import Session
from ncfbench.training.turns import Turns

NEWCOMERS = 6
"""Most neighbours of leaders that enter after a rung."""
EARLY = 1 / 4
"""Share of the horizon up to which neighbours enter."""
LEAST_GROWTH = 8.0
"""Neighbours enter while the race can still train to this many times its clock."""
EVALUATED = 1.4
"""Growth of a run's clock between two evaluations in a rung, where ranking decides."""
LEAST_SEED = 1 / 4
"""Share of the last clock that a further seed must have time for."""

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
class Race:
    """A race in a folder. :meth:`run` begins or continues it.

    In a rung the run with the least training clock trains next, to its next probe, so that a
    disturbance of the machine meets all of them. At its end the runs are saved and judged,
    neighbours of the leaders may enter, and the rest is planned with the times measured so far. A
    killed race loses its last rung.

    Args:
        locations: of the data, and of the race's own runs.
        near: candidates that may enter beside a leader, the most promising first.
        interrupted: when it is true, the race saves everything and raises KeyboardInterrupt.
    """

    question: Question
    state: State
    dataset: Dataset
    content: DeviceContent
    locations: Locations
    clock: Clock
    progress: Progress
    interrupted: Callable[[], bool]
    near: Callable[[Candidate], Iterable[Candidate]]
    last: ClassVar[str] = ", last rung"
    """Said after a rung that no other follows."""

    def __post_init__(self) -> None:
        self._turns: Turns[Key] = Turns(
            self.dataset, self.content, self.locations, self.interrupted, self._failed
        )
        self._folders: dict[Key, Path] = {}
        self._compiling: dict[Key, float] = {}
        """Seconds that opening took, of runs that have not trained since."""
        self._evaluated: dict[Key, float] = {}
        """Clocks at the latest evaluations."""
        self._learned: set[str] = set()
        """Names of candidates that are known to be better than chance."""

    def run(self) -> None:
        """Race until the budget is spent.

        Raises:
            KeyboardInterrupt: interrupted; after the first Ctrl-C everything was saved. The same
                call continues.
            NcfbenchError: no candidate is left.
        """
        self.state.is_over = False
        with self._turns:
            target: float | None = self.state.clock or self.state.first_clock
            while target is not None:
                self._train(self.state.racing, 0, target)
                target = self._after_rung(self._end_rung(target))
            self._train_seeds()
        self.state.is_over = True

    def records(self) -> Iterator[RunRecord]:
        """Yield the runs of all entrants that have records."""
        for candidate in self.state.entrants:
            yield from filter(None, (self._read(candidate, seed) for seed in candidate.seeds))

    def _after_rung(self, target: float | None) -> float | None:
        """Return the clock of the next rung, which is planned for a target; None for no more."""
        return target

    def _train(self, candidates: Sequence[Candidate], seed: int, target: float) -> None:
        saving = len(candidates) * self.clock.pace.saving
        keys = {(candidate.name, seed): candidate for candidate in candidates}
        for key, candidate in keys.items():
            if key not in self._turns.runs and self.clock.left > saving:
                self._open(key, candidate)
        while self.clock.left > saving:
            behind = self._turns.behind(lambda run: run.recorder.train_seconds, target, keys)
            if behind is None:
                break
            self._advance(behind)

    def _open(self, key: Key, candidate: Candidate) -> None:
        record, began = self._read(candidate, key[1]), time.perf_counter()
        if record is not None and record.summary["status"] in ("finished", "diverged"):
            return
        shown = ArmProgress(
            self.progress,
            candidate.name,
            by_recall=self._ranks,
            spent=lambda: self.clock.spent,
        )
        self._turns.open(
            key,
            candidate.with_seed(key[1]),
            self._folders.get(key),
            shown,
            stops_at_epochs=not self._ranks,
        )
        if key in self._turns.runs:
            made = self._turns.runs[key].recorder.folder
            assert made is not None, "only the first of several processes has none"
            self._folders[key] = made
            self._compiling[key] = time.perf_counter() - began

    def _advance(self, key: Key) -> None:
        run, began = self._turns.runs[key], time.perf_counter()
        before = run.recorder.train_seconds
        self._turns.take(key, Session.advance)
        wall, trained = time.perf_counter() - began, run.recorder.train_seconds - before
        if key in self._compiling:  # the first block compiles
            self.clock.measured["opening"].append(self._compiling.pop(key) + wall - trained)
        else:
            if self._ranks and run.recorder.train_seconds >= EVALUATED * self._evaluated.get(
                key, 0
            ):
                self._evaluate(key)
                wall = time.perf_counter() - began
            self.clock.measured["turn"].append(wall)
            self.clock.measured["training"].append(trained)

    @property
    def _ranks(self) -> bool:
        return self.question.target == "recall"

    def _failed(self, key: Key, error: BaseException) -> None:
        (candidate,) = (each for each in self.state.entrants if each.name == key[0])
        status = Status.DIVERGED if isinstance(error, DivergedError) else Status.FAILED
        candidate.leave(status, f"{status}: {first_line(error)}")
        self.progress.say(f"{candidate.name} {candidate.reason}")

    def _end_rung(self, clock: float) -> float | None:
        """End a rung: save, judge, plan the rest; return the clock of the next rung, or None."""
        state = self.state
        self._judge()
        self._save()
        state.clock = clock
        arms = self._arms()
        if not arms:
            first = state.entrants[0]
            raise NcfbenchError(f"No candidate is left. {first.name} {first.reason}")
        # A second seed of arms that have learned nothing, or of a leader that is about to be
        # overtaken, would show nothing: they train on.
        seeds = self.question.seeds if is_settled(arms) else 1
        plan = self._plan(clock, seeds)
        state.horizon = plan.horizon if plan else clock
        keep = len(arms)  # without time for anything more nobody leaves for want of it
        if plan is not None:
            keep = arms_of_rungs(len(arms), 2)[1] if plan.clocks else FINALISTS
        decision = decide(arms, state.horizon, keep)
        for candidate in state.racing:
            if candidate.name in decision.dropped:
                reason = f"after {clock:.3g} s: {decision.dropped[candidate.name]}"
                candidate.leave(Status.LEFT, reason)
                self._turns.close((candidate.name, 0))
        if plan is not None and clock <= EARLY * state.horizon:
            self._admit(arms, decision, clock)
        plan = self._plan(clock, seeds) if plan else None
        is_last = plan is None or not plan.clocks or self._is_all_done()
        self._write()
        self._say_rung(arms, decision, clock, None if plan is None or is_last else plan.horizon)
        return None if plan is None or is_last else plan.clocks[0]

    def _say_rung(
        self, arms: Mapping[str, Arm], decision: Decision, clock: float, horizon: float | None
    ) -> None:
        leads = f"{decision.leader} leads"
        if arms[decision.leader].learned_at is None:
            leads = "none is better than chance yet"
        leave = f"{len(decision.dropped)} leave, " if decision.dropped else ""
        rest = f", on to {horizon:.3g} s" if horizon else self.last
        self.progress.say(
            f"{self.clock.spent:.0f} s: trained {clock:.3g} s each, {leads};"
            f" {leave}{len(self.state.racing)} stay{rest}."
        )

    def _is_all_done(self) -> bool:
        keys = [(each.name, 0) for each in self.state.racing]
        return all(key in self._folders and key not in self._turns.runs for key in keys)

    def _plan(self, clock: float, seeds: int, kept: float = 0.0) -> Plan | None:
        """Plan the rest; newcomers must first train to the clock of the others."""
        racing, pace = self.state.racing, self.clock.pace
        new = sum((each.name, 0) not in self._folders for each in racing)
        seconds = self.clock.left - kept - new * (pace.opening + pace.training * clock)
        return plan_rungs(seconds, clock, len(racing), pace, seeds=seeds)

    def _arms(self) -> dict[str, Arm]:
        """Return the arms in the race; one that time did not suffice to begin leaves."""
        arms = {}
        for candidate in self.state.racing:
            record = self._read(candidate, 0)
            if record is None:
                candidate.leave(Status.LEFT, "no time to begin")
                continue
            arms[candidate.name] = Arm(
                curve_of(record, self.question.column),
                candidate.shape.sampler,
                not self._ranks and candidate.shape.is_baseline,
                learned_at(record, self.dataset),
                candidate.shape.loss,
                candidate.config.encoder,
                candidate.config.learning_rate,
                candidate.effort,
            )
            if arms[candidate.name].learned_at is not None:
                self._learned.add(candidate.name)
        return arms

    def _admit(self, arms: Mapping[str, Arm], decision: Decision, clock: float) -> None:
        """Let neighbours of the leader, of the best baseline and of the second enter."""
        if arms[decision.leader].learned_at is None:
            return
        state = self.state
        order = [name for name in rank(arms, is_early=True) if name not in decision.dropped]
        baselines = [name for name in order if arms[name].is_baseline]
        racing = {candidate.name: candidate for candidate in state.racing}
        chosen: dict[str, Candidate] = {}
        for name in dict.fromkeys([decision.leader, *baselines[:1], *order[:2]]):
            chosen |= {each.name: each for each in self.near(racing[name])}
        for candidate in list(chosen.values())[:NEWCOMERS]:
            state.entrants.append(candidate)
            plan = self._plan(clock, 1)
            if plan is None or plan.horizon < LEAST_GROWTH * clock:
                state.entrants.pop()
                break
            if candidate in state.pool:
                state.pool.remove(candidate)

    def _train_seeds(self) -> None:
        if all(arm.learned_at is None for arm in self._arms().values()):
            return
        finalists = self._finalists()
        for seed in range(1, self.question.seeds):
            finalists = [each for each in finalists if each.status is Status.RACING]
            finalists = finalists[: self._with_time(len(finalists))]
            if not finalists:
                break
            for candidate in finalists:
                candidate.seeds = list(dict.fromkeys([*candidate.seeds, seed]))
            self.progress.say(f"Seed {seed + 1} of {', '.join(each.name for each in finalists)}.")
            self._train(finalists, seed, self.state.clock)
            self._judge()
            self._save()
            self._write()

    def _finalists(self) -> list[Candidate]:
        """Return who gets further seeds."""
        dropped = decide(self._arms(), self.state.clock, 1).dropped
        return [each for each in self.state.racing if each.name not in dropped]

    def _with_time(self, finalists: int) -> int:
        """Return how many of some finalists get a further seed: all, or none."""
        return finalists if self.clock.left >= finalists * self._seed_seconds else 0

    @property
    def _seed_seconds(self) -> float:
        pace = self.clock.pace
        return pace.opening + pace.training * LEAST_SEED * self.state.clock

    def _judge(self) -> None:
        """Evaluate runs that may be at chance, and all where ranking decides."""
        for key in list(self._turns.runs):
            if self._ranks or key[0] not in self._learned:
                with self.clock.timed("evaluation"):
                    self._evaluate(key)

    def _evaluate(self, key: Key) -> None:
        if key in self._turns.runs:
            self._turns.take(key, Session.evaluate)
        if key in self._turns.runs:
            self._evaluated[key] = self._turns.runs[key].recorder.train_seconds

    def _save(self) -> None:
        if count := sum(not run.is_saved for run in self._turns.runs.values()):
            with self.clock.timed("saving", count):
                self._turns.save()

    def _read(self, candidate: Candidate, seed: int) -> RunRecord | None:
        key = candidate.name, seed
        if key not in self._folders:
            config = candidate.with_seed(seed)
            folder = choice.find(self.locations.runs_dir, config, self.state.fingerprint)
            if folder is None:
                return None
            self._folders[key] = folder
        has_records = (self._folders[key] / "summary.parquet").exists()
        return runs.read(self._folders[key]) if has_records else None

    def _write(self) -> None:
        self.state.spent_seconds = self.clock.spent
        self.state.write(self.locations.runs_dir)
