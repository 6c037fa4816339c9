"""The figure of the board: performance profiles."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.reporting.board import SHARES, Board, factors, soonest
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
    as the soonest one, for each target; of the best at the last one.
    """
    figure = new_figure(9.5, 4.2)
    axes = figure.subplots(1, len(SHARES), sharey=True)
    everyone = [*board.standings[SHARES[-1]]]
    styles = styles_of(everyone[:MOST_CONTESTANTS])
    for axis, share in zip(axes, SHARES, strict=True):
        standings = board.standings[share]
        first = soonest(standings)
        for name, style in styles.items():
            ends, shares = steps(factors(standings[name], first), len(first))
            axis.plot(ends, shares, drawstyle="steps-post", label=name, markersize=4, **style)
        axis.set_xscale("log")
        axis.set(xlim=(1, LARGEST_FACTOR), ylim=(-0.03, 1.03))
        axis.set(xlabel=f"times as long as the soonest, to {share:g} of the best {board.metric}")
        label_few(axis.xaxis)
        finish(axis)
    axes[0].set(ylabel="share of data sets")
    add_legend_below(figure, *axes[0].get_legend_handles_labels())
    which = f"{len(styles)} of {len(everyone)} contestants"
    return entitle(figure, f"The board: {', '.join(board.names)}, {which}", "")


def steps(reached: Sequence[float], data_sets: int) -> tuple[list[float], list[float]]:
    """Return the factors at which a contestant's share of data sets rises, and the share from each
    on, from 1 to :data:`LARGEST_FACTOR`.
    """
    inside = sorted(factor for factor in reached if factor <= LARGEST_FACTOR)
    ends = [1.0, *inside, LARGEST_FACTOR]
    return ends, [sum(factor <= end for factor in reached) / data_sets for end in ends]
