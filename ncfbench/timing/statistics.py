"""The paper's figures of merit from curves and raw samples. Pure NumPy: no clock, no file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUSY_SPREAD = 0.2
"""A larger :func:`spread` means that the machine was busy. CiteULike's CNN on two cores:
0.03 to 0.13 with nothing beside it, 0.24 to 0.55 with other programs at work (2026-11-21).
"""
ROUNDS_OF_INTERVALS = 7
"""Fewer rounds of a profile make a bootstrap's interval much too narrow."""


def iterations_to(
    reference: float, iterations: Sequence[float], losses: Sequence[float]
) -> float | None:
    """Return the iteration at which a curve first reaches ``reference`` from above, interpolated
    linearly between probes; None if it never does.
    """
    for index, loss in enumerate(losses):
        if loss <= reference:
            if index == 0 or losses[index - 1] == loss:
                return float(iterations[index])
            before, after = iterations[index - 1], iterations[index]
            share = (losses[index - 1] - reference) / (losses[index - 1] - loss)
            return float(before + share * (after - before))
    return None


def seconds_per_iteration(samples: Sequence[Mapping[str, Any]], kind: str) -> float | None:
    """Return the median of seconds / iterations over the raw blocks of a kind.

    It leaves out blocks of an epoch that an interruption cut, unless there are no others, and
    blocks of less than half the iterations of the longest, in which synchronisation weighs more.
    """
    values = _of_blocks(samples, kind)
    return float(np.median(values)) if values else None


def spread(samples: Sequence[Mapping[str, Any]], kind: str) -> float | None:
    """Return the interquartile range of the blocks of :func:`seconds_per_iteration`, as a share of
    their median.

    A few hundredths on a quiet machine; see :data:`BUSY_SPREAD`.
    """
    values = _of_blocks(samples, kind)
    if not values:
        return None
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def _of_blocks(samples: Sequence[Mapping[str, Any]], kind: str) -> list[float]:
    blocks = [row for row in samples if row["kind"] == kind]
    whole = [row for row in blocks if not row["resumed"]] or blocks
    longest = max((row["iterations"] for row in whole), default=0)
    return [row["seconds"] / row["iterations"] for row in whole if 2 * row["iterations"] >= longest]


def centre(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the centre of positive values, and its 95 % interval.

    This is the Hodges-Lehmann estimator on logarithms: the median of the means of all pairs, with
    those order statistics of the means that the exact distribution of Wilcoxon's signed ranks
    gives. A disturbed value moves them little. Fewer than six values cannot give 95 %: the interval
    is then their range.
    """
    logs = np.log(np.asarray(values, float))
    n = len(logs)
    row, column = np.triu_indices(n)
    walsh = np.sort((logs[row] + logs[column]) / 2)
    # ways[r]: how many of the 2^n choices of signs give the sum of ranks r.
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.append(ways, np.zeros(rank)) + np.append(np.zeros(rank), ways)
    left_out = max(int(np.searchsorted(np.cumsum(ways) / 2.0**n, 0.025, side="right")) - 1, 0)
    return math.exp(np.median(walsh)), math.exp(walsh[left_out]), math.exp(walsh[-1 - left_out])


def ratio_of_medians(
    baseline: Sequence[float], candidate: Sequence[float]
) -> tuple[float, float, float]:
    """Return the median of the baseline's seconds over the candidate's, and its 95 % interval.

    Medians of each arm instead of ratios of each round, because disturbances only slow a machine
    down and rarely hit both arms of a round. The interval is a bootstrap over rounds, which keeps
    both arms of a round together.

    Args:
        baseline, candidate: seconds of the same rounds of an interleaved measurement; with fewer
            than ten rounds the interval is somewhat too narrow.
    """
    both = np.array([baseline, candidate], float)
    rounds = np.random.default_rng(0).integers(0, both.shape[1], (4000, both.shape[1]))
    medians = np.median(both[:, rounds], axis=2)
    lower, upper = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    return float(np.median(both[0]) / np.median(both[1])), float(lower), float(upper)


def drift(seconds: Sequence[float]) -> float:
    """Return the median of the second half of some blocks over that of the first: 1 on a quiet
    machine.
    """
    half = len(seconds) // 2
    if half == 0:
        return 1.0
    return float(np.median(seconds[-half:]) / np.median(seconds[:half]))


def weighted_mean(samples: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """Return the mean of a column of the full blocks, weighted by their iterations."""
    rows = [row for row in samples if row["kind"] == "full" and row[column] is not None]
    total = sum(row["iterations"] for row in rows)
    return sum(row[column] * row["iterations"] for row in rows) / total if total else None


@dataclass(frozen=True)
class Arm:
    """A run's curve and times, as the speedup table needs them."""

    iterations: Sequence[float]
    losses: Sequence[float]
    full_iteration_seconds: float
    step_iteration_seconds: float | None = None


@dataclass(frozen=True)
class Speedup:
    """An arm against its baseline; above 1 is faster, None where the reference was not reached."""

    reference_loss: float
    iterations_to_reference: float | None
    per_iteration: float
    step_per_iteration: float | None
    iterations: float | None
    total: float | None


def compare(arm: Arm, baseline: Arm) -> Speedup:
    """Return the paper's three speedups (table 3): time per iteration, number of iterations to the
    reference loss, and their product.

    The reference loss is the smallest probe that the baseline reaches.
    """
    reference = min(baseline.losses)
    own, theirs = (iterations_to(reference, a.iterations, a.losses) for a in (arm, baseline))
    per_iteration = baseline.full_iteration_seconds / arm.full_iteration_seconds
    step = None
    if arm.step_iteration_seconds and baseline.step_iteration_seconds:
        step = baseline.step_iteration_seconds / arm.step_iteration_seconds
    # An arm that starts at or below the reference needs no iteration, so there is no ratio.
    ratio = theirs / own if own and theirs else None
    return Speedup(
        reference_loss=reference,
        iterations_to_reference=own,
        per_iteration=per_iteration,
        step_per_iteration=step,
        iterations=ratio,
        total=None if ratio is None else per_iteration * ratio,
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive values."""
    return math.exp(sum(math.log(value) for value in values) / len(values))
