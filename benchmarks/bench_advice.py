"""Advice beside full sweeps: how good is what ``ncfbench advise`` recommends after a tenth of the
time?

    make bench-advice                                 # goes on where it was stopped
    python benchmarks/bench_advice.py --cells 'dense/*,citeulike/cnn-sg' --json FILE
    python benchmarks/bench_advice.py --quick         # a tiny cell, to try it out

Each cell is one question. A full sweep trains every candidate, those too that advice would leave
out, in turns to the same training clock, the horizon; ``ncfbench advise`` gets the same question
and a tenth of all their clocks. Both are processes of their own and compile everything themselves.
Both use the same seed: the question is what the race loses by stopping early, not what another seed
would say. Times need a quiet machine.

- Regret: the time to the target of the recommended arm over that of the best arm, both from the
  sweep's records. The target is the lowest loss that any baseline arm of the sweep reaches in the
  first two thirds of the clock (``advice_cells.target_level`` says why).
- Rank: Spearman's correlation between advice's order of the arms that raced and the sweep's.
- Time: wall time of advice over the training clocks of the sweep, in per cent. These leave out
  compilation, probes and evaluations; advice's time counts everything.

The verdict: a regret of at most 1.15 in nine of ten cells and of at most 1.5 in all; in every cell
a rank correlation of at least 0.8 and at most a tenth of the time. Exit codes: 0 if the verdict is
met, 3 if a data set is missing, 6 if it is missed or a process failed, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from advice_cells import CELLS, QUICK, SHARE, Arm, Cell, cell_table, compare, complaints
from harness import FOLDER, RESULTS, Benchmark, Found, say
from measuring import isolated, ncfbench

from ncfbench.advice.calibration import calibrate
from ncfbench.advice.candidates import Candidate, count_work, list_candidates
from ncfbench.advice.curves import curve_of, learned_at
from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.data.store import load
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import folder as runs
from ncfbench.runs.signals import deferred_signals
from ncfbench.timing import allocator
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.training.run import first_line
from ncfbench.training.session import Session
from ncfbench.training.turns import Turns

PROBES = 40
"""Least number of probes of a candidate up to the horizon."""
CALIBRATION_SECONDS = 20.0
"""After this time no further shape is timed. It only decides how often a candidate is probed."""
START_SECONDS = 6.0
"""Left out of the budget for the start of the process and for printing the answer."""


class Advice(Benchmark):
    """A cell for each question."""

    name, file = "advice", RESULTS / "advice-cpu.json"
    own_files = (FOLDER / "advice_cells.py", FOLDER / "bench_advice.py")

    def cells(self, options: argparse.Namespace) -> Mapping[str, Cell]:
        return QUICK if options.quick else CELLS

    def measure(self, name: str, cell: Cell, options: argparse.Namespace) -> Found:
        with tempfile.TemporaryDirectory(prefix="ncfbench-advice-") as folder:
            arms = isolated(sweep, cell, options.data_dir, Path(folder) / "sweep")
            seconds = len(arms) * cell.horizon_seconds
            budget = 60 if options.quick else math.floor(SHARE * seconds - START_SECONDS)
            words = [*cell.words, "--json", f"--budget={budget}s"]
            words += [f"--data-dir={options.data_dir}", f"--runs-dir={folder}/race"]
            raced = ncfbench(words, {"NCFBENCH_CACHE_DIR": f"{folder}/race/cache"})
        return {
            "horizon_seconds": cell.horizon_seconds,
            "sweep_seconds": seconds,
            "advice_seconds": round(raced.seconds, 1),
            "share": raced.seconds / seconds,
            **compare(arms, cell.horizon_seconds, json.loads(raced.output)),
        }

    def missed(self, cells: Sequence[Found]) -> list[str]:
        return complaints(cells)

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> Iterator[Any]:
        yield cell_table(cells, environments)


def sweep(cell: Cell, data_dir: Path, folder: Path) -> list[Arm]:
    """Train the candidates of a cell in turns to the horizon, with a cache of compiled programs of
    their own; return those that did not fail.

    Raises:
        KeyboardInterrupt: interrupted.
    """
    os.environ["NCFBENCH_CACHE_DIR"] = str(folder / "cache")
    keep_compiled(say)
    dataset = load(data_dir, cell.dataset)
    content = jax.block_until_ready(DeviceContent.of(dataset))
    homes: dict[str, Path] = {}

    def failed(name: str, error: BaseException) -> None:
        homes.pop(name, None)
        say(f"{name} failed: {first_line(error)}")

    with deferred_signals(say, "Stopping after this iteration.") as interrupted:
        candidates = plan(cell, dataset, content)
        say(f"{len(candidates)} candidates to {cell.horizon_seconds:g} s each.")
        with Turns(dataset, content, Locations(data_dir, folder), interrupted, failed) as turns:
            for candidate in candidates:
                turns.open(candidate.name, candidate.config)
            for name, run in turns.runs.items():
                assert run.recorder.folder is not None
                homes[name] = run.recorder.folder
            clock = lambda run: run.recorder.train_seconds  # noqa: E731
            while (least := turns.behind(clock, cell.horizon_seconds)) is not None:
                turns.take(least, Session.advance)  # to the next probe
            turns.save()
    arms = []
    for candidate in candidates:
        if candidate.name in homes:
            record = runs.read(homes[candidate.name])
            curve, learned = curve_of(record, "probe_loss"), learned_at(record, dataset)
            arms.append(Arm(candidate.name, curve, candidate.shape.is_baseline, learned))
    return arms


def plan(cell: Cell, dataset: Dataset, content: DeviceContent) -> list[Candidate]:
    """Return all candidates of a cell, to be probed :data:`PROBES` times."""
    graph = dataset.graph
    candidates, _ = list_candidates(cell.question, graph.n_links)
    configs = {candidate.shape: candidate.config for candidate in reversed(candidates)}
    work = {shape: count_work(graph, config) for shape, config in configs.items()}
    calibrated = calibrate(dataset, content, configs, work, CALIBRATION_SECONDS)
    for candidate in candidates:
        shape = candidate.shape
        candidate.expect(calibrated.seconds[shape], work[shape].negatives)
        candidate.schedule_probes(cell.horizon_seconds / PROBES)
    return candidates


if __name__ == "__main__":
    allocator.restart()
    Advice().main()
