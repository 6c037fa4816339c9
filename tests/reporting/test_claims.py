"""Claims of the paper, judged by runs whose figures are plain arithmetic."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import filled, write_run
from invoked import invoke

from ncfbench.reporting.claims import CLAIMS, Judged, judge_claims
from ncfbench.reporting.claims.profiled import judge_lengths
from ncfbench.reporting.claims.sizes import falls_by_chance
from ncfbench.reporting.comparison import group
from ncfbench.reporting.rows import speedup_rows
from ncfbench.reporting.views.paper import claims_table
from ncfbench.runs.folder import read_all
from ncfbench.storage import schemas


def judged(runs_dir: Path, **audit: Any) -> Mapping[str, Judged]:
    """The claims that some run bears on, by name; there is one comparison with the default SG."""
    comparisons = group(read_all(runs_dir)[0])
    speedups = [speedup_rows(each, allow_mixed=False, locations={}) for each in comparisons]
    found = judge_claims(comparisons, speedups, audit.get("rows", []))
    own = [one for one in found if "coupling" not in one.settings]
    assert len({one.claim for one in own}) == len(own)
    return {one.claim: one for one in own}


def seeds(runs_dir: Path, sampler: str, ends: tuple[float, ...], ms: float, **more: Any) -> None:
    """Runs of a sampler whose losses fall from 9 to 5 to the given end, a seed for each end."""
    recalls = more.pop("recalls", [0.3] * len(ends))
    for seed, (end, recall) in enumerate(zip(ends, recalls, strict=True)):
        write_run(runs_dir, sampler, [9, 5, end], ms, [0, 0.2, recall], seed=seed, **more)


def verdicts(found: Mapping[str, Judged]) -> dict[str, str]:
    return {name: one.verdict for name, one in found.items()}


def test_ratios_are_judged_by_their_intervals(tmp_path: Path) -> None:
    """IID ends at 3.0, where N.S. is after 100 + 100 (5 - 3) / (5 - 1) = 150 of 200 iterations."""
    seeds(tmp_path, "iid", (3.0, 3.0), 200)
    seeds(tmp_path, "ns", (1.0, 1.0), 50)
    seeds(tmp_path, "strat-ns", (1.0, 1.0), 20)
    seeds(tmp_path, "strat", (3.5, 3.5), 25)
    found = judged(tmp_path)
    assert verdicts(found) == {
        "fewer-iterations": "reproduced",
        "shorter-iterations": "reproduced",
        "soonest": "reproduced",
        "kept-recall": "reproduced",
    }
    assert found["fewer-iterations"].value == pytest.approx(200 / 150)
    assert found["shorter-iterations"].value == pytest.approx(200 / 25)
    assert "8.0 times shorter with 1.0 times fewer items" in found["shorter-iterations"].evidence
    assert found["soonest"].evidence.endswith("(not run: Negative)")
    # N.S. needs as many iterations, each 50 / 20 times as long; Stratified has a bound alone.
    assert found["soonest"].value == pytest.approx(2.5)
    assert "N.S." in found["soonest"].evidence


def test_claims_that_do_not_hold(tmp_path: Path) -> None:
    """N.S. needs more iterations, strata take as long, and the recall is a third lower."""
    seeds(tmp_path, "iid", (3.0, 3.0), 20)
    seeds(tmp_path, "ns", (2.9, 2.9), 20)
    write_run(tmp_path, "ns", [9, 8, 2.9], 20, [0, 0.2, 0.3], seed=2)
    write_run(tmp_path, "iid", [9, 5, 3.0], 20, [0, 0.2, 0.3], seed=2)
    seeds(tmp_path, "strat", (3.5, 3.5), 25)
    seeds(tmp_path, "strat-ns", (2.9, 2.9), 21, recalls=[0.2, 0.2])
    found = judged(tmp_path)
    assert found["shorter-iterations"].verdict == "not reproduced"
    assert found["kept-recall"].verdict == "not reproduced"
    assert found["kept-recall"].value == pytest.approx(-1 / 3)
    assert found["soonest"].verdict == "not reproduced"
    assert found["soonest"].value == pytest.approx(20 / 21)


def test_one_seed_and_bounds_are_no_proof(tmp_path: Path) -> None:
    seeds(tmp_path, "iid", (3.0,), 200)
    seeds(tmp_path, "ns", (1.0,), 50)
    seeds(tmp_path, "strat-ns", (1.0,), 20)
    found = judged(tmp_path)
    assert verdicts(found) == {"fewer-iterations": "undecided", "soonest": "undecided"}
    assert "one seed cannot tell" in found["soonest"].evidence


def test_times_of_a_busy_machine_decide_nothing(tmp_path: Path) -> None:
    for sampler, ms in (("iid", 200), ("ns", 50), ("strat-ns", 20), ("strat", 25)):
        seeds(tmp_path, sampler, (3.0, 3.0), ms)
    comparisons = group(read_all(tmp_path)[0])
    rows = speedup_rows(comparisons[0], allow_mixed=False, locations={})

    def times(busy: str) -> dict[str, str]:
        own = [
            row | {"full_iteration_spread": 0.3 if row["sampler"] == busy else 0.1} for row in rows
        ]
        found = judge_claims(comparisons, [own], ())
        return {one.claim: one.evidence for one in found if "machine was busy" in one.evidence}

    assert times("none") == {}
    assert set(times("iid")) == {"shorter-iterations", "soonest"}
    assert set(times("ns")) == {"soonest"}
    assert set(times("strat")) == {"shorter-iterations", "soonest"}


def test_sharing_that_never_arrives(tmp_path: Path) -> None:
    seeds(tmp_path, "iid", (3.0, 3.0), 200)
    seeds(tmp_path, "ns", (3.5, 3.5), 50)
    one = judged(tmp_path)["fewer-iterations"]
    assert one.verdict == "undecided"  # at most as many iterations as IID, which is no less
    assert "at most 1.00" in one.evidence


def test_trends_need_an_order_that_chance_seldom_makes(tmp_path: Path) -> None:
    """Four sizes have 24 orders: p = 1 / 24; three have six."""
    for k, recall in ((1, 0.1), (2, 0.2), (5, 0.3), (20, 0.4)):
        seeds(tmp_path, "iid", (3.0,), 200, negatives=k, recalls=[recall])
    losses = {1: 2.0, 2: 2.4, 8: 2.2, 16: 2.6}
    for s, loss in losses.items():
        seeds(tmp_path, "strat-ns", (loss,), 20, stratum_size=s)
    found = judged(tmp_path)
    assert found["more-negatives"].verdict == "reproduced"
    assert f"p = {1 / math.factorial(4):.3f}" in found["more-negatives"].evidence
    # Every run here has the same items a batch, so larger strata save none.
    assert found["larger-strata"].verdict == "not reproduced"


@pytest.mark.parametrize(
    ("recalls", "p"), [((0.1, 0.2, 0.2, 0.3), 1 / 12), ((0.2,) * 4, 1), ((0.3, 0.2, 0.2, 0.1), 1)]
)
def test_equal_recalls_have_a_chance_too(
    tmp_path: Path, recalls: tuple[float, ...], p: float
) -> None:
    """Two equal ones of four make 12 orders of 24, one of which rises as much."""
    for k, recall in zip((1, 2, 5, 20), recalls, strict=True):
        seeds(tmp_path, "iid", (3.0,), 200, negatives=k, recalls=[recall])
    found = judged(tmp_path)["more-negatives"]
    assert found.verdict == "undecided"
    assert f"p = {p:.3f} by chance" in found.evidence
    assert invoke("report", tmp_path).exit_code == 0


def test_chances_of_orders_are_exact() -> None:
    values = [1, 1, 2, 3, 3, 3]
    orders = list(itertools.permutations(values))
    falls = Counter(sum(a > b for a, b in itertools.combinations(order, 2)) for order in orders)
    expected = [falls[count] / len(orders) for count in range(max(falls) + 1)]
    assert falls_by_chance(values) == pytest.approx(expected)


def test_another_sampler_tells_of_negatives_where_the_baseline_cannot(tmp_path: Path) -> None:
    seeds(tmp_path, "iid", (3.0,), 200)
    for k, recall in ((1, 0.4), (2, 0.3), (5, 0.2), (20, 0.1)):
        assert "more-negatives" not in judged(tmp_path)
        seeds(tmp_path, "strat", (3.0,), 50, negatives=k, recalls=[recall])
    found = judged(tmp_path)["more-negatives"]
    assert found.verdict == "not reproduced"
    assert "recall@50 of Stratified: 0.400 (k=1), 0.300 (k=2)" in found.evidence


def test_variances_come_from_the_audit(tmp_path: Path) -> None:
    seeds(tmp_path, "iid", (3.0,), 200)
    common = {"data_fingerprint": "f" * 64, "encoder": "cnn", "loss": "sg", "mask": True}
    # As audits keep them: s links share an item or a user, and the others have no strata.
    strata = {"strat": "item", "strat_ns": "item"}

    def audit(kind: str = "item", **variances: float) -> Judged:
        rows = [
            filled(
                schemas.AUDIT,
                **common,
                batches=400,
                sampler=name.replace("_", "-"),
                strata=strata.get(name) and kind,
                batch_variance=value,
            )
            for name, value in variances.items()
        ]
        return judged(tmp_path, rows=rows)["lower-variance"]

    assert audit(neg=4.0, ns=2.0).verdict == "reproduced"
    assert audit(neg=2.0, ns=4.0).verdict == "not reproduced"
    assert audit(neg=4.0, ns=3.9).verdict == "undecided"
    # The least of the ratios counts.
    both = audit(neg=4.0, ns=2.0, strat=2.0, strat_ns=4.0)
    assert both.verdict == "not reproduced"
    assert both.value == 0.5
    assert both.evidence == (
        "N.S. has 0.50 times the variance of Negative;"
        " Strat. w. N.S. has 2.00 times the variance of Stratified"
    )
    by_user = audit("user", neg=4.0, ns=2.0, strat=2.0, strat_ns=4.0)
    assert by_user.verdict == "reproduced", "the paper's strata are of items"


def test_the_largest_weight_of_regularisation_counts(tmp_path: Path) -> None:
    """Direct training ends at 1.0; with a weight of 1 the runs end there, with 100 at 2.0."""
    verdicts = []
    for seed in range(2):
        more: dict[str, Any] = {"seed": seed, "loss": "sg"}
        write_run(tmp_path, "iid", [9, 5, 3], 200, **more)
        write_run(tmp_path, "strat-ns", [9, 5, 1], 20, **more)
        for weight, end in ((1.0, 1.0), (100.0, 2.0)):
            coupled = {"coupling": "regularised", "coupling_weight": weight}
            write_run(tmp_path, "strat-ns", [9, 5, end], 20, **coupled, **more)
        one = judged(tmp_path)["slower-regularised"]
        verdicts.append(one.verdict)
    assert verdicts == ["undecided", "reproduced"], "one seed decides nothing"
    assert "with a weight of 100 the loss is not reached in 1.00 times" in one.evidence


def test_the_report_shows_claims(tmp_path: Path) -> None:
    seeds(tmp_path, "iid", (3.0, 3.0), 200)
    seeds(tmp_path, "ns", (1.0, 1.0), 50)
    done = invoke("report", str(tmp_path), "--table", "claims")
    assert done.exit_code == 0, done.output
    assert "Sharing negatives needs fewer iterations" in " ".join(done.stdout.split())
    assert set(CLAIMS) >= {"fewer-iterations"}


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
    """90 of 100 ms of an iteration of IID are items; an interval of few rounds is too narrow."""
    common = {
        "dataset": "few",
        "encoder": "transformer",
        "loss": "mse",
        "baseline": "iid",
        "unusual_settings": "layers=4",
        "rounds": rounds,
        "predicted_items_seconds": 0.09,
        "predicted_full_iteration_seconds": 0.1,
    }
    rows = [
        filled(schemas.COSTMODEL, **common, sampler="iid", distinct_items=4000.0),
        filled(
            schemas.COSTMODEL,
            **common,
            sampler="strat",
            distinct_items=160.0,
            measured_full_speedup=upper,
            lower_full_speedup=lower,
            upper_full_speedup=upper,
        ),
    ]
    found = judge_lengths(rows)
    assert [one.verdict for one in found] == ([verdict] if verdict else [])
    for one in found:
        assert (one.claim, one.encoder, one.settings) == (
            *("shorter-iterations", "transformer", "layers=4"),
        )
        assert "25.0 times fewer items, by a profile: items take 90 % of IID's" in one.evidence
        assert ("weighs too much" in one.evidence) == (verdict == "undecided")
        # Where one claim's rows differ in a setting, the table names it.
        shown = claims_table([one, replace(one, settings="")])
        assert shown.header[3].heading == "settings"
        assert [row[3].text for row in shown.rows] == ["layers=4", ""]
        assert claims_table([replace(one, settings="")]).labels == 3
    assert judge_lengths(rows[1:]) == judge_lengths(rows[:1]) == []
