"""Tables of a profile: written as Parquet, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.profiling.cost_model import PARTS
from ncfbench.reporting.formats import interval
from ncfbench.reporting.table import Col, Table, under
from ncfbench.statistics.speedups import ROUNDS_OF_INTERVALS
from ncfbench.storage import tables
from ncfbench.storage.schemas import PROFILE_TABLES

Row = Mapping[str, Any]
SETTINGS = (
    *("dataset", "encoder", "loss", "batch_size", "settings"),
    *("data_fingerprint", "environment_key"),
)
"""Columns that name a profile: a newer one with the same values replaces it."""
UNIT_TITLES = {
    "users": "t_f, a user",
    "items": "t_g, an item",
    "vectors": "t_i, by vectors",
    "matrix": "t_i, by a matrix",
    "fixed": "fixed, an iteration",
}
SAMPLER = Col("sampler", lambda row: find_sampler(row["sampler"]).with_strata(row["strata"]).title)


def _milliseconds(heading: str, key: str) -> Col:
    return Col(heading, key, ".2f", scale=1e3)


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
        written = {_settings(row) for row in rows}
        merged[name] = [*(row for row in kept if _settings(row) not in written), *rows]
    for name, rows in merged.items():
        tables.write_rows(runs_dir / f"{name}.parquet", rows, PROFILE_TABLES[name])


def profile_tables(found: Mapping[str, Sequence[Row]]) -> list[Table]:
    """Return each profile's unit costs, counts, predictions and accounts."""
    shown = []
    profiles = split_profiles(found.get("costmodel", ()))
    for name, rows in zip(_titles(profiles), profiles, strict=True):
        settings = _settings(rows[0])
        units = [row for row in found.get("unitcost", ()) if _settings(row) == settings]
        shown += [
            _unit_costs(units, name),
            _counts(rows, name),
            _predictions(rows, name),
            _accounts(rows, name),
        ]
    return shown


def split_profiles(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each profile."""
    profiles: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        profiles.setdefault(_settings(row), []).append(row)
    return list(profiles.values())


def _titles(profiles: Sequence[Sequence[Row]]) -> list[str]:
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
    return ", ".join(filter(None, words))


def _settings(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SETTINGS)


def _unit_costs(units: Sequence[Row], name: str) -> Table:
    by_part = {row["part"]: row for row in units}
    notes = [
        "In the step: what one more adds to a training step; fixed is what no count changes.",
    ]
    if not units:
        notes = ["Unit costs are not found: unitcost.parquet has no rows of this profile."]
    return Table.of(
        f"Unit costs, forward and backward: {name}",
        [
            Col("part", lambda row: UNIT_TITLES[row["part"]]),
            Col("microseconds each", "unit_seconds", ",.4g", scale=1e6),
        ],
        [by_part[part] for part in UNIT_TITLES if part in by_part],
        notes,
        name="unit-costs",
    )


def _counts(rows: Sequence[Row], name: str) -> Table:
    def paper(index: int) -> Col:
        return Col(
            "paper",
            lambda row: find_sampler(row["sampler"]).with_strata(row["strata"]).symbols[index],
        )

    def nodes(kind: str, index: int) -> list[Col]:
        return under(
            f"{kind} nodes",
            paper(index),
            Col("count", f"nominal_{kind}s", ","),
            Col("distinct", f"distinct_{kind}s", ",.0f"),
            Col("slots", f"{kind}_slots", ","),
        )

    letters = [f"b={rows[0]['batch_size']}"]
    for letter, column in (("k", "negatives"), ("s", "stratum_size")):
        letters += [f"{letter}={row[column]}" for row in rows if row[column]][:1]
    return Table.of(
        f"What an iteration does, the paper's counts and this data's: {name}",
        [
            SAMPLER,
            *under("negatives", paper(0), Col("count", "nominal_negatives", ",")),
            *nodes("user", 1),
            *nodes("item", 2),
            *under("interactions", paper(3), Col("count", "interactions", ",")),
            Col("kind", "interaction_kind", align="left"),
        ],
        rows,
        [f"{', '.join(letters)}. Slots are what is embedded, padding included."],
        name="counts",
    )


def _predictions(rows: Sequence[Row], name: str) -> Table:
    enough = rows[0]["rounds"] >= ROUNDS_OF_INTERVALS

    def off(column: str) -> Col:
        return Col(
            "off %",
            lambda row: row[f"predicted_{column}"] / row[f"measured_{column}"] - 1,
            "+.1f",
            scale=100,
        )

    def account(name: str) -> list[Col]:
        return under(
            name,
            _milliseconds("predicted", f"predicted_{name}_iteration_seconds"),
            _milliseconds("measured", f"measured_{name}_iteration_seconds"),
            off(f"{name}_iteration_seconds"),
        )

    def ends(row: Row) -> Any:
        return (row["lower_full_speedup"], row["upper_full_speedup"]) if enough else None

    source = "Speedups: ratios of the medians of interleaved blocks"
    return Table.of(
        "Milliseconds of an iteration, predicted and measured; speedups over"
        f" {find_sampler(rows[0]['baseline']).title}: {name}",
        [
            SAMPLER,
            *under("parts", *(_milliseconds(part, f"predicted_{part}_seconds") for part in PARTS)),
            *account("step"),
            *account("full"),
            *under(
                "speedup",
                Col("predicted", "predicted_full_speedup", ".2f"),
                Col("measured", "measured_full_speedup", ".2f"),
                Col("interval", ends, interval(".2f")),
                off("full_speedup"),
            ),
        ],
        rows,
        [
            f"{source}, with 95 % intervals."
            if enough
            else f"{source}; intervals need --rounds {ROUNDS_OF_INTERVALS} or more.",
        ],
        name="predictions",
    )


def _accounts(rows: Sequence[Row], name: str) -> Table:
    cols = [SAMPLER]
    for account in ("full", "step"):
        cols += under(
            account,
            _milliseconds("ms", f"measured_{account}_iteration_seconds"),
            Col("speedup", f"measured_{account}_speedup", ".2f"),
        )
    for part in ("draw", "assemble", "transfer"):
        cols += under("alone", Col(f"{part} ms", f"{part}_seconds", ".3f", scale=1e3))
    return Table.of(
        f"Accounts, and what the sampler costs: {name}",
        cols,
        rows,
        ["Draw, assemble, transfer: alone, on one core."],
        name="accounts",
    )
