"""Claims of the paper and speedups, judged by runs and by profiles whose times are plain
arithmetic.
"""

import itertools
import math

import pytest
from support.records import filled, record

from ncfbench.reporting.claims import DISTURBED, judge_claims
from ncfbench.reporting.frames import group
from ncfbench.reporting.profiles import with_profile_times
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.results import speedup_tables
from ncfbench.storage import schemas


def judged(runs, busy="", profiled=()):
    """The claims that some run bears on, by name; there is one comparison with the default SG.

    A sampler may be busy: its times vary by more than those of a quiet machine.
    """
    comparisons = compare(group(runs))
    for row in itertools.chain(*(each.speedups for each in comparisons)):
        row["full_iteration_spread"] = 0.3 if row["sampler"] == busy else 0.1
    claims = judge_claims([*comparisons, *profiled])
    assert len({one["claim"] for one in claims}) == len(claims)
    return {one["claim"]: one for one in claims}


def seeds(sampler, ends, ms, recall=0.3, **more):
    """Runs of a sampler whose losses fall from 9 to 5 to the given end, a seed for each end."""
    return [
        record(sampler, [9, 5, end], ms, recall, seed=seed, **more) for seed, end in enumerate(ends)
    ]


IID, BOTH = seeds("iid", (3.0, 3.0), 200), seeds("strat-ns", (1.0, 1.0), 20)
NEVER = seeds("strat", (3.5, 3.5), 25)
# iid ends at 3.0, where ns is after 100 + 100 (5 - 3) / (5 - 1) = 150 of 200 iterations.
HOLDS = [*IID, *seeds("ns", (1.0, 1.0), 50), *BOTH, *NEVER]
# ns needs more iterations with a seed, strata take as long, and the recall is a third lower.
FAILS = [*seeds("iid", (3.0,) * 3, 20), *seeds("ns", (2.9, 2.9), 20), *NEVER]
FAILS.append(record("ns", [9, 8, 2.9], 20, 0.3, seed=2))
FAILS += seeds("strat-ns", (2.9, 2.9), 21, 0.2)
ONE = [runs[0] for runs in (IID, seeds("ns", (1.0,), 50), BOTH)]
BOUND = [*IID, *seeds("ns", (3.5, 3.5), 50)]
UNRANKED = [*seeds("iid", (3.0, 3.0), 20, 0.0), *seeds("strat-ns", (3.0, 3.0), 10, 0.0)]
SHARED = [*IID, *seeds("ns", (3.0, 3.0), 100)]
ELSEWHERE = [*SHARED, *seeds("strat-ns", (3.0, 3.0), 20, key="two")]
RIVAL = [*SHARED, *seeds("strat-ns", (3.0, 3.0), 20), *seeds("strat", (3.0, 3.0), 9, key="two")]


def met(*strat, ns=(60, 60)):
    """strat-ns takes 25 ms with both seeds; the others may differ between them."""
    runs = [*IID, *seeds("strat-ns", (3.0, 3.0), 25)]
    for seed, lengths in enumerate(zip(ns, strat, strict=True)):
        for sampler, ms in zip(("ns", "strat"), lengths, strict=True):
            runs.append(record(sampler, [9, 5, 3.0], ms, 0.3, seed=seed))
    return runs


CLAIMS = [
    (HOLDS, "fewer-iterations", "reproduced", 200 / 150, "1.33 times fewer"),
    # ns needs as many iterations, each 50 / 20 times as long; strat has a bound alone.
    (HOLDS, "soonest", "reproduced", 2.5, "2.50 times sooner than the next, ns (not run: neg)"),
    (HOLDS, "kept-recall", "reproduced", 0.0, ""),
    (FAILS, "soonest", "not reproduced", 20 / 21, ""),
    (FAILS, "kept-recall", "not reproduced", -1 / 3, "recall@50 lower by 0.333"),
    ([*IID, *seeds("strat-ns", (3.0, 3.0), 9, 0.29)], "kept-recall", "not reproduced", -1 / 30, ""),
    (UNRANKED, "kept-recall", None, None, ""),
    (ONE, "fewer-iterations", "undecided", 200 / 150, "one seed cannot tell"),
    (ONE, "soonest", "undecided", 2.5, "one seed cannot tell"),
    # At most as many iterations as iid, which is no less.
    (BOUND, "fewer-iterations", "undecided", None, "at most 1.00"),
    # Its times of another machine have no ratio, and a rival's decide nothing.
    ([*SHARED, *seeds("strat-ns", (3.0, 3.0), 20)], "soonest", "reproduced", 5.0, "ns"),
    (ELSEWHERE, "soonest", None, None, ""),
    (RIVAL, "soonest", "undecided", None, ""),
    # Further behind with an interval that holds 1, later with both seeds, and sooner with both.
    (met(100, 30), "soonest", "undecided", (4 * 1.2) ** 0.5, "strat"),
    (met(55, 54), "soonest", "reproduced", (2.2 * 2.16) ** 0.5, "strat"),
    (met(20, 20.2), "soonest", "not reproduced", (0.8 * 0.808) ** 0.5, "strat"),
    (met(20, 20.2, ns=(5, 900)), "soonest", "not reproduced", (0.8 * 0.808) ** 0.5, "strat"),
]


@pytest.mark.parametrize(("runs", "claim", "verdict", "value", "words"), CLAIMS)
def test_claims_are_judged_by_their_intervals(runs, claim, verdict, value, words):
    row = judged(runs).get(claim, {"verdict": None, "value": None, "evidence": ""})
    assert row["verdict"] == verdict
    assert row["value"] == (None if value is None else pytest.approx(value))
    assert words in row["evidence"]


@pytest.mark.parametrize("busy", ["", "iid", "ns", "strat"])
def test_times_of_a_busy_machine_decide_nothing(busy):
    claims = judged(met(55, 54), busy=busy)
    disturbed = [name for name, one in claims.items() if one["evidence"] == DISTURBED]
    assert disturbed == ["soonest"] * bool(busy)


# --- times of profiles


def profile(*samplers, **more):
    """Rows of the cost model: milliseconds by sampler, intervals of 10 % around the ratios."""
    common = {"dataset": "citeulike", "encoder": "cnn", "loss": "sg", "batch_size": 512}
    common |= {"baseline": "iid", "unusual_settings": "", "rounds": 7, "settings": "one"}
    slowest, rows = max(ms for _, ms in samplers), []
    for name, ms in samplers:
        ratio, error = slowest / ms, 1 if name == "iid" else 1.1
        row = common | {"sampler": name, "data_fingerprint": "f" * 64}
        row["negatives"] = 10 if name in ("iid", "neg", "strat") else None
        row["stratum_size"] = 4 if name.startswith("strat") else None
        row["measured_full_iteration_seconds"] = ms / 1e3
        row |= {"measured_full_speedup": ratio, "lower_full_speedup": ratio / error}
        row["upper_full_speedup"] = ratio * error
        rows.append(filled(schemas.COSTMODEL, **row | more))
    return rows


def joined(runs, rows, baseline=None):
    return with_profile_times(compare(group(runs, baseline)), rows)


RUNS = [record("iid", [9, 5, 3], 40), record("ns", [9, 4, 2], 10)]
"""iid ends at 3, where ns is after 150 of 200 iterations."""


def row_of(comparison):
    return next(row for row in comparison.speedups if row["sampler"] == "ns")


def test_a_profile_gives_the_length_of_iterations():
    runs = []
    for seed in (0, 1):
        runs += [record("iid", [9, 5, 3], 400, seed=seed), record("ns", [9, 4, 2], 4000, seed=seed)]
        runs.append(record("strat", [9, 5, 4], 1, seed=seed))
    (comparison,) = joined(runs, profile(("iid", 40), ("ns", 10), ("strat", 8), ("neg", 40)))
    assert comparison.timed_by == "profile of 7 rounds"
    by_sampler = {row["sampler"]: row for row in comparison.speedups}
    assert set(by_sampler) == {"iid", "ns", "strat"}  # neg has no run
    assert by_sampler["ns"]["full_iteration_seconds"] == pytest.approx(0.01)
    (table,) = speedup_tables([comparison])
    assert table.title.startswith("Speedup over iid with times of a profile of 7 rounds, SG loss")
    # Equal seeds have no spread: the intervals are the profile's.
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["CNN", "iid", "1.00", "1.00", "1.00", "2"],
        ["CNN", "strat", "5.00 [4.55, 5.50]", "< 1.00 (0/2)", "< 5.00 (0/2)", "2"],
        ["CNN", "ns", "4.00 [3.64, 4.40]", "1.33 [1.33, 1.33]", "5.33 [4.85, 5.87]", "2"],
    ]
    assert "ns comes down to the smallest loss of iid 5.33 times sooner" in table.lead


def test_of_a_repeated_profile_the_last_one_counts():
    rows = []
    for ms, key, settings in ((8, "a", "two"), (10, "a", "one"), (20, "b", "one")):
        rows += profile(("iid", 40), ("ns", ms), environment_key=key * 64, settings=settings)
    (comparison,) = joined(RUNS, rows)
    assert row_of(comparison)["per_iteration_speedup"] == 2


def test_totals_are_tied_by_the_times_of_the_profile():
    """With one seed within a factor of 1.4: 5.3 and 4.8 times, though the runs took 1 and 90 ms."""
    runs = [RUNS[0], record("ns", [9, 4, 2], 1), record("strat-ns", [9, 4, 2], 90)]
    (comparison,) = joined(runs, profile(("iid", 40), ("ns", 11), ("strat-ns", 10)))
    tied = {row["sampler"] for row in comparison.speedups if "total_speedup" in row["tied"]}
    assert tied == {"ns", "strat-ns"}
    assert speedup_tables([comparison])[0].lead.endswith("tied with it: ns.")


def test_another_computation_has_the_runs_iterations():
    """With one seed."""
    plain = profile(("iid", 200), ("ns", 20), unusual_settings="convolution=plain", settings="two")
    usual = profile(("iid", 40), ("ns", 10))
    by_profile = {each.timed_by: each for each in joined(RUNS, [*usual, *plain])}
    assert set(by_profile) == {"profile of 7 rounds", "profile of 7 rounds, convolution=plain"}
    row = row_of(by_profile["profile of 7 rounds, convolution=plain"])
    assert row["total_speedup"] == pytest.approx(200 / 150 * 10)
    assert row["total_speedup_lower"] is None
    assert len({table.name for table in speedup_tables([*by_profile.values()])}) == 2


@pytest.mark.parametrize(
    "more",
    [
        *({"data_fingerprint": "e" * 64}, {"loss": "mse"}, {"encoder": "bow"}, {"batch_size": 256}),
        {"unusual_settings": "noise=uniform"},
        {"unusual_settings": "negatives=20", "negatives": 20},
    ],
)
def test_profiles_of_something_else_are_left_out(more):
    runs = [*RUNS, record("neg", [9, 4, 2], 10)]
    rows = profile(("iid", 40), ("neg", 10), ("ns", 5))
    assert joined(runs, rows)
    assert not joined(runs, rows, baseline="ns"), "the profile's ratios are over iid"
    assert not joined(runs, profile(("iid", 40), ("neg", 10), **more))


def test_the_soonest_is_judged_by_the_profile_s_times():
    """The runs' own times say the opposite. The profile has 40, 10 and 5 ms; strat never comes to
    the loss of iid.
    """
    runs = [
        record(sampler, losses, ms, seed=seed)
        for seed in (0, 1)
        for sampler, losses, ms in (
            ("iid", [9, 5, 3], 400),
            ("ns", [9, 4, 2], 10),
            ("strat", [9, 8, 7], 1),
            ("strat-ns", [9, 4, 2], 1000),
        )
    ]

    def judge(ns, both, strat=20, **more):
        times = [("iid", 40), *((("ns", ns),) if ns else ()), ("strat", strat), ("strat-ns", both)]
        (claim,) = judge_claims(joined(runs, profile(*times, **more)))
        return claim

    claim = judge(10, 5)
    assert (claim["claim"], claim["verdict"]) == ("soonest", "reproduced")
    assert claim["value"] == pytest.approx(2)
    # Both ratios over iid are known to 10 %, so theirs is to the root of two such errors.
    assert claim["lower"] == pytest.approx(2 / 1.1 ** math.sqrt(2))
    assert claim["evidence"].startswith("2.00 times sooner than the next, ns")
    assert claim["settings"] == "profile of 7 rounds"
    assert judge(5, 10)["verdict"] == "not reproduced"
    assert judge(None, 10)["evidence"] == "ns was not profiled"
    assert judge(10, 5, rounds=3)["evidence"].startswith("the profile has too few rounds")
    # At most 9.3 times sooner than iid, though 10 % above that it may be as soon as strat-ns.
    assert judge(10, 5, strat=4.3)["evidence"] == "strat has no ratio to compare with"
    profiled = joined(runs, profile(("iid", 40), ("ns", 10), ("strat", 20), ("strat-ns", 5)))
    claim = judged(runs, "iid", profiled)["soonest"]
    assert claim["verdict"] == "reproduced", "without the busy runs' own"
