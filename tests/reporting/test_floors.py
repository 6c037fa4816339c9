"""How arms stand to floors: words, differences and their errors, and seconds to pass them."""

import itertools
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.cli import check, invoke
from support.records import floor_row, write_run

from ncfbench.floors.kept import FILE
from ncfbench.floors.models import FLOORS
from ncfbench.reporting.answers import find_answers
from ncfbench.reporting.floors import TITLES, FloorResult, compare, floors_of, standing
from ncfbench.reporting.frames import group
from ncfbench.reporting.quality import Quality, quality_of
from ncfbench.reporting.results import collect
from ncfbench.reporting.views import sentences
from ncfbench.runs.folder import read, read_all, write_evaluations
from ncfbench.runs.quality import Evaluation
from ncfbench.storage import schemas, tables

PROFILE, RIDGE = floor_row("profile", 0.512, 3.5), floor_row("ridge", 0.567, 19.0)
ERRORS = (0.003, 0.004)
APART = math.hypot(*ERRORS, *ERRORS)
"""The error of a difference: 0.005 of the arm and of the floor, in quadrature."""


def beside(answer, rows, best="strat-ns"):
    """The answer with floors, and the arm of this sampler recommended."""
    arms = [
        replace(arm, status="recommended" if arm.config.sampler == best else "lower")
        for arm in answer.arms
    ]
    return replace(answer, arms=arms, floors=floors_of(rows))


def answer_of(folder):
    (answer,) = find_answers(*group(read_all(folder)[0]))
    return answer


def answer_to(folder, recalls, **more):
    """The answer of strat-ns alone, which has some recalls after 2, 4, ... s."""
    losses = [9, 3.1, *([3.0] * max(len(recalls) - 2, 1))]
    write_run(folder, "strat-ns", losses, 20, recalls, **{"errors": ERRORS} | more)
    return answer_of(folder)


@pytest.mark.parametrize(
    ("recalls", "stands"),
    [
        ([0, 0.4, 0.5], {"ridge": ("below", -0.067, None), "profile": ("level", -0.012, None)}),
        ([0, 0.4, 0.53, 0.6], {"ridge": ("passes", 0.033, 6), "profile": ("passes", 0.088, 4)}),
        # The first evaluation, at 2 s, is above by less than two errors.
        ([0, 0.52, 0.6], {"profile": ("passes", 0.088, 4)}),
        ([0, 0.4, 0.526], {"profile": ("level", 0.014, None)}),
    ],
)
def test_an_arm_stands_to_each_floor(recalls, stands, tmp_path):
    """The verdict on training is that on the best floor."""
    rows = [row for row in (RIDGE, PROFILE) if row["floor"] in stands]
    alone = answer_to(tmp_path, recalls)
    assert sentences.floors_sentence(alone) == sentences.worth_sentence(alone) == ""
    answer = beside(alone, rows)
    for floor in answer.floors:
        word, above_by, seconds = stands[floor.row["floor"]]
        stand = standing(answer.best, floor)
        assert (stand.word, stand.seconds) == (word, pytest.approx(seconds) if seconds else None)
        assert (stand.above_by, stand.error) == pytest.approx((above_by, APART))
    (best, (word, above_by, _)), *_ = stands.items()
    text = f"the trained arm has {above_by:+.3f} ± 0.007 over {best}, by test links."
    assert sentences.worth_sentence(answer) == f"{sentences.WORTH[word]}: {text}"


@pytest.mark.parametrize(
    ("recall", "ndcg", "of_floor", "said"),
    [
        (0.6, 0.3, 0.35, "By NDCG@50 the recommended arm is below ridge: 0.300 to 0.350."),
        (0.4, 0.36, 0.35, "By NDCG@50 the recommended arm is above ridge: 0.360 to 0.350."),
        *((0.6, 0.36, 0.35, ""), (0.6, 0.3501, 0.3502, ""), (0.4, 0.3, 0.35, "")),
        *((0.6, None, 0.35, ""), (0.6, 0.3, None, "")),
    ],
)
def test_who_is_ahead_by_ndcg_is_said_where_it_is_another(tmp_path, recall, ndcg, of_floor, said):
    def edit(curve):
        for row in curve:
            row["test_ndcg_at_50"] = 0.99 if row["test_recall_at_50"] == 0.3 else ndcg

    answer = answer_to(tmp_path, [0, 0.3, recall], edit=edit)
    text = sentences.floors_sentence(beside(answer, [RIDGE | {"test_ndcg_at_50": of_floor}]))
    assert text.endswith(said)
    assert ("NDCG" in text) == bool(said)


def test_which_arm_is_set_beside_floors(tmp_path):
    """Of equal recalls of validation links names decide, and not losses; with fewer validation
    items than 50 the recall of test links is left.
    """
    for losses, chance, name in (((3, 4), 0.1, "neg"), ((4, 3), 0.1, "neg"), ((3, 3), 1.0, "ns")):
        folder = tmp_path / f"{losses}{chance}"

        def edit(curve, chance=chance):
            for row in curve:
                row["validation_recall_at_50_chance"] = chance

        for sampler, loss, top in zip(("neg", "ns"), losses, (0.5, 0.53), strict=True):
            more = {"validation": [0, 1, 1], "edit": edit}
            write_run(folder, sampler, [loss, 5, 5], 20, [0, 0.4, top], **more)
        assert answer_of(folder).beside_floors.name == f"cnn sg {name}"


@pytest.mark.parametrize("lacks", ["arm", "floor"])
def test_without_an_error_nothing_is_known(tmp_path, lacks):
    """Above the floor by 0.03 or below it by 0.07: a missing error is no error of 0."""
    errors = {"test_recall_at_50_error": None} if lacks == "floor" else {}
    of_arm = {"errors": None} if lacks == "arm" else {}
    floors = [PROFILE | errors, RIDGE | {"test_recall_at_50": 0.612} | errors]
    answer = beside(answer_to(tmp_path, [0, 0.4, 0.542], **of_arm), floors)
    assert [standing(answer.best, floor).word for floor in answer.floors] == ["unknown"] * 2
    assert sentences.worth_sentence(answer).startswith(sentences.WORTH["unknown"])
    stands = "is beside ridge (-0.070 ± unknown) and profile (+0.030 ± unknown)."
    assert sentences.floors_sentence(answer).endswith(stands)
    assert sentences.run_sentence(answer.floors, answer.best.reported).endswith(stands)


def test_test_links_choose_neither_floor_nor_arm(tmp_path):
    """By validation links ridge is the better floor and ns the better arm, by test links profiles
    and iid are; each says what it reaches on test links. The epoch is the second.
    """
    ridge = RIDGE | {"test_recall_at_50": 0.5, "validation_recall_at_50": 0.3}
    profile = PROFILE | {"test_recall_at_50": 0.6, "validation_recall_at_50": 0.2}
    for sampler, recalls, validation in (
        ("ns", [0, 0.45, 0.51, 0.7], [0, 0.2, 0.4, 0.3]),
        ("iid", [0, 0.45, 0.9, 0.9], [0, 0.2, 0.35, 0.3]),
        ("strat-ns", [0, 0.2, 0.45, 0.45], [0, 0.1, 0.2, 0.1]),
    ):
        more = {"validation": validation, "errors": ERRORS}
        write_run(tmp_path, sampler, [9, 5, 4, 3], 100, recalls, **more)
    answer = answer_of(tmp_path)
    unchosen, chosen = (beside(answer, [profile, ridge], best) for best in (None, "strat-ns"))
    assert [floor.row["floor"] for floor in chosen.floors] == ["ridge", "profile"]
    assert unchosen.beside_floors.name == "cnn sg ns"
    said = sentences.floors_sentence(unchosen)
    assert " cnn sg ns, 0.510 ± 0.005, is level with ridge (+0.010" in said
    assert chosen.beside_floors.reported.recall == 0.45
    above_by = [standing(chosen.best, floor).above_by for floor in chosen.floors]
    assert above_by == pytest.approx([-0.05, -0.15])


@given(
    st.lists(st.floats(0.1, 0.9), min_size=1, max_size=4),
    st.floats(0.1, 0.9),
    st.floats(0, 0.1),
    st.floats(0, 0.1),
)
def test_words_are_by_two_errors(recalls, floor, own, other):
    """By hand: the seeds' part is there where there are several, and its note says if not."""
    mean = sum(recalls) / len(recalls)
    of_seeds = statistics.stdev(recalls) / math.sqrt(len(recalls)) if len(recalls) > 1 else 0.0
    values = {"recall_at_50": mean, "recall_at_50_error": math.hypot(own, of_seeds)}
    row = floor_row("ridge", floor, 1.0) | {"test_recall_at_50_item_error": 0.0}
    row |= {"test_recall_at_50_error": other}
    stands = compare(Quality(values, recalls=recalls), FloorResult(row).reported)
    above, error = mean - floor, math.sqrt(own**2 + other**2 + of_seeds**2)
    assume(abs(abs(above) - 2 * error) > 1e-12)
    word = "level" if abs(above) < 2 * error else "passes" if above > 0 else "below"
    assert stands.word == word
    assert (stands.above_by, stands.error) == (pytest.approx(above), pytest.approx(error))


def test_before_training_and_after_divergence(tmp_path):
    """An evaluation before training takes no seconds; what diverged is no arm to train with."""
    answer = beside(answer_to(tmp_path, [0, 0.6]), [PROFILE])
    (run,) = answer.best.runs.values()
    run.curve[0]["test_recall_at_50"] = 0.6
    assert standing(answer.best, answer.floors[0]).seconds == 0
    run.summary["status"] = "diverged"
    said = sentences.floors_sentence(beside(answer, [PROFILE], None))
    assert said.endswith("No arm has a recall to compare.")


def test_validation_says_which_settings_count():
    def row(penalty, validation, by, test):
        known = {"penalty": penalty, "validation_recall_at_50": validation, "chosen_by": by}
        return floor_row("ridge", test, 1.0) | known

    given = [row(1.0, 0.3, "given", 0.2), row(2.0, 0.2, "given", 0.9)]
    assert [floor.row["penalty"] for floor in floors_of(given)] == [1.0]
    chosen = row(3.0, 0.1, "validation", 0.1)
    assert [floor.row["penalty"] for floor in floors_of([chosen, *given])] == [3.0]
    assert floors_of([floor_row("of a later version", 0.5, 1.0)]) == []
    assert TITLES.keys() == FLOORS.keys()
    for content in ("feature", "TF-IDF and feature"):
        (result,) = floors_of([PROFILE | {"content": f"{content}s"}])
        assert result.name == f"{content} profiles"
    # With at most 50 items to rank it is 1 of all: test links tell, as of floors without any.
    certain = {"validation_recall_at_50": 1.0, "validation_recall_at_50_chance": 1.0}
    for more in (certain, {}):
        floors = floors_of([PROFILE | more, RIDGE | more])
        assert [floor.row["floor"] for floor in floors] == ["ridge", "profile"]


# --- errors of the difference between recalls of the same users and items

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
    places = itertools.product(enumerate(arrays, 1), ("validation", "test"))
    at = {(100 * n, split): Evaluation({}, *values) for (n, values), split in places}
    write_evaluations(run, at)
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


def test_a_run_that_ranks_as_a_floor_is_level(tmp_path):
    """No error at all, however large that of each recall is."""
    quality = quality_of([read(write(tmp_path, "ns", 9, NONE, OF_FLOOR))])
    same, better = (compare(quality, floors_of([floor(of)])[0].reported) for of in (OF_FLOOR, ALL))
    assert (same.word, same.above_by, same.error) == ("level", 0, 0)
    assert better.above_by == pytest.approx(recall(OF_FLOOR) - recall(ALL))
    assert better.error == pytest.approx(error([OF_FLOOR], [ALL]))


@pytest.mark.parametrize("lacks", ["floor", "run", "iteration", "damaged"])
def test_without_recalls_of_users_errors_are_added(tmp_path, lacks):
    assert quality_of([read(write_run(tmp_path, "iid", [9, 3], 10))]) is None
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
    """The evaluation of test links that validation links choose for each seed, which is not that of
    the largest test recall.
    """
    folder, copy = tmp_path / "runs", tmp_path / "copy"
    seeds = [("10000000", ALL, "11010000", NONE), (NONE, ALL, "10110111", "10000000")]
    validation = [(0, 0.1, 0.2, 0.9, 0.1), (0, 0.1, 0.5, 0.4, 0.3)]
    for seed, hits in enumerate(seeds):
        write(folder, "strat-ns", 20, *hits, seed=seed, validation=validation[seed])
    tables.write_rows(folder / FILE, [floor()], schemas.FLOOR)
    check(invoke("report", folder), 0)
    check(invoke("report", folder, "--verify"), 0, "0 do not match")
    (answer,) = collect(folder, folder).answer_rows
    chosen = ["11010000", ALL]
    above, (row,) = statistics.fmean(map(recall, chosen)) - recall(OF_FLOOR), answer["floors"]
    assert row["above_by"] == pytest.approx(above)
    assert row["above_by_error"] == pytest.approx(error(chosen, [OF_FLOOR]), rel=1e-6)
    check(invoke("report", folder, "--export", copy), 0)
    assert collect(copy, copy).answer_rows[0]["floors"] == [row]
    kept = [[*run.evaluations] for run in read_all(copy)[0] if run.config.sampler == "strat-ns"]
    assert kept == [[(300, "test")], [(200, "test")]]
    for path in folder.glob("*/evaluation.parquet"):
        path.unlink()
    check(invoke("report", folder, "--export", copy), 0)
    assert not (copy / "evaluations.parquet").exists(), "those of another export do not stay"
