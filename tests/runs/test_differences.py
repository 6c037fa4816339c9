"""Differences of two evaluations, and the files that keep what they need."""

import numpy as np
import pytest
from support.records import write_run

from ncfbench.runs.folder import export, read, read_all, write_evaluations
from ncfbench.runs.quality import (
    Evaluation,
    Ranking,
    difference,
)
from ncfbench.runs.ranks import Ranks
from ncfbench.statistics.intervals import standard_error


def untied(ranks):
    return Ranks(ranks, np.zeros_like(ranks))


def made(rng, users, items, apart):
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
        result.append(ranking(untied(np.where(hits, 0, 100)[rows, columns])))
    return result


@pytest.mark.long_cases("60|40-")
@pytest.mark.parametrize(("users", "items"), [(400, 25), (60, 200), (40, 40)])
def test_a_difference_that_is_none_is_seldom_seen(users, items):
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


def test_a_real_difference_is_seen():
    apart = difference(*made(np.random.default_rng(5), 400, 200, 0.1))
    assert apart is not None
    assert apart.value == pytest.approx(0.1, abs=0.05)
    assert apart.value > 3 * apart.error
    assert apart.degrees == 199


def test_items_without_held_out_links_make_no_error_smaller():
    """Five linked items among 5,000 candidates: as if there were only these."""
    rng = np.random.default_rng(4)
    users, items = np.nonzero(rng.random((2000, 5)) < 0.5)
    hits = [untied(np.where(rng.random(len(users)) < share, 0, 100)) for share in (0.6, 0.5)]
    found = [
        difference(*(Ranking(users, where, n_items)(ranks) for ranks in hits))
        for where, n_items in ((items, 5), (1000 * items, 5000))
    ]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].degrees == 4


def test_evaluations_over_other_users_are_not_compared():
    """As kept by a version that had users without training links and all items in them."""
    evaluations = [
        Evaluation({}, np.zeros(users, np.float32), np.zeros(items, np.float32))
        for users, items in ((9, 5), (8, 5), (9, 4))
    ]
    assert difference(evaluations[0], evaluations[0]) is not None
    assert difference(evaluations[0], evaluations[1]) is None
    assert difference(evaluations[0], evaluations[2]) is None


def test_evaluations_come_back_from_their_file(tmp_path):
    run = write_run(tmp_path, "ns", [9, 4], 10)
    assert read(run).evaluations == {}
    rng = np.random.default_rng(2)
    wanted = {
        (iteration, split): Evaluation(
            {}, rng.random(users).astype(np.float32), rng.random(items).astype(np.float32)
        )
        for iteration in (0, 30, 50, 70)
        for split, users, items in (("validation", 3, 5), ("test", 4, 2))
    }
    write_evaluations(run, wanted)
    found = read(run).evaluations
    assert list(found) == [*wanted]
    for key, evaluation in found.items():
        np.testing.assert_array_equal(evaluation.user_recalls, wanted[key].user_recalls)
        np.testing.assert_array_equal(evaluation.item_shares, wanted[key].item_shares)
        assert evaluation.user_recalls.dtype == np.float32


def test_an_export_keeps_the_evaluation_of_the_choice(tmp_path):
    """Of test links; the second of three evaluations is reported."""
    run = write_run(tmp_path, "ns", [9, 4, 2, 1], 10, validation=[0, 0.2, 0.3, 0.25])
    write_run(tmp_path, "ns", [9, 4, 2, 1], 10, seed=1)
    numbers = np.float32([0, 1 / 3, 0.7])
    splits = "validation", "test"
    found = {(at, split): Evaluation({}, numbers, numbers) for at in (100, 200) for split in splits}
    write_evaluations(run, found)
    target, (one, other) = (
        tmp_path / "copy",
        sorted(read_all(tmp_path)[0], key=lambda run: run.config.seed),
    )
    target.mkdir()
    export([one, other], target)
    copies, problems = read_all(target)
    kept = {copy.config.seed: copy.evaluations for copy in copies}
    assert problems == []
    assert [[*kept[seed]] for seed in range(2)] == [[(200, "test")], []]
    np.testing.assert_array_equal(kept[0][200, "test"].user_recalls, numbers)
    export([other], target)
    assert not (target / "evaluations.parquet").exists(), "those of another export do not stay"
