"""Figure of the time of an epoch by encoder and sampler, from a profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.catalog import ENCODERS, find_encoder, find_loss, find_sampler
from ncfbench.reporting.figures.drawing import (
    PLUGIN_STYLE,
    STYLES,
    Drawing,
    entitle,
    finish,
    new_figure,
    own_settings,
    rank,
)

Row = Mapping[str, Any]
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo", "||", "**")
"""Hatches of bars, which tell them apart without colour."""


def draw_epoch_times(rows: Sequence[Row], data_label: str) -> Drawing:
    """Draw the seconds of an epoch by encoder and sampler, on a logarithmic scale.

    Args:
        rows: of the cost model, with one data set, loss, batch size and environment.
        data_label: see :class:`ncfbench.reporting.frames.Run`.
    """
    times = {
        (row["encoder"], own_settings(row, rows), row["sampler"]): (
            row["measured_full_iteration_seconds"] * row["links"] / row["batch_size"]
        )
        for row in rows
    }
    order = [*ENCODERS, *(encoder for encoder, _, _ in times)]
    arms = sorted({key[:2] for key in times}, key=lambda arm: (order.index(arm[0]), arm[1]))
    samplers = sorted({sampler for _, _, sampler in times}, key=rank)
    figure = new_figure(max(6.4, 1.3 * len(arms)), 3.8)
    axis = figure.subplots()
    width = 0.8 / len(samplers)
    for index, sampler in enumerate(samplers):
        known = {key[:2]: seconds for key, seconds in times.items() if key[2] == sampler}
        places = [place for place, arm in enumerate(arms) if arm in known]
        left = (index - (len(samplers) - 1) / 2) * width
        axis.bar(
            [place + left for place in places],
            [known[arms[place]] for place in places],
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
    lowest = 10 ** math.floor(math.log10(min(times.values())))
    legend_rows = math.ceil(len(samplers) / 4)
    axis.set_ylim(lowest, axis.get_ylim()[1] * 2 * 1.5**legend_rows)
    axis.legend(frameon=False, ncols=4, fontsize="small", loc="upper left")
    first = rows[0]
    simulated = ", SIMULATED" if first["simulated"] else ""
    devices = f", {first['devices']} devices{simulated}" if first["devices"] else ""
    loss = find_loss(first["loss"]).title
    title = f"Time of an epoch: {first['dataset']}, {loss}, b={first['batch_size']}{devices}"
    return entitle(figure, title, data_label)
