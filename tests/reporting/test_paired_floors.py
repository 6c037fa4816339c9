"""Errors of the difference between recalls of the same users and items."""

import math
import statistics

import numpy as np
import pytest
from support.cli import check, invoke
from support.records import answers_of, change, floor_row, write_run

from ncfbench.floors.kept import FILE
from ncfbench.reporting.floors import compare, floors_of
from ncfbench.reporting.quality import quality_of
from ncfbench.reporting.views.sentences import run_sentence
from ncfbench.runs.folder import read, read_all, write_evaluations
from ncfbench.runs.quality import Evaluation
from ncfbench.storage import schemas, tables

LINKS = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 0), (3, 2), (3, 3)]
"""Held-out links of four users; item 4 has none."""
OF_FLOOR, NONE, ALL = "10010100", "0" * 8, "1" * 8
"""Which of the links rank within 50."""
FIGURES = {
    "test_recall_at_50_error": 0.03,
    "test_recall_at_50_item_error": 0.04,
    "test_recall_at_50_chance": 0.001,
}
LOSSES = [9, 5, 3.1, 3.05, 3.0]


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
    recalls = [0, *map(recall, hits)]
    run = write_run(folder, sampler, LOSSES[: len(recalls)], ms, recalls, **more)
    arrays = [[np.array(values, np.float32) for values in lists(each)] for each in hits]
    at = {(100 * (n + 1), "test"): Evaluation({}, *each) for n, each in enumerate(arrays)}
    write_evaluations(run, at)
    change(run, "curve", lambda rows: [row.update(FIGURES) for row in rows])
    change(run, "summary", lambda rows: rows[0].update(FIGURES))
    return run


def floor(hits=OF_FLOOR):
    users, items = lists(hits)
    own = {"test_user_recalls": users, "test_item_shares": items}
    return floor_row("ridge", recall(hits), 1.0, **own)


def validate(run, recalls):
    """Give a run recalls of validation links; it reports the evaluation with the largest."""
    rows = tables.read_rows(run / "curve.parquet", schemas.CURVE)
    for own, row in zip(recalls, rows[1:], strict=True):
        row["validation_recall_at_50"] = own
    tables.write_rows(run / "curve.parquet", rows, schemas.CURVE)
    best = rows[1 + int(np.argmax(recalls))]
    reported = {name: best[name] for name in best if "_recall_at" in name}
    reported |= {"reported_epoch": best["epoch"], "reported_by": "validation"}
    change(run, "summary", lambda rows: rows[0].update(reported))


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


def answered(folder, *seeds, validation=()):
    """The answer in JSON, of which an arm of some seeds is the best, beside a floor."""
    for seed, hits in enumerate(seeds):
        run = write(folder, "strat-ns", 20, *hits, seed=seed)
        if validation:
            validate(run, validation[seed])
        write_run(folder, "iid", LOSSES[: len(hits) + 1], 200, seed=seed)
    tables.write_rows(folder / FILE, [floor()], schemas.FLOOR)
    check(invoke("report", folder), 0)
    check(invoke("report", folder, "--verify"), 0, "0 do not match")
    (answer,) = answers_of(folder)
    return answer


@pytest.mark.parametrize("seeds", [("11010110",), ("11010110", "10110001", ALL)])
def test_the_error_is_within_users_items_and_seeds(tmp_path, seeds):
    answer = answered(tmp_path, *((NONE, hits) for hits in seeds))
    (row,) = answer["floors"]
    above = statistics.fmean(map(recall, seeds)) - recall(OF_FLOOR)
    assert row["above_by"] == pytest.approx(above)
    assert row["above_by_error"] == pytest.approx(error(seeds, [OF_FLOOR]), rel=1e-6)
    assert row["best_arm"] == ("passes" if above > 2 * row["above_by_error"] else "level")
    assert f"({above:+.3f} ± {row['above_by_error']:.3f}" in answer["headline"]


def test_a_run_that_ranks_as_a_floor_is_level(tmp_path):
    """No error at all, however large that of each recall is."""
    answer = answered(tmp_path, (NONE, OF_FLOOR))
    (row,) = answer["floors"]
    assert (row["best_arm"], row["above_by"], row["above_by_error"]) == ("level", 0, 0)
    run = read(write(tmp_path, "ns", 9, NONE, OF_FLOOR))
    own, better = quality_of([run]), floor(ALL) | {"floor": "ease"}
    apart, of_both = recall(ALL) - recall(OF_FLOOR), error([OF_FLOOR], [ALL])
    assert run_sentence(floors_of([floor(), better]), own).endswith(
        f"0.458 ± 0.050, is level with ease (-{apart:.3f} ± {of_both:.3f}) and ridge (+0.000 ±"
        " 0.000)."
    )


@pytest.mark.parametrize("lacks", ["floor", "run", "iteration", "damaged"])
def test_errors_are_added_where_a_recall_of_users_is_not_kept(tmp_path, lacks):
    run, kept = write(tmp_path, "ns", 9, NONE, ALL), floor()
    own = quality_of([read(run)])
    if lacks == "floor":
        kept["test_user_recalls"] = None
    elif lacks == "run":
        (run / "evaluation.parquet").unlink()
    elif lacks == "iteration":
        write_evaluations(run, {(100, "test"): Evaluation({}, np.ones(4), np.ones(5))})
    else:
        (run / "evaluation.parquet").write_bytes(b"damaged")
    stands = compare(own, floors_of([kept])[0].reported)
    assert stands.error == pytest.approx(math.hypot(0.03, 0.04, 0.003, 0.004))
    assert (stands.word, stands.text) == ("passes", "+0.542 ± 0.050")


def test_copies_keep_what_is_set_beside_floors(tmp_path):
    """The evaluation that validation links choose for each seed, which is not that of the largest
    test recall.
    """
    folder, copy = tmp_path / "runs", tmp_path / "copy"
    seeds = [("10000000", ALL, "11010000", NONE), (NONE, ALL, "10110111", "10000000")]
    validation = [(0.1, 0.2, 0.9, 0.1), (0.1, 0.5, 0.4, 0.3)]
    answer = answered(folder, *seeds, validation=validation)
    (row,) = answer["floors"]
    chosen = [seeds[0][2], seeds[1][1]]
    above = statistics.fmean(map(recall, chosen)) - recall(OF_FLOOR)
    assert row["above_by"] == pytest.approx(above)
    assert row["above_by_error"] == pytest.approx(error(chosen, [OF_FLOOR]), rel=1e-6)
    check(invoke("report", folder, "--export", copy), 0)
    assert answers_of(copy)[0]["floors"] == answer["floors"]
    check(invoke("report", copy, "--verify"), 0, "0 do not match")
    kept = [[*run.evaluations] for run in read_all(copy)[0] if run.config.sampler == "strat-ns"]
    assert kept == [[(300, "test")], [(200, "test")]]
