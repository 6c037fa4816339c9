"""A blend: the scores of a floor and of a run, each brought to one scale, and weighted.

For a user, s' = (s - mean) / deviation over his candidates, and a blend of weight w scores
(1 - w) s'_floor + w s'_run. Validation links choose w; test links have no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.features import Float32
from ncfbench.floors.task import HeldOut
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.ranks import Scores
from ncfbench.storage import tables
from ncfbench.storage.schemas import BLEND

WEIGHTS = tuple(step / 10 for step in range(11))
"""Weights of the run that are tried."""
Row = Mapping[str, Any]
LeftOut: TypeAlias = Callable[[int], NDArray[np.integer]]


class Blend:
    """A floor's and a run's scores of the candidates of held-out links, each with mean 0 and
    deviation 1 over a user's candidates.
    """

    def __init__(self, floor: Scores, run: Scores, held_out: HeldOut) -> None:
        self._parts, self._held_out = (floor, run), held_out

    def evaluate(self, weights: Sequence[float]) -> list[Evaluation]:
        """Return the quality of the links, ranked with each of some weights of the run."""

        def blended(users: NDArray[np.integer]) -> Iterator[Float32]:
            floor, run = (self._standardised(part(users), users) for part in self._parts)
            return (np.float32(1 - weight) * floor + np.float32(weight) * run for weight in weights)

        return self._held_out.evaluate_all(blended)

    def choose(self, metric: str) -> tuple[float, dict[float, float], Evaluation]:
        """Return the weight of the largest value of a metric, of equal ones the nearest to a half;
        the value of each weight; and the quality with the chosen one.

        Args:
            metric: a name of :data:`ncfbench.storage.schemas.QUALITY`, such as ``recall_at_50``.
        """
        tried = dict(zip(WEIGHTS, self.evaluate(WEIGHTS), strict=True))
        heights = {weight: float(tried[weight].figures[metric] or 0.0) for weight in WEIGHTS}
        best = max(WEIGHTS, key=lambda weight: (heights[weight], -abs(weight - 0.5)))
        return best, heights, tried[best]

    def _standardised(self, scores: Float32, users: NDArray[np.integer]) -> Float32:
        mean, deviation = scale(scores, users, self._held_out.left_out)
        return np.asarray((scores - mean) / deviation)


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


def write(folder: Path, rows: Sequence[Row]) -> None:
    """Keep blends in a run's folder, in place of those before."""
    tables.write_rows(folder / "blend.parquet", rows, BLEND)
