"""Figures of costs, from profiles: the time of an epoch, and speedups as items become dearer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ncfbench.catalog import ENCODERS, find_encoder, find_loss, find_sampler
from ncfbench.reporting.figures.drawing import (
    GREY,
    Drawing,
    entitle,
    finish,
    label_few,
    new_figure,
    own_settings,
    rank,
    sampler_style,
)
from ncfbench.reporting.profiles import by_profile

Row = Mapping[str, Any]
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo", "||", "**")
"""Hatches of bars, which tell them apart without colour."""


class Iterations(NamedTuple):
    """How many times fewer iterations each sampler needs than the baseline, by some runs."""

    encoder: str
    by_sampler: Mapping[str, float]


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
            color=sampler_style(sampler)["color"],
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
    loss = find_loss(first["loss"]).title
    title = f"Time of an epoch: {first['dataset']}, {loss}, b={first['batch_size']}"
    return entitle(figure, title, data_label)


def draw_crossover(rows: Sequence[Row], iterations: Iterations | None, data_label: str) -> Drawing:
    """Draw the speedup over the baseline as items become dearer: measured encoders beside the
    model's curves, per iteration and in total.

    By the cost model an iteration takes its items' time and everything else. The curves keep each
    sampler's numbers of items, and the median over encoders of everything else; the cost of an item
    moves.

    Args:
        rows: of the cost model, with the same links, loss, batch size and environment, and more
            than one encoder. Data sets may differ in their texts.
        iterations: makes totals of the ratios of times; None leaves the totals out.
        data_label: see :class:`ncfbench.reporting.frames.Run`.
    """
    base = rows[0]["baseline"]
    able = {}
    for profile in by_profile(rows):
        if base in profile:
            alike = [row for row in rows if row["encoder"] == profile[base]["encoder"]]
            able[profile[base]["encoder"], _difference(profile[base], alike)] = profile
    title, first = find_sampler(base).title, rows[0]
    figure = new_figure(6.4 + 4.6 * (iterations is not None), 4.6)
    axes = figure.subplots(ncols=1 + (iterations is not None), squeeze=False)[0]
    _draw_speedups(axes[0], able, base, {})
    axes[0].set_ylabel(f"speedup per iteration over {title}")
    if iterations is not None:
        _draw_speedups(axes[1], able, base, iterations.by_sampler)
        trained = find_encoder(iterations.encoder).title
        axes[1].set_ylabel(f"total speedup over {title} (iterations: {trained})")
    for axis in axes:
        axis.set_xlabel(f"time of {title}'s items over everything else")
    loss = find_loss(first["loss"]).title
    datasets = " and ".join(dict.fromkeys(row["dataset"] for row in rows))
    heading = f"Speedup as items become dearer: {datasets}, {loss}, b={first['batch_size']}"
    return entitle(figure, heading, data_label)


def _difference(row: Row, alike: Sequence[Row]) -> str:
    """Return what tells a profile from the others of its encoder: settings, or its data set."""
    words = []
    if len({own_settings(each, alike) for each in alike}) > 1:
        words.append(own_settings(row, alike))
    if len({each["data_fingerprint"] for each in alike}) > 1:
        words.append(f"{row['dataset']}-{row['data_fingerprint'][:6]}")
    return ", ".join(filter(None, words))


def _draw_speedups(
    axis: Any,
    able: Mapping[tuple[str, str], Mapping[str, Row]],
    base: str,
    factors: Mapping[str, float],
) -> None:
    """Draw each sampler's curve and its measured encoders.

    Args:
        factors: what multiplies a sampler's ratio of times; others are left out, if there are any.
    """
    shares = {arm: _items(rows[base]) / _rest(rows[base]) for arm, rows in able.items()}
    samplers = sorted({name for rows in able.values() for name in rows} - {base}, key=rank)
    grid = np.geomspace(0.4 * min(shares.values()), 2.5 * max(shares.values()), 60)
    for sampler in samplers:
        if factors and sampler not in factors:
            continue
        style, factor = sampler_style(sampler), factors.get(sampler, 1.0)
        pairs = {arm: (rows[base], rows[sampler]) for arm, rows in able.items() if sampler in rows}
        fewer = median(one["item_slots"] / other["item_slots"] for one, other in pairs.values())
        rest = median(_rest(one) / _rest(other) for one, other in pairs.values())
        # (rest + items) of the baseline over those of the sampler, in units of the baseline's rest.
        curve = factor * (1 + grid) / (1 / rest + grid / fewer)
        axis.plot(grid, curve, **style | {"marker": "", "linewidth": 1.2})
        points = [
            (shares[arm], factor * _measured(one) / _measured(other))
            for arm, (one, other) in pairs.items()
        ]
        label = find_sampler(sampler).title
        axis.plot(*zip(*points, strict=True), **style | {"linestyle": "", "label": label})
    axis.set(xscale="log", yscale="log", xlim=(grid[0], grid[-1]))
    axis.axhline(1, color=GREY, linewidth=0.8, linestyle="--")
    _name_encoders(axis, shares)
    label_few(axis.xaxis)
    label_few(axis.yaxis)
    finish(axis)
    axis.legend(frameon=False, fontsize="small", loc="upper left")


def _name_encoders(axis: Any, shares: Mapping[tuple[str, str], float]) -> None:
    """Name the encoders above their places, at least a twentieth of the axis apart."""
    low, high = np.log(axis.get_xlim())
    last = -math.inf
    for (encoder, settings), share in sorted(shares.items(), key=lambda item: item[1]):
        axis.axvline(share, color=GREY, linewidth=0.5, linestyle=":")
        place = (math.log(share) - low) / (high - low)
        last = max(place, last + 0.05)
        values = [word.rpartition("=")[2] for word in settings.split(", ") if word]
        axis.annotate(
            " ".join([find_encoder(encoder).title, *values]),
            (place, 1),
            (last, 1.04),
            xycoords="axes fraction",
            rotation=40,
            fontsize="small",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5},
        )


def _measured(row: Row) -> float:
    return float(row["measured_full_iteration_seconds"])


def _items(row: Row) -> float:
    return float(row["predicted_items_seconds"])


def _rest(row: Row) -> float:
    return float(row["predicted_full_iteration_seconds"]) - _items(row)
