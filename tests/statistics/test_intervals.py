"""Intervals by hand, by brute force and by simulation."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from ncfbench.statistics.intervals import (
    LOSS_SPREAD,
    QUALITY_SPREAD,
    Difference,
    Estimate,
    Spread,
    crossed,
    family_quantile,
    geometric,
    jackknife_error,
    mean,
    paired,
    product,
    quotient,
    ratio_of_medians,
    t_quantile,
    with_assumed_spread,
)

T = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305, 4: 2.776445105, 9: 2.262157163}
"""Student's t, 97.5 %, as printed in tables."""
T_95 = {1: 6.3138, 2: 2.9200, 3: 2.3534}
"""The same, 95 % one-sided."""


def test_students_t_is_that_of_the_tables():
    for degrees, value in T.items():
        assert t_quantile(degrees) == pytest.approx(value, rel=1e-8)
        assert family_quantile(degrees, 1) == pytest.approx(value, rel=1e-8)
        assert family_quantile(degrees, 3) == pytest.approx(t_quantile(degrees, 1 - 0.025 / 3))


def test_mean_of_recalls_by_hand():
    values = [0.40, 0.42, 0.47]
    found = mean(values)
    half = T[2] * statistics.stdev(values) / math.sqrt(3)
    assert (found.value, found.seeds) == (pytest.approx(0.43), 3)
    assert (found.lower, found.upper) == (pytest.approx(0.43 - half), pytest.approx(0.43 + half))


def test_one_seed_has_no_interval():
    assert mean([0.4]) == Estimate(0.4, None, None, 1)
    assert geometric([8.0]) == Estimate(pytest.approx(8), None, None, 1)
    assert paired([1.0], [2.0]) is None
    assert product(Estimate(2, 1, 3, 5), Estimate(3, None, None, 1)) == Estimate(6, None, None, 5)


@pytest.mark.parametrize(
    "ratios", [[10.0, 20.0], [10.0, 12.0, 15.0], [1.0, 2.0, 4.0, 3.0], [5.0, 5.5, 7.0, 4.0, 6.0]]
)
def test_ratios_have_the_interval_of_their_logarithms(ratios):
    """By hand, and as SciPy's own test has it."""
    n, logs = len(ratios), [math.log(ratio) for ratio in ratios]
    found, half = geometric(ratios), T[n - 1] * statistics.stdev(logs) / math.sqrt(n)
    assert (found.value, found.seeds) == (pytest.approx(math.prod(ratios) ** (1 / n)), n)
    assert found.lower == pytest.approx(found.value / math.exp(half))
    assert found.upper == pytest.approx(found.value * math.exp(half))
    ends = stats.ttest_1samp(logs, 0).confidence_interval()
    assert (found.lower, found.upper) == pytest.approx((math.exp(ends.low), math.exp(ends.high)))


@pytest.mark.parametrize("n", [2, 3, 5, pytest.param(12, marks=pytest.mark.long)])
def test_intervals_hold_the_truth_as_often_as_they_say(n):
    """Ratios are log-normal."""
    rng = np.random.default_rng(n)
    rounds = 1500
    hits = [0, 0]
    for _ in range(rounds):
        values = rng.normal(0.7, 0.2, n)
        for index, (found, truth) in enumerate(
            ((geometric(np.exp(values).tolist()), math.exp(0.7)), (mean(values.tolist()), 0.7))
        ):
            hits[index] += found.lower <= truth <= found.upper
    assert 0.935 < hits[0] / rounds < 0.965
    assert 0.935 < hits[1] / rounds < 0.965


def test_errors_of_independent_ratios_add_in_quadrature():
    first = Estimate(4.0, 4 / math.exp(0.3), 4 * math.exp(0.03), 3)
    second = Estimate(2.0, 2 / math.exp(0.4), 2 * math.exp(0.04), 1)
    found = product(first, second)
    assert (found.value, found.seeds) == (8, 3)
    assert found.lower == pytest.approx(8 / math.exp(0.5))
    assert found.upper == pytest.approx(8 * math.exp(0.05))
    turned = quotient(first, second)
    assert turned.value == 2
    assert turned.lower == pytest.approx(2 / math.exp(math.hypot(0.3, 0.04)))


def test_an_assumed_spread_by_hand():
    """Two seeds with logarithms 0.1 apart beside 8 assumed ones, and the noise of two machines."""
    found = with_assumed_spread([0.5, 0.6], [0.03, 0.04], Spread(0.1, 8))
    variance = (8 * 2 * 0.01 + 0.005) / 9
    half = T[9] * math.sqrt(variance / 2 + 0.05**2)
    assert (found.value, found.seeds) == (pytest.approx(math.exp(0.55)), 2)
    assert found.lower == pytest.approx(math.exp(0.55 - half))
    assert found.upper == pytest.approx(math.exp(0.55 + half))


@pytest.mark.parametrize(("deviation", "degrees"), [(0.25, 4), (0.1, 9)])
def test_one_seed_of_each_is_alike_within_a_factor(deviation, degrees):
    """The interval of a larger ratio leaves out 1."""
    spread = Spread(deviation, degrees)
    assert spread.factor == pytest.approx(math.exp(T[degrees] * deviation * math.sqrt(2)))
    for times, is_tie in ((0.999, True), (1.001, False)):
        found = with_assumed_spread([math.log(spread.factor * times)], [0.0, 0.0], spread)
        assert (found.lower < 1) == is_tie


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_equal_arms_are_rarely_told_apart(seeds):
    """At the spreads of times to a recall on six data sets; with that of losses often."""
    generator, wrong = np.random.default_rng(seeds), {LOSS_SPREAD: 0, QUALITY_SPREAD: 0}
    deviations, draws = (0.10, 0.23, 0.27, 0.33, 0.27, 0.50), 300
    for deviation in deviations * draws:
        logs = np.diff(generator.normal(0, deviation, (2, seeds)), axis=0)[0].tolist()
        for spread in wrong:
            found = with_assumed_spread(logs, [0.0], spread)
            wrong[spread] += not found.lower <= 1 <= found.upper
    share = {spread: count / len(deviations * draws) for spread, count in wrong.items()}
    assert share[QUALITY_SPREAD] < 0.06
    assert share[LOSS_SPREAD] > 0.1


def test_a_paired_difference_by_hand():
    found = paired([5.0, 7.0, 9.0], [4.0, 4.0, 7.0])
    assert (found.value, found.degrees) == (2, 2)
    assert found.error == pytest.approx(statistics.stdev([1, 3, 2]) / math.sqrt(3))
    assert found.half_width == pytest.approx(T[2] * found.error)


@pytest.mark.parametrize("degrees", sorted(T_95))
def test_a_difference_is_real_beyond_students_t(degrees):
    assert Difference(T_95[degrees] + 0.001, 1.0, degrees).is_real()
    assert not Difference(T_95[degrees] - 0.001, 1.0, degrees).is_real()
    assert not Difference(T_95[degrees] + 0.001, 1.0, degrees).is_real(2)
    assert Difference(0.1, 0.0, degrees).is_real()
    assert not Difference(0.0, 0.0, degrees).is_real()


@pytest.mark.long
@pytest.mark.parametrize("disturbed", [0.0, 0.3])
def test_ratios_of_medians_hold_19_times_in_20(disturbed):
    """Also where some blocks are slower than the others by a third, as on a shared machine."""
    rng = np.random.default_rng(0)

    def blocks(count):
        slower = rng.exponential(0.3, count) * (rng.random(count) < disturbed)
        return np.exp(rng.normal(size=count) * 0.05 + slower)

    found = [ratio_of_medians(20 * blocks(11), blocks(11)) for _ in range(1000)]
    assert np.mean([lower <= 20 <= upper for _, lower, upper in found]) == pytest.approx(
        0.95, abs=0.03
    )


def test_some_wild_rounds_hardly_move_a_ratio():
    baseline = [2.0, 2.1, 1.9, 2.0, 2.05, 1.95, 2.0, 2.02, 1.98, 2.0, 2.0]
    candidate = [1.0, 1.01, 0.99, 1.0, 1.0, 1.02, 0.98, 1.0, 9.0, 9.0, 9.0]
    middle, lower, upper = ratio_of_medians(baseline, candidate)
    assert middle == pytest.approx(2)
    assert lower <= middle <= upper < 2.1
    assert ratio_of_medians([2.0] * 11, [1.0] * 11) == (2, 2, 2)


def test_a_jackknife_of_a_mean_is_its_standard_error():
    values = np.array([1.0, 4.0, 2.0, 7.0])
    without = (values.sum() - values) / 3
    assert jackknife_error(without) == pytest.approx(statistics.stdev(values) / 2)


def test_errors_of_users_and_of_items_add():
    """Over users the variance of a mean; over items n / (n - 1) times the sum of squares."""
    by_user, by_item = np.array([0.3, 0.1, -0.1, 0.3]), np.array([0.1, 0.2, -0.15])
    variance = statistics.variance(by_user) / 4 + 3 / 2 * (0.1**2 + 0.2**2 + 0.15**2)
    assert crossed(by_user, by_item) == Difference(
        pytest.approx(0.15), pytest.approx(math.sqrt(variance)), 2
    )
    assert crossed(by_user[:1], by_item) is None
    assert crossed(by_user, by_item[:1]) is None
