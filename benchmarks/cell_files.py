"""Parts that benchmarks of many cells share: the choice of cells, their data, and their results.

A result is a JSON file that is written after each cell, with the environment and the fingerprints
of data and code, so that ``--resume`` knows what is still valid.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ncfbench.config import LOCATION_VARIABLES, Locations
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    CheckFailedError,
    DataError,
    NcfbenchError,
    UsageError,
)
from ncfbench.storage import tables

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
FAILURE_LINES = 12
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
"""The head, ``environments`` by key, and ``cells``, a list of measured cells."""


def choose_cells(patterns: str, names: Iterable[str]) -> list[str]:
    """Return the names that match any of some patterns, separated by commas.

    Raises:
        UsageError: a pattern matches none.
    """
    names, wanted = list(names), [pattern.strip() for pattern in patterns.split(",")]
    for pattern in wanted:
        if not fnmatch.filter(names, pattern):
            raise UsageError(f"--cells: no cell {pattern!r}. Valid: {', '.join(names)}.")
    return [name for name in names if any(fnmatch.fnmatch(name, each) for each in wanted)]


def default_folder(kind: Literal["data_dir", "runs_dir"]) -> Path:
    """Return the folder of data sets or of runs that the commands use."""
    return Path(os.environ.get(LOCATION_VARIABLES[kind]) or getattr(Locations(), kind))


def missing_data(dataset: str, cells: Iterable[str], data_dir: Path) -> DataError:
    """Return the error for cells whose data set is missing, with the command that prepares it."""
    command, hash_sign, comment = PREPARE[dataset].partition("  #")
    command = f"{command} --data-dir {shlex.quote(str(data_dir))}{hash_sign}{comment}"
    text = f"{', '.join(cells)}: no data set {dataset} in {data_dir}. Prepare it:"
    return DataError(f"{text}\n  {command}")


def process_failed(what: str, exit_code: int, messages: str) -> CheckFailedError:
    """Return the error for a process that failed; it ends with the last lines of its messages."""
    last = "\n".join(messages.splitlines()[-FAILURE_LINES:])
    return CheckFailedError(f"{what} ended with {exit_code}:\n{last}")


def code_fingerprint(*more: Path, without: Sequence[str] = ()) -> str:
    """Return twelve hexadecimal digits of the program's source and of more files.

    Args:
        without: rooms of the program that are left out.
    """
    package = Path(sys.modules["ncfbench"].__file__ or "").parent
    digest = hashlib.sha256()
    found = sorted(package.rglob("*.py"))
    own = [path for path in found if path.relative_to(package).parts[0] not in without]
    for path in [*own, *more]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


# --- the file


def read_result(path: Path, head: Mapping[str, Any]) -> Result:
    """Return what a file holds; an empty result where there is none.

    Args:
        head: what the file of this benchmark begins with: its format.

    Raises:
        UsageError: the file is not a result of this benchmark.
        DataError: it cannot be read.
    """
    if not path.exists():
        return {**head, "environments": {}, "cells": []}
    result: Result = tables.read_json(path)
    body = ("environments", "cells")
    if (
        not isinstance(result, dict)
        or any(name not in result for name in body)
        or {name: value for name, value in result.items() if name not in body} != head
    ):
        raise UsageError(f"{path} is no result of this benchmark. Use another file.")
    return result


def put_cell(
    result: Result,
    found: dict[str, Any],
    described: Mapping[str, Any],
    names: Iterable[str],
    *keys: str,
) -> None:
    """Put a cell in the place of the same cell, in the order of the grid.

    Args:
        described: the environment that it was measured in.
        names: of the grid's cells.
        keys: beside its name, what tells a cell from others, such as ``pass``.
    """
    order = {name: place for place, name in enumerate(names)}

    def identity(each: Mapping[str, Any]) -> list[Any]:
        return [order.get(each["cell"], len(order)), each["cell"], *(each[key] for key in keys)]

    others = [each for each in result["cells"] if identity(each) != identity(found)]
    result["cells"] = sorted([*others, found], key=identity)
    used = {each["environment_key"] for each in result["cells"]}
    known = result["environments"] | {described["key"]: dict(described)}
    result["environments"] = {key: value for key, value in known.items() if key in used}


def write_result(path: Path, result: Result, rows: str) -> None:
    """Write a result, a line for each row of a cell.

    Args:
        rows: the name of a cell's list of rows.

    Raises:
        DataError: the file cannot be written.
    """

    def lines(values: Sequence[Any], indent: str) -> str:
        return ",\n".join(indent + json.dumps(value) for value in values)

    cells = []
    for each in result["cells"]:
        head = json.dumps({key: value for key, value in each.items() if key != rows})
        cells.append(f'{head[:-1]}, "{rows}": [\n{lines(each[rows], "  ")}\n]}}')
    body = ",\n".join(cells)
    heads = "".join(
        f"{json.dumps(key)}: {json.dumps(value)},\n"
        for key, value in result.items()
        if key != "cells"
    )
    with tables.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tables.atomic_path(path) as temporary:
        temporary.write_text(f'{{\n{heads}"cells": [\n{body}\n]\n}}\n', encoding="utf-8")


# --- the end


def environment_notes(
    cells: Sequence[Mapping[str, Any]], environments: Mapping[str, Any]
) -> Iterator[str]:
    """Yield where and when cells were measured, and whether all had the same environment and code.

    Args:
        environments: descriptions by key.
    """
    for key in dict.fromkeys(each["environment_key"] for each in cells):
        where = environments.get(key)
        if where is not None:
            yield (
                f"{where['cpu']}, {where['cores']} cores, jax {where['packages']['jax']},"
                f" environment {key}."
            )
    times = sorted(each["time"] for each in cells)
    yield f"Measured {times[0]} to {times[-1]}."
    for kind, what in (("environment_key", "environment"), ("code", "source code")):
        if len({each[kind] for each in cells}) > 1:
            yield f"These cells are not of one {what}: measure them again to compare them."


def run_and_show(run: Callable[[], list[NcfbenchError]], show: Callable[[], bool]) -> None:
    """Measure, show all that is kept, and exit with the code of the first thing that went wrong.

    Args:
        run: measures, keeps the results, and returns what went wrong.
        show: prints the results and returns whether they are what they should be.

    Raises:
        SystemExit: anything went wrong, or was interrupted.
    """
    problems: list[NcfbenchError] = []
    interrupted = False
    try:
        problems = run()
    except KeyboardInterrupt:
        interrupted = True
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    is_met = show()
    if interrupted:
        print("Interrupted; the finished cells are kept. Go on with --resume.", file=sys.stderr)
        raise SystemExit(INTERRUPTED_EXIT_CODE)
    if problems:
        raise SystemExit(problems[0].exit_code)
    if not is_met:
        raise SystemExit(CheckFailedError.exit_code)
