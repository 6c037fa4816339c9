"""Speedups of runs whose times come from a profile: plain arithmetic."""

import math

import pytest
from support.records import filled, record

from ncfbench.reporting.claims import judge_claims
from ncfbench.reporting.frames import group
from ncfbench.reporting.profiles import with_profile_times
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.results import speedup_tables
from ncfbench.storage import schemas


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


IID, NS = ("iid", [9, 5, 3], 40), ("ns", [9, 4, 2], 10)
"""iid ends at 3, where ns is after 150 of 200 iterations."""


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
    runs, rows = [record(*IID), record(*NS)], []
    for ms, key, settings in ((8, "a", "two"), (10, "a", "one"), (20, "b", "one")):
        rows += profile(("iid", 40), ("ns", ms), environment_key=key * 64, settings=settings)
    (comparison,) = joined(runs, rows)
    assert row_of(comparison)["per_iteration_speedup"] == 2


def test_totals_are_tied_by_the_times_of_the_profile():
    """With one seed within a factor of 1.4: 5.3 and 4.8 times, though the runs took 1 and 90 ms."""
    runs = [record(*IID), record("ns", [9, 4, 2], 1), record("strat-ns", [9, 4, 2], 90)]
    (comparison,) = joined(runs, profile(("iid", 40), ("ns", 11), ("strat-ns", 10)))
    tied = {row["sampler"] for row in comparison.speedups if "total_speedup" in row["tied"]}
    assert tied == {"ns", "strat-ns"}
    assert speedup_tables([comparison])[0].lead.endswith("tied with it: ns.")


def test_another_computation_has_the_runs_iterations():
    """With one seed."""
    runs = [record(*IID), record(*NS)]
    plain = profile(("iid", 200), ("ns", 20), unusual_settings="convolution=plain", settings="two")
    usual = profile(("iid", 40), ("ns", 10))
    by_profile = {each.timed_by: each for each in joined(runs, [*usual, *plain])}
    assert set(by_profile) == {"profile of 7 rounds", "profile of 7 rounds, convolution=plain"}
    row = row_of(by_profile["profile of 7 rounds, convolution=plain"])
    assert row["total_speedup"] == pytest.approx(200 / 150 * 10)
    assert row["total_speedup_lower"] is None
    assert len({table.name for table in speedup_tables([*by_profile.values()])}) == 2


def row_of(comparison):
    return next(row for row in comparison.speedups if row["sampler"] == "ns")


@pytest.mark.parametrize(
    "more",
    [
        *({"data_fingerprint": "e" * 64}, {"loss": "mse"}, {"encoder": "bow"}, {"batch_size": 256}),
        {"unusual_settings": "noise=uniform"},
        {"unusual_settings": "negatives=20", "negatives": 20},
    ],
)
def test_profiles_of_something_else_are_left_out(more):
    runs = [record(*IID), record("neg", [9, 4, 2], 10), record("ns", [9, 4, 2], 5)]
    rows = profile(("iid", 40), ("neg", 10), ("ns", 5))
    assert joined(runs, rows)
    assert not joined(runs, rows, baseline="ns"), "the profile's ratios are over iid"
    assert not joined(runs, profile(("iid", 40), ("neg", 10), **more))


def test_the_soonest_is_judged_by_the_profile_s_times():
    """The runs' own times say the opposite. The profile has 40, 10 and 5 ms."""
    runs = [
        record(sampler, [9, 5, 3] if sampler == "iid" else [9, 4, 2], ms, seed=seed)
        for seed in (0, 1)
        for sampler, ms in (("iid", 400), ("ns", 10), ("strat-ns", 1000))
    ]
    rows = profile(("iid", 40), ("ns", 10), ("strat-ns", 5))
    (claim,) = judge_claims(joined(runs, rows))
    assert (claim["claim"], claim["verdict"]) == ("soonest", "reproduced")
    assert claim["value"] == pytest.approx(2)
    # Both ratios over iid are known to 10 %, so theirs is to the root of two such errors.
    assert claim["lower"] == pytest.approx(2 / 1.1 ** math.sqrt(2))
    assert claim["evidence"].startswith("2.00 times sooner than the next, ns")
    assert claim["settings"] == "profile of 7 rounds"
    (slower,) = judge_claims(joined(runs, profile(("iid", 40), ("ns", 5), ("strat-ns", 10))))
    assert slower["verdict"] == "not reproduced"
    (unknown,) = judge_claims(joined(runs, profile(("iid", 40), ("strat-ns", 10))))
    assert unknown["evidence"] == "ns was not profiled"
    rows = [row | {"rounds": 3} for row in rows]
    (few,) = judge_claims(joined(runs, rows))
    assert (few["verdict"], few["evidence"][:15]) == ("undecided", "the profile has")
    assert row_of(joined(runs, rows)[0])["total_speedup_lower"] is None
