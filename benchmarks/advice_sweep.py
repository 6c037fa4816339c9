"""Train every candidate of a question to a target or to the end of the same clock: a full sweep.

    python benchmarks/advice_sweep.py CELL --data-dir DIR --folder DIR [--time-only]

``bench_advice.py`` starts it in a process of its own. The candidates are those of
``ncfbench advise``, without its pruning: what it would leave out trains too.

First they train in turns of a few seconds, which times an iteration of each; nothing else may run
then. From there on their clock is their iterations times those seconds, and they train one after
the other: neither a machine that drifts nor other programs change what a long sweep finds. The
baseline's arms give the target, and an arm that has reached it trains no further; the sweep's time
counts all to the horizon. Runs are ordinary ones below the folder; the same command continues after
an interruption or a kill.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
from advice_cells import CELLS, QUICK
from advice_table import WORST, Arm, target_level

from ncfbench.advice.calibration import calibrate
from ncfbench.advice.candidates import (
    FIRST_PROBES,
    Candidate,
    Status,
    count_work,
    list_candidates,
)
from ncfbench.advice.curves import curve_of, learned_at
from ncfbench.advice.question import Question
from ncfbench.advice.race import Clock
from ncfbench.advice.state import State, read_state
from ncfbench.config import Locations
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed.process_group import AgreedInterrupt
from ncfbench.distributed.signals import deferred_signals
from ncfbench.errors import INTERRUPTED_EXIT_CODE, DivergedError, NcfbenchError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.storage import tables
from ncfbench.timing import allocator
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.training.run import FAILURES, first_line
from ncfbench.training.session import Session

PROBES = 40
"""Least number of probes up to the horizon."""
CALIBRATION_SECONDS = 20.0
"""After this time no further shape is timed. It only decides how often a candidate is probed."""
TIMED_SECONDS = 5.0
"""Training clock that times a candidate; a quarter of the horizon if that is less."""
PACES = "paces.json"
"""The file of :class:`Paces`, in the sweep's folder."""
SAVE_SECONDS = 300.0
"""Between two checkpoints of what is open."""
STOPPING = "Stopping after this iteration, then saving. Ctrl-C again stops at once."


def plan(
    question: Question,
    dataset: Dataset,
    content: DeviceContent,
    horizon: float,
    interrupted: Callable[[], bool],
) -> State:
    """Return the state of a sweep that has not begun: all candidates, and what cannot work.

    Args:
        horizon: training clock of each candidate, in seconds.

    Raises:
        KeyboardInterrupt: ``interrupted()`` was true.
    """
    graph = dataset.graph
    candidates, refused = list_candidates(question, graph.n_links)
    configs = {each.shape: each.config for each in reversed(candidates)}
    work = {shape: count_work(graph, config) for shape, config in configs.items()}
    calibrated = calibrate(dataset, content, configs, work, CALIBRATION_SECONDS, interrupted)
    first = FIRST_PROBES * horizon / PROBES
    for each in candidates:
        each.expect(calibrated.seconds[each.shape], work[each.shape].negatives)
        each.schedule_probes(first)
    return State(dataset.fingerprint, candidates, [], refused, first, horizon=horizon)


@dataclass(frozen=True)
class Paces:
    """Findings of the timing.

    Attributes:
        seconds: of an iteration, by candidate: the median of its blocks.
        trained_seconds: all candidates' training clock in the timing.
        wall_seconds: of all that was done until then.
    """

    seconds: dict[str, float]
    trained_seconds: float
    wall_seconds: float


def read_paces(folder: Path) -> Paces | None:
    """Return what the timing of a sweep found; None if it is not over."""
    path = folder / PACES
    return Paces(**tables.read_json(path)) if path.exists() else None


def sweep_seconds(state: State, folder: Path) -> float:
    """Return the seconds of a sweep that has been timed: wall time of the timing, and then what the
    candidates' clocks lack to the horizon, without any probe.
    """
    paces = read_paces(folder)
    assert paces is not None, "not timed"
    clocks = len(state.racing) * state.horizon
    return paces.wall_seconds + max(clocks - paces.trained_seconds, 0.0)


def read_arms(
    state: State, folder: Path, dataset: Dataset, entrants: Sequence[Candidate] | None = None
) -> list[Arm]:
    """Return the arms of a sweep that has been timed, from the records of their runs.

    Args:
        entrants: all that did not fail by default.

    Raises:
        DataError: a record is damaged.
    """
    paces, found = read_paces(folder), []
    assert paces is not None, "not timed"
    for each in state.racing if entrants is None else entrants:
        home = choice.find(folder, each.config, state.fingerprint)
        if home is not None and (home / "summary.parquet").exists():
            record = runs.read(home)
            timed = {**record.summary, "full_iteration_seconds": paces.seconds[each.name]}
            record = dataclasses.replace(record, summary=timed)
            curve, learned = curve_of(record, "loss", dataset), learned_at(record, dataset)
            found.append(Arm(each.name, curve, each.shape.is_baseline, learned))
    return found


class Sweep:
    """The runs of a sweep. :meth:`time` and :meth:`train` begin or continue it.

    Args:
        locations: of the data, and of the sweep's runs.
        interrupted: when it is true, the sweep saves everything and raises KeyboardInterrupt.
    """

    def __init__(
        self,
        state: State,
        dataset: Dataset,
        content: DeviceContent,
        locations: Locations,
        say: Callable[[str], None],
        interrupted: Callable[[], bool],
    ) -> None:
        self.state, self.dataset, self.content = state, dataset, content
        self.locations, self.say, self.interrupted = locations, say, interrupted
        self._timing = Clock(math.inf, 0.0, state.spent_seconds)
        self._paces = read_paces(locations.runs_dir)
        self._open: dict[str, Session] = {}
        self._turns = uuid.uuid4().hex[:12]
        self._saved = time.perf_counter()

    def time(self) -> None:
        """Train every candidate for a few seconds, in turns, and keep the seconds of an iteration.

        Raises:
            KeyboardInterrupt: interrupted; after the first Ctrl-C everything was saved.
        """
        if self._paces is None:
            self._train_in_turns(min(TIMED_SECONDS, self.state.horizon / 4))
            found = {each.name: self._summary(each) for each in self.state.racing}
            self._paces = Paces(
                {name: summary["full_iteration_seconds"] for name, summary in found.items()},
                math.fsum(summary["train_seconds"] for summary in found.values()),
                self._timing.spent,
            )
            tables.write_json(self.locations.runs_dir / PACES, asdict(self._paces))

    def train(self) -> None:
        """Train every candidate to the target, or to the horizon, and write the state.

        Raises:
            KeyboardInterrupt: interrupted; after the first Ctrl-C everything was saved.
        """
        horizon = self.state.horizon
        for each in self.state.racing:
            if each.shape.is_baseline:
                self._train_one(each, horizon / WORST, None)
        arms = read_arms(self.state, self.locations.runs_dir, self.dataset)
        level = target_level([arm for arm in arms if arm.is_baseline], horizon)
        for each in self.state.racing:
            self._train_one(each, horizon, level)
        self.state.is_over = True
        self._save()

    def _train_one(self, entrant: Candidate, clock: float, level: float | None) -> None:
        """Train a candidate to a clock, or until it is at a level if that is sooner."""
        if not self._is_there(entrant, clock, level):
            with self._opened([entrant]):
                while entrant.name in self._open and not self._is_there(entrant, clock, level):
                    self._attempt(entrant, self._advance)

    def _is_there(self, entrant: Candidate, clock: float, level: float | None) -> bool:
        if self._clock_of(entrant) >= clock:
            return True
        if level is None:
            return False
        if entrant.name in self._open:
            run = self._open[entrant.name]
            run.recorder.write("running", run.iteration)
        (arm,) = read_arms(self.state, self.locations.runs_dir, self.dataset, [entrant])
        return arm.curve.time_to(level) is not None

    def _train_in_turns(self, clock: float) -> None:
        """Train the candidate with the least clock next, to its next probe, until all are there."""
        with self._opened([each for each in self.state.racing if self._clock_of(each) < clock]):
            while True:
                racing = [each for each in self.state.racing if each.name in self._open]
                last = min(racing, key=self._clock_of, default=None)
                if last is None or self._clock_of(last) >= clock:
                    break
                self._attempt(last, self._advance)

    @contextmanager
    def _opened(self, entrants: Sequence[Candidate]) -> Iterator[None]:
        """Open the runs of candidates, and at the end save and close them.

        After a second Ctrl-C, which cuts an iteration, they are closed alone.
        """
        try:
            for entrant in entrants:
                self._attempt(entrant, self._open_run)
            yield
            self._save()
        except AgreedInterrupt:
            self._save()
            raise
        finally:
            for name in list(self._open):
                self._close(name)

    def _advance(self, entrant: Candidate) -> None:
        self._open[entrant.name].advance()
        if time.perf_counter() - self._saved > SAVE_SECONDS:
            self._save()

    def _clock_of(self, entrant: Candidate) -> float:
        """Return a candidate's clock: the seconds that it trained while it is timed, and then its
        iterations times the seconds of one.
        """
        run = self._open.get(entrant.name)
        if run is None:
            found = self._summary(entrant)
            trained, iterations = found.get("train_seconds") or 0.0, found.get("iterations", 0)
        else:
            trained, iterations = run.recorder.train_seconds, run.iteration
        return trained if self._paces is None else iterations * self._paces.seconds[entrant.name]

    def _summary(self, entrant: Candidate) -> Mapping[str, Any]:
        """Return the summary of a candidate's run; empty where it has none."""
        folder = choice.find(self.locations.runs_dir, entrant.config, self.dataset.fingerprint)
        is_there = folder is not None and (folder / "summary.parquet").exists()
        return runs.read(folder).summary if folder is not None and is_there else {}

    def _open_run(self, entrant: Candidate) -> None:
        folder = choice.find(self.locations.runs_dir, entrant.config, self.dataset.fingerprint)
        self._open[entrant.name] = Session.open(
            entrant.config,
            self.locations,
            self.dataset,
            Progress(),
            self.interrupted,
            folder=folder,
            content=self.content,
            turns=self._turns,
        )

    def _attempt(self, entrant: Candidate, action: Callable[[Candidate], object]) -> None:
        """Do something for a candidate; if it fails, the candidate leaves with the reason."""
        if self.interrupted():
            raise AgreedInterrupt
        try:
            action(entrant)
        except DivergedError as error:
            entrant.leave(Status.DIVERGED, f"diverged: {first_line(error)}")
        except FAILURES as error:
            entrant.leave(Status.FAILED, f"failed: {first_line(error)}")
        if entrant.reason:
            self.say(f"{entrant.name} {entrant.reason}")
            self._close(entrant.name)

    def _save(self) -> None:
        for run in self._open.values():
            if not run.is_done and not run.is_saved:
                run.save()
        timed = self._paces is not None
        self.state.spent_seconds = (
            sweep_seconds(self.state, self.locations.runs_dir) if timed else self._timing.spent
        )
        self.state.write(self.locations.runs_dir)
        self._saved = time.perf_counter()

    def _close(self, name: str) -> None:
        if name in self._open:
            with suppress(*FAILURES):
                self._open.pop(name).close()


def run(
    name: str,
    data_dir: Path,
    folder: Path,
    say: Callable[[str], None],
    *,
    time_only: bool = False,
) -> None:
    """Train the sweep of a cell, or what is left of it.

    Args:
        time_only: stop when an iteration of every candidate is timed.

    Raises:
        DataError: the data set is missing, or the folder cannot be written.
        KeyboardInterrupt: interrupted; the same call continues.
    """
    cell = (CELLS | QUICK)[name]
    keep_compiled(say)
    dataset = open_dataset(cell.dataset, data_dir=data_dir, say=say)
    content = jax.block_until_ready(DeviceContent.of(dataset))
    with deferred_signals(say, STOPPING) as interrupted:
        state = read_state(folder)
        if state is None:
            state = plan(cell.question, dataset, content, cell.horizon_seconds, interrupted)
            with tables.storage_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            state.write(folder)
        say(f"{name}: {len(state.entrants)} candidates to {state.horizon:g} s each.")
        sweep = Sweep(state, dataset, content, Locations(data_dir, folder), say, interrupted)
        sweep.time()
        if not time_only:
            sweep.train()


def main(words: Sequence[str] | None = None) -> None:
    """Parse, and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cell", choices=[*CELLS, *QUICK])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--time-only",
        action="store_true",
        help="stop when every candidate is timed: from there on the machine need not be quiet",
    )
    arguments = parser.parse_args(words)
    try:
        run(
            arguments.cell,
            arguments.data_dir,
            arguments.folder,
            lambda text: print(text, file=sys.stderr, flush=True),
            time_only=arguments.time_only,
        )
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    allocator.restart()
    main()
