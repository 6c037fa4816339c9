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
    """Four arms from 2 s to 4 s, then three to 8 s."""
    first = 4 * (1.5 * 2 + 0.2)
    second = 3 * (1.5 * 4 + 0.2)
    assert wall_seconds([4.0, 8.0], 2.0, 4, PACE) == pytest.approx(first + second)


@given(
    seconds=st.floats(1, 5000),
    clock=st.floats(0.5, 50),
    arms=st.integers(1, 30),
)
def test_a_plan_uses_the_budget_up(seconds, clock, arms):
    plan = plan_rungs(seconds, clock, arms, PACE)
    least = wall_seconds([clock * GROWTHS[0]], clock, arms, PACE)
    if plan is None:
        assert least > seconds
        return
    used = wall_seconds(plan.clocks, clock, arms, PACE)
    assert used <= seconds * (1 + 1e-9)
    assert used == pytest.approx(seconds, rel=1e-6)
    assert plan.horizon == plan.clocks[-1]
    clocks = [clock, *plan.clocks]
    assert all(GROWTHS[0] - 1e-6 <= b / a <= GROWTHS[1] for a, b in itertools.pairwise(clocks))


def test_rungs_about_double():
    plan = plan_rungs(400.0, 4.0, 12, PACE)
    assert plan is not None
    clocks = [4.0, *plan.clocks]
    assert all(1.6 < b / a < 2.5 for a, b in itertools.pairwise(clocks))
