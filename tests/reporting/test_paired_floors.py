"""Errors of the difference between recalls of the same users and items."""

import math
import statistics

import numpy as np
import pytest
from support.cli import check, invoke
from support.records import answers_of, floor_row, write_run

from ncfbench.floors.kept import FILE
from ncfbench.reporting.floors import compare, floors_of
from ncfbench.reporting.quality import quality_of
from ncfbench.runs.folder import read, read_all, write_evaluations
from ncfbench.runs.quality import Evaluation
from ncfbench.storage import schemas, tables

LINKS = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 0), (3, 2), (3, 3)]
"""Held-out links of four users; item 4 has none."""
OF_FLOOR, NONE, ALL = "10010100", "0" * 8, "1" * 8
"""Which of the links rank within 50."""


def lists(hits):
    """Recall of each user, and each item's share of their mean."""
    users, items = [0.0] * 4, [0.0] * 5
    for (user, item), hit in zip(LINKS, hits, strict=True):
        part = int(hit) / sum(own == user for own, _ in LINKS)
        users[user] += part
        items[item] += part / 4
    return users, items


def recall(hits):
    return round(statistics.fmean(lists(hits)[0]), 9)


def write(folder, sampler, ms, *hits, **more):
    """A run that is evaluated at 100, 200, ... iterations, with errors of its own."""
    losses = [9, 5, 3.1, 3.05, 3.0][: len(hits) + 1]
    recalls = [0, *map(recall, hits)]
    run = write_run(folder, sampler, losses, ms, recalls, errors=(0.03, 0.04), **more)
    arrays = [[np.array(values, np.float32) for values in lists(each)] for each in hits]
    write_evaluations(
        run,
        {
            (100 * (n + 1), split): Evaluation({}, *of_each)
            for n, of_each in enumerate(arrays)
            for split in ("validation", "test")
        },
    )
    return run


def floor(hits=OF_FLOOR):
    users, items = lists(hits)
    of_users = {"test_user_recalls": users, "test_item_shares": items}
    return floor_row("ridge", recall(hits), 1.0, **of_users)


def error(arm, other):
    """That of the difference of two means over seeds."""
    users, items = (
        np.mean([lists(hits)[of] for hits in arm], 0)
        - np.mean([lists(hits)[of] for hits in other], 0)
        for of in (0, 1)
    )
    variance = users.var(ddof=1) / 4 + 5 / 4 * items @ items
    for seeds in (arm, other):
        variance += statistics.variance(map(recall, seeds)) / len(seeds) if seeds[1:] else 0
    return math.sqrt(variance)


def row_of(folder, *seeds, validation=None):
    """The floor in JSON, beside an arm of some seeds that is the best."""
    for seed, hits in enumerate(seeds):
        more = {} if validation is None else {"validation": (0, *validation[seed])}
        write(folder, "strat-ns", 20, *hits, seed=seed, **more)
        write_run(folder, "iid", [9, 5, 3.1, 3.05, 3.0][: len(hits) + 1], 200, seed=seed)
    tables.write_rows(folder / FILE, [floor()], schemas.FLOOR)
    check(invoke("report", folder), 0)
    check(invoke("report", folder, "--verify"), 0, "0 do not match")
    (answer,) = answers_of(folder)
    return answer["floors"][0]


@pytest.mark.parametrize("seeds", [("11010110",), ("11010110", "10110001", ALL)])
def test_the_error_is_within_users_items_and_seeds(tmp_path, seeds):
    row = row_of(tmp_path, *((NONE, hits) for hits in seeds))
    above = statistics.fmean(map(recall, seeds)) - recall(OF_FLOOR)
    assert row["above_by"] == pytest.approx(above)
    assert row["above_by_error"] == pytest.approx(error(seeds, [OF_FLOOR]), rel=1e-6)
    assert row["best_arm"] == ("passes" if above > 2 * row["above_by_error"] else "level")


def test_a_run_that_ranks_as_a_floor_is_level(tmp_path):
    """No error at all, however large that of each recall is."""
    quality = quality_of([read(write(tmp_path, "ns", 9, NONE, OF_FLOOR))])
    same, better = (compare(quality, floors_of([floor(of)])[0].reported) for of in (OF_FLOOR, ALL))
    assert (same.word, same.above_by, same.error) == ("level", 0, 0)
    assert better.above_by == pytest.approx(recall(OF_FLOOR) - recall(ALL))
    assert better.error == pytest.approx(error([OF_FLOOR], [ALL]))


@pytest.mark.parametrize("lacks", ["floor", "run", "iteration", "damaged"])
def test_without_recalls_of_users_errors_are_added(tmp_path, lacks):
    run, kept = write(tmp_path, "ns", 9, NONE, ALL), floor()
    quality = quality_of([read(run)])
    if lacks == "floor":
        kept["test_user_recalls"] = None
    elif lacks == "run":
        (run / "evaluation.parquet").unlink()
    elif lacks == "iteration":
        write_evaluations(run, {(100, "test"): Evaluation({}, np.ones(4), np.ones(5))})
    else:
        (run / "evaluation.parquet").write_bytes(b"damaged")
    stands = compare(quality, floors_of([kept])[0].reported)
    assert stands.error == pytest.approx(math.hypot(0.03, 0.04, 0.003, 0.004))
    assert (stands.word, stands.text) == ("passes", "+0.542 ± 0.050")


def test_copies_keep_what_is_set_beside_floors(tmp_path):
    """The evaluation that validation links choose for each seed, which is not that of the largest
    test recall.
    """
    folder, copy = tmp_path / "runs", tmp_path / "copy"
    seeds = [("10000000", ALL, "11010000", NONE), (NONE, ALL, "10110111", "10000000")]
    row = row_of(folder, *seeds, validation=[(0.1, 0.2, 0.9, 0.1), (0.1, 0.5, 0.4, 0.3)])
    chosen = [seeds[0][2], seeds[1][1]]
    above = statistics.fmean(map(recall, chosen)) - recall(OF_FLOOR)
    assert row["above_by"] == pytest.approx(above)
    assert row["above_by_error"] == pytest.approx(error(chosen, [OF_FLOOR]), rel=1e-6)
    check(invoke("report", folder, "--export", copy), 0)
    assert answers_of(copy)[0]["floors"] == [row]
    kept = [[*run.evaluations] for run in read_all(copy)[0] if run.config.sampler == "strat-ns"]
    assert kept == [[(300, "test")], [(200, "test")]]
    for path in folder.glob("*/evaluation.parquet"):
        path.unlink()
    check(invoke("report", folder, "--export", copy), 0)
    assert not (copy / "evaluations.parquet").exists(), "those of another export do not stay"
