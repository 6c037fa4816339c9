"""The printed figures of the paper's tables 2, 3 and 4, looked up by data set, encoder, sampler and
loss.

They ship with the package as CSV: ``cost.csv`` (table 2, symbols), ``speedup.csv`` (table 3, ratios
over IID; above 1 is faster), ``recall.csv`` (table 4, recall@50 as a share of 1).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal, get_args

Measure = Literal[
    "per_iteration_speedup", "iterations_speedup", "total_speedup", "test_recall_at_50"
]
MEASURES: tuple[Measure, ...] = get_args(Measure)
"""Printed measures, by the names of our own columns."""
SPEEDUP_LOSS = "sg"
"""Table 3 does not name its loss. The paper's convergence curves are of CNN + SG, so SG is
assumed.
"""
_COLUMNS: Mapping[Measure, str] = {
    "per_iteration_speedup": "per_iteration",
    "iterations_speedup": "iterations",
    "total_speedup": "total",
}


@dataclass(frozen=True, order=True)
class Place:
    """Where a figure stands: names as the registry has them."""

    dataset: str
    encoder: str
    sampler: str
    loss: str
    measure: Measure


@functools.cache
def values() -> Mapping[Place, float]:
    """Every printed figure of tables 3 and 4."""
    found: dict[Place, float] = {}
    for row in table("speedup"):
        for measure, column in _COLUMNS.items():
            place = Place(row["dataset"], row["encoder"], row["sampler"], SPEEDUP_LOSS, measure)
            found[place] = float(row[column])
    for row in table("recall"):
        place = Place(
            row["dataset"], row["encoder"], row["sampler"], row["loss"], "test_recall_at_50"
        )
        found[place] = float(row["recall_at_50"])
    return found


def value(dataset: str, encoder: str, sampler: str, loss: str, measure: Measure) -> float | None:
    """A printed figure; None where the paper has none. The baseline's ratios are not printed."""
    return values().get(Place(dataset, encoder, sampler, loss, measure))


def table(name: Literal["cost", "speedup", "recall"]) -> list[dict[str, str]]:
    """The rows of a table as they ship."""
    text = resources.files("ncfbench.paper").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
