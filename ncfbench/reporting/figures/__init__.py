"""Figures: the paper's and our own, drawn from our runs (Matplotlib, the ``plots`` extra)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ncfbench.reporting.figures.curves import draw_answer, draw_targets
from ncfbench.reporting.figures.drawing import Drawing, file_name
from ncfbench.reporting.results import Results
from ncfbench.reporting.selection import free_name

KINDS = ("svg", "png", "pdf")
"""Kinds of files of each figure."""
Draw = Callable[[], Drawing | None]
"""Draws a figure; None where the runs have nothing to draw."""


def figures(results: Results) -> dict[str, Draw]:
    """Return what draws each figure of the runs and the answers, by name; one whose name is taken
    has a number after it.
    """
    found: dict[str, Draw] = {}
    for answer in results.answers:
        found[free_name(answer.named("answer"), found)] = partial(draw_answer, answer)
    for runs in results.groups:
        found[free_name(file_name("targets", runs[0]), found)] = partial(draw_targets, runs)
    return found


def drawn(results: Results) -> dict[str, Drawing]:
    """Return the figures that the runs have something to draw for, by name.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    made = {name: draw() for name, draw in figures(results).items()}
    return {name: drawing for name, drawing in made.items() if drawing is not None}
