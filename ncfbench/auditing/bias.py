"""The bias of a mean of noisy vectors: an estimate that noise does not inflate, with its bounds.

The squared distance of a mean to its target is inflated by the mean's own noise. The product of two
*independent* errors is not: with block means h_a = mean_a - target, the mean of h_a . h_b over all
pairs a != b is an unbiased estimate of the squared bias, the average over all ways of splitting the
blocks in halves. Pure NumPy and SciPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncfbench.statistics.intervals import family_quantile, jackknife_error, t_quantile

Float = NDArray[np.floating]

POWER = 0.9
"""Probability with which a bias or an error of the size that is stated as detectable is found."""
RESOLUTION = 1e-3
"""Share of the exact gradient below which a bias may be float32's rounding and counts as none."""


@dataclass(frozen=True)
class Bias:
    """Bias of a mean of vectors, as fractions of the exact vector's length."""

    squared: float
    """The unbiased estimate of the squared bias; may be negative."""
    lower: float
    upper: float
    detectable: float
    """The bias that as many blocks find with probability ``POWER`` along the noisiest direction."""
    cosine: float
    """Between the expected vector and the exact one, corrected for noise."""
    variance: float
    """Variance of one batch: E |g - E g|^2 / |exact|^2."""
    batches: int

    @property
    def estimate(self) -> float:
        """Square root of the estimate; 0 where that is negative."""
        return math.sqrt(max(self.squared, 0.0))


def estimate(means: Float, exact: Float, batches: int, verdicts: int = 1) -> Bias:
    """Estimate the bias of blocks' means.

    Both bounds hold at 95 % over all verdicts together (Bonferroni): from the jackknife over blocks
    with Student's quantile, and above that the bound for a bias along the direction in which the
    mean is noisiest, to which the jackknife is blind while the estimate is near zero.

    Args:
        means: float[B, P], B >= 4 means of independent blocks of equal size.
        exact: float[P].
        batches: batches in all blocks together.
        verdicts: how many verdicts the bounds must hold for together.
    """
    n = len(means)
    scale = float(np.linalg.norm(exact.astype(np.float64)))
    errors = (means - exact) / scale
    gram = (errors @ errors.T).astype(np.float64)
    total, diagonal, rows = gram.sum(), np.diag(gram), gram.sum(axis=1)
    squared = (total - diagonal.sum()) / (n * (n - 1))
    without = ((total - 2 * rows + diagonal) - (diagonal.sum() - diagonal)) / ((n - 1) * (n - 2))
    error = jackknife_error(without)
    quantile = family_quantile(n - 1, verdicts)
    noisiest = _largest_variance(errors) / n
    variance = (float(diagonal.mean()) - total / n**2) * n / (n - 1) * (batches / n)
    # |mean|^2 without the mean's own noise, and its product with the exact vector.
    direction = errors.astype(np.float64) @ (exact.astype(np.float64) / scale)
    length = math.sqrt(max(squared + 2 * float(direction.mean()) + 1, 1e-30))
    along = math.sqrt(max(squared + noisiest, 0)) + quantile * math.sqrt(noisiest)
    return Bias(
        squared=float(squared),
        lower=math.sqrt(max(squared - quantile * error, 0)),
        upper=math.sqrt(max(squared + quantile * error, along**2, 0)),
        detectable=_detectable(quantile + t_quantile(n - 1, POWER), error, noisiest),
        cosine=min((1 + float(direction.mean())) / length, 1.0),
        variance=variance,
        batches=batches,
    )


def _detectable(quantiles: float, error: float, noisiest: float) -> float:
    """Return the bias x at which x^2 is ``quantiles`` standard errors, which grow with x."""
    slope = 4 * noisiest * quantiles**2
    return math.sqrt((slope + math.sqrt(slope**2 + 4 * (quantiles * error) ** 2)) / 2)


def _largest_variance(errors: Float) -> float:
    """Return the variance of the blocks along their noisiest direction.

    The direction is found in one half of the blocks, the variance measured in the other.
    """
    half = len(errors) // 2
    variances = []
    for one, other in ((errors[:half], errors[half:]), (errors[half:], errors[:half])):
        one, other = one - one.mean(axis=0), other - other.mean(axis=0)
        _, vectors = np.linalg.eigh((one @ one.T).astype(np.float64))
        direction = vectors[:, -1].astype(one.dtype) @ one
        direction /= max(float(np.linalg.norm(direction)), 1e-30)
        variances.append(float(np.sum((other @ direction) ** 2)) / (len(other) - 1))
    return sum(variances) / 2
