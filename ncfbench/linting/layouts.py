"""The shapes of a loss's arguments, which are found by trying."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ncfbench.linting.signature import Loss

DRAWN = 3
"""Negatives for each row, where a loss takes several."""
LOOKED_UP = ("probability", "log_probability", "counts")
"""Meanings of an argument that may be a table of all items instead of one number for each row."""
ROWS = 8
"""Rows of a probe's scene."""


@dataclass(frozen=True)
class Layout:
    """The shapes that a loss takes.

    Attributes:
        k: negatives for each row.
        negatives: whether they are [b, k, D], [b, D] or [b k, D].
        labels: 0 to b - 1, one for each row; 0 and 1, one for each pair; or the identity.
        tables: whether probabilities and counts are those of all items, which ids look up.
        is_catalogue: scores are those of all items, each in one column, which labels count.
    """

    k: int = 0
    negatives: Literal["rows", "single", "shared"] = "rows"
    labels: Literal["rows", "pairs", "eye"] = "rows"
    is_catalogue: bool = False
    tables: bool = False


def layouts_of(loss: Loss) -> list[Layout]:
    """Return the layouts that a loss may take, the likeliest first."""
    found = _shapes(loss)
    if loss.has("item_ids") and loss.has(*LOOKED_UP):
        found += [replace(layout, tables=True) for layout in found]
    return found


def _shapes(loss: Loss) -> list[Layout]:
    if loss.has("negatives", "negative_scores"):
        return [Layout(DRAWN), Layout(1, "single"), Layout(DRAWN, "shared")]
    if loss.has("labels") and loss.has("scores"):
        return [
            Layout(DRAWN, labels="rows", is_catalogue=True),
            Layout(DRAWN, labels="pairs"),
            Layout(labels="eye"),
        ]
    if loss.has("labels"):
        return [Layout(DRAWN, labels="pairs"), Layout()]
    return [Layout()]
