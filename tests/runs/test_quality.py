"""Ranks, their quality and its differences by hand, by brute force and by simulation."""

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
    assert actual.user_recalls.tolist() == pytest.approx([own["recall_at_3"] for own in by_user])
    shares, weights = np.zeros((2, n_items))
    for link, (user, item) in enumerate(zip(users, items, strict=True)):
        places = [order.index(item) for order in orders_of(scores[user])]
        within = statistics.fmean(place < 3 for place in places)
        weights[item] += 1 / (n_users * len(items_of[user]))
        shares[item] += within / (n_users * len(items_of[user]))
        mean_rank = statistics.fmean(places)
        assert ranks.above[link] + ranks.equal[link] / 2 == pytest.approx(mean_rank)
    assert actual.item_shares.tolist() == pytest.approx(shares[np.unique(items)].tolist())
    n_linked, apart = len({*items.tolist()}), shares - weights * shares.sum()
    error = math.sqrt(n_linked / (n_linked - 1) * apart @ apart) if n_linked > 1 else None
    assert actual.figures["recall_at_3_item_error"] == pytest.approx(error)


def untied(ranks):
    ranks = np.asarray(ranks, np.int64)
    return Ranks(ranks, np.zeros_like(ranks))


@given(st.integers(0, 2**32 - 1), st.sampled_from([7, 60, 130]))
@settings(max_examples=20, deadline=None)
def test_measures_are_those_of_trec_eval(seed, n_items):
    """Scores without ties, users without held-out items, and lists shorter than M."""
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(n_items, dtype=np.float32), (8, 1)), axis=1)
    is_held_out = rng.random((8, n_items)) < rng.choice([0.02, 0.3, 1.0], (8, 1))
    is_held_out[5], is_held_out[2, 1] = False, True
    users, items = np.nonzero(is_held_out)
    ranks = rank_links(scores.__getitem__, users, items, 3)
    actual = Ranking(users, items, n_items)(ranks).figures
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
    """With items left out for each user; some have one link, or links to all of the others."""
    rng = np.random.default_rng(3)
    is_left_out = rng.random((40, 130)) < rng.random((40, 1)) * 0.9
    users, items = np.nonzero(~is_left_out & (rng.random((40, 130)) < rng.random((40, 1))))
    left_out = [np.flatnonzero(row) for row in is_left_out]
    ranking = Ranking(users, items, 130, n_excluded=is_left_out.sum(axis=1))
    zeros = np.zeros((40, 130), np.float32)
    ranks = rank_links(zeros.__getitem__, users, items, 7, left_out.__getitem__)
    actual = ranking(ranks).figures
    for measure in MEASURES:
        assert actual[measure] == actual[f"{measure}_chance"], measure


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


# --- differences of two evaluations


def evaluation(users, items):
    return Evaluation({}, users.astype(np.float32), items.astype(np.float32))


def two_models(rng, users, items, apart):
    """Two models that hit a link by user, item and chance, the first better by ``apart``."""
    linked = rng.random((users, items)) < 0.3
    linked[np.arange(users), rng.integers(0, items, users)] = True
    rows, columns = np.nonzero(linked)
    ranking = Ranking(rows, columns, items)
    for shift in (apart, 0.0):
        chance = 0.4 + shift + rng.normal(0, 0.1, (users, 1)) + rng.normal(0, 0.1, (1, items))
        hits = rng.random((users, items)) < chance
        yield ranking(untied(np.where(hits[rows, columns], 0, 100)))


@pytest.mark.parametrize(
    ("users", "items"),
    [(400, 25), *(pytest.param(*more, marks=pytest.mark.long) for more in ((60, 200), (40, 40)))],
)
def test_a_difference_that_is_none_is_seldom_seen(users, items):
    """With few items an error over users alone would be far too small."""
    rng, rounds = np.random.default_rng(users), 400
    beyond = over_users = 0
    for _ in range(rounds):
        one, other = two_models(rng, users, items, 0.0)
        apart = difference(one, other)
        error = standard_error(one.user_recalls - other.user_recalls.astype(np.float64))
        beyond += abs(apart.value) > 1.96 * apart.error
        over_users += abs(apart.value) > 1.96 * error
    assert beyond / rounds < 0.06
    if items == 25:
        assert over_users / rounds > 0.3


def test_a_real_difference_is_seen():
    apart = difference(*two_models(np.random.default_rng(5), 400, 200, 0.1))
    assert apart.value == pytest.approx(0.1, abs=0.05)
    assert apart.value > 3 * apart.error
    assert apart.degrees == 199


def test_items_without_held_out_links_make_no_error_smaller():
    """Five linked items among 5,000 candidates: as if there were only these."""
    rng = np.random.default_rng(4)
    users, items = np.nonzero(rng.random((2000, 5)) < 0.5)
    ranks = [untied(100 * (rng.random(len(users)) > share)) for share in (0.6, 0.5)]
    few, many = (
        difference(*map(Ranking(users, at, n_items), ranks))
        for at, n_items in ((items, 5), (1000 * items, 5000))
    )
    assert few == many
    assert few.degrees == 4


def test_evaluations_over_other_users_are_not_compared():
    """As kept by an older version. One user or item gives no error."""
    sizes = ((9, 5), (8, 5), (9, 4), (1, 9))
    same, fewer_users, fewer_items, one = (evaluation(*map(np.zeros, size)) for size in sizes)
    assert difference(same, same) is not None
    for left, right in ((same, fewer_users), (same, fewer_items), (one, one)):
        assert difference(left, right) is None
