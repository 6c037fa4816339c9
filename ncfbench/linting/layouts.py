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
        masks: value of a mask at what is no padding.
        has_wide_mask: the mask is of negatives, [b, k], not of rows.
    """

    k: int = 0
    negatives: Literal["rows", "single", "shared"] = "rows"
    labels: Literal["rows", "pairs", "eye"] = "rows"
    is_catalogue: bool = False
    tables: bool = False
    masks: bool | float = True
    has_wide_mask: bool = False


def layouts_of(loss: Loss) -> list[Layout]:
    """Return the layouts that a loss may take, the likeliest first."""
    found = _shapes(loss)
    if loss.has("item_ids") and loss.has(*LOOKED_UP):
        found += [replace(layout, tables=True) for layout in found]
    if loss.has("row_mask", "negative_mask"):
        wide = (False, True) if loss.has("negatives", "negative_scores") else (False,)
        found = [
            replace(layout, masks=masks, has_wide_mask=is_wide)
            for layout in found
            for is_wide in (wide if loss.has("row_mask") else (False,))
            for masks in (True, 1.0, False, 0.0)
        ]
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
