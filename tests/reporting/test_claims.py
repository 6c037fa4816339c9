"""Claims of the paper, judged by runs whose figures are plain arithmetic."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from folders import filled
from literal_runs import record

from ncfbench.paper.claims import ClaimVerdict, judge_claims
from ncfbench.paper.measures import DISTURBED, falls_by_chance
from ncfbench.reporting.evidence import find_evidence
from ncfbench.reporting.frames import group
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.paper import claims_table
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import schemas


def judged(
    runs: list[RunRecord], audits: Sequence[Any] = (), busy: str = ""
) -> Mapping[str, ClaimVerdict]:
    """The claims that some run bears on, by name; there is one comparison with the default SG.

    A sampler may be busy: its times vary by more than those of a quiet machine.
    """
    comparisons = compare(group(runs))
    for row in itertools.chain(*(each.speedups for each in comparisons)):
        row["full_iteration_spread"] = 0.3 if row["sampler"] == busy else 0.1
    found = judge_claims(find_evidence(comparisons, {"audit": audits}, []))
    own = [one for one in found if "coupling" not in one.settings]
    assert len({one.claim for one in own}) == len(own)
    return {one.claim: one for one in own}


def seeds(sampler: str, ends: Sequence[float], ms: float, **more: Any) -> list[RunRecord]:
    """Runs of a sampler whose losses fall from 9 to 5 to the given end, a seed for each end."""
    recalls = more.pop("recalls", [0.3] * len(ends))
    return [
        record(sampler, [9, 5, end], ms, recall, seed=seed, **more)
        for seed, (end, recall) in enumerate(zip(ends, recalls, strict=True))
    ]


def verdicts(found: Mapping[str, ClaimVerdict]) -> dict[str, str]:
    return {name: one.verdict for name, one in found.items()}


def test_ratios_are_judged_by_their_intervals() -> None:
    """iid ends at 3.0, where ns is after 100 + 100 (5 - 3) / (5 - 1) = 150 of 200 iterations."""
    runs = [*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (1.0, 1.0), 50)]
    runs += [*seeds("strat-ns", (1.0, 1.0), 20), *seeds("strat", (3.5, 3.5), 25)]
    found = judged(runs)
    assert verdicts(found) == dict.fromkeys(
        ("fewer-iterations", "shorter-iterations", "soonest", "kept-recall"), "reproduced"
    )
    assert found["fewer-iterations"].value == pytest.approx(200 / 150)
    assert found["shorter-iterations"].value == pytest.approx(200 / 25)
    assert "8.0 times shorter with 1.0 times fewer items" in found["shorter-iterations"].evidence
    assert found["soonest"].evidence.endswith("(not run: neg)")
    # ns needs as many iterations, each 50 / 20 times as long; strat has a bound alone.
    assert found["soonest"].value == pytest.approx(2.5)
    assert "ns" in found["soonest"].evidence
    shown = claims_table(list(found.values()))
    assert "Sharing negatives needs fewer iterations" in [row[3].text for row in shown.rows]


def test_claims_that_do_not_hold() -> None:
    """ns needs more iterations, strata take as long, and the recall is a third lower."""
    runs = [*seeds("iid", (3.0,) * 3, 20), *seeds("ns", (2.9, 2.9), 20)]
    runs.append(record("ns", [9, 8, 2.9], 20, 0.3, seed=2))
    runs += [*seeds("strat", (3.5, 3.5), 25), *seeds("strat-ns", (2.9,) * 2, 21, recalls=[0.2] * 2)]
    found = judged(runs)
    for claim, value in (
        ("shorter-iterations", 20 / 25),
        ("kept-recall", -1 / 3),
        ("soonest", 20 / 21),
    ):
        assert found[claim].verdict == "not reproduced"
        assert found[claim].value == pytest.approx(value)


def test_one_seed_and_bounds_are_no_proof() -> None:
    runs = [*seeds("iid", (3.0,), 200), *seeds("ns", (1.0,), 50)]
    found = judged([*runs, *seeds("strat-ns", (1.0,), 20)])
    assert verdicts(found) == {"fewer-iterations": "undecided", "soonest": "undecided"}
    assert "one seed cannot tell" in found["soonest"].evidence
    bounded = judged([*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (3.5, 3.5), 50)])
    one = bounded["fewer-iterations"]
    assert one.verdict == "undecided"  # at most as many iterations as iid, which is no less
    assert "at most 1.00" in one.evidence


@pytest.mark.parametrize(
    ("busy", "disturbed"),
    [
        ("none", set()),
        ("iid", {"shorter-iterations", "soonest"}),
        ("ns", {"soonest"}),
        ("strat", {"shorter-iterations", "soonest"}),
    ],
)
def test_times_of_a_busy_machine_decide_nothing(busy: str, disturbed: set[str]) -> None:
    lengths = {"iid": 200, "ns": 50, "strat-ns": 20, "strat": 25}
    runs = [run for sampler, ms in lengths.items() for run in seeds(sampler, (3.0, 3.0), ms)]
    found = judged(runs, busy=busy)
    assert {name for name, one in found.items() if one.evidence == DISTURBED} == disturbed


def test_times_of_two_machines_decide_nothing() -> None:
    """strat-ns on a machine that is ten times as fast needs as many iterations as iid."""
    runs = [*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (3.0, 3.0), 100)]
    assert judged([*runs, *seeds("strat-ns", (3.0, 3.0), 20)])["soonest"].value > 1
    apart = judged([*runs, *seeds("strat-ns", (3.0, 3.0), 20, key="two")])
    assert "soonest" not in apart
    rival = judged(
        [*runs, *seeds("strat-ns", (3.0,) * 2, 20), *seeds("strat", (3.0,) * 2, 9, key="two")]
    )
    assert rival["soonest"].verdict == "undecided"
    assert rival["soonest"].value is None


@pytest.mark.parametrize(
    ("strat", "verdict"),
    [((100, 30), "undecided"), ((55, 54), "reproduced"), ((20, 20.2), "not reproduced")],
)
def test_every_rival_must_be_later(strat: tuple[float, float], verdict: str) -> None:
    """ns takes 60 ms instead of the 25 of strat-ns with both seeds. strat differs between its two:
    its mean is further behind, and its interval holds 1, or it is sooner with both.
    """
    runs = [*seeds("iid", (3.0, 3.0), 200), *seeds("ns", (3.0, 3.0), 60)]
    runs += seeds("strat-ns", (3.0, 3.0), 25)
    runs += [record("strat", [9, 5, 3.0], ms, 0.3, seed=seed) for seed, ms in enumerate(strat)]
    found = judged(runs)["soonest"]
    assert found.verdict == verdict
    assert "sooner than the next, strat " in found.evidence


def test_trends_need_an_order_that_chance_seldom_makes() -> None:
    """Four sizes have 24 orders: p = 1 / 24; three have six."""
    runs = []
    for k, recall in ((1, 0.1), (2, 0.2), (5, 0.3), (20, 0.4)):
        assert "more-negatives" not in judged([*runs, *seeds("neg", (2.0,), 20)])
        runs += seeds("iid", (3.0,), 200, negatives=k, recalls=[recall])
    for s, loss in ((1, 2.0), (2, 2.4), (8, 2.2), (16, 2.6)):
        runs += seeds("strat-ns", (loss,), 20, stratum_size=s)
    found = judged(runs)
    assert found["more-negatives"].verdict == "reproduced"
    assert f"p = {1 / math.factorial(4):.3f}" in found["more-negatives"].evidence
    # Every run here has the same items a batch, so larger strata save none.
    assert found["larger-strata"].verdict == "not reproduced"


@pytest.mark.parametrize(
    ("recalls", "p"), [((0.1, 0.2, 0.2, 0.3), 1 / 12), ((0.2,) * 4, 1), ((0.3, 0.2, 0.2, 0.1), 1)]
)
def test_equal_recalls_have_a_chance_too(recalls: tuple[float, ...], p: float) -> None:
    """Two equal ones of four make 12 orders of 24, one of which rises as much."""
    runs = []
    for k, recall in zip((1, 2, 5, 20), recalls, strict=True):
        runs += seeds("iid", (3.0,), 200, negatives=k, recalls=[recall])
    found = judged(runs)["more-negatives"]
    assert found.verdict == "undecided"
    assert f"p = {p:.3f} by chance" in found.evidence


def test_chances_of_orders_are_exact() -> None:
    values = [1, 1, 2, 3, 3, 3]
    orders = list(itertools.permutations(values))
    falls = Counter(sum(a > b for a, b in itertools.combinations(order, 2)) for order in orders)
    expected = [falls[count] / len(orders) for count in range(max(falls) + 1)]
    assert falls_by_chance(values) == pytest.approx(expected)


def test_another_sampler_tells_of_negatives_where_the_baseline_cannot() -> None:
    runs = seeds("iid", (3.0,), 200)
    for k, recall in ((1, 0.4), (2, 0.3), (5, 0.2), (20, 0.1)):
        runs += seeds("strat", (3.0,), 50, negatives=k, recalls=[recall])
    found = judged(runs)["more-negatives"]
    assert found.verdict == "not reproduced"
    assert "recall@50 of strat: 0.400 (k=1), 0.300 (k=2)" in found.evidence


def test_variances_come_from_the_audit() -> None:
    """The least of the ratios counts, and s links of a stratum share an item, as in the paper."""

    def audit(kind: str = "item", **variances: float) -> ClaimVerdict:
        common = {"data_fingerprint": "f" * 64, "encoder": "cnn", "loss": "sg", "mask": True}
        rows = [
            filled(
                schemas.AUDIT,
                **common,
                batches=400,
                sampler=name.replace("_", "-"),
                strata=kind if name.startswith("strat") else None,
                batch_variance=value,
            )
            for name, value in variances.items()
        ]
        return judged(seeds("iid", (3.0,), 200), rows)["lower-variance"]

    assert audit(neg=4.0, ns=2.0).verdict == "reproduced"
    assert audit(neg=2.0, ns=4.0).verdict == "not reproduced"
    assert audit(neg=4.0, ns=3.9).verdict == "undecided"
    both = audit(neg=4.0, ns=2.0, strat=2.0, strat_ns=4.0)
    assert (both.verdict, both.value) == ("not reproduced", 0.5)
    assert both.evidence == (
        "ns has 0.50 times the variance of neg; strat-ns has 2.00 times the variance of strat"
    )
    by_user = audit("user", neg=4.0, ns=2.0, strat=2.0, strat_ns=4.0)
    assert by_user.verdict == "reproduced", "the paper's strata are of items"


def test_the_largest_weight_of_regularisation_counts() -> None:
    """Direct training ends at 1.0; with a weight of 1 the runs end there, with 100 at 2.0."""
    runs, found = [], []
    for seed in range(2):
        runs.append(record("iid", [9, 5, 3], 200, seed=seed))
        runs.append(record("strat-ns", [9, 5, 1], 20, seed=seed))
        for weight, end in ((1.0, 1.0), (100.0, 2.0)):
            coupled = {"coupling": "regularised", "coupling_weight": weight}
            runs.append(record("strat-ns", [9, 5, end], 20, seed=seed, **coupled))
        found.append(judged(runs)["slower-regularised"])
    assert [one.verdict for one in found] == ["undecided", "reproduced"], "one seed decides nothing"
    assert "with a weight of 100 the loss is not reached in 1.00 times" in found[1].evidence


@pytest.mark.parametrize(
    ("rounds", "lower", "upper", "verdict"),
    [
        (7, 19.0, 22.0, "reproduced"),  # 25 times fewer items, of which three quarters are asked
        (7, 17.0, 18.0, "undecided"),
        (7, 0.8, 0.9, "not reproduced"),
        (6, 19.0, 22.0, None),
    ],
)
def test_profiles_judge_the_length_of_an_iteration(
    rounds: int, lower: float, upper: float, verdict: str | None
) -> None:
    """90 of 100 ms of an iteration of iid are items; an interval of few rounds is too narrow."""
    common = {
        "dataset": "few",
        "encoder": "transformer",
        "loss": "mse",
        "baseline": "iid",
        "unusual_settings": "layers=4",
        "rounds": rounds,
        "predicted_items_seconds": 0.09,
        "predicted_full_iteration_seconds": 0.1,
        "measured_full_speedup": upper,
        "lower_full_speedup": lower,
        "upper_full_speedup": upper,
    }
    rows = [
        filled(schemas.COSTMODEL, **common, sampler=sampler, distinct_items=items)
        for sampler, items in (("iid", 4000.0), ("strat", 160.0))
    ]

    def by_profile(rows: Sequence[Any]) -> list[ClaimVerdict]:
        return judge_claims(find_evidence([], {"costmodel": rows}, []))

    found = by_profile(rows)
    assert [one.verdict for one in found] == ([verdict] if verdict else [])
    for one in found:
        names = (one.claim, one.encoder, one.settings)
        assert names == ("shorter-iterations", "transformer", "layers=4")
        assert "25.0 times fewer items, by a profile: items take 90 % of iid's" in one.evidence
        assert ("weighs too much" in one.evidence) == (verdict == "undecided")
        # Where one claim's rows differ in a setting, the table names it.
        shown = claims_table([one, replace(one, settings="")])
        assert shown.header[3].heading == "settings"
        assert [row[3].text for row in shown.rows] == ["layers=4", ""]
        assert claims_table([replace(one, settings="")]).labels == 3
    assert by_profile(rows[1:]) == by_profile(rows[:1]) == []
