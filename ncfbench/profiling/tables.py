"""The tables that a profile leaves behind: written, and shown on the terminal (Rich)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ncfbench.profiling.cost_model import (
    DRIFT_TOLERANCE,
    PARTS,
    RESIDUAL_TOLERANCE,
    SPREAD_TOLERANCE,
    SYMBOLIC,
)
from ncfbench.profiling.traffic_table import traffic_view
from ncfbench.registry import find_loss, find_sampler
from ncfbench.storage import tables
from ncfbench.storage.schemas import PROFILE_TABLES

Row = Mapping[str, Any]
SETTINGS = (
    "dataset",
    "encoder",
    "loss",
    "batch_size",
    "settings",
    "data_fingerprint",
    "environment_key",
)
"""What one profile has in common; another one of these takes its place."""
ROUNDS_OF_INTERVALS = 7
"""Below this a bootstrap's interval is much too narrow."""


def write(runs_dir: Path, found: Mapping[str, Sequence[Row]]) -> None:
    """Write the tables; rows of other settings that are there already stay.

    Raises:
        DataError: a table that is there cannot be read, or the folder cannot be written.
    """
    with tables.storage_errors(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
    merged = {}
    for name, rows in found.items():
        path, schema = runs_dir / f"{name}.parquet", PROFILE_TABLES[name]
        kept = tables.read_rows(path, schema) if path.exists() else []
        own = {_settings(row) for row in rows}
        merged[name] = [*(row for row in kept if _settings(row) not in own), *rows]
    for name, rows in merged.items():
        tables.write_rows(runs_dir / f"{name}.parquet", rows, PROFILE_TABLES[name])


def view(found: Mapping[str, Sequence[Row]], *, paper_clock: bool = False) -> RenderableType:
    """Unit costs, the paper's cost table, predictions beside measurements, and accounts and limits,
    for each profile.
    """
    parts: list[RenderableType] = []
    for settings in dict.fromkeys(_settings(row) for row in found["costmodel"]):
        rows = [row for row in found["costmodel"] if _settings(row) == settings]
        units = [row for row in found.get("unitcost", ()) if _settings(row) == settings]
        what = (
            f"{rows[0]['dataset']}, {rows[0]['encoder']}, {find_loss(rows[0]['loss']).title},"
            f" b={rows[0]['batch_size']}"
        )
        what += (
            f" (data {rows[0]['data_fingerprint'][:6]}, environment {rows[0]['environment_key']})"
        )
        parts += (
            [_unit_costs(units, what)] if units else [Text(f"Unit costs of {what}: not found.")]
        )
        parts += [
            _counts(rows),
            _predictions(rows, units),
            _accounts(rows, paper_clock=paper_clock),
        ]
        parts += [traffic_view(rows)] if rows[0]["devices"] else []
    return Group(*parts)


def _settings(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SETTINGS)


def _unit_costs(rows: Sequence[Row], what: str) -> RenderableType:
    table = Table(title=Text(f"Unit costs, forward and backward: {what}"), title_justify="left")
    table.add_column("part")
    for heading in ("microseconds each", "interval", "overhead", "spread %", "cost"):
        table.add_column(heading, justify="right")
    titles = {
        "users": "t_f, a user",
        "items": "t_g, an item",
        "vectors": "t_i, by vectors",
        "matrix": "t_i, by a matrix",
        "optimiser": "optimiser, an update",
        "dispatch": "dispatch, a call",
    }
    by_part = {row["part"]: row for row in rows}
    for part, title in titles.items():
        row = by_part[part]
        cells = [
            f"{1e6 * row[name]:,.4g}"
            for name in ("unit_seconds", "unit_lower", "unit_upper", "overhead_seconds")
        ]
        shape = (
            "" if part in ("optimiser", "dispatch") else ("line" if row["is_linear"] else "curve")
        )
        spread = "" if row.get("spread") is None else f"{100 * row['spread']:.0f}"
        table.add_row(title, cells[0], f"{cells[1]}..{cells[2]}", cells[3], spread, shape)
    vectors, matrix = by_part["element-wise product"], by_part["matrix product"]
    ratios = ", ".join(
        f"{size} x {size}: {other / own:.1f}"
        for size, own, other in zip(
            matrix["sizes"], matrix["seconds"], vectors["seconds"], strict=True
        )
    )
    note = (
        "Curve: no straight line passes all sizes within 10 %. Spread: of the middle half of the"
        f" rounds. Vector products over one matrix product, {ratios}."
    )
    return Group(table, Text(note, style="dim"), Text(""))


def _counts(rows: Sequence[Row]) -> RenderableType:
    table = Table(
        title="What an iteration does: the paper's counts, and this data's", title_justify="left"
    )
    table.add_column("sampler")
    for heading in (
        "negatives",
        "",
        "user nodes",
        "",
        "distinct",
        "slots",
        "item nodes",
        "",
        "distinct",
        "slots",
        "interactions",
        "",
    ):
        table.add_column(heading, justify="right")
    table.add_column("kind")
    for row in rows:
        symbols = SYMBOLIC.get((row["sampler"], row["strata"] or "item"), ("-",) * 5)
        table.add_row(
            _title(row),
            symbols[0],
            _integer(row["nominal_negatives"]),
            symbols[1],
            _integer(row["nominal_users"]),
            f"{row['distinct_users']:,.0f}",
            _integer(row["user_slots"]),
            symbols[2],
            _integer(row["nominal_items"]),
            f"{row['distinct_items']:,.0f}",
            _integer(row["item_slots"]),
            symbols[3],
            _integer(row["interactions"]),
            row["interaction_kind"],
        )
    first = rows[0]
    letters = {"b": [first["batch_size"]]}
    letters |= {
        letter: [row[name] for row in rows if row[name]]
        for letter, name in (("k", "negatives"), ("s", "stratum_size"))
    }
    settings = ", ".join(f"{letter}={values[0]}" for letter, values in letters.items() if values)
    note = f"{settings}. Slots are what is embedded, padding included."
    return Group(table, Text(note, style="dim"), Text(""))


def _predictions(rows: Sequence[Row], units: Sequence[Row]) -> RenderableType:
    title = (
        "Milliseconds of an iteration, predicted from the parts; speedups over"
        f" {find_sampler(rows[0]['baseline']).title}"
    )
    table = Table(title=Text(title), title_justify="left")
    table.add_column("sampler")
    shown = [part for part in PARTS if part != "collectives" or rows[0]["devices"]]
    for heading in (
        *shown,
        "step",
        "measured",
        "off %",
        "full",
        "measured",
        "off %",
        "speedup",
        "measured",
        "interval",
        "off %",
    ):
        table.add_column(heading, justify="right")
    table.add_column("most due to")
    enough = rows[0]["rounds"] >= ROUNDS_OF_INTERVALS
    for row in rows:
        cells = [f"{1e3 * row[f'predicted_{part}_seconds']:.2f}" for part in shown]
        for account in ("step", "full"):
            predicted, measured = (
                row[f"{way}_{account}_iteration_seconds"] for way in ("predicted", "measured")
            )
            cells += [f"{1e3 * predicted:.2f}", f"{1e3 * measured:.2f}", _off(predicted, measured)]
        cells += [
            f"{row['predicted_full_speedup']:.2f}",
            f"{row['measured_full_speedup']:.2f}",
            f"{row['lower_full_speedup']:.2f}..{row['upper_full_speedup']:.2f}" if enough else "-",
            _off(row["predicted_full_speedup"], row["measured_full_speedup"]),
        ]
        off = [
            row[f"predicted_{name}"] / row[f"measured_{name}"] - 1
            for name in ("step_iteration_seconds", "full_iteration_seconds", "full_speedup")
        ]
        table.add_row(
            _title(row),
            *cells,
            row["responsible"] if max(map(abs, off)) > RESIDUAL_TOLERANCE else "",
        )
    notes = [
        (
            f"Most due to: where a prediction is off by more than {100 * RESIDUAL_TOLERANCE:.0f} %:"
            " a part, whose unit cost misses its own measurement on the sampler's batch;"
            " composition, for a step is not the sum of its parts; or the sampling beside it."
        ),
        "Speedups: ratios of the medians of interleaved blocks"
        + (
            ", with 95 % intervals."
            if enough
            else f"; intervals need --rounds {ROUNDS_OF_INTERVALS} or more."
        ),
    ]
    noisy = [
        f"{_title(row)} {row['drift']:.2f}"
        for row in rows
        if abs(row["drift"] - 1) > DRIFT_TOLERANCE
    ]
    noisy += [
        f"{row['part']} spread by {row['spread']:.0%}"
        for row in units
        if (row.get("spread") or 0) > SPREAD_TOLERANCE
    ]
    if noisy:
        notes.append(
            "NOISY MACHINE (second half of the rounds over the first, or spread of the rounds):"
            f" {', '.join(noisy)}."
        )
    return Group(table, *(Text(note, style="dim") for note in notes), Text(""))


def _accounts(rows: Sequence[Row], *, paper_clock: bool) -> RenderableType:
    table = Table(
        title="Accounts, what the sampler costs, and the machine's limit", title_justify="left"
    )
    table.add_column("sampler")
    headings = ["full ms", "speedup", "step ms", "speedup"]
    if paper_clock:
        headings += ["in series ms", "speedup", "paper's clock ms", "speedup", "accounting %"]
    for heading in (
        *headings,
        "draw ms",
        "assemble ms",
        "transfer ms",
        "GFLOP",
        "MB",
        "limit ms",
        "of it reached %",
    ):
        table.add_column(heading, justify="right")
    table.add_column("bound by")
    for row in rows:
        cells = []
        for account in ("full", "step"):
            cells += [
                f"{1e3 * row[f'measured_{account}_iteration_seconds']:.2f}",
                f"{row[f'measured_{account}_speedup']:.2f}",
            ]
        if paper_clock:
            for name in ("serial", "paper"):
                cells += [
                    f"{1e3 * row[f'{name}_iteration_seconds']:.2f}",
                    f"{row[f'{name}_speedup']:.2f}",
                ]
            cells.append(f"{100 * (row['paper_speedup'] / row['serial_speedup'] - 1):+.1f}")
        cells += [
            f"{1e3 * row[f'{part}_seconds']:.3f}" for part in ("draw", "assemble", "transfer")
        ]
        if row["limit_seconds"] is None:
            cells += ["-"] * 5
        else:
            cells += [
                f"{row['step_flops'] / 1e9:.2f}",
                f"{row['step_bytes'] / 1e6:.0f}",
                f"{1e3 * row['limit_seconds']:.2f}",
            ]
            cells += [f"{100 * row['limit_share']:.0f}", row["bound"]]
        table.add_row(_title(row), *cells)
    notes = [
        (
            "Draw, assemble, transfer: alone, on one core. Limit: XLA's count of operations and"
            " bytes at this machine's measured peaks; caches can beat its share of bytes."
        ),
    ]
    if paper_clock:
        notes.append(
            "In series: step, drawing, assembling, transfer one after another. Paper's clock: the"
            " same without what the authors' program did before its timer started: shuffling, and"
            " IID's draws. Accounting: how much more the paper's clock makes of a speedup than one"
            " that charges all samplers alike."
        )
    return Group(table, *(Text(note, style="dim") for note in notes), Text(""))


def _title(row: Row) -> str:
    return find_sampler(row["sampler"]).title_with(row["strata"])


def _off(predicted: float, measured: float) -> str:
    return f"{100 * (predicted / measured - 1):+.1f}"


def _integer(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
