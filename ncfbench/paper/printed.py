"""Printed figures of the paper's tables 2, 3 and 4.

They ship with the package as CSV: ``cost.csv`` (table 2, symbols), ``speedup.csv`` (table 3, ratios
over IID; above 1 is faster), ``recall.csv`` (table 4, recall@50 as a share of 1).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from importlib import resources
from typing import Literal, NamedTuple

Measure = Literal[
    "per_iteration_speedup", "iterations_speedup", "total_speedup", "test_recall_at_50"
]
"""Printed measures, by the names of our columns."""
RATIOS: tuple[Measure, ...] = ("per_iteration_speedup", "iterations_speedup", "total_speedup")
RECALL: Measure = "test_recall_at_50"
SPEEDUP_LOSS = "sg"
"""Loss of table 3, which does not name it: SG, as in the paper's convergence curves."""


class PrintedCell(NamedTuple):
    """Cell of a printed table, by the registry's names."""

    dataset: str
    encoder: str
    sampler: str
    loss: str
    measure: Measure


@functools.cache
def values() -> Mapping[PrintedCell, float]:
    """Return every printed figure of tables 3 and 4."""
    found: dict[PrintedCell, float] = {}
    for row in table("speedup"):
        key = (row["dataset"], row["encoder"], row["sampler"], SPEEDUP_LOSS)
        for measure in RATIOS:
            found[PrintedCell(*key, measure)] = float(row[measure.removesuffix("_speedup")])
    for row in table("recall"):
        key = (row["dataset"], row["encoder"], row["sampler"], row["loss"])
        found[PrintedCell(*key, RECALL)] = float(row["recall_at_50"])
    return found


def table(name: Literal["cost", "speedup", "recall"]) -> list[dict[str, str]]:
    """Return the rows of a table as they ship."""
    text = resources.files("ncfbench.paper").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
