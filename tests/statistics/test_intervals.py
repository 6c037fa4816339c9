"""Intervals and ties by hand and by simulation."""

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
from ncfbench.statistics.ranking import NEAR, rank, soonest, tied_ratios

T = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305, 4: 2.776445105, 9: 2.262157163}
"""Student's t, 97.5 %, as printed in tables."""
T_95 = {1: 6.3138, 2: 2.9200, 3: 2.3534}
"""The same, 95 % one-sided."""


def ends_of(estimate):
    return estimate.value, estimate.lower, estimate.upper


def test_students_t_is_that_of_the_tables():
    for degrees, value in T.items():
        assert t_quantile(degrees) == pytest.approx(value, rel=1e-8)
        assert family_quantile(degrees, 1) == pytest.approx(value, rel=1e-8)
        assert family_quantile(degrees, 3) == pytest.approx(t_quantile(degrees, 1 - 0.025 / 3))


def test_mean_of_recalls_by_hand():
    values = [0.40, 0.42, 0.47]
    half = T[2] * statistics.stdev(values) / math.sqrt(3)
    assert ends_of(mean(values)) == pytest.approx((0.43, 0.43 - half, 0.43 + half))
    assert mean(values).seeds == 3


def test_one_seed_has_no_interval():
    assert mean([0.4]) == Estimate(0.4, None, None, 1)
    assert geometric([8.0]) == Estimate(pytest.approx(8), None, None, 1)
    assert paired([1.0], [2.0]) is None
    assert product(Estimate(2, 1, 3, 5), Estimate(3, None, None, 1)) == Estimate(6, None, None, 5)


@pytest.mark.parametrize("ratios", [[10.0, 20.0], [1.0, 2.0, 4.0, 3.0], [5.0, 5.5, 7.0, 4.0, 6.0]])
def test_ratios_have_the_interval_of_their_logarithms(ratios):
    """As SciPy's own test has it."""
    logs = [math.log(ratio) for ratio in ratios]
    ends = stats.ttest_1samp(logs, 0).confidence_interval()
    expected = [math.exp(value) for value in (statistics.fmean(logs), ends.low, ends.high)]
    assert ends_of(geometric(ratios)) == pytest.approx(expected)
    assert geometric(ratios).seeds == len(ratios)


@pytest.mark.parametrize("n", [2, 3, 5, pytest.param(12, marks=pytest.mark.long)])
def test_intervals_hold_the_truth_as_often_as_they_say(n):
    """Ratios are log-normal."""
    rng, rounds, hits = np.random.default_rng(n), 1500, np.zeros(2)
    for _ in range(rounds):
        values = rng.normal(0.7, 0.2, n)
        both = (geometric(np.exp(values).tolist()), math.exp(0.7)), (mean(values.tolist()), 0.7)
        hits += [estimate.lower <= truth <= estimate.upper for estimate, truth in both]
    assert (abs(hits / rounds - 0.95) < 0.015).all()


def test_errors_of_independent_ratios_add_in_quadrature():
    first = Estimate(4.0, 4 / math.exp(0.3), 4 * math.exp(0.03), 3)
    second = Estimate(2.0, 2 / math.exp(0.4), 2 * math.exp(0.04), 1)
    both = product(first, second)
    assert ends_of(both) == pytest.approx((8, 8 / math.exp(0.5), 8 * math.exp(0.05)))
    assert both.seeds == 3
    turned = quotient(first, second)
    assert turned.value == 2
    assert turned.lower == pytest.approx(2 / math.exp(math.hypot(0.3, 0.04)))


def test_an_assumed_spread_by_hand():
    """Two seeds with logarithms 0.1 apart beside 8 assumed ones, and the noise of two machines."""
    estimate = with_assumed_spread([0.5, 0.6], [0.03, 0.04], Spread(0.1, 8))
    half = T[9] * math.sqrt((8 * 2 * 0.01 + 0.005) / 9 / 2 + 0.05**2)
    expected = [math.exp(log) for log in (0.55, 0.55 - half, 0.55 + half)]
    assert (ends_of(estimate), estimate.seeds) == (pytest.approx(expected), 2)


@pytest.mark.parametrize(("deviation", "degrees"), [(0.25, 4), (0.1, 9)])
def test_one_seed_of_each_is_alike_within_a_factor(deviation, degrees):
    """The interval of a larger ratio leaves out 1."""
    spread = Spread(deviation, degrees)
    assert spread.factor == pytest.approx(math.exp(T[degrees] * deviation * math.sqrt(2)))
    for times, is_tie in ((0.999, True), (1.001, False)):
        estimate = with_assumed_spread([math.log(spread.factor * times)], [0.0, 0.0], spread)
        assert (estimate.lower < 1) == is_tie


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_equal_arms_are_rarely_told_apart(seeds):
    """At the spreads of times to a recall on six data sets; with that of losses often."""
    generator, wrong = np.random.default_rng(seeds), {LOSS_SPREAD: 0, QUALITY_SPREAD: 0}
    deviations, draws = (0.10, 0.23, 0.27, 0.33, 0.27, 0.50), 300
    for deviation in deviations * draws:
        logs = np.diff(generator.normal(0, deviation, (2, seeds)), axis=0)[0].tolist()
        for spread in wrong:
            estimate = with_assumed_spread(logs, [0.0], spread)
            wrong[spread] += not estimate.lower <= 1 <= estimate.upper
    share = {spread: count / len(deviations * draws) for spread, count in wrong.items()}
    assert share[QUALITY_SPREAD] < 0.06
    assert share[LOSS_SPREAD] > 0.1


def test_a_paired_difference_by_hand():
    apart = paired([5.0, 7.0, 9.0], [4.0, 4.0, 7.0])
    assert (apart.value, apart.degrees) == (2, 2)
    assert apart.error == pytest.approx(statistics.stdev([1, 3, 2]) / math.sqrt(3))
    assert apart.half_width == pytest.approx(T[2] * apart.error)


def test_a_difference_is_real_beyond_students_t():
    for degrees, limit in T_95.items():
        assert Difference(limit + 0.001, 1.0, degrees).is_real()
        assert not Difference(limit - 0.001, 1.0, degrees).is_real()
        assert not Difference(limit + 0.001, 1.0, degrees).is_real(2)
    assert Difference(0.1, 0.0, 2).is_real()
    assert not Difference(0.0, 0.0, 2).is_real()


@pytest.mark.long
@pytest.mark.parametrize("disturbed", [0.0, 0.3])
def test_ratios_of_medians_hold_19_times_in_20(disturbed):
    """Also where some blocks are slower than the others by a third, as on a shared machine."""
    rng = np.random.default_rng(0)

    def blocks(count):
        slower = rng.exponential(0.3, count) * (rng.random(count) < disturbed)
        return np.exp(rng.normal(size=count) * 0.05 + slower)

    ratios = [ratio_of_medians(20 * blocks(11), blocks(11)) for _ in range(1000)]
    covered = np.mean([lower <= 20 <= upper for _, lower, upper in ratios])
    assert covered == pytest.approx(0.95, abs=0.03)


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


# --- ties, and how often the truly best arm is among them


def seeds(*values):
    return dict(enumerate(values))


def test_what_seeds_share_cancels():
    """b is below a by 0.1 in every seed, though seeds differ by far more."""
    within = tied_ratios({"b": seeds(0.9, 4.9, 2.9), "a": seeds(1.0, 5.0, 3.0)})
    assert within == ("a", {"a"}, set())
    shuffled = tied_ratios({"b": seeds(4.9, 2.9, 0.9), "a": seeds(1.0, 5.0, 3.0)})
    assert shuffled == ("a", {"a", "b"}, set())


def test_one_seed_ties_what_is_near():
    """It tells nothing else; the mean is that of each arm's own seeds."""
    near = 1.0 - np.log(LOSS_SPREAD.factor)
    values = {"a": seeds(1.0), "b": seeds(near - 0.01), "c": {7: near + 0.01, 8: 0.9}}
    assert tied_ratios(values) == ("a", {"a", "c"}, {"b", "c"})
    assert tied_ratios({"a": seeds(1.0)}) == ("a", {"a"}, set())
    common = tied_ratios({"a": {0: 1.0, 1: 2.0, 5: 90.0}, "b": {0: 0.5, 1: 1.5, 9: 99.0}})
    assert common == ("b", {"b", "a"}, set()), "over the seeds that both have b is below"
    sooner = tied_ratios({"a": {0: np.log(2.1), 1: 0.0, 2: 0.0}, "b": {0: np.log(2.0)}})
    assert sooner == ("b", {"b", "a"}, {"a"}), "on the seed that both have a is sooner"


def test_more_rivals_need_clearer_differences():
    apart = Difference(3.5, 1.0, 4)
    two = rank({"a": 2.0, "b": 1.0}, lambda one, other: apart)
    many = rank(dict(zip("abcdefgh", range(8), strict=True)), lambda one, other: apart)
    assert (two.tied, len(many.tied)) == ({"a"}, 8)
    # Of two comparisons each has 2.5 %: Student's t of 4 degrees of freedom is 2.7764.
    for value, n_tied in ((2.7763, 3), (2.7765, 1)):
        three = rank({"a": 2, "b": 1, "c": 0}, lambda *_: Difference(value, 1.0, 4))  # noqa: B023
        assert len(three.tied) == n_tied


def test_the_soonest_of_the_near_is_chosen():
    tops = {"best": 2.0, "near": 2.0 * NEAR, "far": 1.96}
    assert soonest(tops, {"best": 9.0, "near": 8.0, "far": 1.0}) == "near"
    assert soonest(tops, {"best": 8.0, "near": 8.0, "far": 1.0}) == "best"


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
@pytest.mark.parametrize("spread", [(1.0,) * 5, (3.0, 0.3, 0.3, 1.0, 1.0)])
@pytest.mark.parametrize("gaps", [(0.0,) * 5, (0.0, -0.05, -0.1, -1.0, -3.0)])
def test_the_best_arm_is_among_the_tied(n_seeds, spread, gaps):
    """Five arms with noise of the seed and of their own. The truly best is arm 0; the largest of
    the means often is another.
    """
    rng = np.random.default_rng(n_seeds)
    rounds, held, alone = 600, 0, 0
    for _ in range(rounds):
        common = rng.normal(0, 5, n_seeds)
        values = {
            arm: dict(enumerate(gap + common + rng.normal(0, own, n_seeds)))
            for arm, (gap, own) in enumerate(zip(gaps, spread, strict=True))
        }
        ranked = tied_ratios(values)
        held += 0 in ranked.tied
        alone += ranked.best != 0
    assert held / rounds > 0.94
    assert alone / rounds > 0.2


def test_a_clear_winner_is_seen():
    """Five seeds, arms apart by three times their noise."""
    rng = np.random.default_rng(0)
    certain = 0
    for _ in range(200):
        values = {arm: dict(enumerate(-3.0 * arm + rng.normal(0, 1, 5))) for arm in range(4)}
        certain += len(tied_ratios(values).tied) == 1
    assert certain / 200 > 0.6
