"""Figures of merit from literal curves: no clock is involved."""

import math
import statistics

import pytest

from ncfbench.statistics.curves import Curve, iterations_to
from ncfbench.statistics.intervals import geometric
from ncfbench.statistics.speedups import (
    LEVELS,
    levels,
    seconds_per_iteration,
    speedup_at,
    spread,
    weighted_mean,
)


def test_iterations_to_is_linear_between_probes():
    """The first crossing counts."""
    for reference, expected in ((9, 5), (8, 10), (5, 25), (10, 0), (11, 0), (4, 30), (3.9, None)):
        actual = iterations_to(reference, [0, 10, 20, 30], [10.0, 8.0, 6.0, 4.0])
        assert actual == (None if expected is None else pytest.approx(expected))
    assert iterations_to(5, [0, 10, 20, 30], [10.0, 4.0, 7.0, 1.0]) == pytest.approx(10 * 5 / 6)


def blocks(kind, *pairs, **more):
    """Raw samples of some seconds and iterations."""
    row = {"kind": kind, "resumed": False, "item_slots": None} | more
    return [row | {"seconds": seconds, "iterations": count} for seconds, count in pairs]


def test_seconds_per_iteration_is_a_median_of_whole_blocks():
    samples = blocks("full", (2.0, 10), (9.0, 30), (40.0, 10)) + blocks("step", (1.0, 10))
    samples += blocks("full", (500.0, 10), resumed=True)
    assert seconds_per_iteration(samples, "full") == pytest.approx(0.3)
    assert seconds_per_iteration(samples, "step") == pytest.approx(0.1)
    assert seconds_per_iteration(samples, "probe") is None


def test_weighted_mean_weighs_by_iterations():
    samples = blocks("full", (1, 10), item_slots=100.0) + blocks("full", (1, 50))
    samples += blocks("full", (1, 30), item_slots=200.0) + blocks("step", (1, 99), item_slots=900.0)
    assert weighted_mean(samples, "item_slots") == pytest.approx(175)


def test_spread_is_the_interquartile_range():
    seconds = [1.0, 1.1, 5.3, 0.9, 1.2, 9.0]
    rows = blocks("full", *((value * 10, 10) for value in seconds))
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    left_out = blocks("full", (99.0, 10), resumed=True) + blocks("full", (99.0, 4))
    left_out += blocks("step", (99.0, 10))
    assert spread([*rows, *left_out], "full") == pytest.approx((high - low) / middle)
    assert spread(rows[:1], "full") == 0
    assert spread(rows, "step") is None


def arm(losses, seconds):
    return Curve([100 * index for index in range(len(losses))], losses, seconds)


def over_seeds(pairs):
    return speedup_at([min(base.losses) for _, base in pairs], pairs)


def ends_of(estimate):
    return estimate.value, estimate.lower, estimate.upper


def test_reference_and_total_are_made_within_a_seed():
    pairs = [
        (arm([9, 4, 2], 0.02), arm([9, 5, 3], 0.2)),
        (arm([8, 2, 1], 0.05), arm([8, 4, 2], 0.1)),
    ]
    at = over_seeds(pairs)
    assert at.iterations.value == pytest.approx(math.sqrt(200 / 150 * 2))
    assert ends_of(at.total) == pytest.approx(ends_of(geometric([10 * 200 / 150, 2 * 2])))


def test_pairing_keeps_the_correlation():
    """Where what a seed loses per iteration it wins in iterations, the total does not vary, and its
    interval says so.
    """
    pairs = []
    for factor in (1.0, 2.0, 4.0):
        # The arm needs 100 iterations x factor at a cost of 0.1 / factor; the baseline 400 at 1.
        own = Curve([0, 100 * factor], [9.0, 1.0], 0.1 / factor)
        pairs.append((own, Curve([0, 400], [9.0, 1.0], 1.0)))
    assert ends_of(over_seeds(pairs).total) == pytest.approx((40, 40, 40))
    alone = geometric(
        [base.full_iteration_seconds / own.full_iteration_seconds for own, base in pairs]
    )
    assert alone.upper > 2 * alone.value


def evaluated(recalls, seconds):
    """Recall after each epoch of 100 iterations, as a measure that falls; none at iteration 0."""
    iterations = [100 * epoch for epoch in range(1, len(recalls) + 1)]
    return Curve(iterations, [-recall for recall in recalls], seconds)


FAST, SLOW = arm([9, 4, 2], 0.02), arm([9, 5, 3], 0.2)
LATE, LOW = arm([9, 8, 7], 0.02), arm([4, 2], 0.02)
EARLY, BASE = evaluated([0.35, 0.4], 0.1), evaluated([0.1, 0.15, 0.2, 0.3], 0.1)
NEVER, QUICK = evaluated([0.05, 0.1, 0.15], 0.1), evaluated([0.35, 0.4], 0.02)
BOUND = math.sqrt((200 / 150) * (200 / 200))
CENSORED = [
    # A seed of the arm never comes there: the ratio is at most that of its last iteration.
    ([3, 3], [(FAST, SLOW), (LATE, SLOW)], 1, {"iterations": BOUND, "total": 10 * BOUND}),
    # The baseline never does.
    ([2.5], [(FAST, SLOW)], 1, {"at_least": 10 * 200 / 175}),
    ([2.5, 2.5], [(FAST, SLOW), (SLOW, FAST)], 1, {}),
    # One had it from the start, or both.
    *(([5.0], [pair], 1, {}) for pair in ((LOW, SLOW), (SLOW, LOW))),
    ([10.0], [(FAST, SLOW)], 1, {}),
    # Recall 0.2, which the arm has at its first evaluation, perhaps long before.
    ([-0.2], [(EARLY, BASE)], 1, {"at_least": 300 / 100}),
    ([-0.2], [(BASE, QUICK)], 1, {"iterations": 1 / 3, "total": 1 / 3 / 5}),
    ([-0.05], [(EARLY, BASE)], 1, {}),
    # The arm by its first look, the baseline after its last: both make the true ratio larger.
    ([-0.2], [(EARLY, NEVER)], 1, {"at_least": 3}),
    ([-0.2], [(NEVER, EARLY)], 0, {"iterations": 1 / 3, "total": 1 / 3}),
    # A seed with a ratio of 1 beside one of at least 3, and one from each side.
    ([-0.2, -0.2], [(EARLY, BASE), (BASE, BASE)], 2, {"at_least": math.sqrt(3)}),
    ([-0.2, -0.2], [(EARLY, BASE), (NEVER, BASE)], 1, {}),
]
"""Targets, pairs of arm and baseline, seeds that reach the target, and bounds of the ratios."""


@pytest.mark.parametrize(("targets", "pairs", "reached", "bounds"), CENSORED)
def test_censored_seeds_bound_the_ratio(targets, pairs, reached, bounds):
    at = speedup_at(targets, pairs)
    assert (at.reached, at.iterations, at.total) == (reached, None, None)
    actual = (at.iterations_at_most, at.total_at_most, at.total_at_least)
    for value, name in zip(actual, ("iterations", "total", "at_least"), strict=True):
        assert value == (pytest.approx(bounds[name]) if name in bounds else None)


def test_a_level_between_evaluations_has_a_ratio():
    at = speedup_at([-0.375], [(QUICK, evaluated([0.1, 0.375], 0.2))])
    assert at.iterations.value == pytest.approx(200 / 150)


def test_levels_lie_where_the_curves_do():
    found = levels([arm([100, 9, 5, 6, 3], 1), arm([90, 8, 2], 1)])
    assert found[0] == 9
    assert found[-1] == 2
    assert found == sorted(found, reverse=True)
    assert len(levels([arm([float(x) for x in range(500, 0, -1)], 1)])) == LEVELS
    assert levels([]) == []
    assert levels([arm([9, 8], 1)]) == [8], "the first is of no training"
    trained = levels([evaluated([0.3, 0.4], 1)])
    assert trained == [-0.3, -0.4], "the first is of a trained model"
