"""The paper's figures of stratum size and of negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.catalog import find_sampler
from ncfbench.reporting.arms import TEST_RECALL
from ncfbench.reporting.figures.drawing import (
    Drawing,
    add_legend_below,
    describe,
    draw_floors,
    entitle,
    finish,
    new_figure,
    rank,
    sampler_style,
)
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.formats import counted
from ncfbench.reporting.frames import Run, by_variant
from ncfbench.reporting.labels import usual_sizes
from ncfbench.timing import intervals

Runs = Mapping[int, Run]
"""Runs by seed."""
MEASURES = {"smallest_probe_loss": "smallest probe loss", TEST_RECALL: "test recall@50"}
SAVED = {"item_slots": "distinct items in a batch"}
"""Third measure, against the stratum size only: items that g encodes, a count and no time."""
TITLES = {"stratum_size": "Stratum size", "negatives": "Negatives"}
LABELS = {"stratum_size": "links in a stratum, s", "negatives": "negatives, k"}


def draw_arms(
    runs: Sequence[Run], setting: str, floors: Sequence[FloorResult] = ()
) -> Drawing | None:
    """Draw smallest probe loss and test recall@50 against s or k; against s also a batch's items.

    Points are means over the seeds that all of them have, bars 95 % intervals. Samplers that share
    the batch's negatives have no k: they are levels beside the others, as the floors are in recall.

    Args:
        setting: ``stratum_size`` or ``negatives``.

    Returns:
        None where no sampler ran with two values, or where they have no seed in common.
    """
    lines, levels = _by_value(runs, setting)
    seeds = [set(own) for points in lines.values() for own in points.values()]
    common = sorted(set.intersection(*seeds)) if seeds else []
    if not common:
        return None
    measures = MEASURES | (SAVED if setting == "stratum_size" else {})
    figure = new_figure(4.75 * len(measures) if len(measures) < 3 else 12.0, 3.6)
    values = sorted({value for points in lines.values() for value in points})
    axes = figure.subplots(1, len(measures))
    for axis, (measure, label) in zip(axes, measures.items(), strict=True):
        for sampler in sorted(lines, key=rank):
            _plot_points(axis, sampler, lines[sampler], common, measure)
        for sampler in sorted(levels, key=rank):
            _plot_level(axis, sampler, levels[sampler], common, measure)
        axis.set_xscale("log", base=2)
        axis.set_xticks(values, [str(value) for value in values])
        axis.set_xticks([], minor=True)
        axis.set(xlabel=LABELS[setting], ylabel=label)
        if measure in SAVED:
            axis.set_yscale("log", base=2)
            axis.yaxis.set_major_formatter("{x:g}")
        if measure == TEST_RECALL:
            draw_floors(axis, floors)
        finish(axis)
    add_legend_below(figure, *figure.axes[0].get_legend_handles_labels())
    seeds_in_common = f"{counted(len(common), 'seed')} in common"
    title = f"{TITLES[setting]}: {describe(runs)}, {seeds_in_common}"
    return entitle(figure, title, runs[0].data_label)


def _by_value(
    runs: Sequence[Run], setting: str
) -> tuple[dict[str, dict[int, Runs]], dict[str, Runs]]:
    """Return runs by sampler and value of a setting, and those of samplers that have no k.

    All other settings are the paper's. Samplers with one value only are left out.
    """
    usual = usual_sizes(runs[0].config.encoder)
    del usual[setting]
    ((other, paper),) = usual.items()
    lines: dict[str, dict[int, Runs]] = {}
    levels: dict[str, Runs] = {}
    for variant, own in by_variant(runs).items():
        value = getattr(variant, setting)
        is_usual = getattr(variant, other) in (None, paper)
        if not is_usual or any((variant.strata, variant.uniform_items, variant.share)):
            continue
        if value is not None:
            lines.setdefault(variant.sampler, {})[value] = own
        elif setting == "negatives":
            levels[variant.sampler] = own
    return {sampler: points for sampler, points in lines.items() if len(points) > 1}, levels


def _plot_points(
    axis: Any, sampler: str, points: Mapping[int, Runs], seeds: Sequence[int], measure: str
) -> None:
    means = {value: _mean(points[value], seeds, measure) for value in sorted(points)}
    known = {value: mean for value, mean in means.items() if mean is not None}
    halves = [0.0 if mean.upper is None else mean.upper - mean.value for mean in known.values()]
    axis.errorbar(
        list(known),
        [mean.value for mean in known.values()],
        yerr=halves if any(halves) else None,
        **sampler_style(sampler),
        markersize=4,
        linewidth=1.5,
        capsize=3,
        label=find_sampler(sampler).title,
    )


def _plot_level(axis: Any, sampler: str, runs: Runs, seeds: Sequence[int], measure: str) -> None:
    mean = _mean(runs, [seed for seed in seeds if seed in runs], measure)
    if mean is not None:
        style = sampler_style(sampler) | {"marker": "", "linewidth": 1.5}
        axis.axhline(mean.value, **style, label=f"{find_sampler(sampler).title} (the batch's)")


def _mean(runs: Runs, seeds: Sequence[int], measure: str) -> intervals.Estimate | None:
    values = [runs[seed].summary.get(measure) for seed in seeds]
    known = [value for value in values if value is not None]
    return intervals.mean(known) if known else None
