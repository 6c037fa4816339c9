"""The figure of a race: its curves against seconds of training, those that left in grey."""

from __future__ import annotations

import math

from ncfbench.advice.answer import STAYED, Answer, Standing
from ncfbench.catalog import find_encoder, find_loss
from ncfbench.reporting.figures.drawing import (
    GREY,
    PLUGIN_STYLE,
    STYLES,
    Drawing,
    finish,
    label_few,
    new_figure,
)

FADED = 0.35
"""Opacity of those that left."""


def draw_race(answer: Answer) -> Drawing:
    """Draw the measure of every entrant against the training clock, both axes logarithmic.

    Entrants that stayed to the end have the colour of their sampler and a label, further seeds a
    thin line; the others fade.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    question = answer.question
    figure = new_figure(8.0, 4.8)
    axis = figure.subplots()
    is_loss = question.target == "loss"
    for each in reversed(answer.standings):
        if each.has_run:
            _plot(axis, each, is_loss=is_loss, is_faded=each.status not in STAYED)
    axis.set_xscale("log")
    label_few(axis.xaxis)
    curves = [curve for each in answer.standings for curve in each.runs.curves.values()]
    if is_loss and all(value > 0 for curve in curves for value in curve.values):
        axis.set_yscale("log")
        label_few(axis.yaxis)
    axis.set(
        xlabel="training clock, s",
        ylabel="probe loss" if is_loss else "recall@50 on validation items",
    )
    finish(axis)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], frameon=False, fontsize="small")
    base = question.base
    losses = ", ".join(find_loss(name).title for name in question.losses)
    title = f"{base.dataset}, {find_encoder(base.encoder).title}, {losses}"
    axis.set_title(title)
    return Drawing(title, figure)


def _plot(axis: object, each: Standing, *, is_loss: bool, is_faded: bool) -> None:
    color, line, _ = STYLES.get(each.entrant.shape.sampler, PLUGIN_STYLE)
    is_best = each.status == "recommended"
    for place, curve in enumerate(each.runs.curves.values()):
        # The start is no point of a logarithmic axis.
        points = [
            (seconds, value if is_loss else -value)
            for seconds, value in zip(curve.seconds, curve.values, strict=True)
            if seconds > 0 and math.isfinite(value)
        ]
        if not points:
            continue
        style = {"color": color, "linestyle": line, "linewidth": 2.2 if is_best else 1.3}
        if is_faded:
            style |= {"color": GREY, "alpha": FADED, "linewidth": 0.8}
        elif not place:
            style |= {"label": f"{each.name} ({each.status})"}
        else:
            style |= {"linewidth": 0.8, "alpha": 0.7}
        axis.plot(*zip(*points, strict=True), **style)  # type: ignore[attr-defined]
