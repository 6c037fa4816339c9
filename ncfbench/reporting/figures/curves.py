"""Figures of curves: an answer, and the speedup at every target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.figures.drawing import (
    GREY,
    LEVEL_COLOR,
    PLUGIN_STYLE,
    STYLES,
    add_legend_below,
    entitle,
    finish,
    label_few,
    main_variants,
    new_figure,
    styles_of,
)
from ncfbench.reporting.frames import Run, by_variant, paired
from ncfbench.reporting.quality import RECALL, TEST_RECALL
from ncfbench.runs import labels
from ncfbench.runs.arms import Variant
from ncfbench.runs.curves import falling
from ncfbench.statistics import speedups
from ncfbench.statistics.curves import Curve

TARGET_MEASURES = ("probe_loss", "test_recall_at_50")
MOST_LABELS = 14
"""Labels of floors and blends that find room beside an axis."""
MOST_NAMED = 8
"""Arms of an answer that are named and coloured; the others are grey."""
FADED = 0.3
"""Opacity of arms that the answer's table leaves out."""
BOUND = {"linestyle": "-", "linewidth": 0.8, "alpha": 0.6, "zorder": 1.5}
"""Style of what is only bounded."""
TARGETS_NOTE = (
    "Bands: 95 % intervals over seeds. Thin lines: bounds, where some seed never came there, or was"
    " past it at its first evaluation"
)


def draw_answer(answer: Answer) -> Any:
    """Draw the answer's measures against seconds of training, with the level that decides and the
    floors.

    Means over seeds. Arms that are not among the first of
    :attr:`ncfbench.reporting.answers.Answer.main` are grey.

    Returns:
        None for a single arm.
    """
    if len(answer.arms) < 2:
        return None
    losses = {arm.config.loss for arm in answer.arms}
    measures = {f"{split}_{RECALL}": f"{split} recall@50" for split in (answer.split, "test")}
    if len(losses) == 1:
        label = f"probe loss ({find_loss(losses.pop()).title}, log scale)"
        measures = {"probe_loss": label, TEST_RECALL: "test recall@50"}
    figure = new_figure(9.5, 4.0)
    axes = figure.subplots(1, len(measures), squeeze=False)[0]
    levels = _levels(answer)
    styles = styles_of(arm.name for arm in answer.main[:MOST_NAMED])
    has_features = any(arm.feature_seconds for arm in answer.arms)
    what = "features and training" if has_features else "training time"
    times = f"{what}, s (full account, log scale)"
    for axis, (measure, y_label) in zip(axes, measures.items(), strict=True):
        for arm in reversed(answer.arms):
            _plot_arm(axis, arm, measure, styles.get(arm.name), is_best=arm is answer.best)
        axis.set(xlabel=times, ylabel=y_label)
        axis.set_xscale("log")
        runs = [run for arm in answer.arms for run in arm.runs.values()]
        if measure == "probe_loss" and all(loss > 0 for run in runs for loss in run.probes.losses):
            axis.set_yscale("log")
            label_few(axis.yaxis)
        elif measure == TEST_RECALL:
            _draw_levels(axis, levels)
        if measure == f"{answer.split}_{answer.metric.replace('@', '_at_')}" and answer.target:
            axis.axhline(-answer.target, color=GREY, linewidth=0.8, linestyle="--")
        label_few(axis.xaxis)
        finish(axis)
    handles, names = axes[0].get_legend_handles_labels()
    add_legend_below(figure, handles[::-1], names[::-1])
    return entitle(figure, answer.title)


def _levels(answer: Answer) -> dict[str, tuple[float, str]]:
    """Return the test recalls of the floors and of the blend by label, with their lines."""
    levels = {floor.label(): (floor.value("test") or 0.0, ":") for floor in answer.floors}
    recalls = [blend.reported.recall for blend in answer.blends]
    return levels | {f"both {recall:.3f}": (recall, "--") for recall in recalls}


def _draw_levels(axis: Any, levels: Mapping[str, tuple[float, str]]) -> None:
    """Draw recalls as lines, with their labels to the right of the axes; labels of levels that are
    close to each other stand below one another.
    """
    for recall, line in levels.values():
        axis.axhline(recall, color=LEVEL_COLOR, linestyle=line, linewidth=1.2)
    bottom, top = axis.get_ylim()
    gap = (top - bottom) / MOST_LABELS
    y = top + gap
    for label, (recall, _) in sorted(levels.items(), key=lambda item: -item[1][0]):
        y = min(recall, y - gap)
        place = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": "small"}
        axis.annotate(label, (1.01, y), color=LEVEL_COLOR, annotation_clip=False, **place)


class Target(NamedTuple):
    """A level of a measure, with the speedup of a variant in reaching it."""

    variant: Variant
    level: float
    speedup: speedups.AtTarget


def sensitivity(runs: Sequence[Run], measure: str) -> list[Target]:
    """Return every arm of a group at every level, from the first to the last that any run
    reached.

    A loss level is reached where the probe first comes down to it, a recall level where test
    recall@50 first rises to it, both linear between evaluations. The levels are common to all
    variants and seeds. A seed is censored at a level that it does not reach, or that it has passed
    at its first evaluation (:class:`ncfbench.statistics.speedups.AtTarget`).
    """
    pairs: dict[Variant, list[tuple[Curve, Curve]]] = {}
    for variant, by_seed in by_variant(runs).items():
        both = paired(by_seed.values())
        is_baseline = variant == next(iter(by_seed.values())).baseline
        if is_baseline or any(run.shorter is None for run, _ in both):
            continue
        curves = [(falling(run, measure), falling(base, measure)) for run, base in both]
        if curves and all(arm.losses for pair in curves for arm in pair):
            pairs[variant] = curves
    sign = -1 if measure == "test_recall_at_50" else 1
    levels = speedups.levels([arm for curves in pairs.values() for pair in curves for arm in pair])
    return [
        Target(variant, sign * level, speedups.speedup_at([level] * len(curves), curves))
        for variant, curves in pairs.items()
        for level in levels
    ]


def draw_targets(runs: Sequence[Run]) -> Any:
    """Draw how many times sooner each arm comes to every level of loss and recall.

    The band is the 95 % interval over seeds. Where some seed did not reach a level, or was past it
    at its first evaluation, a thin line is a bound of the ratio.

    Returns:
        None where no level has a ratio, or devices were simulated: their times are of no use.
    """
    if any(run.is_simulated for run in runs):
        return None
    found = {measure: sensitivity(runs, measure) for measure in TARGET_MEASURES}
    config, variants = runs[0].config, by_variant(runs)
    if not any(target.speedup.total for own in found.values() for target in own):
        return None
    figure = new_figure(9.5, 4.4)
    axes = figure.subplots(1, 2, sharey=True)
    loss = find_loss(config.loss).title
    baseline = find_sampler(runs[0].baseline_sampler).title
    for axis, (measure, own) in zip(axes, found.items(), strict=True):
        for variant in main_variants(variants, config.encoder):
            shown = [target for target in own if target.variant == variant]
            if shown:
                _plot_targets(axis, shown, config.encoder)
        is_loss = measure == "probe_loss"
        axis.set(
            xlabel=f"probe loss to come to ({loss})" if is_loss else "recall@50 to come to (test)"
        )
        if is_loss:
            if all(target.level > 0 for target in own):
                axis.set_xscale("log")
                label_few(axis.xaxis)
            axis.invert_xaxis()
        axis.set_yscale("log")
        label_few(axis.yaxis)
        axis.axhline(1, color=GREY, linewidth=0.8, linestyle="--")
        finish(axis)
    axes[0].set(ylabel=f"times sooner than {baseline}")
    axes[0].legend(frameon=False, loc="best")
    what = ", ".join([config.dataset, find_encoder(config.encoder).title, loss])
    title = f"How much sooner than {baseline}, at every target: {what}"
    note = f"{labels.label(runs)}. {TARGETS_NOTE}"
    return entitle(figure, title, note)


def _plot_arm(
    axis: Any, arm: Arm, measure: str, style: dict[str, Any] | None, *, is_best: bool
) -> None:
    # The start is no point of a logarithmic axis.
    means = arm.means(measure)
    points = [(at, value) for at, value in means if at > 0 and math.isfinite(value)]
    if not points:
        return
    if style is None:
        style = {"color": GREY, "alpha": FADED, "linewidth": 0.8}
    else:
        width = 2.2 if is_best else 1.3
        style = style | {"label": arm.name, "linewidth": width, "markersize": 4}
    axis.plot(*zip(*points, strict=True), markevery=max(1, len(points) // 8), **style)


def _plot_targets(axis: Any, targets: Sequence[Target], encoder: str) -> None:
    """Plot one variant's speedup at each level that all its seeds reached, and bounds elsewhere."""
    style = STYLES.get(targets[0].variant.sampler, PLUGIN_STYLE) | {"markersize": 4}
    points = [(target.level, target.speedup.total) for target in targets]
    known = [(level, ratio) for level, ratio in points if ratio is not None]
    name = targets[0].variant.label(encoder)
    levels, values = [level for level, _ in known], [ratio.value for _, ratio in known]
    axis.plot(levels, values, markevery=max(1, len(known) // 8), label=name, **style)
    bands = [(level, ratio.lower, ratio.upper) for level, ratio in known if ratio.lower is not None]
    if len(bands) > 1:
        axis.fill_between(*zip(*bands, strict=True), color=style["color"], alpha=0.15, linewidth=0)
    for end in ("total_at_least", "total_at_most"):
        # Of neighbouring levels alone: a line over those with a ratio would cross its curve.
        ends = [(target.level, getattr(target.speedup, end)) for target in targets]
        for is_bound, own in groupby(ends, lambda point: point[1] is not None):
            if is_bound:
                axis.plot(*zip(*own, strict=True), color=style["color"], **BOUND)
