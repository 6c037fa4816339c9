"""Figures of merit from literal curves: no clock is involved."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from ncfbench.timing.statistics import (
    Arm,
    compare,
    geometric_mean,
    iterations_to,
    seconds_per_iteration,
    spread,
    weighted_mean,
)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [(9.0, 5.0), (8.0, 10.0), (5.0, 25.0), (10.0, 0.0), (11.0, 0.0), (4.0, 30.0), (3.9, None)],
)
def test_iterations_to_is_linear_between_probes(reference: float, expected: float | None) -> None:
    assert iterations_to(reference, [0, 10, 20, 30], [10.0, 8.0, 6.0, 4.0]) == (
        None if expected is None else pytest.approx(expected)
    )


def test_the_first_crossing_counts() -> None:
    assert iterations_to(5, [0, 10, 20, 30], [10.0, 4.0, 7.0, 1.0]) == pytest.approx(10 * 5 / 6)


def test_speedups_by_hand() -> None:
    baseline = Arm([0, 100, 200, 300], [9.0, 5.0, 3.0, 4.0], 0.5, 0.4)
    arm = Arm([0, 50, 100], [9.0, 4.0, 2.0], 0.1, 0.05)
    result = compare(arm, baseline)
    assert result.reference_loss == 3.0
    assert result.iterations_to_reference == pytest.approx(75)
    assert result.per_iteration == pytest.approx(5)
    assert result.step_per_iteration == pytest.approx(8)
    assert result.iterations == pytest.approx(200 / 75)
    assert result.total == pytest.approx(5 * 200 / 75)


def test_a_baseline_over_itself_is_one() -> None:
    baseline = Arm([0, 10], [2.0, 1.0], 0.5)
    same = compare(baseline, baseline)
    assert (same.per_iteration, same.iterations, same.total, same.step_per_iteration) == (
        1,
        1,
        1,
        None,
    )
    never = compare(Arm([0, 10], [2.0, 1.5], 0.1), baseline)
    assert (never.iterations_to_reference, never.iterations, never.total) == (None, None, None)
    assert never.per_iteration == pytest.approx(5)


def sample(kind: str, seconds: float, iterations: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "seconds": seconds,
        "iterations": iterations,
        "resumed": False,
        "item_slots": None,
    } | more


def test_seconds_per_iteration_is_a_median_of_whole_blocks() -> None:
    samples = [
        sample("full", 2.0, 10),
        sample("full", 9.0, 30),
        sample("full", 40.0, 10),
        sample("step", 1.0, 10),
        sample("full", 500.0, 10, resumed=True),
    ]
    assert seconds_per_iteration(samples, "full") == pytest.approx(0.3)
    assert seconds_per_iteration(samples, "step") == pytest.approx(0.1)
    assert seconds_per_iteration(samples, "probe") is None


def test_weighted_mean_weighs_by_iterations() -> None:
    samples = [
        sample("full", 1, 10, item_slots=100.0),
        sample("full", 1, 30, item_slots=200.0),
        sample("step", 1, 99),
    ]
    assert weighted_mean(samples, "item_slots") == pytest.approx(175)


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)


def test_spread_is_the_interquartile_range() -> None:
    seconds = [1.0, 1.1, 1.3, 0.9, 1.2, 9.0]
    rows = [sample("full", value * 10, 10) for value in seconds]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    left_out = [
        sample("full", 99.0, 10, resumed=True),
        sample("full", 99.0, 4),
        sample("step", 99.0, 10),
    ]
    assert spread([*rows, *left_out], "full") == pytest.approx((high - low) / middle)
    assert spread(rows[:1], "full") == 0
    assert spread(rows, "step") is None
