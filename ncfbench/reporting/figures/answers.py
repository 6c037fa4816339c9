"""Figure of an answer: loss and recall of its main arms against training time."""

from __future__ import annotations

from typing import Any

from ncfbench.catalog import find_loss
from ncfbench.reporting.answers import Answer, Standing
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
from ncfbench.reporting.retimed import time_label
from ncfbench.runs.arms import Variant

FADED = 0.3
"""Opacity of arms that the answer's table leaves out."""


def draw_answer(answer: Answer) -> Drawing | None:
    """Draw probe loss, with the target, and test recall@50 against seconds of training.

    Means over seeds. Arms that are not among :attr:`ncfbench.reporting.answers.Answer.main` are
    grey.

    Returns:
        None for a single arm.
    """
    if len(answer.standings) < 2:
        return None
    figure = new_figure(9.5, 4.0)
    axes = figure.subplots(1, 2)
    loss = find_loss(answer.config.loss).title
    measures = (
        ("probe_loss", f"probe loss ({loss}, log scale)"),
        ("test_recall_at_50", "test recall@50"),
    )
    main = answer.main
    times = time_label(run for each in main for run in each.contender.runs.values())
    for axis, (measure, y_label) in zip(axes, measures, strict=True):
        for standing in reversed(answer.standings):
            _plot(
                axis, standing, measure, is_main=standing in main, is_best=standing is answer.best
            )
        axis.set(xlabel=times, ylabel=y_label)
        axis.set_xscale("log")
        label_few(axis.xaxis)
        if measure == "probe_loss":
            _finish_losses(axis, answer)
        finish(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    add_legend_below(figure, handles[::-1], labels[::-1])
    title = f"Which sampler trains soonest: {answer.subject}"
    return entitle(figure, title, answer.data_label)


def _finish_losses(axis: Any, answer: Answer) -> None:
    if answer.target is not None:
        axis.axhline(answer.target, color=GREY, linewidth=0.8, linestyle="--")
    if all(
        row["probe_loss"] > 0
        for each in answer.standings
        for run in each.contender.runs.values()
        for row in run.curve
    ):
        axis.set_yscale("log")
        label_few(axis.yaxis)


def _plot(axis: Any, standing: Standing, measure: str, *, is_main: bool, is_best: bool) -> None:
    # The start is no point of a logarithmic axis.
    points = thin([point for point in standing.contender.means(measure) if point[0] > 0])
    if not points:
        return
    style: dict[str, Any] = {"color": GREY, "alpha": FADED, "linewidth": 0.8}
    if is_main:
        style = line_style(Variant.of(standing.contender.config))
        style |= {"label": standing.name, "linewidth": 2.2 if is_best else 1.3}
    axis.plot(*zip(*points, strict=True), markevery=max(1, len(points) // 8), **style)
