"""Advice beside full sweeps: how good is what ``ncfbench advise`` recommends after a tenth of the
time?

    make bench-advice                                 # goes on where it was stopped
    python benchmarks/bench_advice.py --cells 'dense/*,citeulike/cnn-sg' --json FILE
    python benchmarks/bench_advice.py --quick         # two tiny cells, to try it out

Each cell is one question. A full sweep trains every candidate, those too that advice would leave
out, to the target or to the end of the same training clock; ``ncfbench advise`` gets the same
question and a tenth of the sweep's time. Both are processes of their own and compile everything
themselves. Both use the same seed: the question is what the race loses by stopping early, not what
another seed would say.

Two parts need a quiet machine and come first: the timing with which a sweep begins, and the race.
``--races-only`` ends there, and ``--resume`` goes on, whatever else the machine does then.

- Regret: the time to the target of the recommended arm over that of the best arm, both from the
  sweep's records. The target is the lowest loss that any baseline arm of the sweep reaches in the
  first two thirds of the clock (``advice_table.target_level`` says why).
- Rank: Spearman's correlation between advice's order of the arms that raced and the sweep's.
- Time: wall time of advice over that of the sweep, in per cent. The sweep's counts, after its
  timing, no probe and no evaluation, but each arm to the horizon; advice's counts everything.

The verdict: a regret of at most 1.15 in nine of ten cells and of at most 1.5 in all; in every cell
a rank correlation of at least 0.8 and at most a tenth of the time. Results are kept after each
cell, with the environment and the fingerprints of data and code. After a change of the race alone
the sweeps are kept. Exit codes: 0 if the verdict is met, 3 if a data set is missing, 6 if it is
missed or a process failed, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advice_cells import CELLS, QUICK, SYNTHETIC, Cell
from advice_sweep import read_arms, read_paces, sweep_seconds
from advice_table import SHARE, compare, complaints, shortcomings, show
from cell_files import (
    FOLDER,
    RESULTS,
    Result,
    choose_cells,
    code_fingerprint,
    default_folder,
    missing_data,
    process_failed,
    put_cell,
    read_result,
    run_and_show,
    write_result,
)

import ncfbench
from ncfbench.advice.state import read_state
from ncfbench.data.store import load, read_manifest
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, NcfbenchError
from ncfbench.storage import tables
from ncfbench.timing import allocator, environment

RESULT = RESULTS / "advice-cpu.json"
HEAD = {"benchmark": "advice", "format": 1}
AFTER_TRAINING = ("advice", "reporting", "cli")
"""Rooms that a sweep's records do not depend on, once its candidates are listed."""
OWN_FILES = [FOLDER / f"advice_{part}.py" for part in ("cells", "sweep", "table")]
START_SECONDS = 6.0
"""Left out of the budget for the start of the process and for printing the answer."""
CACHE = "NCFBENCH_CACHE_DIR"
RACED = "raced.json"
"""The budget of a race that has ended, in the cell's folder."""


def measure(
    name: str, cell: Cell, home: Path, data_dir: Path, *, races_only: bool = False
) -> dict[str, Any] | None:
    """Time the sweep, ask for advice, sweep, and return the figures of a cell; what is done already
    is kept.

    Args:
        home: the cell's folder.
        races_only: return None before the sweep, whatever there is.

    Raises:
        CheckFailedError: the sweep or advice failed; the message ends with its last lines.
        KeyboardInterrupt: interrupted; the same call continues.
    """
    sweep, places = home / "sweep", [f"--data-dir={data_dir}", f"--folder={home / 'sweep'}"]
    command = [sys.executable, str(FOLDER / "advice_sweep.py"), name, *places]
    if read_paces(sweep) is None:
        run_part(name, "sweep", [*command, "--time-only"], home)
    state = read_state(sweep)
    assert state is not None
    if not (home / RACED).exists():
        budget = max(budget_of(sweep_seconds(state, sweep)), cell.least_budget_seconds)
        words = [sys.executable, "-m", "ncfbench", *cell.words, "--json", f"--budget={budget:.0f}s"]
        run_part(name, "advice", [*words, f"--data-dir={data_dir}", f"--runs-dir={home}"], home)
        tables.write_json(home / RACED, budget)
    if races_only:
        return None
    if not state.is_over:
        run_part(name, "sweep", command, home)
        state = read_state(sweep)
        assert state is not None
    arms = read_arms(state, sweep, load(data_dir, cell.dataset))
    seconds = seconds_of(home, "advice")
    return {
        "horizon_seconds": state.horizon,
        "sweep_seconds": round(state.spent_seconds, 1),
        "budget_seconds": tables.read_json(home / RACED),
        "advice_seconds": round(seconds, 1),
        "share": seconds / state.spent_seconds,
        **compare(arms, state.horizon, tables.read_json(home / "advice.json")),
    }


def budget_of(sweep_seconds: float) -> float:
    """Return the budget of advice beside a sweep, in whole seconds."""
    return math.floor(SHARE * sweep_seconds - START_SECONDS)


def run_part(name: str, part: str, command: Sequence[str], home: Path) -> None:
    """Run a part of a cell in a process of its own, with a cache of compiled programs of its own.

    The cell's folder keeps its output as ``PART.json``, its messages as ``PART.log``, and the wall
    seconds of all its calls.

    Raises:
        CheckFailedError: it failed.
        KeyboardInterrupt: interrupted. The process, which Ctrl-C reaches too, has saved and ended.
    """
    variables = {**os.environ, CACHE: str(home / f"cache-{part}")}
    before, begin = seconds_of(home, part), time.perf_counter()
    with tables.storage_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with (home / f"{part}.json").open("w") as output, (home / f"{part}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=output, stderr=log, env=variables)
            try:
                exit_code = process.wait()
            except KeyboardInterrupt:
                process.wait()
                exit_code = INTERRUPTED_EXIT_CODE
    spent = before + time.perf_counter() - begin
    tables.write_json(home / f"{part}_seconds.json", spent)
    if exit_code == INTERRUPTED_EXIT_CODE:
        raise KeyboardInterrupt
    if exit_code:
        messages = (home / f"{part}.log").read_text(encoding="utf-8", errors="replace")
        raise process_failed(f"{name}: the process of its {part}", exit_code, messages)


def seconds_of(home: Path, part: str) -> float:
    """Return the wall seconds of all calls of a part so far."""
    path = home / f"{part}_seconds.json"
    return float(tables.read_json(path)) if path.exists() else 0.0


def run(arguments: argparse.Namespace) -> list[NcfbenchError]:
    """Measure the cells that the arguments ask for, and return what went wrong.

    Raises:
        UsageError: no cell has such a name, or the file is no result of this benchmark.
        DataError: a file cannot be read or written.
    """
    cells = grid(arguments)
    chosen = choose_cells(arguments.cells, cells)
    result = read_result(arguments.json, HEAD)
    described, code = environment.describe(), code_fingerprint(*OWN_FILES)
    of_sweep = code_fingerprint(without=AFTER_TRAINING)
    problems: list[NcfbenchError] = []
    missing: dict[str, list[str]] = {}
    for number, name in enumerate(chosen, 1):
        fingerprint = prepared(cells[name].dataset, arguments.data_dir)
        if fingerprint is None:
            missing.setdefault(cells[name].dataset, []).append(name)
            continue
        made_of = {
            "environment_key": described["key"],
            "code": code,
            "data_fingerprint": fingerprint,
        }
        said = f"{name} ({number} of {len(chosen)})"
        if arguments.resume and is_kept(result, name, made_of):
            print(f"{said}: kept", file=sys.stderr)
            continue
        print(f"{said}: measuring", file=sys.stderr)
        home = arguments.runs_dir / name.replace("/", "-")
        try:
            question = {**made_of, "code": of_sweep, "cell": repr(cells[name])}
            begin_in(home, question, code, resume=arguments.resume)
            figures = measure(
                name, cells[name], home, arguments.data_dir, races_only=arguments.races_only
            )
        except CheckFailedError as error:
            print(f"Error: {error}", file=sys.stderr)
            problems.append(error)
            continue
        if figures is None:
            print(f"{said}: raced", file=sys.stderr)
            continue
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        found = {"cell": name, **made_of, "time": when, **figures}
        put_cell(result, found, described, cells)
        write_result(arguments.json, result, "arms")
        print(f"{said}: {', '.join(shortcomings(found)) or 'met'}", file=sys.stderr)
    for dataset, names in missing.items():
        problems.append(missing_data(dataset, names, arguments.data_dir))
        print(f"Error: {problems[-1]}", file=sys.stderr)
    return problems


def grid(arguments: argparse.Namespace) -> Mapping[str, Cell]:
    """Return the cells that can be chosen, by name."""
    return QUICK if arguments.quick else CELLS


def prepared(dataset: str, data_dir: Path) -> str | None:
    """Return a data set's fingerprint, or None if it is missing; synthetic ones are made first.

    Raises:
        UsageError: there is other data of that name.
    """
    if dataset in SYNTHETIC:
        made = ncfbench.prepare(
            "synthetic",
            name=dataset,
            data_dir=data_dir,
            say=lambda text: print(text, file=sys.stderr),
            **SYNTHETIC[dataset],
        )
        return made.fingerprint
    manifest = read_manifest(data_dir, dataset)
    return None if manifest is None else str(manifest["fingerprint"])


def is_kept(result: Result, name: str, made_of: Mapping[str, str]) -> bool:
    """Return whether a result has a cell of the same environment, code and data."""
    return any(
        each["cell"] == name and all(each[key] == value for key, value in made_of.items())
        for each in result["cells"]
    )


def begin_in(home: Path, sweep: Mapping[str, str], code: str, *, resume: bool) -> None:
    """Make the folder of a cell; unless it is to be resumed, what it holds is removed, and so is
    what another environment, code or data made. A change of the race alone removes the race alone.

    Args:
        sweep: what the sweep is made of.
        code: fingerprint of all code.
    """
    path = home / "made_of.json"
    before = tables.read_json(path) if resume and path.exists() else {}
    if before.get("sweep") != sweep:
        shutil.rmtree(home, ignore_errors=True)
    elif before["code"] != code:
        shutil.rmtree(home / "advice", ignore_errors=True)
        for made in (*home.glob("*advice*"), *home.glob(RACED)):
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    with tables.storage_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    tables.write_json(path, {"sweep": dict(sweep), "code": code})


def show_kept(arguments: argparse.Namespace) -> bool:
    """Print the cells that are kept, and return whether they meet the verdict."""
    result = read_result(arguments.json, HEAD)
    chosen = choose_cells(arguments.cells, grid(arguments))
    cells = [each for each in result["cells"] if each["cell"] in chosen]
    show(cells, result["environments"])
    return not complaints(cells)


def main(words: Sequence[str] | None = None) -> None:
    """Parse, measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, default=default_folder("data_dir"))
    parser.add_argument(
        "--runs-dir",
        type=Path,
        default=default_folder("runs_dir") / "bench-advice",
        help="a folder of runs for each cell",
    )
    parser.add_argument("--cells", default="*", help="names or patterns, separated by commas")
    parser.add_argument(
        "--quick", action="store_true", help="two tiny cells instead, of a minute each"
    )
    parser.add_argument("--json", type=Path, default=RESULT, metavar="FILE")
    parser.add_argument(
        "--races-only",
        action="store_true",
        help="end each cell before its sweep: what is left needs no quiet machine",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep cells that were measured in this environment, with this code and these data,"
        " and go on with the one that was interrupted",
    )
    arguments = parser.parse_args(words)
    run_and_show(lambda: run(arguments), lambda: show_kept(arguments))


if __name__ == "__main__":
    allocator.restart()
    main()
