"""Ties by hand, and how often the truly best arm is among them."""

import numpy as np
import pytest

from ncfbench.statistics.intervals import LOSS_SPREAD, Difference
from ncfbench.statistics.ranking import NEAR, rank, soonest, tied_ratios


def seeds(*values):
    return dict(enumerate(values))


def test_what_seeds_share_cancels():
    """b is below a by 0.1 in every seed, though seeds differ by far more."""
    found = tied_ratios({"b": seeds(0.9, 4.9, 2.9), "a": seeds(1.0, 5.0, 3.0)})
    assert found == ("a", {"a"}, set())
    shuffled = tied_ratios({"b": seeds(4.9, 2.9, 0.9), "a": seeds(1.0, 5.0, 3.0)})
    assert shuffled == ("a", {"a", "b"}, set())


def test_one_seed_ties_what_is_near():
    """It tells nothing else; the mean is that of each arm's own seeds."""
    near = 1.0 - np.log(LOSS_SPREAD.factor)
    found = tied_ratios({"a": seeds(1.0), "b": seeds(near - 0.01), "c": {7: near + 0.01, 8: 0.9}})
    assert found == ("a", {"a", "c"}, {"b", "c"})
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
        found = tied_ratios(values)
        held += 0 in found.tied
        alone += found.best != 0
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
