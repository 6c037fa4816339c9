"""Floors beside the arms: rows, the sentence, figures, and what travels with the runs."""

import json
import math
import statistics
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from folders import change, floor_row, write_run
from hypothesis import assume, given
from hypothesis import strategies as st
from invoked import check, invoke

from ncfbench.data import prepare
from ncfbench.errors import DataError
from ncfbench.floors.kept import FILE
from ncfbench.floors.models import FLOORS
from ncfbench.floors.pipeline import floor as fit_floors
from ncfbench.reporting.answers import find_answers
from ncfbench.reporting.beside import find_floors
from ncfbench.reporting.figures import curves
from ncfbench.reporting.floors import (
    TITLES,
    FloorResult,
    arm_beside,
    compare,
    floors_of,
    standing,
)
from ncfbench.reporting.frames import group
from ncfbench.reporting.quality import Quality, quality_of
from ncfbench.reporting.results import collect
from ncfbench.reporting.views.answers import answer_tables, as_rows
from ncfbench.reporting.views.sentences import floors_sentences, run_sentence
from ncfbench.runs.folder import read, read_all
from ncfbench.storage import schemas, tables

PROFILE, RIDGE = floor_row("profile", 0.512, 3.5), floor_row("ridge", 0.567, 19.0)
REACHES = "TF-IDF profiles reach 0.512 in 3.5 s without training"
RIDGE_REACHES = "Ridge regression reaches 0.567 in 19 s without training"
ERRORS = (0.003, 0.004)
OF_BOTH = "± 0.007, one seed"
"""The errors of an arm and of a floor, 0.005 each, in quadrature."""


def floors_sentence(floors, arms, best, **more):
    return " ".join(filter(None, floors_sentences(floors, arms, best, **more)))


def against(recall, who="this arm", yet=""):
    return (
        f"Training is not worth it{yet}, by these runs: ridge regression reaches 0.567 in 19 s"
        f" without it, {who} {recall:.3f} ({recall - 0.567:+.3f} {OF_BOTH})."
    )


def test_every_floor_has_a_title():
    assert TITLES.keys() == FLOORS.keys()


def answer_of(folder, *recalls, **more):
    """strat-ns has the first recalls, after 2, 4, ... s; others are a tenth as fast."""
    for sampler, own, ms in zip(("strat-ns", "ns", "iid"), recalls, (20, 200, 200), strict=False):
        losses = [9, *(3.0 if place else 3.1 for place in range(max(len(own) - 1, 2)))]
        write_run(folder, sampler, losses, ms, own, **{"errors": ERRORS} | more)
    (answer,) = find_answers(group(read_all(folder)[0]))
    return answer


@pytest.mark.parametrize(
    ("floors", "recalls", "sentence"),
    [
        ([], [[0, 0.6]], ""),
        ([PROFILE, RIDGE], [[0, 0.4, 0.5]], against(0.5)),
        (
            [PROFILE, RIDGE],
            [[0, 0.4, 0.53]],
            f"{against(0.53)} {REACHES}; this arm passes them after 4 s (+0.018 {OF_BOTH}).",
        ),
        (
            [PROFILE, RIDGE],
            [[0, 0.4, 0.53, 0.6]],
            f"{RIDGE_REACHES}; this arm passes it after 6 s (+0.033 {OF_BOTH}).",
        ),
        (
            [PROFILE],
            [[0, 0.53, 0.6]],
            f"{REACHES}; this arm is above them at its first evaluation, after 2 s"
            f" (+0.088 {OF_BOTH}).",
        ),
        (
            [PROFILE],
            [[0, 0.52, 0.6]],
            f"{REACHES}; this arm passes them after 4 s (+0.088 {OF_BOTH}).",
        ),
        (
            [PROFILE],
            [[0, 0.4, 0.526]],
            "Training is not clearly worth it, by these runs: TF-IDF profiles reach 0.512 in 3.5 s"
            f" without it, this arm 0.526 (+0.014 {OF_BOTH}).",
        ),
        (
            [RIDGE],
            [[0, 0.4, 0.5], [0, 0.4, 0.56]],
            "Training is not clearly worth it, by these runs: ridge regression reaches 0.567 in"
            f" 19 s without it, cnn sg ns 0.560 (-0.007 {OF_BOTH}).",
        ),
        (
            [PROFILE],
            [[0, 0.4, 0.508], [0, 0.4, 0.3, 0.54]],
            f"{REACHES}; this arm is level with them (-0.004 {OF_BOTH}), and cnn sg ns, which has"
            f" the highest test recall, passes them after 60 s (+0.028 {OF_BOTH}).",
        ),
        (
            [PROFILE, RIDGE],
            [[0, 0.4, 0.53], [0, 0.4, 0.6]],
            f"{RIDGE_REACHES}; this arm is below it (-0.037 {OF_BOTH}), and cnn sg ns, which has"
            f" the highest test recall, passes it after 40 s (+0.033 {OF_BOTH})."
            f" {REACHES}; this arm passes them after 4 s (+0.018 {OF_BOTH}).",
        ),
    ],
    ids=[
        "no floors",
        "none passed",
        "some passed",
        "all passed",
        "passed at first",
        "above at first by less than two errors",
        "level",
        "another is level",
        "level, another passes",
        "another passes the highest",
    ],
)
def test_the_sentence_says_which_floor_is_passed(floors, recalls, sentence, tmp_path):
    answer = answer_of(tmp_path, *recalls)
    best = next(arm for arm in answer.arms if arm.config.sampler == "strat-ns")
    assert floors_sentence(floors_of(floors), answer.arms, best) == sentence


@pytest.mark.parametrize(
    ("recall", "ndcgs", "said"),
    [
        (0.6, (0.3, 0.35), "By NDCG@50 ridge regression is ahead, with 0.350 to 0.300."),
        (0.4, (0.36, 0.35), "By NDCG@50 this arm is ahead, with 0.360 to 0.350."),
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
    arm = replace(arm)  # which has not looked at the curve
    for row in run.curve:
        row["test_ndcg_at_50"] = 0.99 if row["test_recall_at_50"] == 0.3 else ndcgs[0]
    floors = floors_of([RIDGE | {"test_ndcg_at_50": ndcgs[1]}])
    found = floors_sentence(floors, [arm], arm)
    assert found.endswith(said)
    assert ("NDCG" in found) == bool(said)


def test_a_loss_that_falls_may_pass_yet(tmp_path):
    answer = answer_of(tmp_path, [0, 0.4])
    found = floors_sentence(floors_of([RIDGE]), answer.arms, answer.arms[0], is_falling=True)
    assert found == against(0.4, yet=" yet")


def test_without_a_best_arm_the_highest_is_named(tmp_path):
    answer = answer_of(tmp_path, [0, 0.4, 0.5], [0, 0.4, 0.53])
    found = floors_sentence(floors_of([PROFILE]), answer.arms, None)
    assert found == f"{REACHES}; cnn sg ns passes them after 40 s (+0.018 {OF_BOTH})."


def check_arm_beside_floors(folder, name):
    """Both computations set the arm of this name beside the floors."""
    tables.write_rows(folder / FILE, [PROFILE, RIDGE], schemas.FLOOR)
    (answer,) = find_answers(group(read_all(folder)[0]))
    assert arm_beside(answer.arms, answer.best).name == name
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
    floors = floors_of([PROFILE | errors, RIDGE | {"test_recall_at_50": 0.612} | errors])
    answer = answer_of(tmp_path, [0, 0.4, 0.542], **of_arm)
    (arm,) = answer.arms
    assert [standing(arm, floor).word for floor in floors] == ["unknown"] * 2
    assert floors_sentence(floors, answer.arms, arm) == (
        "Ridge regression reaches 0.612 in 19 s without training, this arm 0.542: an error is"
        " missing, so nothing is known of the difference."
    )
    assert "beside ridge (its error is not known)" in run_sentence(floors, arm.reported)


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
    (answer,) = find_answers(group(read_all(tmp_path)[0]))
    best = next(arm for arm in answer.arms if arm.config.sampler == "strat-ns")
    assert arm_beside(answer.arms, None).name == "cnn sg ns"
    assert best.reported.recall == 0.45
    assert floors_sentence(floors, answer.arms, best).startswith(
        "Training is not clearly worth it, by these runs: ridge regression reaches 0.500 in 19 s"
        f" without it, cnn sg ns 0.510 (+0.010 {OF_BOTH})."
    )
    clear = [replace(floor, row={**floor.row, "test_recall_at_50": 0.48}) for floor in floors]
    assert floors_sentence(clear, answer.arms, best).startswith(
        f"Ridge regression reaches 0.480 in 19 s without training; this arm is below it (-0.030"
        f" {OF_BOTH}), and cnn sg ns, which has the highest validation recall, passes it after 20 s"
        f" (+0.030 {OF_BOTH})."
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
    assert stands.has_seeds == (len(recalls) > 1)


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
    (floor,) = floors_of([PROFILE])
    assert floors_sentence([floor], [arm], arm).endswith(
        f"above them at its first evaluation, before training (+0.088 {OF_BOTH})."
    )
    run.summary["status"] = "diverged"
    assert floors_sentence([floor], [arm], None).endswith("no arm has a recall to compare.")


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


@pytest.fixture
def folder(tmp_path):
    """Runs with floors beside them, and no data."""
    answer_of(tmp_path / "runs", [0, 0.4, 0.53], [0, 0.3, 0.35], [0, 0.1, 0.2])
    tables.write_rows(tmp_path / "runs" / FILE, [PROFILE, RIDGE], schemas.FLOOR)
    return tmp_path / "runs"


def test_floors_stand_below_the_arms(folder):
    results = collect(folder, folder)
    table = answer_tables(results.answers, {})[0]
    passes = f"{REACHES}; this arm passes them after 4 s (+0.018 {OF_BOTH})."
    assert against(0.53, yet=" yet") in table.lead
    assert table.lead.endswith(passes)
    shown = [[cell.text for cell in row] for row in table.rows]
    assert shown[-2:] == [
        ["no training: ridge", "19", "-", "0.567", "0.567 ± 0.005", "-"],
        ["no training: profile", "3.5", "-", "0.512", "0.512 ± 0.005", "-"],
    ]
    (row,) = as_rows(results.answers, {})
    assert [floor["floor"] for floor in row["floors"]] == ["ridge", "profile"]
    assert row["floors"][1]["seconds"] == 3.5
    for kind in ("latex", "markdown", "csv"):
        found = invoke("report", folder, "--format", kind, "--table", "answer").stdout
        assert "no training: ridge" in found


@pytest.mark.parametrize("is_answered", [True, False])
def test_floors_of_another_machine_are_a_caveat(folder, is_answered):
    """Known where the runs' environments say on which one they were trained."""
    words = ["report", folder, *([] if is_answered else ["--only", "sampler=ns"])]
    sentence = "The floors were fitted on another machine than the runs, or in another environment"

    def codes(host):
        for path in folder.glob("*/environment.json"):
            found = tables.read_json(path) | ({} if host is None else {"host_key": host})
            tables.write_json(path, found)
        printed = " ".join(invoke(*words).stdout.split())
        (answer,) = json.loads(invoke(*words, "--json").stdout)["answers"]
        is_said = {caveat["code"] for caveat in answer["caveats"]}
        assert (sentence in printed) == ("other_machine" in is_said)
        return is_said & {"other_machine"}

    assert codes(None) == codes("one") == set()
    assert codes("two") == {"other_machine"}
    check(invoke("report", folder), 0)
    check(invoke("report", folder, "--verify"), 0, "0 do not match")


def test_floors_travel_with_the_runs(folder, tmp_path):
    check(invoke("report", folder, "--export", tmp_path / "copy"), 0)
    kept = [tables.read_rows(path / FILE, schemas.FLOOR) for path in (folder, tmp_path / "copy")]
    assert kept[0] == kept[1] == [PROFILE, RIDGE]
    written = (folder / FILE).stat().st_mtime_ns
    check(invoke("report", folder), 0)
    assert (folder / FILE).stat().st_mtime_ns == written
    check(invoke("report", tmp_path / "copy", "--verify"), 0, "0 do not match")
    (folder / FILE).write_bytes(b"no table")
    found = collect(folder, folder)
    assert any(FILE in problem for problem in found.problems)
    assert found.unfitted == []


def test_figures_show_floors_from_their_seconds(folder):
    """Whole labels to the right of the axes, none on another, whatever the recalls."""
    near = [floor_row("ease", 0.565, 1e-4), floor_row("ials", 0.564, 60.0)]
    tables.write_rows(folder / FILE, [PROFILE, RIDGE, *near], schemas.FLOOR)
    (answer,) = collect(folder, folder).answers
    figure = curves.draw_answer(answer).figure
    figure.draw_without_rendering()
    axes = figure.axes[1]
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    starts = {line.get_ydata()[0]: line.get_xdata()[0] for line in dotted}
    assert {level: starts[level] for level in (0.567, 0.512)} == {0.567: 19.0, 0.512: 3.5}
    assert starts[0.565] == axes.get_xlim()[0] > 0.1
    labels = [text.get_text() for text in axes.texts]
    assert labels == [
        "ridge 0.567 (19 s)",
        "ease 0.565 (0.0001 s)",
        "ials 0.564 (60 s)",
        "profile 0.512 (3.5 s)",
    ]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert all(box.x0 >= axes.bbox.x1 for box in boxes)
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(boxes))


def test_floors_are_found_beside_the_data(tmp_path, tiny_options, tiny):
    """Fitted beside the data they are in the report; before, it says how to fit them."""
    prepare("synthetic", tiny_options, tmp_path, "tiny", say=lambda text: None)
    runs = tmp_path / "runs"
    answer_of(runs, [0, 0.4], [0, 0.3], dataset="tiny", fingerprint=tiny.fingerprint)
    words = ("report", runs, "--data-dir", tmp_path)
    command = f"without training: ncfbench floor tiny --data-dir {tmp_path}"
    check(invoke(*words), 0, command)
    assert json.loads(invoke(*words, "--json").stdout)["answers"][0]["floors"] == []
    fit_floors("tiny", data_dir=tmp_path, floors=["profile"], say=lambda text: None)
    printed = invoke(*words)
    check(printed, 0, "TF-IDF profiles")
    assert "ncfbench floor" not in printed.stdout
    assert "ncfbench floor" not in invoke("report", runs, "--data-dir", tmp_path / "no").stdout
    (tmp_path / "tiny" / FILE).write_bytes(b"no table")
    found, problems = find_floors(read_all(runs)[0], runs, tmp_path)
    assert [[floor.name for floor in own] for own in found.values()] == [["TF-IDF profiles"]]
    assert len(problems) == 1
    with pytest.raises(DataError):
        tables.read_rows(tmp_path / "tiny" / FILE, schemas.FLOOR)


@pytest.mark.parametrize(("validation", "what"), [(None, None), (0.2, "floor"), (0.6, "trained")])
def test_what_is_deployed_is_chosen_by_validation(tmp_path, validation, what):
    """Without validation links nothing is recommended, whatever the test links say."""
    of_run = {} if validation is None else {"validation": [0, validation, validation]}
    folder = write_run(tmp_path, "ns", [9, 5, 3], 20, [0, 0.4, 0.53], errors=ERRORS, **of_run)
    rows = [floor_row("ridge", 0.9, 1.0, validation_recall_at_50=0.3)]
    tables.write_rows(tmp_path / FILE, rows, schemas.FLOOR)
    (answer,) = collect(tmp_path, tmp_path).answered["answers"]
    found = answer["deploy"]
    assert (found and found["what"]) == what
    if what == "trained":
        assert found["command"].startswith(f"ncfbench export {folder} vectors --top 50  # once")
    if what == "floor":
        assert found["command"] == "ncfbench export citeulike vectors --floor ridge --top 50"
