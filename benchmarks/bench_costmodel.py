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

Exit codes: 0 if all cells are met, 3 if a data set is missing, 6 if a cell is missed or its profile
failed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from harness import RESULTS, TINY, Benchmark, Found, environment_notes
from measuring import ncfbench

from ncfbench.catalog import find_sampler
from ncfbench.profiling.cost_model import DRIFT_TOLERANCE, RESIDUAL_TOLERANCE
from ncfbench.reporting.table import Cell as Text
from ncfbench.reporting.table import Col, Style, Table, under
from ncfbench.storage import schemas, tables
from ncfbench.timing import allocator

QUANTITIES = {
    "step ms": ("{}_step_iteration_seconds", 1e3),
    "full ms": ("{}_full_iteration_seconds", 1e3),
    "step speedup": ("{}_step_speedup", 1),
    "full speedup": ("{}_full_speedup", 1),
}
"""Predicted quantities: columns of the cost model, and the factor they are shown with."""
KEPT = [
    *("sampler", "responsible", "drift"),
    *(column.format(of) for column, _ in QUANTITIES.values() for of in ("predicted", "measured")),
]
"""Columns of the cost model that are kept."""


class Cell(NamedTuple):
    """One profile of the grid: its data set, and the other options of ``ncfbench profile``."""

    dataset: str
    options: tuple[str, ...]


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
QUICK = {"tiny/mf": Cell(TINY, ("--encoder=mf", "--batch-size=32", "--samplers=iid,strat-ns"))}


class CostModel(Benchmark):
    """A cell for each profile and pass; ``samplers`` are its rows of the cost model."""

    name, rounds, file = "costmodel", 7, RESULTS / "costmodel-cpu.json"

    options: ClassVar = {"pass": (1, "measure the cells once more, beside the first pass")}
    identity = ("pass",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, Cell]:
        return QUICK if options.quick else CELLS

    def measure(self, name: str, cell: Cell, options: argparse.Namespace) -> Found:
        with tempfile.TemporaryDirectory(prefix="ncfbench-costmodel-") as folder:
            words = ["profile", f"--dataset={cell.dataset}", *cell.options]
            words += [f"--rounds={max(options.rounds, 3)}", f"--data-dir={options.data_dir}"]
            ncfbench([*words, f"--runs-dir={folder}"])
            rows = tables.read_rows(Path(folder) / "costmodel.parquet", schemas.COSTMODEL)
        facts = {name: rows[0][name] for name in ("environment_key", "rounds")}
        return {**facts, "samplers": [{name: row[name] for name in KEPT} for row in rows]}

    def missed(self, cells: Sequence[Found]) -> list[str]:
        verdicts = {f"{cell['cell']}, pass {cell['pass']}": verdict_of(cell) for cell in cells}
        return [f"{name}: {text}" for name, text in verdicts.items() if text[:3] != "met"]

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> list[Table]:
        rounds = sorted({cell["rounds"] for cell in cells})
        notes = [f"{' and '.join(map(str, rounds))} rounds."]
        notes += environment_notes(cells, environments)
        tolerance = f"{100 * RESIDUAL_TOLERANCE:.0f} %"
        title = f"The cost model beside the clock: met where all four are within {tolerance}"
        rows = [
            {**row, "cell": cell["cell"], "pass": cell["pass"]}
            for cell in cells
            for row in cell["samplers"]
        ]
        passes = sorted({cell["pass"] for cell in cells})
        columns = [Col("cell", "cell")]
        columns += [Col(f"pass {number}", str(number), wraps=True) for number in passes]
        verdicts: dict[str, Found] = {}
        for cell in cells:
            row = verdicts.setdefault(cell["cell"], dict.fromkeys(map(str, passes)))
            verdict = verdict_of(cell)
            style: Style = "good" if verdict.startswith("met") else "plain"
            row |= {"cell": cell["cell"], str(cell["pass"]): Text(verdict, style)}
        return [
            Table.of(title, COLUMNS, rows, notes, labels=3, grouped=2),
            Table.of("Verdicts", columns, verdicts.values()),
        ]


def off(row: Mapping[str, Any], quantity: str) -> float:
    """Return predicted over measured, less 1."""
    column = QUANTITIES[quantity][0]
    return float(row[column.format("predicted")] / row[column.format("measured")] - 1)


def is_met(row: Mapping[str, Any]) -> bool:
    """Return whether all that is predicted of a sampler is near what was measured."""
    return all(abs(off(row, quantity)) <= RESIDUAL_TOLERANCE for quantity in QUANTITIES)


def is_noisy(row: Mapping[str, Any]) -> bool:
    """Return whether the second half of the rounds took other times than the first."""
    return bool(abs(row["drift"] - 1) > DRIFT_TOLERANCE)


def verdict_of(cell: Found) -> str:
    """Return ``met``, or the samplers of a cell that are missed, with the worst error of each."""
    rows = cell["samplers"]
    missed = [row for row in rows if not is_met(row)]
    noisy = ", noisy" if any(map(is_noisy, rows)) else ""
    if not missed:
        worst = max((off(row, quantity) for row in rows for quantity in QUANTITIES), key=abs)
        return f"met, worst {100 * worst:+.0f} %{noisy}"
    parts = []
    for row in missed:
        errors = {quantity: off(row, quantity) for quantity in QUANTITIES}
        _, worst_of = max((abs(error), quantity) for quantity, error in errors.items())
        parts.append(
            f"{row['sampler']} {worst_of.removesuffix(' ms')} {100 * errors[worst_of]:+.0f} %"
        )
    return f"missed: {', '.join(parts)}{noisy}"


def shown_error(quantity: str) -> Callable[[Found], Text]:
    """Return the cell of a quantity's error in per cent."""

    def cell(row: Found) -> Text:
        error = off(row, quantity)
        return Text(f"{100 * error:+.1f}", "bad" if abs(error) > RESIDUAL_TOLERANCE else "plain")

    return cell


COLUMNS = [
    Col("cell", "cell"),
    Col("pass", "pass"),
    Col("sampler", lambda row: find_sampler(row["sampler"]).title),
    *(
        col
        for quantity, (column, unit) in QUANTITIES.items()
        for col in under(
            quantity,
            Col("predicted", column.format("predicted"), ".2f", unit),
            Col("measured", column.format("measured"), ".2f", unit),
            Col("off %", shown_error(quantity)),
        )
    ),
    Col(
        "verdict",
        lambda row: Text("met", "good") if is_met(row) else Text("missed", "bad"),
        wraps=True,
    ),
    Col("most due to", lambda row: "" if is_met(row) else row["responsible"], wraps=True),
    Col("noisy: drift", lambda row: row["drift"] if is_noisy(row) else None, ".2f", absent=""),
]


if __name__ == "__main__":
    allocator.restart()
    CostModel().main()
