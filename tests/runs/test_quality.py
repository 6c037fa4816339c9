"""Ranks and their quality by hand, by brute force over all orders, and by resampling."""

import itertools
import math
import statistics

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.runs.quality import Ranking, best_of_tie
from ncfbench.runs.ranks import Ranks, rank_links
from ncfbench.statistics.intervals import standard_error
from ncfbench.storage.schemas import CUTOFFS, MEASURES, QUALITY

SCORES = st.sampled_from([math.nan, -math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf])


def rank_by_hand(scores, at, ranked):
    """Compare with all ranked scores; one that is no number is last, such rivals are above."""
    if math.isnan(scores[at]):
        return len(ranked) - 1, 0
    rivals = [scores[other] for other in ranked if other != at]
    above = sum(math.isnan(rival) or rival > scores[at] for rival in rivals)
    return above, sum(rival == scores[at] for rival in rivals)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 3), st.data())
def test_ranks_are_those_of_comparisons(size, n_users, block_users, data):
    """Many links of a user or none, in any order; anything may be left out. Users are asked for
    once, few at a time: memory holds no more of their scores.
    """
    rows, links, left_out, asked = [], [], [], []
    for user in range(n_users):
        rows.append(data.draw(st.lists(SCORES, min_size=size, max_size=size)))
        chosen = data.draw(st.lists(st.integers(0, size - 1), max_size=size, unique=True))
        rest = [at for at in range(size) if at not in chosen]
        left_out.append([at for at in rest if data.draw(st.booleans())])
        links += [(user, at) for at in chosen]
    links = data.draw(st.permutations(links))
    users, index = np.array(links, int).reshape(-1, 2).T

    def scores(block):
        asked.append(block.tolist())
        return np.array(rows, np.float32)[block]

    ranks = rank_links(scores, users, index, block_users, left_out.__getitem__)
    assert [*itertools.chain(*asked)] == sorted({*users.tolist()})
    assert all(len(block) <= block_users for block in asked)
    assert ranks.above.dtype == ranks.equal.dtype == np.int64
    expected = [
        rank_by_hand(rows[user], at, {*range(size)}.difference(left_out[user]))
        for user, at in links
    ]
    assert [*zip(*(counts.tolist() for counts in ranks), strict=True)] == expected


def measures_by_hand(ranking, items, m):
    """A user's measures by a ranking of item ids, the best first."""
    ranks = sorted(ranking.index(item) + 1 for item in items)
    gains = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= m)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(m, len(items)) + 1))
    return {
        f"recall_at_{m}": sum(rank <= m for rank in ranks) / len(items),
        f"ndcg_at_{m}": gains / best,
        f"hit_rate_at_{m}": float(ranks[0] <= m),
        "mrr": 1 / ranks[0],
    }


def orders_of(scores):
    """All orders of the items in which none of a higher score comes after one of a lower."""
    return [
        order
        for order in itertools.permutations(range(len(scores)))
        if all(scores[one] >= scores[next_] for one, next_ in itertools.pairwise(order))
    ]


def means_over_orders(scores, items, cutoffs):
    """A user's measures, the mean over all orders of equal scores."""
    by_measure = {}
    for m, order in itertools.product(cutoffs, orders_of(scores)):
        for name, value in measures_by_hand(order, items, m).items():
            by_measure.setdefault(name, []).append(value)
    return {name: statistics.fmean(values) for name, values in by_measure.items()}


@given(st.data(), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_ties_are_averaged_over_all_orders(data, n_items, n_users):
    """Every order is listed. Chance is the mean where all scores are equal."""
    row, cutoffs = st.lists(st.integers(0, 2), min_size=n_items, max_size=n_items), (1, 2, 3, 10)
    scores = data.draw(st.lists(row, min_size=n_users, max_size=n_users))
    chosen = st.sets(st.integers(0, n_items - 1), min_size=1)
    items_of = [sorted(data.draw(chosen)) for _ in range(n_users)]
    users, items = np.array([(u, item) for u, own in enumerate(items_of) for item in own]).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncfbench.runs.quality.CUTOFFS", cutoffs)
        patch.setattr("ncfbench.runs.quality.COMPARED", 3)
        ranks = rank_links(lambda rows: np.array(scores, np.float32)[rows], users, items, 2)
        actual = Ranking(users, items, n_items)(ranks)
    by_user = [means_over_orders(*pair, cutoffs) for pair in zip(scores, items_of, strict=True)]
    by_chance = [means_over_orders([0] * n_items, own, cutoffs) for own in items_of]
    for name in by_user[0]:
        values = [of_user[name] for of_user in by_user]
        error = statistics.stdev(values) / math.sqrt(n_users) if n_users > 1 else None
        assert actual.figures[name] == pytest.approx(statistics.fmean(values)), name
        assert actual.figures[f"{name}_error"] == pytest.approx(error), name
        chance = statistics.fmean(of_user[name] for of_user in by_chance)
        assert actual.figures[f"{name}_chance"] == pytest.approx(chance), name
    assert (actual.figures["recall_at_3_item_error"] is None) == (len({*items.tolist()}) == 1)
    assert actual.user_recalls.tolist() == pytest.approx([own["recall_at_3"] for own in by_user])
    shares = np.zeros(n_items)
    for link, (user, item) in enumerate(zip(users, items, strict=True)):
        places = [order.index(item) for order in orders_of(scores[user])]
        within = statistics.fmean(place < 3 for place in places)
        shares[item] += within / (n_users * len(items_of[user]))
        mean_rank = statistics.fmean(places)
        assert ranks.above[link] + ranks.equal[link] / 2 == pytest.approx(mean_rank)
    assert actual.item_shares.tolist() == pytest.approx(shares[np.unique(items)].tolist())


def untied(ranks):
    ranks = np.asarray(ranks, np.int64)
    return Ranks(ranks, np.zeros_like(ranks))


def test_recall_has_the_bits_of_kept_records():
    """The mean over users of the shares of their links."""
    rng = np.random.default_rng(0)
    users = np.sort(rng.integers(0, 300, 2000))
    ranks = rng.integers(0, 400, 2000)
    actual = Ranking(users, rng.integers(0, 400, 2000), 400)(untied(ranks)).figures
    _, first, count = np.unique(users, return_index=True, return_counts=True)
    for m in CUTOFFS:
        shares = np.add.reduceat(ranks < m, first, dtype=np.int64) / count
        assert actual[f"recall_at_{m}"] == float(np.mean(shares))


def figures_of(scores, users, items):
    ranks = rank_links(lambda rows: scores[rows], users, items, 3)
    return Ranking(users, items, scores.shape[1])(ranks).figures


@given(st.integers(0, 2**32 - 1), st.sampled_from([7, 60, 130]))
@settings(max_examples=20, deadline=None)
def test_measures_are_those_of_trec_eval(seed, n_items):
    """Scores without ties, users without held-out items, and lists shorter than M."""
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(n_items, dtype=np.float32), (8, 1)), axis=1)
    is_held_out = rng.random((8, n_items)) < rng.choice([0.02, 0.3, 1.0], (8, 1))
    is_held_out[5], is_held_out[2, 1] = False, True
    users, items = np.nonzero(is_held_out)
    actual = figures_of(scores, users, items)

    links = [ir_measures.Qrel(str(u), str(v), 1) for u, v in zip(users, items, strict=True)]
    run = [
        ir_measures.ScoredDoc(str(user), str(item), float(scores[user, item]))
        for user in range(8)
        for item in range(n_items)
    ]
    theirs = {"mrr": ir_measures.RR}
    kinds = {"recall": ir_measures.R, "ndcg": ir_measures.nDCG, "hit_rate": ir_measures.Success}
    theirs |= {f"{name}_at_{m}": kind @ m for name, kind in kinds.items() for m in CUTOFFS}
    expected = ir_measures.pytrec_eval.calc_aggregate(theirs.values(), links, run)
    for name, measure in theirs.items():
        assert actual[name] == pytest.approx(expected[measure], rel=0, abs=1e-9), name


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
        zeros = np.zeros((n_users, n_items), np.float32)
        excluding = None if left_out is None else left_out.__getitem__
        ranks = rank_links(zeros.__getitem__, users, items, 7, excluding)
        actual = ranking(ranks).figures
        for measure in MEASURES:
            assert actual[measure] == actual[f"{measure}_chance"], measure
        # A recall that is not by chance alone differs.
        assert ranking(untied([0] * len(users))).figures["mrr"] != actual["mrr_chance"]


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


def test_users_without_training_links_stand_apart():
    """Their recall is in no headline figure, error, share or chance; without others it is all."""
    users, items = np.array([0, 1, 1, 3, 7, 7]), np.array([4, 0, 9, 0, 5, 0])
    has_links = np.array([True, False, True, True, True, True, True, False])
    ranks = Ranks(np.array([3, 60, 70, 2, 49, 200]), np.array([0, 0, 60, 0, 1, 0]))
    n_excluded = np.array([5, 0, 0, 20, 0, 0, 0, 0])
    actual = Ranking(users, items, 300, has_links, n_excluded=n_excluded)(ranks)
    warm = [0, 3]
    ranking = Ranking(users[warm], items[warm], 300, n_excluded=n_excluded)
    alone = ranking(Ranks(*(counts[warm] for counts in ranks)))
    assert actual.figures["cold_users"] == 2
    assert actual.figures["recall_at_50_cold_users"] == pytest.approx((0 + (1 / 2 + 0) / 2) / 2)
    assert actual.figures["recall_at_50_cold_users_error"] == pytest.approx(0.125)
    for name in QUALITY:
        if "cold_users" not in name:
            assert actual.figures[name] == alone.figures[name], name
    assert actual.user_recalls.tolist() == alone.user_recalls.tolist() == [1, 1]
    assert actual.item_shares.tolist() == alone.item_shares.tolist() == [0.5, 0.5]
    all_cold = Ranking(users, items, 300, np.zeros(8, bool))(ranks).figures
    everyone = Ranking(users, items, 300)(ranks).figures
    assert all_cold["cold_users"] == 4
    assert all_cold["recall_at_50"] == everyone["recall_at_50"] == pytest.approx(2.25 / 4)
    assert all_cold["recall_at_50_cold_users"] == pytest.approx(2.25 / 4)
    assert everyone["cold_users"] == 0
    assert everyone["recall_at_50_cold_users"] is None


def test_new_and_known_items_are_measured_apart():
    """In one ranking of all; a user counts where he has a link of the kind."""
    users, items = np.array([(0, 1), (0, 2), (0, 4), (1, 1), (2, 4), (2, 5)]).T
    ranks = untied([49, 50, 3, 60, 7, 90])
    is_new = np.array([False, False, False, False, True, True])
    actual = Ranking(users, items, 200, is_new=is_new)(ranks).figures
    assert actual["recall_at_50_new_items"] == pytest.approx((1 / 1 + 1 / 2) / 2)
    assert actual["recall_at_50_known_items"] == pytest.approx((1 / 2 + 0 / 1) / 2)
    assert actual["recall_at_50_new_items_error"] == pytest.approx(0.25)
    assert actual["recall_at_50"] == pytest.approx((2 / 3 + 0 + 1 / 2) / 3)
    for all_new in (None, np.ones(6, bool)):
        unmixed = Ranking(users, items, 200, is_new=all_new)(ranks).figures
        assert unmixed["recall_at_50_new_items"] is unmixed["recall_at_50_known_items"] is None
    known = Ranking(users, items, 200, is_new=np.zeros(6, bool))(ranks).figures
    assert known["recall_at_50_known_items"] == known["recall_at_50"]
    assert known["recall_at_50_new_items"] is None


def test_chance_of_the_best_rank_among_many_items():
    """One relevant item: the harmonic mean of all ranks. Many: by the product of probabilities."""
    harmonic = math.fsum(1 / rank for rank in range(1, 10_001)) / 10_000
    assert best_of_tie(1, 10_000)[-1] == pytest.approx(harmonic)
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
    means = values[rng.integers(0, 60, (100_000, 60))].mean(axis=1)
    assert float(np.std(means)) == pytest.approx(error * math.sqrt(59 / 60), rel=0.01)
    assert standard_error(values[:1]) is None
