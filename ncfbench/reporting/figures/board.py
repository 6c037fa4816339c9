"""The figure of the board: performance profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ncfbench.reporting.board import SHARES, Board, TargetTime, soonest
from ncfbench.reporting.figures.drawing import (
    Drawing,
    add_legend_below,
    entitle,
    finish,
    label_few,
    new_figure,
    styles_of,
)

LARGEST_FACTOR = 16.0
MOST_CONTESTANTS = 10
"""The best ones, that lines can be told apart."""


def draw_board(board: Board) -> Drawing:
    """Draw the share of data sets on which each contestant takes at most a number of times as long
    as the soonest one, for each target.
    """
    figure = new_figure(9.5, 4.2)
    axes = figure.subplots(1, len(SHARES), sharey=True)
    styles = styles_of([*board.standings[SHARES[0]]][:MOST_CONTESTANTS])
    for axis, share in zip(axes, SHARES, strict=True):
        standings = board.standings[share]
        first = soonest(standings)
        for name, (color, line, mark) in styles.items():
            factors, shares = steps(standings[name], first)
            look = {"color": color, "linestyle": line, "marker": mark, "markersize": 4}
            axis.plot(factors, shares, drawstyle="steps-post", label=name, **look)
        axis.set_xscale("log")
        axis.set(xlim=(1, LARGEST_FACTOR), ylim=(-0.03, 1.03))
        axis.set(xlabel=f"times as long as the soonest, to {share:g} of the best {board.metric}")
        label_few(axis.xaxis)
        finish(axis)
    axes[0].set(ylabel="share of data sets")
    handles, labels = axes[0].get_legend_handles_labels()
    add_legend_below(figure, handles, labels)
    return entitle(figure, f"The board: {', '.join(board.names)}", "")


def steps(own: Sequence[TargetTime], first: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the factors at which a contestant's share of data sets rises, and the share from each
    on, from 1 to :data:`LARGEST_FACTOR`.
    """
    factors = sorted(
        max(each.seconds / at, 1.0)
        for each, at in zip(own, first, strict=True)
        if each.seconds < math.inf
    )
    ends: list[Any] = [1.0, *factors, LARGEST_FACTOR]
    return ends, [sum(factor <= end for factor in factors) / len(own) for end in ends]
