"""Figures of merit from literal curves: no clock is involved."""

import math
import statistics

import pytest

from ncfbench.statistics.curves import Curve, iterations_to
from ncfbench.statistics.intervals import geometric
from ncfbench.statistics.speedups import (
    LEVELS,
    AtTarget,
    levels,
    seconds_per_iteration,
    speedup_at,
    spread,
    weighted_mean,
)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [(9.0, 5.0), (8.0, 10.0), (5.0, 25.0), (10.0, 0.0), (11.0, 0.0), (4.0, 30.0), (3.9, None)],
)
def test_iterations_to_is_linear_between_probes(reference, expected):
    assert iterations_to(reference, [0, 10, 20, 30], [10.0, 8.0, 6.0, 4.0]) == (
        None if expected is None else pytest.approx(expected)
    )


def test_the_first_crossing_counts():
    assert iterations_to(5, [0, 10, 20, 30], [10.0, 4.0, 7.0, 1.0]) == pytest.approx(10 * 5 / 6)


def sample(kind, seconds, iterations, **more):
    return {
        "kind": kind,
        "seconds": seconds,
        "iterations": iterations,
        "resumed": False,
        "item_slots": None,
    } | more


def test_seconds_per_iteration_is_a_median_of_whole_blocks():
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


def test_weighted_mean_weighs_by_iterations():
    samples = [
        sample("full", 1, 10, item_slots=100.0),
        sample("full", 1, 30, item_slots=200.0),
        sample("full", 1, 50),
        sample("step", 1, 99, item_slots=900.0),
    ]
    assert weighted_mean(samples, "item_slots") == pytest.approx(175)


def test_spread_is_the_interquartile_range():
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
    wide = [sample("full", seconds, 1) for seconds in (1.0, 1.0, 2.0, 9.0, 9.0)]
    assert spread(wide, "full") == (9 - 1) / 2
    assert spread(rows, "step") is None


def arm(losses, seconds):
    return Curve([100 * index for index in range(len(losses))], losses, seconds)


def over_seeds(pairs):
    return speedup_at([min(base.losses) for _, base in pairs], pairs)


def test_reference_and_total_are_made_within_a_seed():
    pairs = [
        (arm([9, 4, 2], 0.02), arm([9, 5, 3], 0.2)),
        (arm([8, 2, 1], 0.05), arm([8, 4, 2], 0.1)),
    ]
    at = over_seeds(pairs)
    assert at.iterations.value == pytest.approx(math.sqrt(200 / 150 * 2))
    expected = geometric([10 * 200 / 150, 2 * 2])
    assert (at.total.value, at.total.lower, at.total.upper) == (
        pytest.approx(expected.value),
        pytest.approx(expected.lower),
        pytest.approx(expected.upper),
    )


def test_pairing_keeps_the_correlation():
    """Where what a seed loses per iteration it wins in iterations, the total does not vary, and its
    interval says so.
    """
    pairs = []
    for factor in (1.0, 2.0, 4.0):
        # The arm needs 100 iterations x factor at a cost of 0.1 / factor; the baseline 400 at 1.
        own = Curve([0, 100 * factor], [9.0, 1.0], 0.1 / factor)
        pairs.append((own, Curve([0, 400], [9.0, 1.0], 1.0)))
    total = over_seeds(pairs).total
    assert (total.value, total.lower, total.upper) == (
        pytest.approx(40),
        pytest.approx(40),
        pytest.approx(40),
    )
    alone = geometric(
        [base.full_iteration_seconds / own.full_iteration_seconds for own, base in pairs]
    )
    assert alone.upper > 2 * alone.value


def test_a_censored_arm_bounds_the_ratio_from_above():
    base = arm([9, 5, 3], 0.2)
    at = over_seeds([(arm([9, 4, 2], 0.02), base), (arm([9, 8, 7], 0.02), base)])
    assert at.reached == 1
    assert at.iterations is at.total is None
    assert at.iterations_at_most == pytest.approx(math.sqrt((200 / 150) * (200 / 200)))
    assert at.total_at_most == pytest.approx(10 * math.sqrt((200 / 150) * (200 / 200)))
    assert at.total_at_least is None


def test_a_censored_baseline_bounds_it_from_below():
    fast, slow = arm([9, 4, 2], 0.02), arm([9, 5, 3], 0.2)
    at = speedup_at([2.5], [(fast, slow)])
    assert at.reached == 1
    assert at.total_at_least == pytest.approx(10 * 200 / 175)
    assert at.iterations_at_most is None
    both = speedup_at([2.5, 2.5], [(fast, slow), (slow, fast)])
    assert both == AtTarget(1)
    assert speedup_at([10.0], [(fast, slow)]).iterations is None, "both had it from the start"
    low = arm([4, 2], 0.02)
    for pair in ((low, slow), (slow, low)):
        assert speedup_at([5.0], [pair]) == AtTarget(1), "one had it from the start"


def evaluated(recalls, seconds):
    """Recall after each epoch of 100 iterations, as a measure that falls; nothing at iteration
    0.
    """
    return Curve(
        [100 * (index + 1) for index in range(len(recalls))],
        [-recall for recall in recalls],
        seconds,
    )


def test_what_was_passed_at_the_first_look_is_a_bound():
    """Recall 0.2: the arm has it at its first evaluation, perhaps long before; the baseline comes
    to it at its fourth.
    """
    arm, base = evaluated([0.35, 0.4], 0.02), evaluated([0.05, 0.1, 0.15, 0.2, 0.3], 0.2)
    at = speedup_at([-0.2], [(arm, base)])
    assert at == AtTarget(1, total_at_least=pytest.approx(10 * 400 / 100))
    slow = speedup_at([-0.2], [(base, arm)])
    assert slow == AtTarget(
        1, iterations_at_most=100 / 400, total_at_most=pytest.approx(100 / 400 / 10)
    )
    assert speedup_at([-0.04], [(arm, base)]) == AtTarget(1), "both had it at their first look"
    later = speedup_at([-0.375], [(arm, evaluated([0.1, 0.375], 0.2))])
    assert later.iterations.value == pytest.approx(200 / 150)


def test_bounds_combine_only_on_one_side():
    early, base = evaluated([0.35, 0.4], 0.1), evaluated([0.1, 0.15, 0.2, 0.3], 0.1)
    never = evaluated([0.05, 0.1, 0.15], 0.1)
    # The arm by its first look, the baseline after its last: both make the true ratio larger.
    assert speedup_at([-0.2], [(early, never)]) == AtTarget(1, total_at_least=pytest.approx(3))
    assert speedup_at([-0.2], [(never, early)]) == AtTarget(
        0, iterations_at_most=pytest.approx(1 / 3), total_at_most=pytest.approx(1 / 3)
    )
    # A seed with a ratio of 1 beside one of at least 3: together at least the root of 3.
    at = speedup_at([-0.2, -0.2], [(early, base), (base, base)])
    assert (at.total, at.total_at_least) == (None, pytest.approx(math.sqrt(3)))
    mixed = speedup_at([-0.2, -0.2], [(early, base), (never, base)])
    assert mixed == AtTarget(1), "one from below, one from above"


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
