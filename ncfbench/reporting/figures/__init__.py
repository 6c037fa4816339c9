"""Figures: the paper's, drawn from our own runs (Matplotlib, the ``plots`` extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.reporting.comparison import Comparison
from ncfbench.reporting.figures.arms import draw_arms
from ncfbench.reporting.figures.costs import draw_epoch_times, draw_product_ratios
from ncfbench.reporting.figures.curves import draw_convergence, draw_targets
from ncfbench.reporting.figures.drawing import Drawing, save

KINDS = ("svg", "png")
PROFILE = ("dataset", "loss", "batch_size", "data_fingerprint", "environment_key")
"""Columns of a profile whose rows stand in one figure of epoch times."""


def draw_all(
    comparisons: Sequence[Comparison],
    profile: Mapping[str, Sequence[Mapping[str, Any]]],
    folder: Path,
    kinds: Sequence[str] = KINDS,
    *,
    allow_mixed: bool = False,
) -> list[Path]:
    """Draw every figure that the runs and the profile's tables allow; return the files.

    Raises:
        UsageError: Matplotlib is not installed.
        DataError: the folder cannot be written.
    """
    drawn: list[Drawing | None] = []
    for comparison in comparisons:
        drawn.append(draw_convergence(comparison))
        drawn.append(draw_targets(comparison, allow_mixed=allow_mixed))
        drawn += [draw_arms(comparison, setting) for setting in ("stratum_size", "negatives")]
    labels = {comparison.data_fingerprint: comparison.data_label for comparison in comparisons}
    for rows in _grouped(profile.get("costmodel", ()), *PROFILE):
        drawn.append(draw_epoch_times(rows, labels.get(rows[0]["data_fingerprint"], "")))
    products = [row for row in profile.get("unitcost", ()) if row["part"].endswith("product")]
    drawn += [draw_product_ratios(rows) for rows in _grouped(products, "environment_key")]
    return [path for one in drawn if one is not None for path in save(one, folder, kinds)]


def _grouped(rows: Sequence[Mapping[str, Any]], *names: str) -> list[list[Mapping[str, Any]]]:
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(found.values())
