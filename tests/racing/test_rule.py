"""The rule of the race, on curves that formulas give, and the plan of its rungs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.racing.rule import Standing, can_win, decide, rank
from ncfbench.racing.rungs import GROWTHS, Pace, arms_of_rungs, plan_rungs, wall_seconds
from ncfbench.statistics.curves import Curve

SAMPLERS = ("iid", "ns", "strat-ns")


def power(speed, floor, exponent=0.5, start=8.0):
    """A loss that falls from ``start`` to ``floor``; twice the speed halves every time."""
    return lambda t: floor + (start - floor) * (1 + speed * t) ** -exponent


def after_plateau(speed, plateau, floor):
    """A loss that falls at once to 6, stays there, and then falls like :func:`power`."""
    law = power(speed, floor, start=6.0)
    return lambda t: 88 - 82 * min(t / 0.5, 1.0) if t < plateau else law(t - plateau)


def curve(law, clock, noise=0.0, seed=0, every=0.5):
    rng = np.random.default_rng(seed)
    seconds = [every * n for n in range(int(clock / every) + 1)]
    return Curve(seconds, [law(t) + noise * float(rng.normal()) for t in seconds])


def arm(law, clock, sampler="ns", **more):
    return Standing(curve(law, clock), sampler, **more)


def arms_of(speeds):
    return {str(n): arm(power(speed, 1), 16.0, SAMPLERS[n % 3]) for n, speed in enumerate(speeds)}


def race(laws, horizon, *, rungs=4, noise=0.0):
    """Race to the horizon in doubling rungs; return the names of arms that were dropped."""
    alive = dict(laws)
    for rung in range(rungs):
        clock = horizon / 2 ** (rungs - rung)
        arms = {
            name: Standing(curve(law, clock, noise, place), sampler)
            for place, (name, (sampler, law)) in enumerate(alive.items())
        }
        for name in decide(arms, horizon, max(3, math.ceil(len(arms) / 2))).dropped:
            del alive[name]
    return laws.keys() - alive.keys()


def test_a_curve_is_read_by_its_lowest_values():
    falls = Curve([0, 1, 2, 4], [9, 5, 6, 3])
    assert falls.level == 3
    assert falls.at(2) == 5  # 6 is above what was reached before
    assert falls.at(3) == 4  # half-way from 5 to 3
    assert falls.time_to(7) == pytest.approx(0.5)
    assert (falls.time_to(3), falls.time_to(2.9)) == (4, None)
    assert falls.gain() == 5 - 3  # from 2 s to 4 s
    assert falls.gain(1) == 5 - 5  # from 1 s to 2 s
    assert falls.noise == pytest.approx((1 + 0) / 2)  # 6 above 5, 3 above 3
    steady = Curve([0, 1, 2, 4], [9, 7, 5, 3])  # gains of 2 in either doubling
    assert [steady.worst(at) for at in (4, 8, 16)] == [3, 3 - 1, 3 - 1 - 0.5]
    assert steady.best(16) == 3 - 2 - 2


def test_a_leader_that_is_about_to_be_overtaken_is_not_settled():
    """It is a hundredth ahead, and the other one fell by more in the last doubling."""
    resting, falling = Curve([0, 2, 4], [9, 5.5, 5]), Curve([0, 2, 4], [9, 6.2, 5.01])
    arms = {"resting": Standing(resting, "ns"), "falling": Standing(falling, "ns")}
    near = {name: Standing(Curve([0, 2, 4], [9, 5.5, 5.005]), "ns") for name in "ab"}
    assert "falling" not in decide({**near, **arms}, 4.0, 1).dropped, "it stays, though last"


def test_arms_are_ranked_at_their_common_clock():
    slow = Standing(Curve([0, 1, 2], [9, 6, 4]), "ns")
    long = Standing(Curve([0, 1, 2, 3], [9, 8, 5, 1]), "iid")  # ahead only because it is further
    assert rank({"long": long, "slow": slow}) == ["slow", "long"]
    late = Standing(Curve([0.0], [2.0]), "ns")  # not yet evaluated: its only value counts
    assert rank({"long": long, "late": late, "slow": slow}) == ["late", "slow", "long"]
    half = Standing(Curve([0, 1.5], [9, 5.5]), "ns")  # of the longest clock: the curves share it
    assert rank({"long": long, "half": half, "slow": slow}) == ["slow", "half", "long"]
    asleep = Standing(Curve([0, 2], [0.5, 0.5]), "ns", learned_at=None)
    assert rank({"asleep": asleep, "long": long, "slow": slow}) == ["slow", "long", "asleep"]


SPEEDS = [step / 5 for step in range(1, 101)]
"""Speeds that differ by a hundredth at least: of two that are equal either may be dropped."""


@settings(max_examples=60)
@given(
    speeds=st.lists(st.sampled_from(SPEEDS), min_size=4, max_size=10, unique=True),
    floor=st.floats(0, 3),
    exponent=st.floats(0.3, 1.0),
)
def test_the_fastest_of_one_shape_is_never_dropped(speeds, floor, exponent):
    laws = {n: (SAMPLERS[n % 3], power(speed, floor, exponent)) for n, speed in enumerate(speeds)}
    assert speeds.index(max(speeds)) not in race(laws, 64.0)


@settings(max_examples=100)
@given(
    crossing=st.floats(0.15, 0.4),
    gap=st.floats(0.2, 1.5),
    slow=st.lists(st.floats(0.1, 0.9), max_size=6),
    noise=st.sampled_from([0.0, 0.02]),
)
def test_an_early_leader_does_not_hide_the_winner(crossing, gap, slow, noise):
    """One arm leads for about a third of the way, and then never comes down (Stratified Sampling
    beside Negative Sharing on CiteULike).
    """
    horizon = 64.0
    winner = power(1.0, 1.0, 0.6)
    level = winner(crossing * horizon)
    # It falls faster at first, and comes to rest where the two curves meet.
    laws = {
        "leads": ("strat", lambda t: level + (8 - level) * math.exp(-3 * t / (crossing * horizon))),
        "winner": ("ns", winner),
        "baseline": ("iid", power(0.1, 1)),
    }
    for place, speed in enumerate(slow):
        laws[f"slow {place}"] = ("strat" if place % 2 else "ns", power(speed, 1.0 + gap, 0.6))
    assert "winner" not in race(laws, horizon, noise=noise)


@pytest.mark.parametrize(
    ("losses", "leads", "wins"),
    [
        ([8, 6, 5, 3.9], [8, 3.2, 3.1, 3.05], True),  # 3.9 - 1.1, below 3.05 - 0.05 / 2
        ([8, 5, 4.5, 3.9], [8, 3.2, 3.1, 3.05], False),  # 3.9 - 0.6
        ([8, 5, 4.5, 3.9], [8, 3.05, 3.65, 3.05], True),  # below 3.05 and a noise of 0.3
    ],
)
def test_an_arm_that_cannot_catch_up_may_go_lower(losses, leads, wins):
    """The leader was at 3.9 after 3.4 s: 1.39 x 3.4 and 1.25 x 16 are less than 32."""
    clock = [0, 4, 8, 16]
    arm, leader = Standing(Curve(clock, losses), "ns"), Standing(Curve(clock, leads), "ns")
    assert can_win(arm, leader, 32.0) == wins


def test_what_lags_far_behind_late_is_dropped():
    laws = {"fast": ("strat-ns", 10), "rival": ("ns", 8), "slow": ("ns", 1), "last": ("iid", 0.5)}
    arms = {name: arm(power(speed, 1), 32.0, sampler) for name, (sampler, speed) in laws.items()}
    reason = "cannot catch up with fast within 64 s"
    assert decide(arms, 64.0, keep=5).dropped == {"slow": reason, "last": reason}


def test_before_anything_was_learned_nobody_leaves_early():
    """Before a third of the horizon; then there is no time for all, and no order to go by."""
    law = after_plateau(1, 20.0, 2.0)
    arms = {str(place): arm(law, 8.0, learned_at=None) for place in range(5)}
    assert decide(arms, 32.0, 3).dropped == {}
    assert list(decide(arms, 20.0, 3).dropped) == ["4", "3"]


def test_early_on_delays_order():
    """One that lags was at its level soon, and stands still since; one ahead is there late."""
    lowest = Standing(Curve([0, 1, 2, 4], [8, 3, 2, 1]), "ns")
    still = Standing(Curve([0, 1, 2, 4], [8, 5, 5, 5]), "neg")
    late = Standing(Curve([0, 1, 2, 4], [8, 7.9, 7.8, 4]), "iid")
    arms = {"late": late, "still": still, "lowest": lowest}
    assert rank(arms) == ["lowest", "late", "still"]
    # 1 s over 0.6 for a loss of 5, 4 s over 0.8 for one of 4.
    assert rank(arms, is_early=True) == ["lowest", "still", "late"]


def test_an_arm_at_rest_may_begin_where_the_leader_began():
    """The leader passed the loss of popularity at once and rested there; so may the other."""
    leader = Standing(curve(after_plateau(1, 8, 2), 16.0), "ns", learned_at=9.0)
    resting = Standing(curve(after_plateau(1, 20, 2), 16.0), "ns", learned_at=None)
    assert can_win(resting, leader, 48.0)  # 9 + 1.25 x 32 = 49, and more with a seed's noise
    assert not can_win(resting, leader, 24.0)  # 9 x 1.32 + 1.25 x 8 = 22
    awake = Standing(resting.curve, "ns", learned_at=0.0)
    assert not can_win(awake, leader, 40.0)


def test_a_smaller_rate_of_the_leaders_sampler_stays():
    arms = {
        "leader": arm(power(30, 1), 8.0, "strat-ns", learning_rate=0.03),
        "slower": arm(power(3, 1), 8.0, "strat-ns", learning_rate=0.01),
        "slowest": arm(power(1, 1), 8.0, "strat-ns", learning_rate=0.003),
        "larger": arm(power(5, 1), 8.0, "strat-ns", learning_rate=0.1),
        "rival": arm(power(8, 1), 8.0, "ns", learning_rate=0.01),
        "other": arm(power(4, 1), 8.0, "ns", learning_rate=0.003),
    }
    for clock in (16.0, 100.0):
        left = set(arms) - set(decide(arms, clock, keep=2).dropped)
        assert {"leader", "slower", "rival"} <= left
    assert left == {"leader", "slower", "rival"}


def test_until_late_the_best_of_every_sampler_stays():
    """Late there stays that of one other sampler."""
    arms = {f"best {place}": arm(power(10 + place, 1), 8.0) for place in range(4)}
    arms |= {"a": arm(power(5, 1), 8.0, "strat"), "b": arm(power(4, 1), 8.0, "mixed-ns")}
    for horizon, gone in ((32.0, set()), (16.0, {"b"})):
        dropped = decide(arms, horizon, keep=2).dropped.keys()
        assert {"a", "b", "best 3"} & dropped == gone


@settings(max_examples=50)
@given(
    speeds=st.lists(st.floats(0.1, 30), min_size=2, max_size=8),
    scale=st.floats(0.1, 10),
    shift=st.floats(-5, 5),
    pace=st.sampled_from([0.25, 4.0]),
)
def test_units_of_loss_and_time_change_no_decision(speeds, scale, shift, pace):
    arms = arms_of(speeds)
    scaled = {}
    for name, one in arms.items():
        losses = [scale * loss + shift for loss in one.curve.losses]
        seconds = [pace * at for at in one.curve.seconds]
        scaled[name] = Standing(Curve(seconds, losses), one.sampler)
    before, after = decide(arms, 40.0, 2), decide(scaled, pace * 40.0, 2)
    assert before.dropped.keys() == after.dropped.keys()
    assert before.leader == after.leader


@settings(max_examples=50)
@given(speeds=st.lists(st.floats(0.1, 30), min_size=1, max_size=12), keep=st.integers(1, 12))
def test_a_rung_leaves_the_leader_and_what_there_is_time_for(speeds, keep):
    arms = arms_of(speeds)
    decision = decide(arms, 20.0, keep)
    left = arms.keys() - decision.dropped.keys()
    assert decision.leader in left
    assert len(left) <= max(keep, 3)


# Rungs


PACE = Pace(opening=3.0, training=1.5, saving=0.2)


def test_each_rung_has_half_the_arms():
    assert arms_of_rungs(16, 5) == [16, 8, 4, 3, 3]
    assert arms_of_rungs(2, 3) == [2, 2, 2]
    clocks = [4.0, *plan_rungs(400.0, 4.0, 12, PACE)]
    assert all(1.6 < b / a < 2.5 for a, b in itertools.pairwise(clocks))
    # Four arms from 2 s to 4 s, then three to 8 s.
    rungs = 4 * (1.5 * 2 + 0.2), 3 * (1.5 * 4 + 0.2)
    assert wall_seconds([4.0, 8.0], 2.0, 4, PACE) == pytest.approx(sum(rungs))


@given(st.floats(1, 5000), st.floats(0.5, 50), st.integers(1, 30))
def test_a_plan_uses_the_budget_up(seconds, clock, arms):
    plan = plan_rungs(seconds, clock, arms, PACE)
    if not plan:
        assert wall_seconds([clock * GROWTHS[0]], clock, arms, PACE) > seconds
        return
    used = wall_seconds(plan, clock, arms, PACE)
    assert used <= seconds * (1 + 1e-9)
    assert used == pytest.approx(seconds, rel=1e-6)
    growths = [b / a for a, b in itertools.pairwise([clock, *plan])]
    assert all(GROWTHS[0] - 1e-6 <= growth <= GROWTHS[1] for growth in growths)
