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
import fnmatch
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel_table import Row, is_met, show, verdict_of

from ncfbench.config import Locations
from ncfbench.config.layers import LOCATION_VARIABLES
from ncfbench.data.store import read_manifest
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    CheckFailedError,
    DataError,
    NcfbenchError,
    UsageError,
)
from ncfbench.storage import schemas, tables
from ncfbench.timing import allocator, environment

FOLDER = Path(__file__).resolve().parent
RESULT = FOLDER / "results" / "costmodel-cpu.json"
FORMAT = 1
DIGITS = 5
"""Significant digits of a number that is kept."""
FAILURE_LINES = 12


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
    "citeulike/transformer": Cell("citeulike", ("--encoder=transformer_plugin:Transformer",)),
    "movielens/cnn": Cell("movielens", ("--encoder=cnn",)),
    "long/cnn": Cell("long", ("--encoder=cnn",)),
    "long/lstm": Cell("long", ("--encoder=lstm",)),
}
"""The grid: CiteULike with titles and tags, MovieLens with plots, and made texts of 300 words."""
_CITEULIKE = "ncfbench prepare citeulike --text title,tags --min-count 3"
PREPARE = {
    "citeulike": f"{_CITEULIKE} --max-length 40",
    "citeulike-20": f"{_CITEULIKE} --max-length 20 --name citeulike-20",
    "movielens": (
        "ncfbench prepare custom --links links.csv.gz --items items.csv --name movielens"
        "  # MovieLens 1M with plots; columns user,item and item,title,genres,plot"
    ),
    "long": (
        "ncfbench prepare synthetic --name long --users 5551 --items 16980 --links 205000"
        " --min-words 90 --max-length 300 --vocabulary-size 23000"
    ),
}
"""How each data set is prepared."""

Result = dict[str, Any]
"""``format``, ``environments`` by key, and ``cells``, a list of measured cells."""


# --- measuring


def measure(name: str, cell: Cell, rounds: int, data_dir: Path, runs_dir: Path) -> Sequence[Row]:
    """Profile a cell in a process of its own, and return its rows of the cost model.

    Raises:
        CheckFailedError: the profile failed; the message ends with its last lines.
    """
    command = [sys.executable, "-m", "ncfbench", "profile", f"--dataset={cell.dataset}"]
    command += [*cell.arguments, f"--rounds={rounds}"]
    command += [f"--data-dir={data_dir}", f"--runs-dir={runs_dir}"]
    path = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-FAILURE_LINES:])
        raise CheckFailedError(f"{name}: the profile ended with {done.returncode}:\n{last}")
    return tables.read_rows(runs_dir / "costmodel.parquet", schemas.COSTMODEL)


def run(arguments: argparse.Namespace) -> list[NcfbenchError]:
    """Measure the cells that the arguments ask for, and return what went wrong.

    Raises:
        UsageError: no cell has such a name, or the file is none of ours.
        DataError: the file cannot be read or written.
    """
    chosen = choose_cells(arguments.cells)
    result = read_result(arguments.json)
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
        add(result, found, described)
        write(arguments.json, result)
        print(f"{said}: {verdict_of(found)}, {found['wall_seconds']:.0f} s", file=sys.stderr)
    for dataset, names in missing.items():
        text = f"{', '.join(names)}: no data set {dataset} in {arguments.data_dir}. Prepare it:"
        problems.append(DataError(f"{text}\n  {prepare_command(dataset, arguments.data_dir)}"))
        print(f"Error: {problems[-1]}", file=sys.stderr)
    return problems


def choose_cells(patterns: str) -> list[str]:
    """Return the names of the cells that match any of some patterns, separated by commas.

    Raises:
        UsageError: a pattern matches none.
    """
    wanted = [pattern.strip() for pattern in patterns.split(",")]
    for pattern in wanted:
        if not fnmatch.filter(CELLS, pattern):
            raise UsageError(f"--cells: no cell {pattern!r}. Valid: {', '.join(CELLS)}.")
    return [name for name in CELLS if any(fnmatch.fnmatch(name, each) for each in wanted)]


def prepare_command(dataset: str, data_dir: Path) -> str:
    """Return the command that prepares a data set, with the folder where it is looked for."""
    command, hash_sign, comment = PREPARE[dataset].partition("  #")
    return f"{command} --data-dir {shlex.quote(str(data_dir))}{hash_sign}{comment}"


def code_fingerprint() -> str:
    """Return twelve hexadecimal digits of the program's source, the plug-in included."""
    package = Path(sys.modules["ncfbench"].__file__ or "").parent
    digest = hashlib.sha256()
    for path in [*sorted(package.rglob("*.py")), FOLDER / "transformer_plugin.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


# --- the file


def read_result(path: Path) -> Result:
    """Return what a file holds; an empty result where there is none.

    Raises:
        UsageError: the file is not a result of this benchmark.
        DataError: it cannot be read.
    """
    if not path.exists():
        return {"format": FORMAT, "environments": {}, "cells": []}
    result: Result = tables.read_json(path)
    if not isinstance(result, dict) or result.get("format") != FORMAT or "cells" not in result:
        raise UsageError(f"{path} is no result of this benchmark. Use another file.")
    return result


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


def add(result: Result, found: dict[str, Any], described: Mapping[str, Any]) -> None:
    """Put a cell in the place of the same cell of the same pass, in the order of the grid."""
    same = (found["cell"], found["pass"])
    others = [each for each in result["cells"] if (each["cell"], each["pass"]) != same]
    order = list(CELLS)
    result["cells"] = sorted(
        [*others, found],
        key=lambda each: (
            order.index(each["cell"]) if each["cell"] in order else len(order),
            each["pass"],
        ),
    )
    used = {each["environment_key"] for each in result["cells"]}
    known = result["environments"] | {described["key"]: dict(described)}
    result["environments"] = {key: value for key, value in known.items() if key in used}


def write(path: Path, result: Result) -> None:
    """Write a result, a line for each sampler of a cell.

    Raises:
        DataError: the file cannot be written.
    """

    def lines(values: Sequence[Any], indent: str) -> str:
        return ",\n".join(indent + json.dumps(value) for value in values)

    cells = []
    for each in result["cells"]:
        head = json.dumps({key: value for key, value in each.items() if key != "samplers"})
        cells.append(f'{head[:-1]}, "samplers": [\n{lines(each["samplers"], "  ")}\n]}}')
    body = ",\n".join(cells)
    where = json.dumps(result["environments"])
    text = f'{{\n"format": {FORMAT},\n"environments": {where},\n"cells": [\n{body}\n]\n}}\n'
    with tables.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tables.atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def main(words: Sequence[str] | None = None) -> None:
    """Parse, measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(os.environ.get(LOCATION_VARIABLES["data_dir"]) or Locations().data_dir)
    parser.add_argument("--data-dir", type=Path, default=default)
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
    problems: list[NcfbenchError] = []
    interrupted = False
    try:
        problems = run(arguments)
    except KeyboardInterrupt:
        interrupted = True
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    result = read_result(arguments.json)
    chosen = choose_cells(arguments.cells)
    cells = [each for each in result["cells"] if each["cell"] in chosen]
    show(cells, result["environments"])
    if interrupted:
        print("Interrupted; the finished cells are kept. Go on with --resume.", file=sys.stderr)
        raise SystemExit(INTERRUPTED_EXIT_CODE)
    if problems:
        raise SystemExit(problems[0].exit_code)
    own = [row for each in cells if each["pass"] == arguments.number for row in each["samplers"]]
    if not all(map(is_met, own)):
        raise SystemExit(CheckFailedError.exit_code)


if __name__ == "__main__":
    allocator.restart()
    main()
