"""Tables of a profile: written as Parquet, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.profiling.answer import noise, predicted_parts, title
from ncfbench.profiling.cost_model import (
    AXES,
    LINEAR_TOLERANCE,
    PARTS,
    RESIDUAL_TOLERANCE,
)
from ncfbench.reporting.table import Column, Header, Table, columns_of
from ncfbench.storage import tables
from ncfbench.storage.schemas import PROFILE_TABLES
from ncfbench.timing.speedups import ROUNDS_OF_INTERVALS

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
"""Columns that name a profile: a newer one with the same values replaces it."""
UNIT_TITLES = {
    "users": "t_f, a user",
    "items": "t_g, an item",
    "vectors": "t_i, by vectors",
    "matrix": "t_i, by a matrix",
    "all_users": "t_i, over all users",
    "fixed": "fixed, an iteration",
    "optimiser": "- optimiser",
    "dispatch": "- dispatch",
}


def write(runs_dir: Path, found: Mapping[str, Sequence[Row]]) -> None:
    """Write the tables; rows of other profiles that are there already stay.

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


def profile_tables(found: Mapping[str, Sequence[Row]], *, paper_clock: bool = False) -> list[Table]:
    """Return each profile's unit costs, counts, predictions, accounts, and bytes sent."""
    shown = []
    profiles = split_profiles(found.get("costmodel", ()))
    for what, rows in zip(titles_of(profiles), profiles, strict=True):
        own = _settings(rows[0])
        units = [row for row in found.get("unitcost", ()) if _settings(row) == own]
        shown += [
            _unit_costs(units, what),
            _counts(rows, what),
            _predictions(rows, units, what),
            _accounts(rows, what, paper_clock=paper_clock),
        ]
        shown += [sent_table(rows, what)] if rows[0]["devices"] else []
    return shown


def split_profiles(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each profile."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(_settings(row), []).append(row)
    return list(found.values())


def titles_of(profiles: Sequence[Sequence[Row]]) -> list[str]:
    """Return a name for each profile: data set, encoder, loss and settings.

    Profiles that agree in these are told apart by data, environment and the settings' digest.
    """
    firsts = [rows[0] for rows in profiles]
    plain = [_plain_title(row) for row in firsts]
    return [
        name
        if plain.count(name) == 1
        else f"{name} (data {row['data_fingerprint'][:6]}, environment {row['environment_key']},"
        f" settings {row['settings'][:6]})"
        for name, row in zip(plain, firsts, strict=True)
    ]


def _plain_title(row: Row) -> str:
    words = [row["dataset"], find_encoder(row["encoder"]).title, find_loss(row["loss"]).title]
    words += [f"b={row['batch_size']}", row.get("unusual_settings") or ""]
    words += [f"{row['devices']} devices" if row["devices"] else ""]
    return ", ".join(filter(None, words))


def _settings(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SETTINGS)


def _unit_costs(rows: Sequence[Row], what: str) -> Table:
    heading = f"Unit costs, forward and backward: {what}"
    header: Header = [
        "part",
        *columns_of("microseconds each", "in the step", "interval", "alone"),
        "difference %",
        "cost",
    ]
    if not rows:
        return Table(
            heading,
            header,
            [],
            ["Unit costs are not found: unitcost.parquet has no rows of this profile."],
            name="unit-costs",
        )
    by_part = {row["part"]: row for row in rows}
    cells = []
    for part, label in UNIT_TITLES.items():
        if part not in by_part:
            continue
        row = by_part[part]
        own, alone = row["unit_seconds"], row["alone_unit_seconds"]
        interval = (
            "-" if own is None else f"{_micro(row['unit_lower'])}..{_micro(row['unit_upper'])}"
        )
        difference = f"{100 * (alone / own - 1):+.0f}" if own else "-"
        shape = "line" if row["is_linear"] else "curve"
        has_shape = part in AXES
        cells.append(
            [label, _micro(own), interval, _micro(alone), difference, shape if has_shape else ""]
        )
    vectors, matrix = by_part["element-wise product"], by_part["matrix product"]
    products = zip(matrix["sizes"], matrix["seconds"], vectors["seconds"], strict=True)
    ratios = ", ".join(f"{size} x {size}: {other / own:.1f}" for size, own, other in products)
    notes = [
        "In the step: what one more adds to a training step, on average between the smallest and"
        " the largest count; fixed is what no count changes. Alone: the same part compiled and"
        " timed by itself, a check that predicts nothing; difference: how much longer it takes.",
        f"Curve: with a straight line some step is off by more than {100 * LINEAR_TOLERANCE:.0f} %."
        f" Vector products over one matrix product, {ratios}.",
    ]
    return Table(heading, header, cells, notes, name="unit-costs")


def _counts(rows: Sequence[Row], what: str) -> Table:
    cells = []
    for row in rows:
        symbols = find_sampler(row["sampler"]).with_strata(row["strata"]).symbols
        negatives, users, items, interactions, _ = symbols
        cells.append(
            [
                title(row),
                negatives,
                _integer(row["nominal_negatives"]),
                users,
                _integer(row["nominal_users"]),
                f"{row['distinct_users']:,.0f}",
                _integer(row["user_slots"]),
                items,
                _integer(row["nominal_items"]),
                f"{row['distinct_items']:,.0f}",
                _integer(row["item_slots"]),
                interactions,
                _integer(row["interactions"]),
                row["interaction_kind"],
            ]
        )
    first = rows[0]
    letters = {"b": [first["batch_size"]]}
    letters |= {
        letter: [row[name] for row in rows if row[name]]
        for letter, name in (("k", "negatives"), ("s", "stratum_size"))
    }
    settings = ", ".join(f"{letter}={values[0]}" for letter, values in letters.items() if values)
    heading = f"What an iteration does, the paper's counts and this data's: {what}"
    header: Header = [
        "sampler",
        *columns_of("negatives", "paper", "count"),
        *columns_of("user nodes", "paper", "count", "distinct", "slots"),
        *columns_of("item nodes", "paper", "count", "distinct", "slots"),
        *columns_of("interactions", "paper", "count"),
        Column("kind", "left"),
    ]
    note = f"{settings}. Slots are what is embedded, padding included."
    return Table(heading, header, cells, [note], name="counts")


def _predictions(rows: Sequence[Row], units: Sequence[Row], what: str) -> Table:
    enough = rows[0]["rounds"] >= ROUNDS_OF_INTERVALS
    cells = []
    for row in rows:
        own = [f"{1e3 * seconds:.2f}" for seconds in predicted_parts(row).values()]
        for account in ("step", "full"):
            predicted, measured = (
                row[f"{way}_{account}_iteration_seconds"] for way in ("predicted", "measured")
            )
            own += [f"{1e3 * predicted:.2f}", f"{1e3 * measured:.2f}", _off(predicted, measured)]
        interval = f"{row['lower_full_speedup']:.2f}..{row['upper_full_speedup']:.2f}"
        off = [
            row[f"predicted_{name}"] / row[f"measured_{name}"] - 1
            for name in ("step_iteration_seconds", "full_iteration_seconds", "full_speedup")
        ]
        is_off = max(map(abs, off)) > RESIDUAL_TOLERANCE
        cells.append(
            [
                title(row),
                *own,
                f"{row['predicted_full_speedup']:.2f}",
                f"{row['measured_full_speedup']:.2f}",
                interval if enough else "-",
                _off(row["predicted_full_speedup"], row["measured_full_speedup"]),
                row["responsible"] if is_off else "",
            ]
        )
    header: Header = [
        "sampler",
        *columns_of("parts", *PARTS),
        *columns_of("step", "predicted", "measured", "off %"),
        *columns_of("full", "predicted", "measured", "off %"),
        *columns_of("speedup", "predicted", "measured", "interval", "off %"),
        Column("most due to", "left"),
    ]
    baseline = find_sampler(rows[0]["baseline"]).title
    heading = (
        f"Milliseconds of an iteration, predicted and measured; speedups over {baseline}: {what}"
    )
    notes = _prediction_notes(rows, units, enough=enough)
    return Table(heading, header, cells, notes, name="predictions")


def _prediction_notes(rows: Sequence[Row], units: Sequence[Row], *, enough: bool) -> list[str]:
    source = "Speedups: ratios of the medians of interleaved blocks"
    notes = [
        f"Most due to, where a prediction is off by more than {100 * RESIDUAL_TOLERANCE:.0f} %:"
        " items, the sampler's own take longer or shorter than random ones; composition, the costs"
        " do not add up for this batch; sampling, beside the step.",
        f"{source}, with 95 % intervals."
        if enough
        else f"{source}; intervals need --rounds {ROUNDS_OF_INTERVALS} or more.",
    ]
    noisy = noise(rows, units)
    if noisy:
        notes.append(f"NOISY MACHINE: {', '.join(noisy)}.")
    return notes


def _accounts(rows: Sequence[Row], what: str, *, paper_clock: bool) -> Table:
    clocks = {"full": "measured_full_{}", "step": "measured_step_{}"}
    if paper_clock:
        clocks |= {"in series": "serial_{}", "paper's clock": "paper_{}"}
    cells = []
    for row in rows:
        own = []
        for name in clocks.values():
            own.append(f"{1e3 * row[name.format('iteration_seconds')]:.2f}")
            own.append(f"{row[name.format('speedup')]:.2f}")
        if paper_clock:
            own.append(f"{100 * (row['paper_speedup'] / row['serial_speedup'] - 1):+.1f}")
        own += [f"{1e3 * row[f'{part}_seconds']:.3f}" for part in ("draw", "assemble", "transfer")]
        if row["limit_seconds"] is None:
            own += ["-"] * 5
        else:
            own += [
                f"{row['step_flops'] / 1e9:.2f}",
                f"{row['step_bytes'] / 1e6:.0f}",
                f"{1e3 * row['limit_seconds']:.2f}",
                f"{100 * row['limit_share']:.0f}",
                row["bound"],
            ]
        cells.append([title(row), *own])
    header: Header = [
        "sampler",
        *(column for clock in clocks for column in columns_of(clock, "ms", "speedup")),
        *([Column("accounting %")] if paper_clock else []),
        *columns_of("alone", "draw ms", "assemble ms", "transfer ms"),
        *columns_of("work of a step", "GFLOP", "MB"),
        *columns_of("limit", "ms", "reached %"),
        Column("bound by", "left", group="limit"),
    ]
    notes = [
        "Draw, assemble, transfer: alone, on one core. Limit: XLA's count of operations and bytes"
        " at this machine's measured peaks; caches can beat its share of bytes."
    ]
    if any(row["limit_seconds"] is None for row in rows):
        notes.append("-: not counted. XLA counts a loop as if it went round once.")
    if paper_clock:
        notes.append(
            "In series: step, drawing, assembling, transfer one after another. Paper's clock: the"
            " same without what the authors' program did before its timer started: shuffling, and"
            " IID's draws. Accounting: how much more the paper's clock makes of a speedup than one"
            " that charges all samplers alike."
        )
    heading = f"Accounts, what the sampler costs, and the machine's limit: {what}"
    return Table(heading, header, cells, notes, name="accounts")


def sent_table(rows: Sequence[Row], what: str) -> Table:
    """Return what devices send each other in an iteration, with the seconds it takes."""
    first = rows[0]
    cells = []
    for row in rows:
        gradient, shared, local, texts = (
            f"{row[f'{way}_sent_bytes'] / 1e3:,.1f}"
            for way in ("gradient", "global", "local", "texts")
        )
        cells.append(
            [
                title(row),
                f"{row['item_slots']:,}",
                gradient,
                shared,
                local if find_sampler(row["sampler"]).shares_items else "-",
                texts,
                f"{1e3 * row['measured_collectives_seconds']:.2f}",
                f"{1e3 * row['measured_step_iteration_seconds']:.2f}",
            ]
        )
    header: Header = [
        "sampler",
        "item slots",
        *columns_of("sent kB", "gradients", "global", "local", "by texts"),
        "collectives ms",
        "step ms",
    ]
    notes = [
        "By ring algorithms, gradients included in each way. Global: vectors of all item slots are"
        " gathered, and their gradients summed and scattered. By texts: every device would get all"
        " texts, and make all vectors itself."
    ]
    if first["simulated"]:
        notes.append(
            "SIMULATED devices on the cores of one CPU: the bytes are those of real ones, the"
            " seconds are not, and no speed follows from them."
        )
    heading = (
        f"What each of {first['devices']} devices sends in an iteration, and how long that takes"
        f" ({first['share']} sharing): {what}"
    )
    return Table(heading, header, cells, notes, name="bytes-sent")


def _micro(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e6 * seconds:,.4g}"


def _off(predicted: float, measured: float) -> str:
    return f"{100 * (predicted / measured - 1):+.1f}"


def _integer(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
