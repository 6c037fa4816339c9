"""A race of commands from beginning to end: arms, turns, records, and the answer."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

from ncfbench.config import Folder, Locations
from ncfbench.errors import UsageError
from ncfbench.racing import summary
from ncfbench.racing.answer import Answer, make_answer
from ncfbench.racing.arm import CommandArm, Field
from ncfbench.racing.commands import SEED, Command, make_commands
from ncfbench.racing.engine import Clock
from ncfbench.racing.metric import Metric
from ncfbench.racing.process import require_pausing
from ncfbench.racing.question import Question
from ncfbench.racing.race import Race, make_clock
from ncfbench.reporting.formats import three_digits
from ncfbench.runs.progress import Progress
from ncfbench.runs.signals import deferred_signals, handled_by
from ncfbench.storage import locks, tables
from ncfbench.timing.contention import OtherPrograms

FOLDER, ANSWER = "race", "answer.json"
"""Folder of the races, below the folder of the runs, and the file of each with its answer."""
STOPPING = "Stopping: the answer so far follows. Ctrl-C again stops at once."
SILENCE = (30.0, 1 / 3)
"""An arm may be silent while it runs for these seconds, or this share of the budget if longer."""


AnswerT = TypeVar("AnswerT")


class Outcome(NamedTuple, Generic[AnswerT]):
    """The answer of a race, the folder of its records, and the answer as JSON, which is there."""

    answer: AnswerT
    folder: Path
    document: Mapping[str, Any]

    @classmethod
    def kept(cls, answer: AnswerT, folder: Path, document: Mapping[str, Any]) -> Self:
        """Write an answer in the folder of the race."""
        tables.write_json(folder / ANSWER, document)
        return cls(answer, folder, document)


class Session(NamedTuple):
    """A race that goes on: whether it is interrupted, and what other programs do meanwhile."""

    interrupted: Callable[[], bool]
    programs: OtherPrograms

    def notes(self) -> list[str]:
        """Return that the machine was busy, if it was."""
        used = self.programs.describe()
        return [f"Meanwhile other programs used {used}, so times are too long."] if used else []


@contextmanager
def session(folder: Path, clock: Clock, progress: Progress) -> Iterator[Session]:
    """Hold the folder of a race, show the time, and let Ctrl-C end the race with an answer."""
    programs = OtherPrograms()
    programs.warn(progress.say)
    with (
        locks.held(folder, "racing in"),
        deferred_signals(progress.say, STOPPING) as interrupted,
    ):
        progress.start(int(clock.budget_seconds), int(clock.spent), "second")
        try:
            yield Session(interrupted, programs)
        finally:
            progress.end()


def race(
    command: str | Sequence[str] = (),
    *,
    parameters: Mapping[str, Sequence[object]] | None = None,
    budget_seconds: float = 600.0,
    metric: str | None = None,
    minimize: bool | None = None,
    target: float | None = None,
    names: Sequence[str] = (),
    seeds: int | None = None,
    runs_dir: Folder = None,
    progress: Progress | None = None,
) -> Outcome[Answer]:
    """Race commands within a budget of time, and return which reaches a quality soonest.

    Args:
        command: one for each arm, or for each combination of the parameters' values, which stand
            for ``{name}``; ``{seed}`` is the number of a repeat.
        metric: a key of JSON lines, or a regular expression with a group.
        minimize: True if less of the metric is better, False if more is; None asks its name.
        target: value to reach; by default 95 % of the best quality.
        seeds: of the finalists; by default 2 where the command has a ``{seed}``.
        progress: shows the race; by default nothing is shown.

    Raises:
        CheckFailedError: no arm printed a metric.
        DataError: a file cannot be read or written.
        UsageError: a value cannot be used, this system cannot pause a process, or nothing says
            whether less of the metric is better, and it falls.
    """
    commands = make_commands(
        [command] if isinstance(command, str) else command,
        names=names,
        parameters={name: [*map(str, values)] for name, values in (parameters or {}).items()},
    )
    question = Question(
        Metric.of(metric, minimize=minimize),
        budget_seconds,
        target,
        _seeds(commands, seeds),
    )
    if target is not None and not math.isfinite(target):
        raise UsageError(f"--target {target}: give a number.")
    clock = make_clock(budget_seconds)
    require_pausing()
    progress = progress or Progress()
    first = Locations.of(runs_dir=runs_dir).runs_dir / FOLDER / _digest(commands, question)
    here = first_free(first, _is_finished)
    if here != first:
        progress.say(
            f"This race is finished already (its answer: ncfbench report {first}). It is raced once"
            f" more in {here}."
        )
    with session(here, clock, progress) as held:
        field = Field(
            question.metric,
            here,
            clock,
            silence_seconds=max(SILENCE[0], SILENCE[1] * budget_seconds),
            interrupted=held.interrupted,
            ticked=lambda: progress.move(int(clock.spent), *_at_work(arms)),
        )
        arms = [CommandArm(one, field, number) for number, one in enumerate(commands)]

        def answered(*, is_over: bool = False, notes: Sequence[str] = ()) -> Outcome[Answer]:
            answer = make_answer(question, arms, clock.spent, is_over=is_over, notes=notes)
            return Outcome.kept(answer, here, summary.as_json(answer, here))

        race_ = Race(clock, arms, progress.say, question=question, judged=answered)
        is_complete = False
        suspending = handled_by(lambda *_: field.suspended.set(), signal.SIGTSTP)
        with suppress(KeyboardInterrupt), field, suspending:
            race_.run()
            is_complete = True
        question.require_direction(race_.firsts, is_last=True)
        return answered(is_over=is_complete, notes=held.notes())


def _at_work(arms: Sequence[CommandArm]) -> tuple[str, str]:
    """Return the name of the arm that runs, and its last value."""
    running = next((arm for arm in arms if arm.is_running), None)
    if running is None:
        return "ending", ""
    return running.name, "".join(f", {three_digits(line.value)}" for line in running.readings[-1:])


def _seeds(commands: Sequence[Command], seeds: int | None) -> int:
    have_seed = all(command.uses(SEED) for command in commands)
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds {seeds}: it must be at least 1.")
    if seeds is not None and seeds > 1 and not have_seed:
        raise UsageError(
            f"--seeds {seeds}: a repeat would be the same run. Write {{seed}} where the command"
            " takes its seed."
        )
    return seeds or (2 if have_seed else 1)


def _digest(commands: Sequence[Command], question: Question) -> str:
    """Return the name of a race's folder: of its arms and its metric."""
    metric = question.metric
    pattern = metric.pattern and metric.pattern.pattern
    asked = [[asdict(command) for command in commands], metric.key, pattern, metric.minimize]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:10]


def first_free(folder: Path, is_taken: Callable[[Path], bool]) -> Path:
    """Return the folder of a race, or the first of ``NAME-2``, ... that is not taken."""
    later = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([folder], later) if not is_taken(path))


def _is_finished(folder: Path) -> bool:
    path = folder / ANSWER
    return path.exists() and bool(tables.read_json(path)["is_over"])
