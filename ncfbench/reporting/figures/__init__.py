"""Figures: the paper's and our own, drawn from our runs (Matplotlib, the ``plots`` extra)."""

from __future__ import annotations

from typing import Any

from ncfbench.reporting.figures.curves import draw_answer, draw_targets
from ncfbench.reporting.results import Results
from ncfbench.reporting.selection import free_name
from ncfbench.reporting.table import slug
from ncfbench.runs.labels import unusual_label

KINDS = ("svg", "png", "pdf")
"""Kinds of files of each figure."""
LONGEST = 120
"""Characters of a figure's name."""


def drawn(results: Results) -> dict[str, Any]:
    """Return the figures that the answers and the runs have something to draw for, by name; one
    whose name is taken has a number after it.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    made = [(answer.named("answer"), draw_answer(answer)) for answer in results.answers]
    for runs in results.groups:
        config, digits = runs[0].config, runs[0].data_fingerprint[:6]
        what = config.dataset, config.encoder, config.loss, digits, unusual_label(runs[0])
        made.append((slug("targets", *what), draw_targets(runs)))
    found: dict[str, Any] = {}
    for name, drawing in made:
        if drawing is not None:
            found[free_name(name[:LONGEST], found)] = drawing
    return found
