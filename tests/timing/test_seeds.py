"""Intervals over seeds, by brute force and by simulation; and what was never reached."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest

from ncfbench.timing import seed_statistics
from ncfbench.timing.seed_statistics import geometric, levels, mean, over_seeds, speedup_at
from ncfbench.timing.statistics import Arm

T = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305, 4: 2.776445105, 9: 2.262157163}
"""Student's t, 97.5 %, as printed in tables."""


@pytest.mark.parametrize("degrees", sorted(T))
def test_students_t_is_that_of_the_tables(degrees: int) -> None:
    assert seed_statistics.t_quantile(degrees) == pytest.approx(T[degrees], rel=1e-8)


def test_mean_of_recalls_by_hand() -> None:
    values = [0.40, 0.42, 0.47]
    found = mean(values)
    half = T[2] * statistics.stdev(values) / math.sqrt(3)
    assert (found.value, found.seeds) == (pytest.approx(0.43), 3)
    assert (found.lower, found.upper) == (pytest.approx(0.43 - half), pytest.approx(0.43 + half))


def test_one_seed_has_no_interval() -> None:
    assert mean([0.4]) == seed_statistics.Estimate(0.4, None, None, 1)
    alone = geometric([8.0])
    assert (alone.value, alone.lower, alone.upper, alone.seeds) == (pytest.approx(8), None, None, 1)


@pytest.mark.parametrize(
    "ratios", [[10.0, 20.0], [10.0, 12.0, 15.0], [1.0, 2.0, 4.0, 3.0], [5.0, 5.5, 7.0, 4.0, 6.0]]
)
def test_the_bootstrap_is_every_resample_counted(ratios: list[float]) -> None:
    n = len(ratios)
    logs = [math.log(ratio) for ratio in ratios]
    means = sorted(sum(choice) / n for choice in itertools.product(logs, repeat=n))
    centre = sum(logs) / n
    stretch = T[n - 1] * math.sqrt(n / (n - 1)) / 1.959963985
    low, high = (means[math.ceil(share * len(means)) - 1] for share in (0.025, 0.975))
    found = geometric(ratios)
    assert found.value == pytest.approx(math.prod(ratios) ** (1 / n))
    assert found.lower == pytest.approx(math.exp(centre + stretch * (low - centre)), rel=1e-7)
    assert found.upper == pytest.approx(math.exp(centre + stretch * (high - centre)), rel=1e-7)


def test_drawn_resamples_agree_with_counted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = [5.0, 5.5, 7.0, 4.0, 6.0, 6.5, 5.2, 4.4]
    counted = geometric(ratios)
    monkeypatch.setattr(seed_statistics, "EXACT_SEEDS", 1)
    seed_statistics._resamples.cache_clear()
    drawn = geometric(ratios)
    seed_statistics._resamples.cache_clear()
    assert (drawn.lower, drawn.upper) == (
        pytest.approx(counted.lower, rel=0.01),
        pytest.approx(counted.upper, rel=0.01),
    )


@pytest.mark.parametrize("n", [2, 3, 5, pytest.param(12, marks=pytest.mark.long)])
def test_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    """Ratios are log-normal; a plain bootstrap of three seeds would cover it 3 times in 4."""
    rng = np.random.default_rng(n)
    rounds = 1500
    hits = [0, 0]
    for _ in range(rounds):
        values = rng.normal(0.7, 0.2, n)
        for index, (found, truth) in enumerate(
            ((geometric(np.exp(values)), math.exp(0.7)), (mean(values), 0.7))
        ):
            assert found.lower is not None
            assert found.upper is not None
            hits[index] += found.lower <= truth <= found.upper
    assert 0.91 < hits[0] / rounds < 0.975
    assert 0.93 < hits[1] / rounds < 0.97


def arm(losses: list[float], seconds: float, step: float | None = None) -> Arm:
    return Arm([100 * index for index in range(len(losses))], losses, seconds, step)


def test_reference_and_total_are_made_within_a_seed() -> None:
    pairs = [
        (arm([9, 4, 2], 0.02), arm([9, 5, 3], 0.2)),
        (arm([8, 2, 1], 0.05), arm([8, 4, 2], 0.1)),
    ]
    found = over_seeds(pairs)
    assert found.reference_losses == (3, 2)
    assert found.iterations_to_reference == (pytest.approx(150), pytest.approx(100))
    assert found.per_iteration.value == pytest.approx(math.sqrt(10 * 2))
    at = found.at_reference
    assert at.iterations is not None
    assert at.total is not None
    assert at.iterations.value == pytest.approx(math.sqrt(200 / 150 * 2))
    expected = geometric([10 * 200 / 150, 2 * 2])
    assert (at.total.value, at.total.lower, at.total.upper) == (
        pytest.approx(expected.value),
        pytest.approx(expected.lower),
        pytest.approx(expected.upper),
    )


def test_pairing_keeps_the_correlation() -> None:
    """Where what a seed loses per iteration it wins in iterations, the total does not vary, and its
    interval says so.
    """
    pairs = []
    for factor in (1.0, 2.0, 4.0):
        # The arm needs 100 iterations x factor at a cost of 0.1 / factor; the baseline 400 at 1.
        own = Arm([0, 100 * factor], [9.0, 1.0], 0.1 / factor)
        pairs.append((own, Arm([0, 400], [9.0, 1.0], 1.0)))
    found = over_seeds(pairs)
    total = found.at_reference.total
    assert total is not None
    assert (total.value, total.lower, total.upper) == (
        pytest.approx(40),
        pytest.approx(40),
        pytest.approx(40),
    )
    assert found.per_iteration.upper is not None
    assert found.per_iteration.upper > 2 * found.per_iteration.value


def test_a_censored_arm_bounds_the_ratio_from_above() -> None:
    base = arm([9, 5, 3], 0.2)
    found = over_seeds([(arm([9, 4, 2], 0.02), base), (arm([9, 8, 7], 0.02), base)])
    at = found.at_reference
    assert (at.seeds, at.reached, at.baseline_reached) == (2, 1, 2)
    assert at.iterations is at.total is None
    assert at.iterations_at_most == pytest.approx(math.sqrt((200 / 150) * (200 / 200)))
    assert at.total_at_most == pytest.approx(10 * math.sqrt((200 / 150) * (200 / 200)))
    assert at.iterations_at_least is None
    assert found.per_iteration.value == pytest.approx(10)


def test_a_censored_baseline_bounds_it_from_below() -> None:
    fast, slow = arm([9, 4, 2], 0.02), arm([9, 5, 3], 0.2)
    at = speedup_at([2.5], [(fast, slow)])
    assert (at.reached, at.baseline_reached) == (1, 0)
    assert at.iterations_at_least == pytest.approx(200 / 175)
    assert at.iterations_at_most is None
    both = speedup_at([2.5, 2.5], [(fast, slow), (slow, fast)])
    assert both == seed_statistics.AtTarget(2, 1, 1)
    assert speedup_at([10.0], [(fast, slow)]).iterations is None, "both had it from the start"


def evaluated(recalls: list[float], seconds: float) -> Arm:
    """Recall after each epoch of 100 iterations, as a measure that falls; nothing at iteration
    0.
    """
    return Arm(
        [100 * (index + 1) for index in range(len(recalls))],
        [-recall for recall in recalls],
        seconds,
    )


def test_what_was_passed_at_the_first_look_is_a_bound() -> None:
    """Recall 0.2: the arm has it at its first evaluation, perhaps long before; the baseline comes
    to it at its fourth.
    """
    arm, base = evaluated([0.35, 0.4], 0.02), evaluated([0.05, 0.1, 0.15, 0.2, 0.3], 0.2)
    at = speedup_at([-0.2], [(arm, base)])
    assert at == seed_statistics.AtTarget(
        1, 1, 1, iterations_at_least=400 / 100, total_at_least=pytest.approx(10 * 400 / 100)
    )
    slow = speedup_at([-0.2], [(base, arm)])
    assert slow == seed_statistics.AtTarget(
        1, 1, 1, iterations_at_most=100 / 400, total_at_most=pytest.approx(100 / 400 / 10)
    )
    assert speedup_at([-0.04], [(arm, base)]) == seed_statistics.AtTarget(1, 1, 1), (
        "both had it at their first look"
    )
    later = speedup_at([-0.375], [(arm, evaluated([0.1, 0.375], 0.2))])
    assert later.iterations is not None
    assert later.iterations.value == pytest.approx(200 / 150)


def test_bounds_combine_only_on_one_side() -> None:
    early, base = evaluated([0.35, 0.4], 0.1), evaluated([0.1, 0.15, 0.2, 0.3], 0.1)
    never = evaluated([0.05, 0.1, 0.15], 0.1)
    # The arm by its first look, the baseline after its last: both make the true ratio larger.
    assert speedup_at([-0.2], [(early, never)]) == seed_statistics.AtTarget(
        1, 1, 0, iterations_at_least=pytest.approx(3), total_at_least=pytest.approx(3)
    )
    assert speedup_at([-0.2], [(never, early)]) == seed_statistics.AtTarget(
        1, 0, 1, iterations_at_most=pytest.approx(1 / 3), total_at_most=pytest.approx(1 / 3)
    )
    # A seed with a ratio of 1 beside one of at least 3: together at least the root of 3.
    at = speedup_at([-0.2, -0.2], [(early, base), (base, base)])
    assert (at.iterations, at.iterations_at_least) == (None, pytest.approx(math.sqrt(3)))
    mixed = speedup_at([-0.2, -0.2], [(early, base), (never, base)])
    assert mixed == seed_statistics.AtTarget(2, 1, 2), "one from below, one from above"


def test_levels_lie_where_the_curves_do() -> None:
    found = levels([arm([100, 9, 5, 6, 3], 1), arm([90, 8, 2], 1)])
    assert found[0] == 9
    assert found[-1] == 2
    assert found == sorted(found, reverse=True)
    assert len(levels([arm([float(x) for x in range(500, 0, -1)], 1)])) == seed_statistics.LEVELS
    assert levels([]) == []
    assert levels([evaluated([0.35, 0.3, 0.4], 1)]) == [
        -0.35,
        -0.4,
    ], "the first is of a trained model"
