"""Draw the crossover figures of docs/results.md: speedup as items become dearer.

Repeat with ``python docs/draw_crossover.py`` (needs the ``plots`` extra). The profiles and runs are
kept in results/.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

import ncfbench
from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.reporting.figures.drawing import (
    GREY,
    STYLES,
    entitle,
    finish,
    label_few,
    new_figure,
    save,
)
from ncfbench.reporting.frames import Run, by_variant
from ncfbench.reporting.profiles import by_profile
from ncfbench.reporting.rows import log_ratios
from ncfbench.storage import schemas, tables

RESULTS = Path(__file__).parents[1] / "results"
FIGURES = {
    "citeulike-title-tags-encoders": (
        "citeulike-title-tags",
        "crossover-citeulike-sg-b512-c8d53f-2c500e.png",
    ),
    "anime-encoders": ("anime-encoders", "crossover-anime-sg-b512-0e667c-b87531.svg"),
}
"""By folder of profiles: the folder of runs that give iterations, and the figure."""
Row = Mapping[str, Any]


def main() -> None:
    """Draw the figure of each folder of profiles."""
    for folder, (runs, name) in FIGURES.items():
        results = ncfbench.report(RESULTS / runs)
        profiles = tables.read_rows(RESULTS / folder / "costmodel.parquet", schemas.COSTMODEL)
        rows = [row for row in profiles if row["loss"] == "sg"]
        # Texts may differ: some encoders need word pieces.
        rows = [row for row in rows if row["links"] == rows[0]["links"]]
        drawing = draw_crossover(rows, iterations_of(results.groups, rows))
        save(drawing, [RESULTS / folder / "figures" / name])


class Iterations(NamedTuple):
    """How many times fewer iterations each sampler needs than the baseline, by some runs."""

    encoder: str
    by_sampler: Mapping[str, float]


def draw_crossover(rows: Sequence[Row], iterations: Iterations | None) -> Any:
    """Draw the speedup over the baseline as items become dearer: measured encoders beside the
    model's curves, per iteration and in total.

    By the cost model an iteration takes its items' time and everything else. The curves keep each
    sampler's numbers of items, and the median over encoders of everything else; the cost of an item
    moves.

    Args:
        rows: of the cost model, with the same links, loss, batch size and environment, and more
            than one encoder. Data sets may differ in their texts.
        iterations: makes totals of the ratios of times; None leaves the totals out.
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
    return entitle(figure, heading)


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
    samplers = sorted(
        {name for rows in able.values() for name in rows} - {base}, key=[*STYLES].index
    )
    grid = np.geomspace(0.4 * min(shares.values()), 2.5 * max(shares.values()), 60)
    for sampler in samplers:
        if factors and sampler not in factors:
            continue
        style, factor = STYLES[sampler], factors.get(sampler, 1.0)
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


def own_settings(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a profile's settings that differ from the defaults, such as ``convolution=plain``.

    The number of negatives is left out where all rows have the same, whatever is usual for an
    encoder.
    """
    words = (row["unusual_settings"] or "").split(", ")
    if len({each["negatives"] for each in rows} - {None}) == 1:
        words = [word for word in words if not word.startswith("negatives=")]
    return ", ".join(words)


def iterations_of(groups: Sequence[Sequence[Run]], profiled: Sequence[Row]) -> Iterations | None:
    """Return how many times fewer iterations each sampler needs, by the runs of the profiles' data,
    loss and batch size with the most samplers that come down to the reference; none without such.
    """
    alike = {(row["data_fingerprint"], row["loss"], row["batch_size"]) for row in profiled}
    found = []
    for runs in groups:
        config = runs[0].config
        if (runs[0].data_fingerprint, config.loss, config.batch_size) in alike:
            logs = {
                arm.sampler: list(log_ratios(own.values(), "iterations_speedup").values())
                for arm, own in by_variant(runs).items()
                if not arm.note(config.encoder)
            }
            ratios = {name: math.exp(fmean(values)) for name, values in logs.items() if values}
            found.append(Iterations(config.encoder, ratios))
    most = max(found, key=lambda iterations: len(iterations.by_sampler), default=None)
    return most if most and most.by_sampler else None


if __name__ == "__main__":
    main()
