"""The harness of the benchmarks: cells, arms in turn, processes apart, results in JSON, tables.

A benchmark is a :class:`Benchmark`: it names its cells, measures one, and makes the tables of those
that are kept. The file is written after each cell. ``--resume`` keeps the cells that were measured
with the same settings, environment, code and data.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import shlex
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from measuring import ncfbench

from ncfbench.config import Locations
from ncfbench.data.store import read_manifest
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    CheckFailedError,
    DataError,
    NcfbenchError,
    UsageError,
)
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Table
from ncfbench.storage import tables
from ncfbench.timing import environment

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
CITEULIKE = "citeulike --text title,tags --min-count 3"
TINY = "bench-tiny"
"""The data set of ``--quick``."""
PREPARE = {
    "citeulike": f"{CITEULIKE} --max-length 40",
    "movielens": "custom --links links.csv.gz --items items.csv --lsa 0 --name movielens"
    "  # MovieLens 1M with plots; columns user,item and item,title,genres,plot",
    TINY: "synthetic --users 120 --items 400 --links 1500",
}
"""Words after ``ncfbench prepare``, by data set. Synthetic ones are made where they are missing."""

Found: TypeAlias = dict[str, Any]
"""Figures of a cell, with its ``cell``, ``settings``, ``rounds``, ``environment_key``, ``code``,
``data_fingerprint`` and ``time``.
"""


class Benchmark(ABC):
    """A grid of cells, their measurement and their tables. Its module's docstring is its help.

    Attributes:
        options: default and help of each option beside those of all benchmarks. The type is the
            default's; an empty list takes an option several times, None any text.
        places: options that change nothing that is measured.
        file: where results are kept by default.
        rounds: of a cell, by default.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, tuple[Any, str]]] = {}
    places: ClassVar[Sequence[str]] = ()
    file: ClassVar[Path | None] = None
    rounds: ClassVar[int] = 5

    @abstractmethod
    def cells(self, options: argparse.Namespace) -> Mapping[str, Any]:
        """Return what can be measured, by name; with ``options.quick`` cells of a moment.

        The data set of a cell is its ``dataset``, or else that of the options.
        """

    @abstractmethod
    def measure(self, name: str, cell: Any, options: argparse.Namespace) -> Found:
        """Return the figures of a cell."""

    @abstractmethod
    def tables(
        self, cells: Sequence[Found], environments: Mapping[str, Any]
    ) -> Iterable[Table | str]:
        """Return tables and lines about cells that are kept.

        Args:
            environments: descriptions by key.
        """

    def missed(self, cells: Sequence[Found]) -> list[str]:
        """Return the targets that are missed, a sentence each."""
        return []

    def main(self, words: Sequence[str] | None = None) -> None:
        """Parse, measure, keep, and print.

        Raises:
            SystemExit: with the code of the first thing that went wrong, 6 where a target is
                missed, 130 if it was interrupted.
        """
        options = self._parse(words)
        problems: list[NcfbenchError] = []
        interrupted = False
        try:
            result = read_result(options.json, self.name)
            cells = {} if options.show else choose_cells(options.cells, self.cells(options))
            self._measure_all(cells, result, options, problems)
        except KeyboardInterrupt:
            interrupted = True
        except NcfbenchError as error:
            say(f"Error: {error}")
            raise SystemExit(error.exit_code) from error
        kept = [found for found in result["cells"] if options.show or found["cell"] in cells]
        missed = self.missed(kept) if kept else []
        console = make_console()
        for part in self.tables(kept, result["environments"]) if kept else ():
            print_table(console, part) if isinstance(part, Table) else console.print(part)
        if interrupted:
            say("Interrupted; the finished cells are kept. Go on with --resume.")
            raise SystemExit(INTERRUPTED_EXIT_CODE)
        if problems:
            raise SystemExit(problems[0].exit_code)
        if missed:
            say("\n".join(["Missed:", *missed]))
            raise SystemExit(CheckFailedError.exit_code)

    def _parse(self, words: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            description=sys.modules[type(self).__module__].__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = parser.add_argument
        add("--cells", default="*", help="names or patterns, separated by commas")
        add("--rounds", type=int, help=f"of a cell (default {self.rounds})")
        add("--quick", action="store_true", help="tiny cells, to try it out")
        add("--json", type=Path, metavar="FILE", default=self.file, help="keep the results here")
        add("--resume", action="store_true", help="keep what FILE has of the same everything")
        add("--show", action="store_true", help="print what FILE holds, and measure nothing")
        add("--data-dir", type=Path, default=Locations.of().data_dir)
        for name, (default, text) in self.options.items():
            kind: dict[str, Any] = {"type": str if default is None else type(default)}
            if isinstance(default, bool | list):
                kind = {"action": "append" if isinstance(default, list) else "store_true"}
            add(f"--{name.replace('_', '-')}", default=default, help=text, **kind)
        options = parser.parse_args(words)
        if (options.resume or options.show) and not options.json:
            parser.error("--resume and --show need --json FILE.")
        options.rounds = options.rounds or (2 if options.quick else self.rounds)
        return options

    def _measure_all(
        self,
        cells: Mapping[str, Any],
        result: Found,
        options: argparse.Namespace,
        problems: list[NcfbenchError],
    ) -> None:
        described, code = environment.describe(), code_fingerprint(self)
        given = {name: getattr(options, name) for name in self.options}
        for number, (name, cell) in enumerate(cells.items(), 1):
            wanted = {
                "cell": name,
                "settings": {each: given[each] for each in given if each not in self.places},
                "environment_key": described["key"],
                "code": code,
            }
            said, begin = f"{name} ({number} of {len(cells)})", time.perf_counter()
            try:
                dataset = getattr(cell, "dataset", getattr(options, "dataset", None))
                if dataset is not None:
                    wanted["data_fingerprint"] = prepared(dataset, options.data_dir)
                if options.resume and _is_kept(result, wanted, options.rounds):
                    say(f"{said}: kept")
                    continue
                say(f"{said}: measuring")
                figures = self.measure(name, cell, options)
            except NcfbenchError as error:
                say(f"Error: {name}: {error}")
                problems.append(error)
                continue
            when = {
                "rounds": options.rounds,
                "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "wall_seconds": round(time.perf_counter() - begin, 1),
            }
            _put(result, {**wanted, **when, **figures}, list(cells))
            result["environments"][described["key"]] = described
            if options.json:
                write_result(options.json, result)


def choose_cells(patterns: str, cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells whose names match any of some patterns, separated by commas.

    Raises:
        UsageError: a pattern matches none.
    """
    wanted = [pattern.strip() for pattern in patterns.split(",")]
    for pattern in wanted:
        if not fnmatch.filter(cells, pattern):
            raise UsageError(f"--cells: no cell {pattern!r}. Valid: {', '.join(cells)}.")
    return {
        name: cell
        for name, cell in cells.items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in wanted)
    }


def prepared(dataset: str, data_dir: Path) -> str:
    """Return a data set's fingerprint; a synthetic one of :data:`PREPARE` is made if it is missing.

    Raises:
        DataError: it is missing; the message has the command that prepares it.
    """
    given, hash_sign, comment = PREPARE.get(dataset, dataset).partition("  #")
    words = [*given.split(), f"--data-dir={data_dir}"]
    if given.startswith("synthetic") and read_manifest(data_dir, dataset) is None:
        words.append(f"--name={dataset}")
        ncfbench(["prepare", *words])
    manifest = read_manifest(data_dir, dataset)
    if manifest is None:
        line = shlex.join(["ncfbench", "prepare", *words]) + hash_sign + comment
        raise DataError(f"no data set {dataset} in {data_dir}. Prepare it:\n  {line}")
    return str(manifest["fingerprint"])


def code_fingerprint(benchmark: Benchmark) -> str:
    """Return twelve hexadecimal digits of the source of the program and of a benchmark."""
    own, package = (
        Path(sys.modules[name].__file__ or "") for name in (type(benchmark).__module__, "ncfbench")
    )
    digest = hashlib.sha256()
    for path in [*sorted(package.parent.rglob("*.py")), own]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def say(text: str) -> None:
    """Show a message."""
    print(text, file=sys.stderr, flush=True)


# --- the file


def read_result(path: Path | None, name: str) -> Found:
    """Return what a file of a benchmark holds; an empty result where there is none.

    Raises:
        UsageError: it is of another benchmark.
        DataError: it cannot be read.
    """
    if path is None or not path.exists():
        return {"benchmark": name, "environments": {}, "cells": []}
    result: Any = tables.read_json(path)
    if not isinstance(result, dict) or result.get("benchmark") != name:
        raise UsageError(f"{path} is no result of this benchmark. Use another file.")
    return {"environments": {}, **result}


def _is_kept(result: Found, wanted: Mapping[str, Any], rounds: int) -> bool:
    return any(
        found.get("rounds", 0) >= rounds
        and all(found.get(key) == value for key, value in wanted.items())
        for found in result["cells"]
    )


def _put(result: Found, found: Found, order: Sequence[str]) -> None:
    """Put a cell in the place of the same one, in the order of the grid."""

    def place(cell: Found) -> int:
        return order.index(cell["cell"]) if cell["cell"] in order else len(order)

    others = [cell for cell in result["cells"] if cell["cell"] != found["cell"]]
    result["cells"] = sorted([*others, found], key=place)


def write_result(path: Path, result: Found) -> None:
    """Write a result, a line for each cell, with the environments that its cells name.

    Raises:
        DataError: the file cannot be written.
    """
    used = {cell.get("environment_key") for cell in result["cells"]}
    known = {key: value for key, value in result["environments"].items() if key in used}
    cells = ",\n".join(map(json.dumps, result["cells"]))
    head = json.dumps({"benchmark": result["benchmark"], "environments": known})
    with tables.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tables.atomic_path(path) as temporary:
        temporary.write_text(f'{head[:-1]}, "cells": [\n{cells}\n]}}\n', encoding="utf-8")


def environment_notes(
    cells: Sequence[Found], environments: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield where and when cells were measured, and whether environment and code were the same."""
    for key in dict.fromkeys(found["environment_key"] for found in cells):
        if key in environments:
            where = environments[key]
            jax = where["packages"]["jax"]
            yield f"{where['cpu']}, {where['cores']} cores, jax {jax}, environment {key}."
    times = sorted(found["time"] for found in cells)
    yield f"Measured {times[0]} to {times[-1]}."
    for kind, what in (("environment_key", "environment"), ("code", "source code")):
        if len({found[kind] for found in cells}) > 1:
            yield f"These cells are not of one {what}: measure them again to compare them."
