"""Advice beside full sweeps: how good is what ``ncfbench advise`` recommends after a tenth of the
time?

    make bench-advice                                 # goes on where it was stopped
    python benchmarks/bench_advice.py --cells 'dense/*,citeulike/cnn-sg' --json FILE
    python benchmarks/bench_advice.py --quick         # two tiny cells, to try it out

Each cell is one question. A full sweep trains every candidate, those too that advice would leave
out, to the end of the same training clock; ``ncfbench advise`` gets the same question and a tenth
of the sweep's time. Both are processes of their own and compile everything themselves. Both use the
same seed: the question is what the race loses by stopping early, not what another seed would say.

Two parts need a quiet machine and come first: the timing with which a sweep begins, and the race.
``--races-only`` ends there, and ``--resume`` goes on, whatever else the machine does then.

- Timing: the candidates train in turns of a few seconds, which times an iteration of each. From
  there on their clock is their iterations times those seconds, and they train one after the other:
  neither a machine that drifts nor other programs change what a long sweep finds.
- Regret: the time to the target of the recommended arm over that of the best arm, both from the
  sweep's records. The target is the lowest loss that any baseline arm of the sweep reaches in the
  first two thirds of the clock (``advice_cells.target_level`` says why).
- Rank: Spearman's correlation between advice's order of the arms that raced and the sweep's.
- Time: wall time of advice over that of the sweep, in per cent. The sweep's counts, after its
  timing, no probe and no evaluation, but each arm to the horizon; advice's counts everything.

The verdict: a regret of at most 1.15 in nine of ten cells and of at most 1.5 in all; in every cell
a rank correlation of at least 0.8 and at most a tenth of the time. After a change of the race alone
the sweeps are kept. Exit codes: 0 if the verdict is met, 3 if a data set is missing, 6 if it is
missed or a process failed, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
from advice_cells import CELLS, QUICK, SHARE, Arm, Cell, cell_table, compare, complaints
from harness import (
    FOLDER,
    RESULTS,
    Benchmark,
    Found,
    code_fingerprint,
    default_folder,
    prepared,
    say,
)
from measuring import command, isolated

from ncfbench.advice.calibration import calibrate
from ncfbench.advice.candidates import (
    FIRST_PROBES,
    Candidate,
    Status,
    count_work,
    list_candidates,
)
from ncfbench.advice.curves import curve_of, learned_at
from ncfbench.advice.state import State, read_state
from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.data.store import load
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.signals import deferred_signals
from ncfbench.storage import tables
from ncfbench.timing import allocator, environment
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.training.run import first_line
from ncfbench.training.session import Session
from ncfbench.training.turns import Turns

PROBES = 40
"""Least number of probes of a candidate up to the horizon."""
CALIBRATION_SECONDS = 20.0
"""After this time no further shape is timed. It only decides how often a candidate is probed."""
TIMED_SECONDS = 5.0
"""Training clock that times a candidate; a quarter of the horizon if that is less."""
START_SECONDS = 6.0
"""Left out of the budget for the start of the process and for printing the answer."""
AFTER_TRAINING = ("advice", "reporting", "cli")
"""Rooms that a sweep's records do not depend on, once its candidates are listed."""
PACES, ANSWER, SPENT = "paces.json", "answer.json", "spent.json"
"""Findings of the timing, in the sweep's folder; the answer, the budget and the wall seconds of a
race, in its folder.
"""
STOPPING = "Stopping after this iteration, then saving. Ctrl-C again stops at once."


class Advice(Benchmark):
    """A cell for each question, with a folder of runs."""

    name, file = "advice", RESULTS / "advice-cpu.json"
    own_files = (FOLDER / "advice_cells.py", FOLDER / "bench_advice.py")

    options: ClassVar = {
        "runs_dir": (default_folder("runs_dir") / "bench-advice", "a folder of runs for each cell"),
        "races_only": (False, "end each cell before its sweep; the rest needs no quiet machine"),
    }
    places = ("runs_dir", "races_only")

    def cells(self, options: argparse.Namespace) -> Mapping[str, Cell]:
        return QUICK if options.quick else CELLS

    def measure(self, name: str, cell: Cell, options: argparse.Namespace) -> Found | None:
        """Time the sweep, ask for advice, sweep, and return the figures; what is done is kept.

        The folder of the sweep is named after what it depends on, and that of the race after the
        code too: a change of the race alone keeps the sweep.
        """
        data_dir, code = options.data_dir, code_fingerprint(without=AFTER_TRAINING)
        facts = [environment.describe()["key"], prepared(cell.dataset, data_dir), code, cell]
        digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
        folder = options.runs_dir / name.replace("/", "-") / digest
        raced = folder.with_name(f"{digest}-race-{code_fingerprint(*self.own_files)}")
        if not options.resume:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(raced, ignore_errors=True)
        if not (folder / PACES).exists():
            isolated(sweep, cell, data_dir, folder)
        if not (raced / ANSWER).exists():
            race(cell, data_dir, raced, sweep_seconds(read_sweep(folder), folder))
        if options.races_only:
            return None
        if not read_sweep(folder).is_over:
            isolated(sweep, cell, data_dir, folder)
        state, answer = read_sweep(folder), tables.read_json(raced / ANSWER)
        arms = read_arms(state, folder, load(data_dir, cell.dataset))
        seconds, spent = sweep_seconds(state, folder), tables.read_json(raced / SPENT)["seconds"]
        return {
            "horizon_seconds": state.horizon,
            "sweep_seconds": round(seconds, 1),
            "advice_seconds": round(spent, 1),
            "share": spent / seconds,
            **compare(arms, state.horizon, answer),
        }

    def missed(self, cells: Sequence[Found]) -> list[str]:
        return complaints(cells)

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> Iterator[Any]:
        yield cell_table(cells, environments)


def race(cell: Cell, data_dir: Path, folder: Path, seconds: float) -> None:
    """Ask ``ncfbench advise``, with a tenth of a sweep's seconds; keep its answer, and the wall
    seconds of all calls.

    Raises:
        CheckFailedError: it failed.
        KeyboardInterrupt: interrupted; the same call continues.
    """
    spent = {"budget": max(math.floor(SHARE * seconds - START_SECONDS), cell.least_budget_seconds)}
    if (folder / SPENT).exists():
        spent = tables.read_json(folder / SPENT)
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "ncfbench", *cell.words, "--json"]
    words += [f"--budget={spent['budget']:.0f}s", f"--data-dir={data_dir}", f"--runs-dir={folder}"]
    begin = time.perf_counter()
    try:
        done = command(words, variables={"NCFBENCH_CACHE_DIR": str(folder / "cache")})
    finally:
        wall = spent.get("seconds", 0.0) + time.perf_counter() - begin
        tables.write_json(folder / SPENT, spent | {"seconds": wall})
    if done.exit_code == INTERRUPTED_EXIT_CODE:
        raise KeyboardInterrupt
    if done.exit_code:
        raise CheckFailedError(f"ncfbench advise ended with {done.exit_code}.")
    (folder / ANSWER).write_text(done.output, encoding="utf-8")


# --- the sweep


def sweep(cell: Cell, data_dir: Path, folder: Path) -> None:
    """Time the candidates of a cell; where they are timed, train them to the horizon. The process
    gets a cache of compiled programs of its own.

    Raises:
        KeyboardInterrupt: interrupted; everything was saved, and the same call continues.
    """
    began, state, is_timed = time.perf_counter(), read_state(folder), (folder / PACES).exists()
    os.environ["NCFBENCH_CACHE_DIR"] = str(folder / "cache")
    keep_compiled(say)
    dataset = load(data_dir, cell.dataset)
    content = jax.block_until_ready(DeviceContent.of(dataset))
    with deferred_signals(say, STOPPING) as interrupted:
        if state is None:
            folder.mkdir(parents=True, exist_ok=True)
            state = plan(cell, dataset, content, interrupted)
        say(f"{len(state.racing)} candidates to {state.horizon:g} s each.")
        try:
            train(state, dataset, content, Locations(data_dir, folder), interrupted, is_timed)
        finally:
            if not is_timed:
                state.spent_seconds += time.perf_counter() - began
            state.write(folder)
        if not is_timed:
            facts = find_paces(state, folder) | {"wall_seconds": state.spent_seconds}
            tables.write_json(folder / PACES, facts)


def train(
    state: State,
    dataset: Dataset,
    content: DeviceContent,
    locations: Locations,
    interrupted: Callable[[], bool],
    is_timed: bool,
) -> None:
    """Train all candidates in turns to the clock that times them; or, when they are timed, one
    after the other to the horizon.

    Raises:
        KeyboardInterrupt: interrupted; all were saved.
    """
    folder = locations.runs_dir
    entrants = {entrant.name: entrant for entrant in state.racing}
    paces = tables.read_json(folder / PACES)["seconds"] if is_timed else {}
    target = state.horizon if is_timed else min(TIMED_SECONDS, state.horizon / 4)

    def failed(name: str, error: BaseException) -> None:
        entrants[name].leave(Status.FAILED, f"failed: {first_line(error)}")
        say(f"{name} {entrants[name].reason}")

    for names in [[name] for name in entrants] if is_timed else [list(entrants)]:
        with Turns(dataset, content, locations, interrupted, failed) as turns:
            for name in names:
                turns.open(name, entrants[name].config, home_of(folder, state, entrants[name]))
            pace = paces.get(names[0])

            def clock(run: Session, pace: float | None = pace) -> float:
                return run.recorder.train_seconds if pace is None else pace * run.iteration

            while (least := turns.behind(clock, target)) is not None:
                turns.take(least, Session.advance)  # to the next probe
            turns.save()
    state.is_over = is_timed


def plan(
    cell: Cell, dataset: Dataset, content: DeviceContent, interrupted: Callable[[], bool]
) -> State:
    """Return the state of a sweep that has not begun: all candidates, and what cannot work.

    Raises:
        KeyboardInterrupt: ``interrupted()`` was true.
    """
    graph, horizon = dataset.graph, cell.horizon_seconds
    candidates, refused = list_candidates(cell.question, graph.n_links)
    configs = {candidate.shape: candidate.config for candidate in reversed(candidates)}
    work = {shape: count_work(graph, config) for shape, config in configs.items()}
    calibrated = calibrate(dataset, content, configs, work, CALIBRATION_SECONDS, interrupted)
    first = FIRST_PROBES["loss"] * horizon / PROBES
    for candidate in candidates:
        shape = candidate.shape
        candidate.expect(calibrated.seconds[shape], work[shape].negatives)
        candidate.schedule_probes(horizon / PROBES)
    return State(dataset.fingerprint, candidates, [], refused, first, horizon=horizon)


def home_of(folder: Path, state: State, entrant: Candidate) -> Path | None:
    """Return the folder of a candidate's run; None where it has none."""
    return choice.find(folder, entrant.config, state.fingerprint)


def find_paces(state: State, folder: Path) -> dict[str, Any]:
    """Return the seconds of an iteration of each candidate, the median of its blocks, and all
    candidates' training clock in the timing.
    """
    homes = {entrant.name: home_of(folder, state, entrant) for entrant in state.racing}
    summaries = {name: runs.read(home).summary for name, home in homes.items() if home is not None}
    return {
        "seconds": {name: own["full_iteration_seconds"] for name, own in summaries.items()},
        "trained_seconds": math.fsum(own["train_seconds"] for own in summaries.values()),
    }


def read_sweep(folder: Path) -> State:
    """Return the state of a sweep that has begun."""
    state = read_state(folder)
    assert state is not None, "the sweep has not begun"
    return state


def sweep_seconds(state: State, folder: Path) -> float:
    """Return the seconds of a sweep that has been timed: wall time of the timing, and then what the
    candidates' clocks lack to the horizon, without any probe.
    """
    paces = tables.read_json(folder / PACES)
    clocks = len(state.racing) * state.horizon
    return float(paces["wall_seconds"] + max(clocks - paces["trained_seconds"], 0.0))


def read_arms(state: State, folder: Path, dataset: Dataset) -> list[Arm]:
    """Return the arms of a sweep that is over, from the records of their runs."""
    seconds, arms = tables.read_json(folder / PACES)["seconds"], []
    for entrant in state.racing:
        home = home_of(folder, state, entrant)
        assert home is not None
        record = runs.read(home)
        summary = {**record.summary, "full_iteration_seconds": seconds[entrant.name]}
        record = dataclasses.replace(record, summary=summary)
        curve, learned = curve_of(record, "probe_loss"), learned_at(record, dataset)
        arms.append(Arm(entrant.name, curve, entrant.shape.is_baseline, learned))
    return arms


if __name__ == "__main__":
    allocator.restart()
    Advice().main()
