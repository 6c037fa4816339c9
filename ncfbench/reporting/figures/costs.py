"""Figures of costs: products, and speedups as items become dearer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from ncfbench.registry import find_encoder, find_loss, find_sampler
from ncfbench.reporting.figures.drawing import (
    GREY,
    PLUGIN_STYLE,
    STYLES,
    Drawing,
    finish,
    label_few,
    new_figure,
    rank,
    with_label,
)

Row = Mapping[str, Any]


def draw_crossover(
    rows: Sequence[Row], iterations: Mapping[str, float], data_label: str
) -> Drawing:
    """Draw the speedup over the baseline as items become dearer: measured encoders on the model's
    curves.

    A sampler's iteration takes its items' time and everything else. The curves keep each sampler's
    numbers of items, and the median over encoders of everything else; the cost of an item moves.

    Args:
        rows: of the cost model, with one data set, loss, batch size and environment, and more than
            one encoder.
        iterations: speedup in iterations by sampler, which makes totals of the ratios of times;
            where it is empty the figure shows the ratios of times.
        data_label: see :class:`ncfbench.reporting.comparison.Comparison`.
    """
    by_encoder: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_encoder.setdefault(_arm(row), {})[row["sampler"]] = row
    base = rows[0]["baseline"]
    able = {arm: own for arm, own in by_encoder.items() if base in own}
    shares = {arm: _items_over_rest(own[base]) for arm, own in able.items()}
    names = sorted({name for own in able.values() for name in own} - {base}, key=rank)
    if iterations:
        names = [name for name in names if name in iterations]
    figure = new_figure(6.4, 4.2)
    axis = figure.subplots()
    reach = [factor * share for share in shares.values() for factor in (0.4, 2.5)]
    grid = np.geomspace(min(reach), max(reach), 60)
    for name in names:
        colour, line, mark = STYLES.get(name, PLUGIN_STYLE)
        factor = iterations.get(name, 1.0)
        own = {arm: (both[base], both[name]) for arm, both in able.items() if name in both}
        fewer = median(one["item_slots"] / other["item_slots"] for one, other in own.values())
        rest = median(_rest(one) / _rest(other) for one, other in own.values())
        # (rest + items) of the baseline over those of the sampler, in units of the baseline's rest.
        curve = factor * (1 + grid) / (1 / rest + grid / fewer)
        axis.plot(grid, curve, color=colour, linestyle=line, linewidth=1.2)
        points = [
            (shares[arm], factor * _full(one) / _full(other)) for arm, (one, other) in own.items()
        ]
        title = find_sampler(name).title
        axis.plot(*zip(*points, strict=True), color=colour, linestyle="", marker=mark, label=title)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.axhline(1, color=GREY, linewidth=0.8, linestyle="--")
    top = axis.get_ylim()[1]
    for arm, share in shares.items():
        axis.axvline(share, color=GREY, linewidth=0.5, linestyle=":")
        text = " ".join([find_encoder(arm[0]).title, arm[1]]).strip()
        axis.text(share, top, f" {text}", rotation=90, va="top", ha="right", fontsize="small")
    what = "total speedup" if iterations else "speedup per iteration"
    title = find_sampler(base).title
    axis.set(xlabel=f"time of {title}'s items over everything else", ylabel=f"{what} over {title}")
    label_few(axis.xaxis)
    label_few(axis.yaxis)
    finish(axis)
    axis.legend(frameon=False, fontsize="small", loc="upper left")
    first = rows[0]
    loss = find_loss(first["loss"]).title
    heading = f"Speedup as items become dearer: {first['dataset']}, {loss}, b={first['batch_size']}"
    axis.set_title(with_label(heading, data_label))
    return Drawing(heading, figure)


def _full(row: Row) -> float:
    return float(row["measured_full_iteration_seconds"])


def _rest(row: Row) -> float:
    """Return what an iteration takes beside its items, at least a hundredth of it."""
    return max(_full(row) - float(row["predicted_items_seconds"]), 0.01 * _full(row))


def _items_over_rest(row: Row) -> float:
    return float(row["predicted_items_seconds"]) / _rest(row)


def draw_product_ratios(rows: Sequence[Row]) -> Drawing:
    """Draw the time of n x n scores by vector products over that by one matrix product.

    Args:
        rows: the two rows of products among one profile's unit costs.
    """
    by_part = {row["part"]: row for row in rows}
    matrix, vectors = by_part["matrix product"], by_part["element-wise product"]
    figure = new_figure(5.2, 3.6)
    axis = figure.subplots()
    ratios = [other / own for own, other in zip(matrix["seconds"], vectors["seconds"], strict=True)]
    axis.plot(matrix["sizes"], ratios, color="#000000", marker="o", linewidth=1.5)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.axhline(1, color=GREY, linewidth=0.8, linestyle="--")
    axis.set(xlabel="n", ylabel="time of n x n scores,\nvector products / matrix product")
    label_few(axis.yaxis)
    axis.set_xticks(matrix["sizes"], [str(size) for size in matrix["sizes"]])
    finish(axis)
    return Drawing("Scores by vector products over one matrix product", figure)


def product_ratios_name(rows: Sequence[Row]) -> str:
    """Return the name of :func:`draw_product_ratios`' figure."""
    return f"product-ratio-{rows[0]['environment_key'][:6]}"


def _arm(row: Row) -> tuple[str, str]:
    """Return the encoder and the profile's settings that differ from the defaults."""
    return row["encoder"], row["unusual_settings"] or ""
