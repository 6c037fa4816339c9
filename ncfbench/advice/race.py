"""The race itself: entrants train in turn until the budget is spent.

Every entrant is an ordinary run in the folder of the race. In a rung the one with the least
training clock trains next, to its next probe, so that all batch sizes are interleaved and a
disturbance of the machine meets all of them. At the end of a rung all save a checkpoint, the rule
judges them (:mod:`ncfbench.advice.rule`), the rest is planned again with the times measured so far
(:mod:`ncfbench.advice.rungs`), and the state is written.

Early on, neighbours of the leaders enter: candidates that differ from one of them in one setting.
They train to the clock of the others first.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ncfbench.advice.candidates import Candidate
from ncfbench.advice.clock import Clock, Measured
from ncfbench.advice.curves import curve_of, learned_at
from ncfbench.advice.question import Question
from ncfbench.advice.rule import Arm, Decision, decide, is_settled, rank
from ncfbench.advice.rungs import FINALISTS, Pace, Plan, arms_of_rungs, plan_rungs
from ncfbench.advice.state import Entrant, State
from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.distributed.process_group import AgreedInterrupt
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.storage import tables
from ncfbench.training.run import FAILURES, first_line
from ncfbench.training.session import Session

NEWCOMERS = 6
"""Most neighbours of leaders that enter after a rung."""
EARLY = 1 / 4
"""Share of the horizon up to which neighbours enter."""
ROOM = 8.0
"""Neighbours enter while the race can still train to this many times its clock."""
FIRST_PROBES = 2
"""Number of probes in the first rung, beside those at the ends of epochs."""
ANSWERED = "answered"
"""Folder of the records that the last answer rests on, below that of the race."""
LEAST_SEED = 1 / 4
"""Share of the last clock that a further seed must have time for."""


class Race:
    """A race in a folder. :meth:`run` begins or continues it.

    Args:
        locations: of the data, and of the race's own runs.
        clock: the budget.
        guess: pace before anything is measured.
        say: shows a message.
        interrupted: when it is true, the race saves everything and raises KeyboardInterrupt.
    """

    def __init__(
        self,
        question: Question,
        state: State,
        dataset: Dataset,
        content: DeviceContent,
        locations: Locations,
        clock: Clock,
        guess: Pace,
        say: Callable[[str], None],
        interrupted: Callable[[], bool],
    ) -> None:
        self.question, self.state, self.dataset, self.content = question, state, dataset, content
        self.locations, self.clock, self.say = locations, clock, say
        self.interrupted = interrupted
        self._measured = Measured(guess)
        self._open: dict[tuple[str, int], Session] = {}
        self._fresh: dict[tuple[str, int], float] = {}
        """Seconds that opening took, of runs that have not trained since."""
        self._folders: dict[tuple[str, int], Path] = {}
        self._learned: set[str] = set()
        """Names of entrants that are known to be better than chance."""
        self._has_trained = False
        """True while runs hold more than what was kept of the last answer."""
        self._turns = uuid.uuid4().hex[:12]
        self._is_at_work = False
        """True while something is done that a second Ctrl-C may cut."""

    def run(self) -> None:
        """Race until the budget is spent, and write the state.

        Raises:
            KeyboardInterrupt: interrupted; everything was saved, and the same call continues.
            NcfbenchError: no entrant is left.
        """
        state = self.state
        state.is_over, self._has_trained = False, True
        try:
            target: float | None = state.clock or state.first_clock
            while target is not None:
                self._train([(each, 0) for each in state.racing], target)
                target = self._end_rung(target)
            self._train_seeds()
            state.is_over = True
        except KeyboardInterrupt as interrupt:
            # A second Ctrl-C cut an iteration: then nothing more is saved.
            if not self._is_at_work or isinstance(interrupt, AgreedInterrupt):
                self._save()
                self._write()
            raise
        finally:
            for run in self._open.values():
                with suppress(*FAILURES):
                    run.close()
            self._open.clear()
        self._write()

    def records(self, entrant: Entrant) -> list[RunRecord]:
        """Return the runs of an entrant that have records, by seed.

        Those of an answer that was given stay as they were, whatever its runs train later.
        """
        folders = [self._folder(entrant, seed) for seed in entrant.seeds]
        kept = self.locations.runs_dir / ANSWERED
        if kept.is_dir() and not self._has_trained:
            configs = [entrant.with_seed(seed) for seed in entrant.seeds]
            folders = [choice.find(kept, config, self.state.fingerprint) for config in configs]
        return [
            runs.read(folder)
            for folder in folders
            if folder is not None and (folder / "summary.parquet").exists()
        ]

    def keep_records(self) -> None:
        """Copy the records that the answer rests on; from then on :meth:`records` are these.

        Raises:
            DataError: they cannot be written.
        """
        kept = self.locations.runs_dir / ANSWERED
        temporary = kept.with_name(f".{ANSWERED}")
        with tables.storage_errors(kept):
            shutil.rmtree(temporary, ignore_errors=True)
            for record in itertools.chain.from_iterable(map(self.records, self.state.entrants)):
                copy = temporary / record.name
                copy.mkdir(parents=True)
                for name in runs.RECORDS:
                    shutil.copyfile(record.folder / name, copy / name)
            if temporary.exists():
                shutil.rmtree(kept, ignore_errors=True)
                temporary.rename(kept)
        self._has_trained = False

    def _train(self, wanted: Sequence[tuple[Entrant, int]], target: float) -> None:
        """Train runs to a clock, the one that is furthest behind first; stop when time is up, but
        for saving them.
        """
        saving = len(wanted) * self._measured.pace.saving
        for entrant, seed in wanted:
            if (entrant.name, seed) not in self._open and self.clock.left > saving:
                self._open_run(entrant, seed)
        while self.clock.left > saving:
            behind = [
                (self._open[entrant.name, seed].recorder.train_seconds, place)
                for place, (entrant, seed) in enumerate(wanted)
                if (entrant.name, seed) in self._open
                and not self._open[entrant.name, seed].is_done
                and self._open[entrant.name, seed].recorder.train_seconds < target
            ]
            if not behind:
                break
            self._advance(*wanted[min(behind)[1]])

    def _advance(self, entrant: Entrant, seed: int) -> None:
        key = entrant.name, seed
        run, began = self._open[key], time.perf_counter()
        before = run.recorder.train_seconds
        self._attempt(entrant, run.advance)
        wall, trained = time.perf_counter() - began, run.recorder.train_seconds - before
        if key in self._fresh:  # its first block compiles
            self._measured.openings.append(self._fresh.pop(key) + wall - trained)
        else:
            self._measured.wall += wall
            self._measured.trained += trained
        if entrant.reason:
            self._close(key)

    def _end_rung(self, clock: float) -> float | None:
        """End a rung: save, judge, plan the rest; return the clock of the next rung, or None."""
        state = self.state
        self._evaluate()
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
            keep = arms_of_rungs(len(arms), FINALISTS, 2)[1] if plan.clocks else FINALISTS
        decision = decide(arms, state.horizon, keep)
        for entrant in state.racing:
            if entrant.name in decision.dropped:
                entrant.reason = f"after {clock:.3g} s: {decision.dropped[entrant.name]}"
                self._close((entrant.name, 0))
        if plan is not None and clock <= EARLY * state.horizon:
            self._admit(arms, decision, clock)
        plan = self._plan(clock, seeds) if plan else None
        goes_on = plan is not None and plan.clocks and not self._is_all_done()
        self._write()
        horizon = plan.horizon if plan and goes_on else None
        self._say_rung(arms[decision.leader], decision, horizon, clock)
        return plan.clocks[0] if plan and goes_on else None

    def _is_all_done(self) -> bool:
        """Return whether every entrant in the race has trained all its epochs."""
        return all(
            (key := (each.name, 0)) in self._folders
            and (key not in self._open or self._open[key].is_done)
            for each in self.state.racing
        )

    def _plan(self, clock: float, seeds: int) -> Plan | None:
        """Plan the rest; newcomers must first train to the clock of the others."""
        racing, pace = self.state.racing, self._measured.pace
        new = sum((each.name, 0) not in self._folders for each in racing)
        seconds = self.clock.left - new * (pace.opening + pace.training * clock)
        return plan_rungs(seconds, clock, len(racing), pace, seeds=seeds)

    def _arms(self) -> dict[str, Arm]:
        """Return the arms in the race; an entrant that time did not suffice to begin leaves."""
        found = {}
        for entrant in self.state.racing:
            records = self.records(entrant)
            if not records:
                entrant.reason = "no time to begin"
                continue
            found[entrant.name] = Arm(
                curve_of(records[0], self.question.target, self.dataset),
                entrant.shape.sampler,
                entrant.shape.is_baseline,
                learned_at(records[0], self.dataset),
                entrant.shape.loss,
                entrant.config.learning_rate,
                entrant.candidate.effort,
            )
            if found[entrant.name].learned_at is not None:
                self._learned.add(entrant.name)
        return found

    def _admit(self, arms: Mapping[str, Arm], decision: Decision, clock: float) -> None:
        """Let neighbours of the leader, of the best baseline and of the second enter."""
        if arms[decision.leader].learned_at is None:
            return
        state = self.state
        order = [name for name in rank(arms, is_early=True) if name not in decision.dropped]
        baselines = [name for name in order if arms[name].is_baseline]
        candidates = {each.name: each.candidate for each in state.racing}
        chosen: list[tuple[Candidate, float]] = []
        for name in dict.fromkeys([decision.leader, *baselines[:1], *order[:2]]):
            chosen += [
                each
                for each in state.pool
                if each not in chosen and each[0].is_neighbour(candidates[name])
            ]
        for each in chosen[:NEWCOMERS]:
            state.entrants.append(make_entrant(self.question, *each, state.first_clock))
            plan = self._plan(clock, 1)
            if plan is None or plan.horizon < ROOM * clock:
                state.entrants.pop()
                break
            state.pool.remove(each)

    def _train_seeds(self) -> None:
        """Train more seeds of the finalists to the last clock, as many as there is time for."""
        state = self.state
        arms = self._arms()
        if not _has_learned(arms):
            return
        dropped = decide(arms, state.clock, 1).dropped
        finalists = [each for each in state.racing if each.name not in dropped]
        for seed in range(1, self.question.seeds):
            pace = self._measured.pace
            needed = len(finalists) * (pace.opening + pace.training * LEAST_SEED * state.clock)
            if self.clock.left < needed:
                break
            for entrant in finalists:
                entrant.seeds = list(dict.fromkeys([*entrant.seeds, seed]))
            self.say(f"Seed {seed + 1} of {', '.join(each.name for each in finalists)}.")
            self._train([(each, seed) for each in finalists], state.clock)
            self._save()
            self._write()

    def _open_run(self, entrant: Entrant, seed: int) -> None:
        key, config, folder = (entrant.name, seed), entrant.with_seed(seed), None
        found = self._folder(entrant, seed)
        if found is not None:
            if _is_over(found):
                return
            folder = found
        began = time.perf_counter()

        def open_run() -> None:
            self._open[key] = run = Session.open(
                config,
                self.locations,
                self.dataset,
                Progress(),
                self.interrupted,
                folder=folder,
                content=self.content,
                turns=self._turns,
            )
            assert run.recorder.folder is not None
            self._folders[key] = run.recorder.folder

        self._attempt(entrant, open_run)
        self._fresh[key] = time.perf_counter() - began

    def _attempt(self, entrant: Entrant, action: Callable[[], object]) -> None:
        """Do something for an entrant; if it fails, the entrant leaves with the reason."""
        if self.interrupted():
            raise KeyboardInterrupt
        self._is_at_work = True
        try:
            action()
        except DivergedError as error:
            entrant.reason = f"diverged: {first_line(error)}"
        except FAILURES as error:
            entrant.reason = f"failed: {first_line(error)}"
        self._is_at_work = False
        if entrant.reason:
            self.say(f"{entrant.name} {entrant.reason}")

    def _evaluate(self) -> None:
        """Evaluate the runs that are not known to be better than chance: whether they are decides
        who may leave, and an epoch of a large data set can take longer than the race.
        """
        for entrant in self.state.racing:
            run = self._open.get((entrant.name, 0))
            is_known = entrant.name in self._learned
            if run is not None and not is_known and not run.is_done:
                began = time.perf_counter()
                self._attempt(entrant, run.evaluate)
                self._measured.evaluations.append(time.perf_counter() - began)

    def _save(self) -> None:
        for run in self._open.values():
            if not run.is_done and not run.is_saved:
                began = time.perf_counter()
                run.save()
                self._measured.savings.append(time.perf_counter() - began)

    def _close(self, key: tuple[str, int]) -> None:
        if key in self._open:
            with suppress(*FAILURES):
                self._open.pop(key).close()

    def _folder(self, entrant: Entrant, seed: int) -> Path | None:
        key = entrant.name, seed
        if key not in self._folders:
            config, runs_dir = entrant.with_seed(seed), self.locations.runs_dir
            folder = choice.find(runs_dir, config, self.state.fingerprint)
            if folder is None:
                return None
            self._folders[key] = folder
        return self._folders[key]

    def _write(self) -> None:
        self.state.spent_seconds = self.clock.spent
        self.state.write(self.locations.runs_dir)

    def _say_rung(
        self, leader: Arm, decision: Decision, horizon: float | None, clock: float
    ) -> None:
        leads = (
            "none is better than chance yet"
            if leader.learned_at is None
            else f"{decision.leader} leads"
        )
        leave = f"{len(decision.dropped)} leave, " if decision.dropped else ""
        rest = f"on to {horizon:.3g} s" if horizon else "last rung"
        self.say(
            f"{self.clock.spent:.0f} s: trained {clock:.3g} s each, {leads};"
            f" {leave}{len(self.state.racing)} stay, {rest}."
        )


def make_entrant(
    question: Question, candidate: Candidate, seconds: float, first_clock: float
) -> Entrant:
    """Return the entrant of a candidate.

    It is probed :data:`FIRST_PROBES` times in the first rung, and at the end of every epoch.

    Args:
        seconds: of an iteration.
    """
    shape, config = candidate.shape, candidate.config
    block = max(round(first_clock / FIRST_PROBES / seconds), 1)
    if not config.probe_every:
        config = dataclasses.replace(config, probe_every=block)
    name = f"{shape.label} lr={config.learning_rate:g}"
    if len(question.losses) > 1:
        name = f"{shape.loss} {name}"
    return Entrant(name, candidate, config, seconds)


def _has_learned(arms: Mapping[str, Arm]) -> bool:
    """Return whether any arm is known to be better than chance."""
    return any(arm.learned_at is not None for arm in arms.values())


def _is_over(folder: Path) -> bool:
    """Return whether a run needs no more training: it is finished, or it diverged."""
    if not (folder / "summary.parquet").exists():
        return False
    return runs.read(folder).summary["status"] in ("finished", "diverged")
