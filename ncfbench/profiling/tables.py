"""Tables of a profile: written as Parquet, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.profiling.costs import PARTS
from ncfbench.reporting.formats import interval
from ncfbench.reporting.table import Col, Table, under
from ncfbench.statistics.speedups import ROUNDS_OF_INTERVALS
from ncfbench.storage import locks, tables
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


def write(runs_dir: Path, profile: Mapping[str, Sequence[Row]]) -> None:
    """Write the tables of a profile; rows of other profiles in the folder stay.

    Raises:
        DataError: a table in the folder cannot be read, or the folder cannot be written.
    """
    with locks.held(runs_dir, "keeping a profile in", wait=lambda text: None):
        merged = {}
        for name, rows in profile.items():
            path, schema = runs_dir / f"{name}.parquet", PROFILE_TABLES[name]
            kept = tables.read_rows(path, schema) if path.exists() else []
            written = {_settings(row) for row in rows}
            merged[name] = [*(row for row in kept if _settings(row) not in written), *rows]
        for name, rows in merged.items():
            tables.write_rows(runs_dir / f"{name}.parquet", rows, PROFILE_TABLES[name])


def profile_tables(profile: Mapping[str, Sequence[Row]]) -> list[Table]:
    """Return the unit costs, counts and predictions of a profile."""
    rows = profile["costmodel"]
    first = rows[0]
    words = [first["dataset"], find_encoder(first["encoder"]).title, find_loss(first["loss"]).title]
    words += [f"b={first['batch_size']}", first["unusual_settings"]]
    name = ", ".join(filter(None, words))
    return [
        _unit_costs(profile["unitcost"], name),
        _counts(rows, name),
        _predictions(rows, name),
    ]


def _settings(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in SETTINGS)


def _unit_costs(units: Sequence[Row], name: str) -> Table:
    by_part = {row["part"]: row for row in units}
    return Table.of(
        f"Unit costs, forward and backward: {name}",
        [
            Col("part", lambda row: UNIT_TITLES[row["part"]]),
            Col("microseconds each", "unit_seconds", ",.4g", scale=1e6),
        ],
        [by_part[part] for part in UNIT_TITLES if part in by_part],
        ["In the step: what one more adds to a training step; fixed is the rest of the step."],
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
