"""Plans of rungs: what they cost, and that they use a budget up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncfbench.racing.rungs import GROWTHS, Pace, arms_of_rungs, plan_rungs, wall_seconds

PACE = Pace(opening=3.0, training=1.5, saving=0.2)


def test_each_rung_has_half_the_arms():
    assert arms_of_rungs(16, 5) == [16, 8, 4, 3, 3]
    assert arms_of_rungs(2, 3) == [2, 2, 2]


def test_the_cost_of_a_plan_by_hand():
    """Four arms from 2 s to 4 s, then three to 8 s, then a second seed of three from the start."""
    first = 4 * (1.5 * 2 + 0.2)
    second = 3 * (1.5 * 4 + 0.2)
    seeds = 3 * (3.0 + 1.5 * 8 + 0.2)
    found = wall_seconds([4.0, 8.0], 2.0, 4, PACE, seeds=2)
    assert found == pytest.approx(first + second + seeds)


@given(
    seconds=st.floats(1, 5000),
    clock=st.floats(0.5, 50),
    arms=st.integers(1, 30),
    seeds=st.integers(1, 4),
)
def test_a_plan_uses_the_budget_up(seconds, clock, arms, seeds):
    plan = plan_rungs(seconds, clock, arms, PACE, seeds=seeds)
    least = wall_seconds([clock * GROWTHS[0]], clock, arms, PACE, seeds=1)
    if plan is None:
        assert least > seconds
        return
    if not plan.clocks:  # no time for a rung, but for a seed
        assert plan.seeds > 1
        assert plan.horizon == clock
        return
    used = wall_seconds(plan.clocks, clock, arms, PACE, seeds=plan.seeds)
    assert used <= seconds * (1 + 1e-9)
    assert used == pytest.approx(seconds, rel=1e-6)
    assert 1 <= plan.seeds <= seeds
    assert plan.horizon == plan.clocks[-1]
    clocks = [clock, *plan.clocks]
    assert all(GROWTHS[0] - 1e-6 <= b / a <= GROWTHS[1] for a, b in itertools.pairwise(clocks))


def test_rungs_about_double():
    plan = plan_rungs(400.0, 4.0, 12, PACE, seeds=1)
    assert plan is not None
    clocks = [4.0, *plan.clocks]
    assert all(1.6 < b / a < 2.5 for a, b in itertools.pairwise(clocks))


@pytest.mark.parametrize(
    ("seconds", "rungs", "seeds"), [(78.0, 1, 2), (77.0, 0, 2), (54.0, 1, 1), (5.0, None, None)]
)
def test_a_second_seed_goes_before_another_rung(seconds, rungs, seeds):
    """Three seeds to 10 s take 3 x (3 + 15 + 0.2) = 54.6 s; another rung to 12.5 s and they take
    3 x (1.5 x 2.5 + 0.2) + 3 x (3 + 18.75 + 0.2) = 77.7 s.
    """
    plan = plan_rungs(seconds, 10.0, 3, PACE, seeds=2)
    assert (plan and len(plan.clocks), plan and plan.seeds) == (rungs, seeds)
    if rungs == 0:
        assert plan is not None
        assert plan.horizon == 10.0
