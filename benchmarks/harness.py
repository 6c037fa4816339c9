"""The harness of the benchmarks: cells, results in JSON, tables.

A benchmark is a :class:`Benchmark`: it names its cells, measures one, and makes the tables of those
that are kept. The file is written after each cell. ``--resume`` keeps the cells that were measured
with the same settings, environment, commit and data.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from ncfbench.config import Locations
from ncfbench.data import open_dataset
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    CheckFailedError,
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

Found: TypeAlias = dict[str, Any]
"""Figures of a cell, with its ``cell``, ``settings``, ``rounds``, ``environment_key``, ``code``,
``data_fingerprint`` and ``time``.
"""


class Benchmark(ABC):
    """A grid of cells, their measurement and their tables. Its module's docstring is its help.

    Attributes:
        options: default and help of each option beside those of all benchmarks. The type is the
            default's; an empty list takes an option several times.
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
        """Return what can be measured, by name. The data set of a cell is its ``dataset``, or else
        that of the options.
        """

    @abstractmethod
    def measure(self, name: str, cell: Any, options: argparse.Namespace) -> Found:
        """Return the figures of a cell."""

    @abstractmethod
    def tables(
        self, cells: Sequence[Found], environments: Mapping[str, Any]
    ) -> Iterable[Table | str]:
        """Return tables and lines about cells that are kept; environments are described by key."""

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
        add("--rounds", type=int, default=self.rounds, help="of a cell (default %(default)s)")
        add("--json", type=Path, metavar="FILE", default=self.file, help="keep the results here")
        add("--resume", action="store_true", help="keep what FILE has of the same everything")
        add("--show", action="store_true", help="print what FILE holds, and measure nothing")
        add("--data-dir", type=Path, default=Locations.of().data_dir)
        for name, (default, text) in self.options.items():
            kind: dict[str, Any] = {"type": type(default)}
            if isinstance(default, bool | list):
                kind = {"action": "append" if isinstance(default, list) else "store_true"}
            add(f"--{name.replace('_', '-')}", default=default, help=text, **kind)
        options = parser.parse_args(words)
        if (options.resume or options.show) and not options.json:
            parser.error("--resume and --show need --json FILE.")
        return options

    def _measure_all(
        self,
        cells: Mapping[str, Any],
        result: Found,
        options: argparse.Namespace,
        problems: list[NcfbenchError],
    ) -> None:
        described = environment.describe()
        same = {
            "settings": {key: getattr(options, key) for key in {*self.options} - {*self.places}},
            "environment_key": described["key"],
            "code": described["commit"],
        }
        for number, (name, cell) in enumerate(cells.items(), 1):
            wanted, begin = {"cell": name, **same}, time.perf_counter()
            try:
                dataset = getattr(cell, "dataset", getattr(options, "dataset", None))
                if dataset is not None:
                    opened = open_dataset(dataset, data_dir=options.data_dir)
                    wanted["data_fingerprint"] = opened.fingerprint
                is_kept = options.resume and any(
                    found["rounds"] >= options.rounds and wanted.items() <= found.items()
                    for found in result["cells"]
                )
                say(f"{name} ({number} of {len(cells)}): {'kept' if is_kept else 'measuring'}")
                if is_kept:
                    continue
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
            rows = {found["cell"]: found for found in result["cells"]}
            rows[name] = {**wanted, **when, **figures}
            ordered = dict.fromkeys([*cells, *rows])
            result["cells"] = [rows[key] for key in ordered if key in rows]
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
    chosen = {name for pattern in wanted for name in fnmatch.filter(cells, pattern)}
    return {name: cell for name, cell in cells.items() if name in chosen}


def say(text: str) -> None:
    """Show a message."""
    print(text, file=sys.stderr, flush=True)


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
    return result


def write_result(path: Path, result: Found) -> None:
    """Write a result, a line for each cell, with the environments that its cells name.

    Raises:
        DataError: the file cannot be written.
    """
    used = {cell["environment_key"] for cell in result["cells"]}
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
        where = environments[key]
        jax = where["packages"]["jax"]
        yield f"{where['cpu']}, {where['cores']} cores, jax {jax}, environment {key}."
    times = sorted(found["time"] for found in cells)
    yield f"Measured {times[0]} to {times[-1]}."
    for kind, what in (("environment_key", "environment"), ("code", "source code")):
        if len({found[kind] for found in cells}) > 1:
            yield f"These cells are not of one {what}: measure them again to compare them."
