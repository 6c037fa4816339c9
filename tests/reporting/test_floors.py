"""How arms stand to floors: words, the sentence, what validation chooses."""

import math
import statistics
from typing import Any

import pytest
from beside_floors import (
    BOTH_HAVE,
    ERRORS,
    OF_BOTH,
    PROFILE,
    PROFILE_HAS,
    RIDGE,
    answer_of,
    beside,
    said_of,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from support.cli import check, invoke
from support.records import change, floor_row, write_run

from ncfbench.floors.kept import FILE
from ncfbench.floors.models import FLOORS
from ncfbench.reporting.answers import find_answers
from ncfbench.reporting.floors import (
    TITLES,
    FloorResult,
    compare,
    floors_of,
    standing,
)
from ncfbench.reporting.frames import group
from ncfbench.reporting.quality import Quality, quality_of
from ncfbench.reporting.results import collect
from ncfbench.reporting.views.answers import as_rows
from ncfbench.reporting.views.sentences import run_sentence
from ncfbench.runs.folder import read, read_all
from ncfbench.storage import schemas, tables


def test_every_floor_has_a_title():
    assert TITLES.keys() == FLOORS.keys()


NOT = "Training is not worth it: the trained arm has"
NOT_CLEARLY = "Training is not clearly worth it: the trained arm has"


@pytest.mark.parametrize(
    ("floors", "recalls", "verdict", "stands"),
    [
        ([], [[0, 0.6]], "", ""),
        (
            [PROFILE, RIDGE],
            [[0, 0.4, 0.5]],
            f"{NOT} -0.067 {OF_BOTH} over ridge, by test links.",
            f"level with profile (-0.012 {OF_BOTH}), below ridge (-0.067 {OF_BOTH})",
        ),
        (
            [PROFILE, RIDGE],
            [[0, 0.4, 0.53]],
            f"{NOT} -0.037 {OF_BOTH} over ridge, by test links.",
            f"above profile (+0.018 {OF_BOTH}, after 4 s), below ridge (-0.037 {OF_BOTH})",
        ),
        (
            [PROFILE, RIDGE],
            [[0, 0.4, 0.53, 0.6]],
            f"Training is worth it: the trained arm has +0.033 {OF_BOTH} over ridge, by test"
            " links.",
            f"above ridge (+0.033 {OF_BOTH}, after 6 s) and profile (+0.088 {OF_BOTH}, after 4 s)",
        ),
        # The first evaluation, at 2 s, is above by less than two errors.
        ([PROFILE], [[0, 0.52, 0.6]], None, f"above profile (+0.088 {OF_BOTH}, after 4 s)"),
        (
            [PROFILE],
            [[0, 0.4, 0.526]],
            f"{NOT_CLEARLY} +0.014 {OF_BOTH} over profile, by test links.",
            f"level with profile (+0.014 {OF_BOTH})",
        ),
        (
            [PROFILE],
            [[0, 0.4, 0.508], [0, 0.4, 0.3, 0.54]],
            f"{NOT_CLEARLY} -0.004 {OF_BOTH} over profile, by test links.",
            f"level with profile (-0.004 {OF_BOTH})",
        ),
    ],
    ids=["no floors", "none", "some", "all", "later", "level", "another is higher"],
)
def test_the_sentence_says_which_floor_is_passed(floors, recalls, verdict, stands, tmp_path):
    answer = answer_of(tmp_path, *recalls)
    worth, sentence = said_of(answer, floors)
    assert verdict in (None, worth)
    reached = BOTH_HAVE if RIDGE in floors else PROFILE_HAS
    whole = f"Without training: {reached}. The recommended arm is {stands}."
    assert sentence == (whole if floors else "")


@pytest.mark.parametrize(
    ("recall", "ndcgs", "said"),
    [
        (0.6, (0.3, 0.35), "By NDCG@50 the recommended arm is below ridge: 0.300 to 0.350."),
        (0.4, (0.36, 0.35), "By NDCG@50 the recommended arm is above ridge: 0.360 to 0.350."),
        (0.6, (0.36, 0.35), ""),
        (0.6, (0.3501, 0.3502), ""),
        (0.4, (0.3, 0.35), ""),
        (0.6, (None, 0.35), ""),
        (0.6, (0.3, None), ""),
    ],
)
def test_who_is_ahead_by_ndcg_is_said_where_it_is_another(tmp_path, recall, ndcgs, said):
    answer = answer_of(tmp_path, [0, 0.3, recall])
    (arm,) = answer.arms
    (run,) = arm.runs.values()
    for row in run.curve:
        row["test_ndcg_at_50"] = 0.99 if row["test_recall_at_50"] == 0.3 else ndcgs[0]
    _, found = said_of(answer, [RIDGE | {"test_ndcg_at_50": ndcgs[1]}])
    assert found.endswith(said)
    assert ("NDCG" in found) == bool(said)


def test_without_a_best_arm_the_highest_is_named(tmp_path):
    answer = answer_of(tmp_path, [0, 0.4, 0.5], [0, 0.4, 0.53])
    _, found = said_of(answer, [PROFILE], None)
    assert found.endswith(f" cnn sg ns is above profile (+0.018 {OF_BOTH}, after 40 s).")


def check_arm_beside_floors(folder, name):
    """Both computations set the arm of this name beside the floors."""
    tables.write_rows(folder / FILE, [PROFILE, RIDGE], schemas.FLOOR)
    (answer,) = find_answers(*group(read_all(folder)[0]))
    assert answer.beside_floors.name == name
    check(invoke("report", folder), 0)
    check(invoke("report", folder, "--verify"), 0, "0 do not match")


def test_a_validation_recall_of_1_by_construction_chooses_nothing(tmp_path):
    """Fewer validation items than 50: the recall of test links is left, in both computations."""

    def give_chance(rows):
        for row in rows:
            row["validation_recall_at_50_chance"] = 1.0

    for sampler, top in (("neg", 0.5), ("ns", 0.53)):
        recalls = {"recalls": [0, 0.4, top], "validation": [0, 1, 1], "errors": ERRORS}
        change(write_run(tmp_path, sampler, [3, 5, 5], 20, **recalls), "curve", give_chance)
    check_arm_beside_floors(tmp_path, "cnn sg ns")


@pytest.mark.parametrize("first", [(3, 4), (4, 3)])
def test_of_equal_validation_names_decide_not_losses(tmp_path, first):
    """A second computation has the same arm beside the floors, whatever the losses are."""
    for sampler, loss, top in zip(("neg", "ns"), first, (0.5, 0.53), strict=True):
        recalls = {"recalls": [0, 0.4, top], "validation": [0, 1, 1], "errors": ERRORS}
        write_run(tmp_path, sampler, [loss, 5, 5], 20, **recalls)
    check_arm_beside_floors(tmp_path, "cnn sg neg")


@pytest.mark.parametrize("lacks", ["arm", "floor"])
def test_without_an_error_nothing_is_known(tmp_path, lacks):
    """Above the floor by 0.03 or below it by 0.07: a missing error is no error of 0."""
    errors = {"test_recall_at_50_error": None} if lacks == "floor" else {}
    of_arm = {"errors": None} if lacks == "arm" else {}
    floors = [PROFILE | errors, RIDGE | {"test_recall_at_50": 0.612} | errors]
    answer = answer_of(tmp_path, [0, 0.4, 0.542], **of_arm)
    (arm,) = answer.arms
    assert [standing(arm, floor).word for floor in floors_of(floors)] == ["unknown"] * 2
    verdict, found = said_of(answer, floors)
    said = "Whether training is worth it is not known: the trained arm has -0.070 ± unknown over"
    assert verdict == f"{said} ridge, by test links."
    stands = "is beside ridge (-0.070 ± unknown) and profile (+0.030 ± unknown)."
    assert found.endswith(stands)
    assert run_sentence(floors_of(floors), arm.reported).endswith(stands)


def test_test_links_choose_neither_floor_nor_arm(tmp_path):
    """By validation links ridge is the better floor and ns the better arm, by test links profiles
    and iid are; each says what it reaches on test links. The epoch is the second.
    """
    ridge = RIDGE | {"test_recall_at_50": 0.5, "validation_recall_at_50": 0.3}
    profile = PROFILE | {"test_recall_at_50": 0.6, "validation_recall_at_50": 0.2}
    floors = floors_of([profile, ridge])
    assert [floor.row["floor"] for floor in floors] == ["ridge", "profile"]
    arms = {
        "ns": ([0, 0.45, 0.51, 0.7], [0, 0.2, 0.4, 0.3]),
        "iid": ([0, 0.45, 0.9, 0.9], [0, 0.2, 0.35, 0.3]),
        "strat-ns": ([0, 0.2, 0.45, 0.45], [0, 0.1, 0.2, 0.1]),
    }
    for sampler, (recalls, validation) in arms.items():
        more: dict[str, Any] = {"validation": validation, "errors": ERRORS}
        write_run(tmp_path, sampler, [9, 5, 4, 3], 100, recalls, **more)
    (answer,) = find_answers(*group(read_all(tmp_path)[0]))
    none, found = (beside(answer, [profile, ridge], best) for best in (None, "strat-ns"))
    assert none.beside_floors.name == "cnn sg ns"
    assert found.beside_floors.reported.recall == 0.45
    _, said = said_of(answer, [profile, ridge])
    assert said == (
        "Without training: ridge 0.500 (19 s), profile 0.600 (3.5 s). The recommended arm is below"
        f" ridge (-0.050 {OF_BOTH}) and profile (-0.150 {OF_BOTH})."
    )


def test_a_certain_validation_recall_chooses_no_floor():
    """With at most 50 items to rank it is 1 of all: test links tell, as of floors without any."""
    certain = {"validation_recall_at_50": 1.0, "validation_recall_at_50_chance": 1.0}
    for more in (certain, {}):
        found = floors_of([PROFILE | more, RIDGE | more])
        assert [floor.row["floor"] for floor in found] == ["ridge", "profile"]


@given(
    st.lists(st.floats(0.1, 0.9), min_size=1, max_size=4),
    st.floats(0.1, 0.9),
    st.floats(0, 0.1),
    st.floats(0, 0.1),
)
def test_words_are_by_two_errors(recalls, floor, own, other):
    """By hand: the seeds' part is there where there are several, and its note says if not."""
    mean, deviation = sum(recalls) / len(recalls), math.hypot(own, standard_error_of(recalls))
    values = {"recall_at_50": mean, "recall_at_50_error": deviation}
    own_recall = Quality(values, recalls=recalls)
    row = floor_row("ridge", floor, 1.0) | dict.fromkeys(ITEM_ERROR, 0.0)
    row |= {"test_recall_at_50_error": other}
    stands, above = compare(own_recall, FloorResult(row).reported), mean - floor
    error = math.sqrt(own**2 + other**2 + standard_error_of(recalls) ** 2)
    assume(abs(abs(above) - 2 * error) > 1e-12)
    word = "level" if abs(above) < 2 * error else "passes" if above > 0 else "below"
    assert stands.word == word
    assert (stands.above_by, stands.error) == (pytest.approx(above), pytest.approx(error))


def standard_error_of(values):
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


ITEM_ERROR = ["test_recall_at_50_item_error"]


def test_an_arm_that_is_alone_stands_beside_floors_in_json(tmp_path):
    write_run(tmp_path, "ns", [9, 5, 3], 200, [0, 0.4, 0.53], errors=ERRORS)
    tables.write_rows(tmp_path / FILE, [PROFILE], schemas.FLOOR)
    check(invoke("report", tmp_path), 0)
    results = collect(tmp_path, tmp_path)
    (answer,) = as_rows(results.answers, {})
    assert answer["recommended"] == "cnn sg ns"
    (row,) = answer["floors"]
    assert (row["best_arm"], row["passed_after_seconds"]) == ("passes", 40.0)


def test_before_training_and_after_divergence(tmp_path):
    """An evaluation before training takes no seconds; what diverged is no arm to train with."""
    answer = answer_of(tmp_path, [0, 0.6])
    (arm,) = answer.arms
    (run,) = arm.runs.values()
    run.curve[0]["test_recall_at_50"] = 0.6
    _, found = said_of(answer, [PROFILE])
    assert found.endswith(f"is above profile (+0.088 {OF_BOTH}, after 0 s).")
    run.summary["status"] = "diverged"
    assert said_of(answer, [PROFILE], None)[1].endswith("No arm has a recall to compare.")


@pytest.mark.parametrize(
    ("apart", "stands"),
    [
        (-2.01, "below ridge (-0.077 ± 0.011) and profile (-0.022 ± 0.011)"),
        (1.99, "level with profile (+0.022 ± 0.011), below ridge (-0.033 ± 0.011)"),
        (2.01, "above profile (+0.022 ± 0.011), below ridge (-0.033 ± 0.011)"),
        (20, "above ridge (+0.169 ± 0.011) and profile (+0.224 ± 0.011)"),
    ],
)
def test_a_run_stands_by_the_errors_of_both(apart, stands, tmp_path):
    """It reports 0.512 and some errors of the difference, without a recall of each user; a floor's
    error is 0.005.
    """
    own, recall = math.hypot(0.006, 0.008), 0.512 + apart * math.hypot(0.006, 0.008, 0.003, 0.004)
    assert quality_of([read(write_run(tmp_path, "ns", [9, 3], 10))]) is None
    run = read(write_run(tmp_path, "iid", [9, 3], 10, [0, recall], errors=(0.006, 0.008)))
    assert run_sentence(floors_of([PROFILE, RIDGE]), quality_of([run])) == (
        "Without training: ridge 0.567 (19 s), profile 0.512 (3.5 s)."
        f" This run's recall@50, {recall:.3f} ± {own:.3f}, is {stands}."
    )


def test_validation_says_which_settings_count():
    def row(penalty, validation, by, test):
        known = {"penalty": penalty, "validation_recall_at_50": validation, "chosen_by": by}
        return floor_row("ridge", test, 1.0) | known

    given = [row(1.0, 0.3, "given", 0.2), row(2.0, 0.2, "given", 0.9)]
    assert [floor.row["penalty"] for floor in floors_of(given)] == [1.0]
    chosen = row(3.0, 0.1, "validation", 0.1)
    assert [floor.row["penalty"] for floor in floors_of([chosen, *given])] == [3.0]
    assert floors_of([floor_row("of a later version", 0.5, 1.0)]) == []
    for content, name in (
        ("features", "feature profiles"),
        ("TF-IDF and features", "TF-IDF and feature profiles"),
    ):
        (own,) = floors_of([PROFILE | {"content": content}])
        assert own.name == name
