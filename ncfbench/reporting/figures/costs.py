"""The paper's figures of epoch times, and of vector products over one matrix product."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.registry import ENCODERS, find_encoder, find_loss, find_sampler
from ncfbench.reporting.figures.drawing import (
    GREY,
    PLUGIN_STYLE,
    STYLES,
    Drawing,
    finish,
    new_figure,
    rank,
    with_label,
)

Row = Mapping[str, Any]
HATCHES = ("", "//", "..", "xx", "\\\\", "--")
"""Hatches of bars, which tell them apart without colour."""


def draw_epoch_times(rows: Sequence[Row], data_label: str) -> Drawing:
    """Draw the seconds of an epoch by encoder and sampler, on a logarithmic scale.

    Args:
        rows: of the cost model, with one data set, loss and environment.
        data_label: see :class:`ncfbench.reporting.comparison.Comparison`.
    """
    figure = new_figure(6.4, 3.8)
    axis = figure.subplots()
    order = [*ENCODERS, *(row["encoder"] for row in rows)]
    arms = sorted(set(map(_arm, rows)), key=lambda arm: (order.index(arm[0]), arm[1]))
    samplers = sorted({row["sampler"] for row in rows}, key=rank)
    width = 0.8 / len(samplers)
    for index, sampler in enumerate(samplers):
        own = {_arm(row): _epoch_seconds(row) for row in rows if row["sampler"] == sampler}
        shown = [arm for arm in arms if arm in own]
        left = (index - (len(samplers) - 1) / 2) * width
        axis.bar(
            [arms.index(arm) + left for arm in shown],
            [own[arm] for arm in shown],
            0.9 * width,
            color=STYLES.get(sampler, PLUGIN_STYLE)[0],
            edgecolor="black",
            hatch=HATCHES[index % len(HATCHES)],
            label=find_sampler(sampler).title,
        )
    axis.set_yscale("log")
    labels = [
        "\n".join([find_encoder(name).title, *filter(None, unusual.split(", "))])
        for name, unusual in arms
    ]
    axis.set_xticks(range(len(arms)), labels)
    axis.set_ylabel("time of an epoch, s (full account, log scale)")
    finish(axis)
    lowest = min(map(_epoch_seconds, rows))
    axis.set_ylim(10 ** math.floor(math.log10(lowest)), axis.get_ylim()[1] * 3)
    axis.legend(frameon=False, ncols=3, fontsize="small", loc="upper left")
    first = rows[0]
    simulated = ", SIMULATED" if first["simulated"] else ""
    devices = f", {first['devices']} devices{simulated}" if first["devices"] else ""
    loss = find_loss(first["loss"]).title
    title = f"Time of an epoch: {first['dataset']}, {loss}, b={first['batch_size']}{devices}"
    axis.set_title(with_label(title, data_label))
    return Drawing(title, figure)


def epoch_times_name(rows: Sequence[Row]) -> str:
    """Return the name of :func:`draw_epoch_times`' figure."""
    first = rows[0]
    digests = f"{first['data_fingerprint'][:6]}-{first['environment_key'][:6]}"
    return f"epoch-time-{first['dataset']}-{first['loss']}-b{first['batch_size']}-{digests}"


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
    axis.set_xticks(matrix["sizes"], [str(size) for size in matrix["sizes"]])
    finish(axis)
    return Drawing("Scores by vector products over one matrix product", figure)


def product_ratios_name(rows: Sequence[Row]) -> str:
    """Return the name of :func:`draw_product_ratios`' figure."""
    return f"product-ratio-{rows[0]['environment_key'][:6]}"


def _arm(row: Row) -> tuple[str, str]:
    """Return the encoder and the profile's settings that differ from the defaults."""
    return row["encoder"], row["unusual_settings"] or ""


def _epoch_seconds(row: Row) -> float:
    return float(row["measured_full_iteration_seconds"] * row["links"] / row["batch_size"])
