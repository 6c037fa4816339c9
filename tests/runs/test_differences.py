"""Differences of two evaluations, and the files that keep what they need."""

import numpy as np
import pytest
from support.records import write_run

from ncfbench.runs.folder import export, read, read_all, write_evaluations
from ncfbench.runs.quality import Evaluation, Ranking, difference
from ncfbench.runs.ranks import Ranks
from ncfbench.statistics.intervals import standard_error


def untied(hits):
    ranks = np.where(hits, 0, 100)
    return Ranks(ranks, np.zeros_like(ranks))


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
        yield ranking(untied(hits[rows, columns]))


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
    hits = [untied(rng.random(len(users)) < share) for share in (0.6, 0.5)]
    few, many = (
        difference(*(Ranking(users, at, n_items)(ranks) for ranks in hits))
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


def test_evaluations_come_back_from_their_file(tmp_path):
    run = write_run(tmp_path, "ns", [9, 4], 10)
    assert read(run).evaluations == {}
    rng = np.random.default_rng(2)
    wanted = {
        (iteration, split): evaluation(rng.random(users), rng.random(items))
        for iteration in (0, 30, 50, 70)
        for split, users, items in (("validation", 3, 5), ("test", 4, 2))
    }
    write_evaluations(run, wanted)
    kept = read(run).evaluations
    assert list(kept) == [*wanted]
    for key, numbers in wanted.items():
        for name in ("user_recalls", "item_shares"):
            np.testing.assert_array_equal(
                getattr(kept[key], name), getattr(numbers, name), strict=True
            )


def test_an_export_keeps_the_evaluation_of_the_choice(tmp_path):
    """Of test links; the second of three evaluations is reported."""
    run = write_run(tmp_path, "ns", [9, 4, 2, 1], 10, validation=[0, 0.2, 0.3, 0.25])
    write_run(tmp_path, "ns", [9, 4, 2, 1], 10, seed=1)
    numbers = np.float32([0, 1 / 3, 0.7])
    keys = [(at, split) for at in (100, 200) for split in ("validation", "test")]
    write_evaluations(run, dict.fromkeys(keys, evaluation(numbers, numbers)))
    records, target = sorted(read_all(tmp_path)[0], key=lambda run: run.config.seed), tmp_path / "c"
    target.mkdir()
    export(records, target)
    copies, problems = read_all(target)
    kept = {copy.config.seed: copy.evaluations for copy in copies}
    assert problems == []
    assert [[*kept[seed]] for seed in range(2)] == [[(200, "test")], []]
    np.testing.assert_array_equal(kept[0][200, "test"].user_recalls, numbers)
    export(records[1:], target)
    assert not (target / "evaluations.parquet").exists(), "those of another export do not stay"
