"""How arms stand to floors: words, differences, seconds, and what validation chooses."""

import math
import statistics
from dataclasses import replace

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
from ncfbench.reporting.views import sentences
from ncfbench.runs.folder import read, read_all
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


def answer_of(folder, *recalls, **more):
    """strat-ns has the first recalls, after 2, 4, ... s; others are a tenth as fast."""
    for sampler, curve in zip(("strat-ns", "ns", "iid"), recalls, strict=False):
        ms = 20 if sampler == "strat-ns" else 200
        losses = [9, 3.1, *([3.0] * max(len(curve) - 2, 1))]
        write_run(folder, sampler, losses, ms, curve, **{"errors": ERRORS} | more)
    (answer,) = find_answers(*group(read_all(folder)[0]))
    return answer


@pytest.mark.parametrize(
    ("recalls", "stands"),
    [
        ([0, 0.4, 0.5], {"ridge": ("below", -0.067, None), "profile": ("level", -0.012, None)}),
        ([0, 0.4, 0.53], {"ridge": ("below", -0.037, None), "profile": ("passes", 0.018, 4)}),
        ([0, 0.4, 0.53, 0.6], {"ridge": ("passes", 0.033, 6), "profile": ("passes", 0.088, 4)}),
        # The first evaluation, at 2 s, is above by less than two errors.
        ([0, 0.52, 0.6], {"profile": ("passes", 0.088, 4)}),
        ([0, 0.4, 0.526], {"profile": ("level", 0.014, None)}),
    ],
)
def test_an_arm_stands_to_each_floor(recalls, stands, tmp_path):
    """The verdict on training is that on the best floor."""
    rows = [row for row in (RIDGE, PROFILE) if row["floor"] in stands]
    answer = beside(answer_of(tmp_path, recalls), rows)
    for floor in answer.floors:
        word, above_by, seconds = stands[floor.row["floor"]]
        stand = standing(answer.best, floor)
        assert (stand.word, stand.seconds) == (word, pytest.approx(seconds) if seconds else None)
        assert (stand.above_by, stand.error) == pytest.approx((above_by, APART))
    (best, (word, above_by, _)), *_ = stands.items()
    verdict = sentences.worth_sentence(answer)
    text = f"the trained arm has {above_by:+.3f} ± 0.007 over {best}, by test links."
    assert verdict == f"{sentences.WORTH[word]}: {text}"
    said = sentences.floors_sentence(answer)
    assert said.startswith("Without training: ")
    assert said.count("± 0.007") == len(rows)


def test_without_floors_nothing_is_said_of_them(tmp_path):
    answer = answer_of(tmp_path, [0, 0.4, 0.53])
    assert sentences.floors_sentence(answer) == sentences.worth_sentence(answer) == ""


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

    answer = answer_of(tmp_path, [0, 0.3, recall], edit=edit)
    text = sentences.floors_sentence(beside(answer, [RIDGE | {"test_ndcg_at_50": of_floor}]))
    assert text.endswith(said)
    assert ("NDCG" in text) == bool(said)


@pytest.mark.parametrize(
    ("losses", "chance", "name"),
    [
        # Fewer validation items than 50: the recall of test links is left.
        ((3, 3), 1.0, "cnn sg ns"),
        # Of equal recalls of validation links names decide, and not losses.
        *(((one, other), None, "cnn sg neg") for one, other in ((3, 4), (4, 3))),
    ],
)
def test_which_arm_is_set_beside_floors(tmp_path, losses, chance, name):
    def edit(curve):
        for row in curve:
            row["validation_recall_at_50_chance"] = chance

    for sampler, loss, top in zip(("neg", "ns"), losses, (0.5, 0.53), strict=True):
        recalls = {"recalls": [0, 0.4, top], "validation": [0, 1, 1], "errors": ERRORS}
        write_run(tmp_path, sampler, [loss, 5, 5], 20, edit=edit, **recalls)
    tables.write_rows(tmp_path / FILE, [PROFILE, RIDGE], schemas.FLOOR)
    (answer,) = find_answers(*group(read_all(tmp_path)[0]))
    assert answer.beside_floors.name == name
    check(invoke("report", tmp_path), 0)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


@pytest.mark.parametrize("lacks", ["arm", "floor"])
def test_without_an_error_nothing_is_known(tmp_path, lacks):
    """Above the floor by 0.03 or below it by 0.07: a missing error is no error of 0."""
    errors = {"test_recall_at_50_error": None} if lacks == "floor" else {}
    of_arm = {"errors": None} if lacks == "arm" else {}
    floors = [PROFILE | errors, RIDGE | {"test_recall_at_50": 0.612} | errors]
    answer = beside(answer_of(tmp_path, [0, 0.4, 0.542], **of_arm), floors)
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
    (answer,) = find_answers(*group(read_all(tmp_path)[0]))
    unchosen, chosen = (beside(answer, [profile, ridge], best) for best in (None, "strat-ns"))
    assert [floor.row["floor"] for floor in chosen.floors] == ["ridge", "profile"]
    assert unchosen.beside_floors.name == "cnn sg ns"
    assert " cnn sg ns is level with ridge (+0.010" in sentences.floors_sentence(unchosen)
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
    answer = beside(answer_of(tmp_path, [0, 0.6]), [PROFILE])
    (run,) = answer.best.runs.values()
    run.curve[0]["test_recall_at_50"] = 0.6
    assert standing(answer.best, answer.floors[0]).seconds == 0
    run.summary["status"] = "diverged"
    said = sentences.floors_sentence(beside(answer, [PROFILE], None))
    assert said.endswith("No arm has a recall to compare.")


@pytest.mark.parametrize(
    ("apart", "stands"),
    [
        (1.99, "level with profile (+0.022 ± 0.011), below ridge (-0.033 ± 0.011)"),
        (2.01, "above profile (+0.022 ± 0.011), below ridge (-0.033 ± 0.011)"),
    ],
)
def test_a_run_stands_by_the_errors_of_both(apart, stands, tmp_path):
    """It reports 0.512 and some errors of the difference, without a recall of each user; a floor's
    error is 0.005.
    """
    error, recall = math.hypot(0.006, 0.008), 0.512 + apart * math.hypot(0.006, 0.008, *ERRORS)
    assert quality_of([read(write_run(tmp_path, "ns", [9, 3], 10))]) is None
    run = read(write_run(tmp_path, "iid", [9, 3], 10, [0, recall], errors=(0.006, 0.008)))
    assert sentences.run_sentence(floors_of([PROFILE, RIDGE]), quality_of([run])) == (
        "Without training: ridge 0.567 (19 s), profile 0.512 (3.5 s)."
        f" This run's recall@50, {recall:.3f} ± {error:.3f}, is {stands}."
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
    assert TITLES.keys() == FLOORS.keys()
    for content in ("feature", "TF-IDF and feature"):
        (result,) = floors_of([PROFILE | {"content": f"{content}s"}])
        assert result.name == f"{content} profiles"
    # With at most 50 items to rank it is 1 of all: test links tell, as of floors without any.
    certain = {"validation_recall_at_50": 1.0, "validation_recall_at_50_chance": 1.0}
    for more in (certain, {}):
        floors = floors_of([PROFILE | more, RIDGE | more])
        assert [floor.row["floor"] for floor in floors] == ["ridge", "profile"]
