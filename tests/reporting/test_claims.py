"""Claims of the paper, judged by runs whose figures are plain arithmetic."""

import itertools

import pytest
from support.records import record

from ncfbench.reporting.claims import DISTURBED, judge_claims
from ncfbench.reporting.frames import group
from ncfbench.reporting.rows import compare


def judged(runs, busy=""):
    """The claims that some run bears on, by name; there is one comparison with the default SG.

    A sampler may be busy: its times vary by more than those of a quiet machine.
    """
    comparisons = compare(group(runs))
    for row in itertools.chain(*(each.speedups for each in comparisons)):
        row["full_iteration_spread"] = 0.3 if row["sampler"] == busy else 0.1
    claims = judge_claims(comparisons)
    assert len({one["claim"] for one in claims}) == len(claims)
    return {one["claim"]: one for one in claims}


def seeds(sampler, ends, ms, **more):
    """Runs of a sampler whose losses fall from 9 to 5 to the given end, a seed for each end."""
    recalls = more.pop("recalls", [0.3] * len(ends))
    return [
        record(sampler, [9, 5, end], ms, recall, seed=seed, **more)
        for seed, (end, recall) in enumerate(zip(ends, recalls, strict=True))
    ]


def verdicts(claims):
    return {name: one["verdict"] for name, one in claims.items()}


def test_ratios_are_judged_by_their_intervals():
    """iid ends at 3.0, where ns is after 100 + 100 (5 - 3) / (5 - 1) = 150 of 200 iterations."""
    runs = [*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (1.0, 1.0), 50)]
    runs += [*seeds("strat-ns", (1.0, 1.0), 20), *seeds("strat", (3.5, 3.5), 25)]
    claims = judged(runs)
    assert verdicts(claims) == dict.fromkeys(
        ("fewer-iterations", "soonest", "kept-recall"), "reproduced"
    )
    assert claims["fewer-iterations"]["value"] == pytest.approx(200 / 150)
    assert claims["soonest"]["evidence"].endswith("(not run: neg)")
    # ns needs as many iterations, each 50 / 20 times as long; strat has a bound alone.
    assert claims["soonest"]["value"] == pytest.approx(2.5)
    assert "ns" in claims["soonest"]["evidence"]


def test_claims_that_do_not_hold():
    """ns needs more iterations, strata take as long, and the recall is a third lower."""
    runs = [*seeds("iid", (3.0,) * 3, 20), *seeds("ns", (2.9, 2.9), 20)]
    runs.append(record("ns", [9, 8, 2.9], 20, 0.3, seed=2))
    runs += [*seeds("strat", (3.5, 3.5), 25), *seeds("strat-ns", (2.9,) * 2, 21, recalls=[0.2] * 2)]
    claims = judged(runs)
    for claim, value in (("kept-recall", -1 / 3), ("soonest", 20 / 21)):
        assert claims[claim]["verdict"] == "not reproduced"
        assert claims[claim]["value"] == pytest.approx(value)


def test_a_baseline_without_recall_keeps_none():
    runs = [*seeds("iid", (3.0, 3.0), 20, recalls=[0.0, 0.0])]
    runs += seeds("strat-ns", (3.0, 3.0), 10, recalls=[0.0, 0.0])
    assert "kept-recall" not in judged(runs)


def test_one_seed_and_bounds_are_no_proof():
    runs = [*seeds("iid", (3.0,), 200), *seeds("ns", (1.0,), 50)]
    claims = judged([*runs, *seeds("strat-ns", (1.0,), 20)])
    assert verdicts(claims) == {"fewer-iterations": "undecided", "soonest": "undecided"}
    assert "one seed cannot tell" in claims["soonest"]["evidence"]
    bounded = judged([*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (3.5, 3.5), 50)])
    one = bounded["fewer-iterations"]
    assert one["verdict"] == "undecided"  # at most as many iterations as iid, which is no less
    assert "at most 1.00" in one["evidence"]


@pytest.mark.parametrize("busy", ["", "iid", "ns", "strat"])
def test_times_of_a_busy_machine_decide_nothing(busy):
    lengths = {"iid": 200, "ns": 50, "strat-ns": 20, "strat": 25}
    runs = [run for sampler, ms in lengths.items() for run in seeds(sampler, (3.0, 3.0), ms)]
    claims = judged(runs, busy=busy)
    disturbed = [name for name, one in claims.items() if one["evidence"] == DISTURBED]
    assert disturbed == ["soonest"] * bool(busy)


def test_times_of_two_machines_decide_nothing():
    """strat-ns on a machine that is ten times as fast needs as many iterations as iid."""
    runs = [*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (3.0, 3.0), 100)]
    assert judged([*runs, *seeds("strat-ns", (3.0, 3.0), 20)])["soonest"]["value"] > 1
    apart = judged([*runs, *seeds("strat-ns", (3.0, 3.0), 20, key="two")])
    assert "soonest" not in apart
    rival = judged(
        [*runs, *seeds("strat-ns", (3.0,) * 2, 20), *seeds("strat", (3.0,) * 2, 9, key="two")]
    )
    assert rival["soonest"]["verdict"] == "undecided"
    assert rival["soonest"]["value"] is None


@pytest.mark.parametrize(
    ("strat", "verdict"),
    [((100, 30), "undecided"), ((55, 54), "reproduced"), ((20, 20.2), "not reproduced")],
)
def test_every_rival_must_be_later(strat, verdict):
    """ns takes 60 ms instead of the 25 of strat-ns with both seeds. strat differs between its two:
    its mean is further behind, and its interval holds 1, or it is sooner with both.
    """
    runs = [*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (3.0, 3.0), 60)]
    runs += seeds("strat-ns", (3.0, 3.0), 25)
    runs += [record("strat", [9, 5, 3.0], ms, 0.3, seed=seed) for seed, ms in enumerate(strat)]
    claims = judged(runs)["soonest"]
    assert claims["verdict"] == verdict
    assert "sooner than the next, strat " in claims["evidence"]
