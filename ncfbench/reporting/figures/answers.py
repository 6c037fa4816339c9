"""Figure of an answer: loss and recall of its main arms against training time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import ArmResult
from ncfbench.reporting.figures.drawing import (
    GREY,
    Drawing,
    add_legend_below,
    entitle,
    finish,
    label_few,
    line_style,
    new_figure,
    thin,
)
from ncfbench.reporting.profiles import time_label
from ncfbench.runs.arms import Variant

FADED = 0.3
"""Opacity of arms that the answer's table leaves out."""


def draw_answer(answer: Answer) -> Drawing | None:
    """Draw probe loss, with the target, and recall@50 against seconds of training.

    Means over seeds. Arms that are not among :attr:`ncfbench.reporting.answers.Answer.main` are
    grey.

    Returns:
        None for a single arm.
    """
    if len(answer.arms) < 2:
        return None
    figure = new_figure(9.5, 4.0)
    axes = figure.subplots(1, len(answer.measures), squeeze=False)[0]
    main = {arm.name for arm in answer.main}
    times = time_label(run for arm in answer.main for run in arm.runs.values())
    for axis, (measure, y_label) in zip(axes, answer.measures.items(), strict=True):
        for arm in reversed(answer.arms):
            _plot(axis, arm, measure, is_main=arm.name in main, is_best=arm is answer.best)
        axis.set(xlabel=times, ylabel=y_label)
        axis.set_xscale("log")
        label_few(axis.xaxis)
        if measure == "probe_loss":
            _finish_losses(axis, answer.arms, answer.target)
        finish(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    add_legend_below(figure, handles[::-1], labels[::-1])
    title = f"Which sampler trains soonest: {answer.subject}"
    return entitle(figure, title, answer.data_label)


def _finish_losses(axis: Any, arms: Sequence[ArmResult], target: float | None) -> None:
    if target is not None:
        axis.axhline(target, color=GREY, linewidth=0.8, linestyle="--")
    runs = [run for arm in arms for run in arm.runs.values()]
    if all(loss > 0 for run in runs for loss in run.probes.losses):
        axis.set_yscale("log")
        label_few(axis.yaxis)


def _plot(axis: Any, arm: ArmResult, measure: str, *, is_main: bool, is_best: bool) -> None:
    # The start is no point of a logarithmic axis.
    points = thin([point for point in arm.means(measure) if point[0] > 0 and _is_finite(point)])
    if not points:
        return
    style: dict[str, Any] = {"color": GREY, "alpha": FADED, "linewidth": 0.8}
    if is_main:
        style = line_style(Variant.of(arm.config))
        style |= {"label": arm.name, "linewidth": 2.2 if is_best else 1.3}
    axis.plot(*zip(*points, strict=True), markevery=max(1, len(points) // 8), **style)


def _is_finite(point: tuple[float, float]) -> bool:
    return math.isfinite(point[1])
