"""The cost model beside the clock, over encoders, lengths of texts and data sets: is every
iteration and every speedup predicted within 15 %?

    make bench-costmodel                            # goes on where it was stopped
    make bench-costmodel BENCH_FLAGS="--pass 2"     # once more, beside the first
    python benchmarks/bench_costmodel.py --cells 'citeulike/*,long/cnn' --rounds 3 --json FILE

Each cell is one ``ncfbench profile`` in a process of its own, with a folder of its own. A sampler
is met if its step, its iteration with the sampler at work (full), and the speedups of both over the
baseline are each predicted within 15 % of what the same rounds measured; a cell is met if all its
samplers are. A miss names the part that is responsible for most of it. The machine was noisy where
the second half of the rounds took other times than the first.

Results are kept after each cell, with the environment, the fingerprints of data and code, and the
rows that the table is made of. Exit codes: 0 if all cells are met, 3 if a data set is missing, 6 if
a cell is missed or its profile failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cell_files import (
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
from costmodel_table import Row, is_met, show, verdict_of

from ncfbench.data.store import read_manifest
from ncfbench.errors import CheckFailedError, NcfbenchError
from ncfbench.storage import schemas, tables
from ncfbench.timing import allocator, environment

RESULT = RESULTS / "costmodel-cpu.json"
HEAD = {"format": 1}
DIGITS = 5
"""Significant digits of a number that is kept."""


@dataclass(frozen=True)
class Cell:
    """One profile of the grid."""

    dataset: str
    arguments: tuple[str, ...]
    """Options of ``ncfbench profile`` beside the data set."""


CELLS = {
    "citeulike/cnn-projected": Cell("citeulike", ("--encoder=cnn", "--convolution=projected")),
    "citeulike/cnn-plain": Cell("citeulike", ("--encoder=cnn", "--convolution=plain")),
    "citeulike-20/lstm": Cell("citeulike-20", ("--encoder=lstm",)),
    "citeulike/lstm": Cell("citeulike", ("--encoder=lstm",)),
    "citeulike/mf": Cell("citeulike", ("--encoder=mf",)),
    "citeulike/transformer": Cell(
        "citeulike", ("--encoder=transformer", "--width=64", "--feed-forward=256")
    ),
    "movielens/cnn": Cell("movielens", ("--encoder=cnn",)),
    "long/cnn": Cell("long", ("--encoder=cnn",)),
    "long/lstm": Cell("long", ("--encoder=lstm",)),
}
"""The grid: CiteULike with titles and tags, MovieLens with plots, and made texts of 300 words."""

# --- measuring


def measure(name: str, cell: Cell, rounds: int, data_dir: Path, runs_dir: Path) -> Sequence[Row]:
    """Profile a cell in a process of its own, and return its rows of the cost model.

    Raises:
        CheckFailedError: the profile failed; the message ends with its last lines.
    """
    command = [sys.executable, "-m", "ncfbench", "profile", f"--dataset={cell.dataset}"]
    command += [*cell.arguments, f"--rounds={rounds}"]
    command += [f"--data-dir={data_dir}", f"--runs-dir={runs_dir}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise process_failed(f"{name}: the profile", done.returncode, done.stderr)
    return tables.read_rows(runs_dir / "costmodel.parquet", schemas.COSTMODEL)


def run(arguments: argparse.Namespace) -> list[NcfbenchError]:
    """Measure the cells that the arguments ask for, and return what went wrong.

    Raises:
        UsageError: no cell has such a name, or the file is no result of this benchmark.
        DataError: the file cannot be read or written.
    """
    chosen = choose_cells(arguments.cells, CELLS)
    result = read_result(arguments.json, HEAD)
    described, code = environment.describe(), code_fingerprint()
    problems: list[NcfbenchError] = []
    missing: dict[str, list[str]] = {}
    for number, name in enumerate(chosen, 1):
        cell = CELLS[name]
        manifest = read_manifest(arguments.data_dir, cell.dataset)
        if manifest is None:
            missing.setdefault(cell.dataset, []).append(name)
            continue
        made_of = {
            "environment_key": described["key"],
            "code": code,
            "data_fingerprint": manifest["fingerprint"],
        }
        said = f"{name}, pass {arguments.number} ({number} of {len(chosen)})"
        if arguments.resume and is_kept(result, name, arguments.number, made_of, arguments.rounds):
            print(f"{said}: kept", file=sys.stderr)
            continue
        print(f"{said}: measuring", file=sys.stderr)
        begin = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(prefix="ncfbench-costmodel-") as folder:
                rows = measure(name, cell, arguments.rounds, arguments.data_dir, Path(folder))
        except CheckFailedError as error:
            print(f"Error: {error}", file=sys.stderr)
            problems.append(error)
            continue
        found = {
            "cell": name,
            "pass": arguments.number,
            **made_of,
            "environment_key": rows[0]["environment_key"],
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "wall_seconds": round(time.perf_counter() - begin, 1),
            "rounds": rows[0]["rounds"],
            "samplers": list(map(kept_columns, rows)),
        }
        put_cell(result, found, described, CELLS, "pass")
        write_result(arguments.json, result, "samplers")
        print(f"{said}: {verdict_of(found)}, {found['wall_seconds']:.0f} s", file=sys.stderr)
    for dataset, names in missing.items():
        problems.append(missing_data(dataset, names, arguments.data_dir))
        print(f"Error: {problems[-1]}", file=sys.stderr)
    return problems


def is_kept(
    result: Result, name: str, number: int, made_of: Mapping[str, str], rounds: int
) -> bool:
    """Return whether a result has a cell of the same environment, code and data, with no fewer
    rounds.
    """
    return any(
        each["cell"] == name
        and each["pass"] == number
        and each["rounds"] >= rounds
        and all(each[key] == value for key, value in made_of.items())
        for each in result["cells"]
    )


def kept_columns(row: Row) -> dict[str, Any]:
    """Return what is kept of a row of the cost model: all numbers but those of several devices,
    and the part that is responsible.
    """
    found = {}
    for name, value in row.items():
        if isinstance(value, float):
            found[name] = float(f"{value:.{DIGITS}g}")
        elif type(value) is int or name in ("sampler", "responsible"):
            found[name] = value
    return {name: value for name, value in found.items() if name not in ("rounds", "links")}


def main(words: Sequence[str] | None = None) -> None:
    """Parse, measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, default=default_folder("data_dir"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cells", default="*", help="names or patterns, separated by commas")
    parser.add_argument("--pass", type=int, default=1, dest="number", metavar="N")
    parser.add_argument("--json", type=Path, default=RESULT, metavar="FILE")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep cells of this pass that were measured in this environment, with this code and"
        " these data",
    )
    arguments = parser.parse_args(words)
    run_and_show(lambda: run(arguments), lambda: show_kept(arguments))


def show_kept(arguments: argparse.Namespace) -> bool:
    """Print the cells that are kept, and return whether all of this pass are met."""
    result = read_result(arguments.json, HEAD)
    chosen = choose_cells(arguments.cells, CELLS)
    cells = [each for each in result["cells"] if each["cell"] in chosen]
    show(cells, result["environments"])
    own = [row for each in cells if each["pass"] == arguments.number for row in each["samplers"]]
    return all(map(is_met, own))


if __name__ == "__main__":
    allocator.restart()
    main()
