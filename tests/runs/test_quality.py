"""Ranking quality by hand, by brute force over all orders, and by resampling."""

import itertools
import math
import statistics

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.runs.quality import Evaluation, Ranking, best_of_tie, difference
from ncfbench.runs.ranks import Ranks, rank_links
from ncfbench.statistics.intervals import standard_error
from ncfbench.storage.schemas import CUTOFFS, MEASURES, QUALITY

Links = list[tuple[int, int]]


def by_hand(order, links, m):
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


def untied(ranks):
    ranks = np.asarray(ranks, np.int64)
    return Ranks(ranks, np.zeros_like(ranks))


def ranks_of(order, links):
    return untied([order[user].index(item) for user, item in links])


def ranking_of(links, n_items, **more):
    users, items = (np.array(column, np.int32) for column in zip(*links, strict=True))
    return Ranking(users, items, n_items, **more)


@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 12, 130]))
@settings(max_examples=30, deadline=None)
def test_measures_are_those_of_the_textbook(seed, n_items):
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
    linked = sorted({item for _, item in links})
    for item, share in zip(linked, found.item_shares, strict=True):
        counts = {u: sum(user == u for user, _ in links) for u in order}
        own = [u for u, v in links if v == item and order[u].index(v) < 50]
        assert share == pytest.approx(sum(1 / (4 * counts[u]) for u in own))


def test_recall_has_the_bits_of_kept_records():
    """The mean over users of the shares of their links."""
    rng = np.random.default_rng(0)
    users = np.sort(rng.integers(0, 300, 2000))
    ranks = rng.integers(0, 400, 2000)
    found = Ranking(users, rng.integers(0, 400, 2000), 400)(untied(ranks)).figures
    _, first, count = np.unique(users, return_index=True, return_counts=True)
    for m in CUTOFFS:
        shares = np.add.reduceat(ranks < m, first, dtype=np.int64) / count
        assert found[f"recall_at_{m}"] == float(np.mean(shares))


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (1, 5, 2)])
def test_chance_is_the_mean_over_all_orders(sizes, monkeypatch):
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
    found = ranking(untied([0] * len(links))).figures
    for name, values in totals.items():
        assert found[f"{name}_chance"] == pytest.approx(statistics.fmean(values)), name
    assert found["recall_at_10_chance"] == 1


def test_chance_counts_the_items_that_are_left_out_for_each_user():
    """Two users with as many ranked items are measured alone; both together are the mean."""
    left_out = np.array([0, 30, 100, 0])
    links = [(1, 0), (1, 5), (1, 9), (2, 3)]
    both = ranking_of(links, 160, n_excluded=left_out)(untied([0] * 4)).figures
    alone = [
        ranking_of(own, 160 - left_out[user])(untied([0] * len(own))).figures
        for user, own in ((1, links[:3]), (2, links[3:]))
    ]
    for name in (name for name in QUALITY if name.endswith("_chance")):
        assert both[name] == pytest.approx(statistics.fmean(one[name] for one in alone)), name
    assert both["recall_at_100_chance"] == pytest.approx((100 / 130 + 1) / 2)


@given(st.integers(0, 2**32 - 1), st.sampled_from([7, 60, 130]))
@settings(max_examples=20, deadline=None)
def test_measures_are_those_of_trec_eval(seed, n_items):
    """Scores without ties, users without held-out items, and lists shorter than M."""
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(n_items, dtype=np.float32), (8, 1)), axis=1)
    is_held_out = rng.random((8, n_items)) < rng.choice([0.02, 0.3, 1.0], (8, 1))
    is_held_out[5], is_held_out[2, 1] = False, True
    users, items = np.nonzero(is_held_out)
    found = figures_of(scores, users, items)

    links = [ir_measures.Qrel(str(u), str(v), 1) for u, v in zip(users, items, strict=True)]
    run = [
        ir_measures.ScoredDoc(str(user), str(item), float(scores[user, item]))
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


def figures_of(scores, users, items):
    ranks = rank_links(lambda rows: scores[rows], users, items, 3)
    return dict(Ranking(users, items, scores.shape[1])(ranks).figures)


def orders_of(scores):
    """All orders of the items in which none of a higher score comes after one of a lower."""
    return [
        list(order)
        for order in itertools.permutations(range(len(scores)))
        if all(scores[one] >= scores[next_] for one, next_ in itertools.pairwise(order))
    ]


@given(st.data(), st.integers(1, 6), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_ties_are_averaged_over_all_orders(data, n_items, n_users):
    """Few different scores, and several links of a user in one tie; every order is listed."""
    scores = data.draw(
        st.lists(
            st.lists(st.integers(0, 2), min_size=n_items, max_size=n_items),
            min_size=n_users,
            max_size=n_users,
        )
    )
    own = st.sets(st.integers(0, n_items - 1), min_size=1)
    links = [(user, item) for user in range(n_users) for item in sorted(data.draw(own))]
    users, items = np.array(links).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncfbench.runs.quality.CUTOFFS", (1, 2, 3, 10))
        patch.setattr("ncfbench.runs.quality.COMPARED", 3)
        ranks = rank_links(lambda rows: np.array(scores, np.float32)[rows], users, items, 2)
        found = Ranking(users, items, n_items)(ranks)
    expected: dict[str, list[float]] = {}
    shares = np.zeros(n_items)
    for user in range(n_users):
        orders = orders_of(scores[user])
        for m in (1, 2, 3, 10):
            by_order = [by_hand({user: order}, links, m) for order in orders]
            for name in ("recall", "ndcg", "hit_rate"):
                values = [value[name][0] for value in by_order]
                expected.setdefault(f"{name}_at_{m}", []).append(statistics.fmean(values))
        values = [value["mrr"][0] for value in by_order]
        expected.setdefault("mrr", []).append(statistics.fmean(values))
        of_user = [item for u, item in links if u == user]
        for item in of_user:
            within = statistics.fmean(order.index(item) < 3 for order in orders)
            shares[item] += within / (n_users * len(of_user))
            (link,) = np.flatnonzero((users == user) & (items == item))
            mean_rank = statistics.fmean(order.index(item) for order in orders)
            assert ranks.above[link] + ranks.equal[link] / 2 == pytest.approx(mean_rank)
    for name, values in expected.items():
        assert found.figures[name] == pytest.approx(statistics.fmean(values)), name
    assert found.user_recalls.tolist() == pytest.approx(expected["recall_at_3"])
    assert found.item_shares.tolist() == pytest.approx(shares[np.unique(items)].tolist())


def test_equal_scores_of_all_items_are_chance():
    """With items left out or none; users with one link to all of them."""
    rng = np.random.default_rng(3)
    n_items, n_users = 130, 40
    excluded = rng.random((n_users, n_items)) < rng.random((n_users, 1)) * 0.9
    held_out = ~excluded & (rng.random((n_users, n_items)) < rng.random((n_users, 1)))
    users, items = np.nonzero(held_out)
    for left_out in (None, [np.flatnonzero(row) for row in excluded]):
        n_excluded = None if left_out is None else excluded.sum(axis=1)
        ranking = Ranking(users, items, n_items, n_excluded=n_excluded)
        ranks = rank_links(
            lambda rows: np.zeros((len(rows), n_items), np.float32),
            *(users, items, 7),
            None if left_out is None else left_out.__getitem__,
        )
        found = ranking(ranks).figures
        for measure in MEASURES:
            assert found[measure] == found[f"{measure}_chance"], measure
        # A recall that is not by chance alone differs.
        assert ranking(untied([0] * len(users))).figures["mrr"] != found["mrr_chance"]


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 100]))
@settings(max_examples=30, deadline=None)
def test_the_order_of_items_changes_no_figure(seed, n_scores):
    """A file in the order of popularity helps nobody. Some scores are no numbers."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, n_scores, (6, 90)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.02] = np.nan
    held_out = rng.random(scores.shape) < 0.2
    held_out[np.arange(6), rng.integers(0, 90, 6)] = True
    new = rng.permutation(90)
    one, other = (
        figures_of(by_order, *np.nonzero(links))
        for by_order, links in ((scores, held_out), (scores[:, new], held_out[:, new]))
    )
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert other[name] == (None if value is None else pytest.approx(value, rel=1e-12)), name


def test_a_score_that_is_no_number_ranks_last():
    """Behind all candidates; a rival without a number is above. The last item is left out once."""
    scores = np.array([[np.nan, 2, np.nan, 1, 2, -np.inf, 5]], np.float32)
    users, index = np.zeros(6, int), np.arange(6)
    ranks, fewer = (
        rank_links(lambda rows: scores[rows], users, index, 1, left_out)
        for left_out in (None, lambda user: np.array([6 + user]))
    )
    assert ranks.above.tolist() == [6, 3, 6, 5, 3, 6]
    assert fewer.above.tolist() == [5, 2, 5, 4, 2, 5]
    assert ranks.equal.tolist() == fewer.equal.tolist() == [0, 1, 0, 0, 1, 0]
    nothing = rank_links(lambda rows: scores[rows], users[:2], np.array([0, 2]), 1)
    assert Ranking(users[:2], np.array([0, 2]), 7)(nothing).figures["mrr"] == pytest.approx(1 / 7)


def test_users_without_training_links_stand_apart():
    """Their recall is in no headline figure, error, share or chance; without others it is all."""
    users, items = np.array([0, 1, 1, 3, 7, 7]), np.array([4, 0, 9, 0, 5, 0])
    has_links = np.array([True, False, True, True, True, True, True, False])
    ranks = Ranks(np.array([3, 60, 70, 2, 49, 200]), np.array([0, 0, 60, 0, 1, 0]))
    n_excluded = np.array([5, 0, 0, 20, 0, 0, 0, 0])
    found = Ranking(users, items, 300, has_links, n_excluded=n_excluded)(ranks)
    alone = Ranking(*(users[[0, 3]], items[[0, 3]], 300), n_excluded=n_excluded)(
        Ranks(*(counts[[0, 3]] for counts in ranks))
    )
    assert found.figures["cold_users"] == 2
    assert found.figures["recall_at_50_cold_users"] == pytest.approx((0 + (1 / 2 + 0) / 2) / 2)
    assert found.figures["recall_at_50_cold_users_error"] == pytest.approx(0.125)
    parts = {name for name in QUALITY if "cold_users" in name}
    assert {name: found.figures[name] for name in QUALITY if name not in parts} == {
        name: alone.figures[name] for name in QUALITY if name not in parts
    }
    assert found.user_recalls.tolist() == alone.user_recalls.tolist() == [1, 1]
    assert found.item_shares.tolist() == alone.item_shares.tolist() == [0.5, 0.5]
    all_cold = Ranking(users, items, 300, np.zeros(8, bool))(ranks).figures
    everyone = Ranking(users, items, 300)(ranks).figures
    assert all_cold["cold_users"] == 4
    assert all_cold["recall_at_50"] == everyone["recall_at_50"] == pytest.approx(2.25 / 4)
    assert all_cold["recall_at_50_cold_users"] == pytest.approx(2.25 / 4)
    assert everyone["cold_users"] == 0
    assert everyone["recall_at_50_cold_users"] is None


def test_new_and_known_items_are_measured_apart():
    """In one ranking of all; a user counts where he has a link of the kind."""
    links = [(0, 1), (0, 2), (0, 4), (1, 1), (2, 4), (2, 5)]
    ranks = untied([49, 50, 3, 60, 7, 90])
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


def test_chance_of_the_best_rank_among_many_items():
    """One relevant item: the harmonic mean of all ranks. Many: by the product of probabilities."""
    assert best_of_tie(1, 10_000)[-1] == pytest.approx(
        math.fsum(1 / rank for rank in range(1, 10_001)) / 10_000
    )
    beyond, expected = 1.0, 0.0
    for rank in range(1, 1901):
        hit = 100 / (2000 - rank + 1)
        expected += beyond * hit / rank
        beyond *= 1 - hit
    assert best_of_tie(100, 2000)[-1] == pytest.approx(expected, rel=1e-12)
    assert best_of_tie(7, 7)[-1] == 1


def test_the_error_is_that_of_a_bootstrap_over_users():
    """The bootstrap's variance is (U - 1) / U times the closed form's."""
    rng = np.random.default_rng(1)
    values = rng.beta(0.5, 2, 60)
    error = standard_error(values)
    assert error is not None
    means = values[rng.integers(0, 60, (100_000, 60))].mean(axis=1)
    assert float(np.std(means)) == pytest.approx(error * math.sqrt(59 / 60), rel=0.01)
    assert standard_error(values[:1]) is None


def test_one_user_or_item_gives_no_error():
    found = ranking_of([(3, 0)], 60)(untied([4])).figures
    assert (found["recall_at_50"], found["recall_at_50_error"]) == (1, None)
    assert found["recall_at_50_item_error"] is None
    one = Evaluation({}, np.ones(1, np.float32), np.ones(9, np.float32))
    assert difference(one, one) is None
