"""Ranking quality by hand, by brute force over all orders, and by resampling."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from folders import write_run
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.floors.ranking import link_ranks
from ncfbench.runs import evaluations
from ncfbench.runs.folder import copy_records, read
from ncfbench.runs.quality import (
    Evaluation,
    Ranking,
    difference,
    exposure,
    reciprocal_rank_by_chance,
)
from ncfbench.storage.schemas import CUTOFFS, QUALITY
from ncfbench.timing.intervals import standard_error

Links = list[tuple[int, int]]


def by_hand(order: dict[int, list[int]], links: Links, m: int) -> dict[str, list[float]]:
    """Each user's measures from his ranking of item ids, the best first."""
    found: dict[str, list[float]] = {"recall": [], "ndcg": [], "hit_rate": [], "mrr": []}
    for user, ranking in order.items():
        own = {item for u, item in links if u == user}
        ranks = sorted(ranking.index(item) + 1 for item in own)
        found["recall"].append(sum(rank <= m for rank in ranks) / len(own))
        gains = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= m)
        best = sum(1 / math.log2(rank + 1) for rank in range(1, min(m, len(own)) + 1))
        found["ndcg"].append(gains / best)
        found["hit_rate"].append(float(ranks[0] <= m))
        found["mrr"].append(1 / ranks[0])
    return found


def ranks_of(order: dict[int, list[int]], links: Links) -> np.ndarray:
    return np.array([order[user].index(item) for user, item in links])


def ranking_of(links: Links, n_items: int, **more: np.ndarray | None) -> Ranking:
    users, items = (np.array(column, np.int32) for column in zip(*links, strict=True))
    return Ranking(users, items, n_items, **more)


@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 12, 130]))
@settings(max_examples=30, deadline=None)
def test_measures_are_those_of_the_textbook(seed: int, n_items: int) -> None:
    rng = np.random.default_rng(seed)
    links = [
        (user, int(item))
        for user in (1, 4, 5, 9)
        for item in np.sort(rng.choice(n_items, rng.integers(1, n_items + 1), replace=False))
    ]
    order = {user: rng.permutation(n_items).tolist() for user in (1, 4, 5, 9)}
    found = ranking_of(links, n_items)(ranks_of(order, links))
    assert set(found.figures) == set(QUALITY)
    for m in CUTOFFS:
        expected = by_hand(order, links, m)
        for name in ("recall", "ndcg", "hit_rate"):
            values = expected[name]
            assert found.figures[f"{name}_at_{m}"] == pytest.approx(statistics.fmean(values))
            error = statistics.stdev(values) / math.sqrt(len(values))
            assert found.figures[f"{name}_at_{m}_error"] == pytest.approx(error)
    assert found.figures["mrr"] == pytest.approx(statistics.fmean(expected["mrr"]))
    assert found.user_recalls.tolist() == pytest.approx(by_hand(order, links, 50)["recall"])
    for item, share in enumerate(found.item_shares):
        counts = {u: sum(user == u for user, _ in links) for u in order}
        own = [u for u, v in links if v == item and order[u].index(v) < 50]
        assert share == pytest.approx(sum(1 / (4 * counts[u]) for u in own))


def test_recall_has_the_same_bits_as_before() -> None:
    """The arithmetic of recall in records of earlier versions."""
    rng = np.random.default_rng(0)
    users = np.sort(rng.integers(0, 300, 2000))
    ranks = rng.integers(0, 400, 2000)
    found = Ranking(users, rng.integers(0, 400, 2000), 400)(ranks).figures
    _, first, count = np.unique(users, return_index=True, return_counts=True)
    for m in CUTOFFS:
        shares = np.add.reduceat(ranks < m, first, dtype=np.int64) / count
        assert found[f"recall_at_{m}"] == float(np.mean(shares))


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (1, 5, 2)])
def test_chance_is_the_mean_over_all_orders(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five items, every order of them, M from 1 to 10."""
    monkeypatch.setattr("ncfbench.runs.quality.CUTOFFS", (1, 2, 3, 10))
    monkeypatch.setattr("ncfbench.runs.quality.COMPARED", 3)
    links = [(user, item) for user, size in enumerate(sizes) for item in range(size)]
    ranking = ranking_of(links, 5)
    totals: dict[str, list[float]] = {}
    for order in itertools.permutations(range(5)):
        orders = {user: list(order) for user in range(len(sizes))}
        for m in (1, 2, 3, 10):
            own = by_hand(orders, links, m)
            for name in ("recall", "ndcg", "hit_rate"):
                totals.setdefault(f"{name}_at_{m}", []).append(statistics.fmean(own[name]))
        totals.setdefault("mrr", []).append(statistics.fmean(own["mrr"]))
    found = ranking(np.zeros(len(links), int)).figures
    for name, values in totals.items():
        assert found[f"{name}_chance"] == pytest.approx(statistics.fmean(values)), name
    assert found["recall_at_10_chance"] == 1


def test_chance_counts_the_items_that_are_left_out_for_each_user() -> None:
    """Two users with as many ranked items are measured alone; both together are the mean."""
    left_out = np.array([0, 30, 100, 0])
    links = [(1, 0), (1, 5), (1, 9), (2, 3)]
    both = ranking_of(links, 160, n_excluded=left_out)(np.zeros(4, int)).figures
    alone = [
        ranking_of(own, 160 - left_out[user])(np.zeros(len(own), int)).figures
        for user, own in ((1, links[:3]), (2, links[3:]))
    ]
    for name in (name for name in QUALITY if name.endswith("_chance")):
        assert both[name] == pytest.approx(statistics.fmean(one[name] for one in alone)), name
    assert both["recall_at_100_chance"] == pytest.approx((100 / 130 + 1) / 2)


@given(st.integers(0, 2**32 - 1), st.sampled_from([7, 60, 130]), st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_measures_are_those_of_trec_eval(seed: int, n_items: int, n_scores: int) -> None:
    """Scores with ties, users without held-out items, and lists shorter than M."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, n_scores, (8, n_items)).astype(np.float32)
    is_held_out = rng.random((8, n_items)) < rng.choice([0.02, 0.3, 1.0], (8, 1))
    is_held_out[5], is_held_out[2, 1] = False, True
    users, items = np.nonzero(is_held_out)
    ranks, _ = link_ranks(lambda rows: scores[rows], users, items, n_items)
    found = Ranking(users, items, n_items)(ranks).figures

    # Of equal scores trec_eval puts the larger name first, and this program the smaller number.
    names = [f"{n_items - item:04d}" for item in range(n_items)]
    links = [
        ir_measures.Qrel(str(user), names[item], 1) for user, item in zip(users, items, strict=True)
    ]
    run = [
        ir_measures.ScoredDoc(str(user), names[item], float(scores[user, item]))
        for user in range(8)
        for item in range(n_items)
    ]
    theirs = {"mrr": ir_measures.RR}
    for m in CUTOFFS:
        theirs[f"recall_at_{m}"] = ir_measures.R @ m
        theirs[f"ndcg_at_{m}"] = ir_measures.nDCG @ m
        theirs[f"hit_rate_at_{m}"] = ir_measures.Success @ m
    expected = ir_measures.pytrec_eval.calc_aggregate(theirs.values(), links, run)
    for name, measure in theirs.items():
        assert found[name] == pytest.approx(expected[measure], rel=0, abs=1e-9), name


def test_new_and_known_items_are_measured_apart() -> None:
    """In one ranking of all; a user counts where he has a link of the kind."""
    links = [(0, 1), (0, 2), (0, 4), (1, 1), (2, 4), (2, 5)]
    ranks = np.array([49, 50, 3, 60, 7, 90])
    is_new = np.array([False, False, False, False, True, True])
    found = ranking_of(links, 200, is_new=is_new)(ranks).figures
    assert found["recall_at_50_new_items"] == pytest.approx((1 / 1 + 1 / 2) / 2)
    assert found["recall_at_50_known_items"] == pytest.approx((1 / 2 + 0 / 1) / 2)
    assert found["recall_at_50_new_items_error"] == pytest.approx(0.25)
    assert found["recall_at_50"] == pytest.approx((2 / 3 + 0 + 1 / 2) / 3)
    for all_new in (None, np.ones(6, bool)):
        unmixed = ranking_of(links, 200, is_new=all_new)(ranks).figures
        assert unmixed["recall_at_50_new_items"] is unmixed["recall_at_50_known_items"] is None
    known = ranking_of(links, 200, is_new=np.zeros(6, bool))(ranks).figures
    assert known["recall_at_50_known_items"] == known["recall_at_50"]
    assert known["recall_at_50_new_items"] is None


def test_exposure_counts_items_and_their_links() -> None:
    lists = np.array([[0, 2], [2, -1], [-1, -1]])
    assert exposure(lists, np.array([9, 100, 3]), 3) == (2 / 3, (9 + 3 + 3) / 3)
    assert exposure(lists[2:], np.array([9, 100, 3]), 3) == (0, 0)


def test_chance_of_the_best_rank_among_many_items() -> None:
    """One relevant item: the harmonic mean of all ranks. Many: by the product of probabilities."""
    assert reciprocal_rank_by_chance(1, 10_000) == pytest.approx(
        math.fsum(1 / rank for rank in range(1, 10_001)) / 10_000
    )
    beyond, expected = 1.0, 0.0
    for rank in range(1, 1901):
        hit = 100 / (2000 - rank + 1)
        expected += beyond * hit / rank
        beyond *= 1 - hit
    assert reciprocal_rank_by_chance(100, 2000) == pytest.approx(expected, rel=1e-12)
    assert reciprocal_rank_by_chance(7, 7) == 1


def test_the_error_is_that_of_a_bootstrap_over_users() -> None:
    """The bootstrap's variance is (U - 1) / U times the closed form's."""
    rng = np.random.default_rng(1)
    values = rng.beta(0.5, 2, 60)
    error = standard_error(values)
    assert error is not None
    means = values[rng.integers(0, 60, (100_000, 60))].mean(axis=1)
    assert float(np.std(means)) == pytest.approx(error * math.sqrt(59 / 60), rel=0.01)
    assert standard_error(values[:1]) is None


def test_one_user_or_item_gives_no_error() -> None:
    found = ranking_of([(3, 0)], 60)(np.array([4])).figures
    assert (found["recall_at_50"], found["recall_at_50_error"]) == (1, None)
    assert found["recall_at_50_item_error"] is None
    one = Evaluation({}, np.ones(1, np.float32), np.ones(9, np.float32))
    assert difference(one, one) is None


def made(rng: np.random.Generator, users: int, items: int, apart: float) -> list[Evaluation]:
    """Two models of which each hits a link by its user, its item and chance; the first is better
    by ``apart``. Users and items are drawn anew in each call.
    """
    linked = rng.random((users, items)) < 0.3
    linked[np.arange(users), rng.integers(0, items, users)] = True
    rows, columns = np.nonzero(linked)
    ranking = Ranking(rows, columns, items)
    result = []
    for shift in (apart, 0.0):
        chance = 0.4 + shift + rng.normal(0, 0.1, (users, 1)) + rng.normal(0, 0.1, (1, items))
        hits = rng.random((users, items)) < chance
        result.append(ranking(np.where(hits, 0, 100)[rows, columns]))
    return result


@pytest.mark.long_cases("60|40-")
@pytest.mark.parametrize(("users", "items"), [(400, 25), (60, 200), (40, 40)])
def test_a_difference_that_is_none_is_seldom_seen(users: int, items: int) -> None:
    """With few items an error over users alone would be far too small."""
    rng = np.random.default_rng(users)
    beyond = over_users = 0
    rounds = 400
    for _ in range(rounds):
        one, other = made(rng, users, items, 0.0)
        apart = difference(one, other)
        own = standard_error(one.user_recalls - other.user_recalls.astype(np.float64))
        assert apart is not None
        assert own is not None
        beyond += abs(apart.value) > 1.96 * apart.error
        over_users += abs(apart.value) > 1.96 * own
    assert beyond / rounds < 0.06
    if items == 25:
        assert over_users / rounds > 0.3


def test_a_real_difference_is_seen() -> None:
    apart = difference(*made(np.random.default_rng(5), 400, 200, 0.1))
    assert apart is not None
    assert apart.value == pytest.approx(0.1, abs=0.05)
    assert apart.is_above(3)
    assert apart.degrees == 199


def test_evaluations_come_back_from_their_file(tmp_path: Path) -> None:
    """All of them; copies have those of some iterations and of the last."""
    assert evaluations.read(tmp_path) == {}
    rng = np.random.default_rng(2)
    wanted = {
        (iteration, split): Evaluation(
            {}, rng.random(users).astype(np.float32), rng.random(items).astype(np.float32)
        )
        for iteration in (0, 30, 50, 70)
        for split, users, items in (("validation", 3, 5), ("test", 4, 2))
    }
    evaluations.write(tmp_path, wanted)
    target = tmp_path / "exported"
    target.mkdir()
    evaluations.copy(tmp_path, target, {30})
    for folder, iterations in ((tmp_path, (0, 30, 50, 70)), (target, (30, 70))):
        found = evaluations.read(folder)
        assert list(found) == [key for key in wanted if key[0] in iterations]
        for key, evaluation in found.items():
            np.testing.assert_array_equal(evaluation.user_recalls, wanted[key].user_recalls)
            np.testing.assert_array_equal(evaluation.item_shares, wanted[key].item_shares)
            assert evaluation.user_recalls.dtype == np.float32
    evaluations.copy(target / "none", tmp_path / "none", set())
    assert not (tmp_path / "none").exists()


def test_records_keep_the_evaluations_of_the_choice(tmp_path: Path) -> None:
    """The last epoch is reported here; the best one shows that it was not far enough above."""
    source, target = write_run(tmp_path, "ns", [9, 4, 2, 1], 10), tmp_path / "exported"
    record = read(source)
    for row, recall in zip(record.curve, [None, 0.3, 0.2, 0.25], strict=True):
        row["validation_recall_at_50"] = recall
    numbers = np.ones(3, np.float32)
    found = {(each, "validation"): Evaluation({}, numbers, numbers) for each in (100, 200, 300)}
    evaluations.write(source, found)
    copy_records(replace(record, summary={**record.summary, "reported_epoch": 3.0}), target)
    assert [iteration for iteration, _ in evaluations.read(target)] == [100, 300]
