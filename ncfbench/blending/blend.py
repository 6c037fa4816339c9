"""A blend: the scores of a floor and of a run, each brought to one scale, and weighted.

For a user, s' = (s - mean) / deviation over his candidates, and a blend of weight w scores
(1 - w) s'_floor + w s'_run. Validation links choose w; test links have no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.features import Float32
from ncfbench.floors.task import HeldOut
from ncfbench.runs.folder import BLEND_FILE
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.ranks import Scores
from ncfbench.storage import tables
from ncfbench.storage.schemas import BLEND

WEIGHTS = tuple(step / 10 for step in range(11))
"""Weights of the run that are tried."""
Row = Mapping[str, Any]
LeftOut: TypeAlias = Callable[[int], NDArray[np.integer]]


@dataclass(frozen=True)
class Choice:
    """The weight that validation links chose.

    Attributes:
        heights: of each weight, what was to be large.
        validation: quality of validation links with the chosen one.
    """

    weight: float
    heights: Mapping[float, float]
    validation: Evaluation


def scale(
    scores: Float32, users: NDArray[np.integer], left_out: LeftOut | None
) -> tuple[Float32, Float32]:
    """Return the mean and the deviation of each user's scores over his candidates, float32[users,
    1]; a deviation of 1 where all are equal.

    Args:
        left_out: returns the indices that are no candidates of a user.
    """
    count = np.full(len(users), scores.shape[1], np.float64)
    total = scores.sum(axis=1, dtype=np.float64)
    squares = np.einsum("uc,uc->u", scores, scores, dtype=np.float64)
    for row, user in enumerate(users.tolist() if left_out is not None else ()):
        assert left_out is not None
        known = scores[row][left_out(user)].astype(np.float64)
        count[row] -= len(known)
        total[row] -= known.sum()
        squares[row] -= known @ known
    mean = total / np.maximum(count, 1)
    variance = squares / np.maximum(count, 1) - mean**2
    # What rounding leaves of equal scores is no deviation.
    is_flat = variance <= 1e-10 * np.maximum(squares / np.maximum(count, 1), 1e-30)
    deviation = np.sqrt(np.where(is_flat, 1.0, variance))
    return mean[:, None].astype(np.float32), deviation[:, None].astype(np.float32)


def standardised(scores: Scores, held_out: HeldOut) -> Scores:
    """Return scores with mean 0 and deviation 1 over each user's candidates."""

    def of(users: NDArray[np.integer]) -> Float32:
        raw = scores(users)
        mean, deviation = scale(raw, users, held_out.left_out)
        return np.asarray((raw - mean) / deviation)

    return of


def mixed(floor: Scores, own: Scores, weight: float) -> Scores:
    """Return the weighted sum of standardised scores."""
    shares = np.float32(1 - weight), np.float32(weight)
    return lambda users: shares[0] * floor(users) + shares[1] * own(users)


def choose(floor: Scores, own: Scores, held_out: HeldOut, metric: str) -> Choice:
    """Return the weight of the largest value of a metric; of equal ones the nearest to a half.

    Args:
        floor, own: standardised scores of the candidates of the validation links.
        metric: a name of :data:`ncfbench.storage.schemas.QUALITY`, such as ``recall_at_50``.
    """
    tried = {weight: held_out.evaluate(mixed(floor, own, weight)) for weight in WEIGHTS}
    heights = {weight: float(each.figures[metric] or 0.0) for weight, each in tried.items()}
    best = max(WEIGHTS, key=lambda weight: (heights[weight], -abs(weight - 0.5)))
    return Choice(best, heights, tried[best])


def read(folder: Path) -> Row | None:
    """Return the row of :data:`ncfbench.storage.schemas.BLEND` in a run's folder; None without one.

    Raises:
        DataError: the table is damaged.
    """
    rows = tables.read_rows(folder / BLEND_FILE, BLEND) if (folder / BLEND_FILE).exists() else []
    return rows[0] if rows else None


def write(folder: Path, row: Row) -> None:
    """Keep a blend in a run's folder, in place of the one before."""
    tables.write_rows(folder / BLEND_FILE, [row], BLEND)
