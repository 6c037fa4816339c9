"""Verdicts and tables of the cost model beside the clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from cell_files import environment_notes

from ncfbench.catalog import find_sampler
from ncfbench.profiling.cost_model import DRIFT_TOLERANCE, RESIDUAL_TOLERANCE
from ncfbench.reporting import table
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Header, Table, columns_of, text_column

Row: TypeAlias = Mapping[str, Any]
"""A sampler's row of :data:`ncfbench.storage.schemas.COSTMODEL`."""
Cell: TypeAlias = Mapping[str, Any]
"""``cell``, ``pass``, ``samplers`` (rows), ``environment_key``, ``code``, ``rounds``, ``time``."""
QUANTITIES = {
    "step ms": ("{}_step_iteration_seconds", 1e3),
    "full ms": ("{}_full_iteration_seconds", 1e3),
    "step speedup": ("{}_step_speedup", 1),
    "full speedup": ("{}_full_speedup", 1),
}
"""Predicted quantities: columns of the cost model, and the factor they are shown with."""


def off(row: Row, quantity: str) -> float:
    """Return predicted over measured, less 1."""
    column = QUANTITIES[quantity][0]
    return float(row[column.format("predicted")] / row[column.format("measured")] - 1)


def is_met(row: Row) -> bool:
    """Return whether all that is predicted of a sampler is near what was measured."""
    return all(abs(off(row, quantity)) <= RESIDUAL_TOLERANCE for quantity in QUANTITIES)


def is_noisy(row: Row) -> bool:
    """Return whether the second half of the rounds took other times than the first."""
    return bool(abs(row["drift"] - 1) > DRIFT_TOLERANCE)


def verdict_of(found: Cell) -> str:
    """Return ``met``, or the samplers of a cell that are missed, with the worst error of each."""
    rows = found["samplers"]
    missed = [row for row in rows if not is_met(row)]
    noisy = ", noisy" if any(map(is_noisy, rows)) else ""
    if not missed:
        worst = max((off(row, each) for row in rows for each in QUANTITIES), key=abs)
        return f"met, worst {100 * worst:+.0f} %{noisy}"
    parts = []
    for row in missed:
        quantity = max(QUANTITIES, key=lambda each, row=row: abs(off(row, each)))  # type: ignore[misc]
        what = quantity.removesuffix(" ms")
        parts.append(f"{row['sampler']} {what} {100 * off(row, quantity):+.0f} %")
    return f"missed: {', '.join(parts)}{noisy}"


def show(cells: Sequence[Cell], environments: Mapping[str, Any]) -> None:
    """Print the table of all samplers, and the verdict of each cell.

    Args:
        environments: descriptions by key.
    """
    if cells:
        console = make_console()
        print_table(console, sampler_table(cells, notes(cells, environments)))
        print_table(console, cell_table(cells))


def sampler_table(cells: Sequence[Cell], notes: Iterable[str]) -> Table:
    """Return predicted and measured numbers: a row for each cell, pass and sampler."""
    rows: list[list[table.Cell | str]] = []
    for each in cells:
        for row in each["samplers"]:
            values: list[table.Cell | str] = []
            for quantity, (column, unit) in QUANTITIES.items():
                values += [
                    f"{unit * row[column.format(way)]:.2f}" for way in ("predicted", "measured")
                ]
                error = off(row, quantity)
                is_bad = abs(error) > RESIDUAL_TOLERANCE
                values.append(table.Cell(f"{100 * error:+.1f}", "bad" if is_bad else "plain"))
            met = is_met(row)
            rows.append(
                [
                    each["cell"],
                    str(each["pass"]),
                    find_sampler(row["sampler"]).title,
                    *values,
                    table.Cell("met", "good") if met else table.Cell("missed", "bad"),
                    "" if met else row["responsible"],
                    f"{row['drift']:.2f}" if is_noisy(row) else "",
                ]
            )
    header: Header = [
        "cell",
        "pass",
        "sampler",
        *(
            column
            for quantity in QUANTITIES
            for column in columns_of(quantity, "predicted", "measured", "off %")
        ),
        text_column("verdict"),
        text_column("most due to"),
        "noisy: drift",
    ]
    tolerance = f"{100 * RESIDUAL_TOLERANCE:.0f} %"
    title = f"The cost model beside the clock: met where all four are within {tolerance}"
    return Table(title, header, rows, notes, labels=3, grouped=2)


def cell_table(cells: Sequence[Cell]) -> Table:
    """Return the verdict of each cell, a column for each pass."""
    passes = sorted({each["pass"] for each in cells})
    rows: list[list[table.Cell | str]] = []
    for name in dict.fromkeys(each["cell"] for each in cells):
        own = {each["pass"]: verdict_of(each) for each in cells if each["cell"] == name}
        texts = [own.get(number, "-") for number in passes]
        rows.append(
            [name, *(table.Cell(text, "good") if text[:3] == "met" else text for text in texts)]
        )
    return Table("Verdicts", ["cell", *(text_column(f"pass {each}") for each in passes)], rows)


def notes(cells: Sequence[Cell], environments: Mapping[str, Any]) -> Iterator[str]:
    """Yield where and with what the cells were measured."""
    rounds = sorted({each["rounds"] for each in cells})
    yield f"{' and '.join(map(str, rounds))} rounds."
    yield from environment_notes(cells, environments)
