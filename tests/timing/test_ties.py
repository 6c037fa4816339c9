"""Ties by hand, and how often the truly best arm is among them."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from ncfbench.timing.ties import Difference, paired, rank, rank_over_units

T_95 = {1: 6.3138, 2: 2.9200, 3: 2.3534}
"""Student's t, 95 % one-sided, as printed in tables."""


def test_a_paired_difference_by_hand() -> None:
    found = paired([5.0, 7.0, 9.0], [4.0, 4.0, 7.0])
    assert found is not None
    assert (found.value, found.degrees) == (2, 2)
    assert found.error == pytest.approx(statistics.stdev([1, 3, 2]) / math.sqrt(3))
    assert paired([1.0], [2.0]) is None


@pytest.mark.parametrize("degrees", sorted(T_95))
def test_a_difference_is_real_beyond_students_t(degrees: int) -> None:
    assert Difference(T_95[degrees] + 0.001, 1.0, degrees).is_real()
    assert not Difference(T_95[degrees] - 0.001, 1.0, degrees).is_real()
    assert not Difference(T_95[degrees] + 0.001, 1.0, degrees).is_real(2)
    assert Difference(0.1, 0.0, degrees).is_real()
    assert not Difference(0.0, 0.0, degrees).is_real()


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_what_seeds_share_cancels() -> None:
    """b is below a by 0.1 in every seed, though seeds differ by far more."""
    found = rank_over_units({"b": seeds(0.9, 4.9, 2.9), "a": seeds(1.0, 5.0, 3.0)})
    assert (found.order, found.tied, found.unknown) == (("a", "b"), ("a",), ())
    assert found.is_certain
    shuffled = rank_over_units({"b": seeds(4.9, 2.9, 0.9), "a": seeds(1.0, 5.0, 3.0)})
    assert shuffled.tied == ("a", "b")
    assert not shuffled.is_certain


def test_one_seed_tells_nothing() -> None:
    found = rank_over_units({"a": seeds(1.0), "b": seeds(0.1), "c": {7: 0.5, 8: 0.5}})
    assert found.order == ("a", "c", "b")
    assert (found.tied, found.unknown) == (("a",), ("c", "b"))
    assert not found.is_certain
    assert rank_over_units({"a": seeds(1.0)}).is_certain


def test_arms_are_compared_over_common_seeds() -> None:
    found = rank_over_units({"a": {0: 1.0, 1: 2.0, 5: 90.0}, "b": {0: 0.5, 1: 1.5, 9: 1.0}})
    assert found.differences["b"] == Difference(0.5, 0.0, 1)


def test_more_rivals_need_clearer_differences() -> None:
    apart = Difference(3.5, 1.0, 4)
    two = rank({"a": 2.0, "b": 1.0}, lambda one, other: apart)
    many = rank(dict(zip("abcdefgh", range(8), strict=True)), lambda one, other: apart)
    assert (two.tied, len(many.tied)) == (("a",), 8)


@pytest.mark.parametrize("n_seeds", [2, 3, 5])
@pytest.mark.parametrize("spread", [(1.0,) * 5, (3.0, 0.3, 0.3, 1.0, 1.0)])
@pytest.mark.parametrize("gaps", [(0.0,) * 5, (0.0, -0.05, -0.1, -1.0, -3.0)])
def test_the_best_arm_is_among_the_tied(
    n_seeds: int, spread: tuple[float, ...], gaps: tuple[float, ...]
) -> None:
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
        found = rank_over_units(values)
        held += 0 in found.tied
        alone += found.best != 0
    assert held / rounds > 0.94
    assert alone / rounds > 0.2


def test_a_clear_winner_is_seen() -> None:
    """Five seeds, arms apart by three times their noise."""
    rng = np.random.default_rng(0)
    certain = 0
    for _ in range(200):
        values = {arm: dict(enumerate(-3.0 * arm + rng.normal(0, 1, 5))) for arm in range(4)}
        certain += rank_over_units(values).is_certain
    assert certain / 200 > 0.6
