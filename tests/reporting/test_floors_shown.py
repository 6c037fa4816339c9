"""Floors in a report: below the arms, in figures, in what is deployed, and in copies."""

import json
from itertools import pairwise
from types import SimpleNamespace

import pytest
from beside_floors import BOTH_HAVE, ERRORS, OF_BOTH, PROFILE, RIDGE, answer_of
from support.cli import check, invoke
from support.records import floor_row, write_run

from ncfbench.data import prepare
from ncfbench.errors import DataError
from ncfbench.floors.floor import floor as fit_floors
from ncfbench.floors.kept import FILE
from ncfbench.reporting.figures import curves
from ncfbench.reporting.floors import find_floors
from ncfbench.reporting.results import collect
from ncfbench.reporting.views import sentences
from ncfbench.reporting.views.answers import answer_tables, as_rows
from ncfbench.runs.folder import read_all
from ncfbench.storage import schemas, tables


@pytest.fixture
def folder(tmp_path):
    """Runs with floors beside them, and no data."""
    answer_of(tmp_path / "runs", [0, 0.4, 0.53], [0, 0.3, 0.35], [0, 0.1, 0.2])
    tables.write_rows(tmp_path / "runs" / FILE, [PROFILE, RIDGE], schemas.FLOOR)
    return tmp_path / "runs"


def test_floors_stand_below_the_arms(folder):
    results = collect(folder, folder)
    table = answer_tables(results.answers, {})[0]
    assert table.lead.startswith("Training is not worth it: the trained arm has -0.037")
    assert table.lead.endswith(
        f"Without training: {BOTH_HAVE}. The recommended arm is above profile (+0.018 {OF_BOTH},"
        f" after 4 s), below ridge (-0.037 {OF_BOTH})."
    )
    shown = [[cell.text for cell in row] for row in table.rows]
    assert shown[-2:] == [
        ["no training: ridge", "19", "-", "0.567", "0.567 ± 0.005", "-"],
        ["no training: profile", "3.5", "-", "0.512", "0.512 ± 0.005", "-"],
    ]
    (row,) = as_rows(results.answers, {})
    assert [floor["floor"] for floor in row["floors"]] == ["ridge", "profile"]
    seconds = [[floor[name] for name in ("seconds", "seconds_to_level")] for floor in row["floors"]]
    assert seconds == [[19.0, 19.0], [3.5, 3.5]], "both are above the level, 0.95 of 0.53"
    assert row["deploy"] is None
    assert row["headline"].startswith("Training is not worth it: ")
    for kind, name in (("latex", "answer"), ("markdown", "answer"), ("csv", "answers")):
        found = invoke("report", folder, "--format", kind, "--table", name).stdout
        assert "ridge" in found


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


def test_figures_show_floors_as_dotted_lines(folder):
    """Whole labels to the right of the axes, none on another, whatever the recalls."""
    near = [floor_row("ease", 0.565, 1e-4), floor_row("ials", 0.564, 60.0)]
    tables.write_rows(folder / FILE, [PROFILE, RIDGE, *near], schemas.FLOOR)
    (answer,) = collect(folder, folder).answers
    figure = curves.draw_answer(answer)
    figure.draw_without_rendering()
    axes = figure.axes[1]
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert {line.get_ydata()[0] for line in dotted} == {0.567, 0.565, 0.564, 0.512}
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
    check(printed, 0, "no training: profile")
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
    (answer,) = collect(tmp_path, tmp_path).answer_rows
    found = answer["deploy"]
    assert (found and found["what"]) == what
    if what == "trained":
        assert found["command"].startswith(f"ncfbench export {folder} vectors --top 50  # once")
    if what == "floor":
        assert found["command"] == "ncfbench export citeulike vectors --floor ridge --top 50"


def test_the_run_that_is_deployed_is_of_a_seed_that_decides(tmp_path):
    """Seed 1 of it ranks validation links better, and the figures beside it are not its own."""
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.3], validation=[0, 0.3])
    more = {"loss": "softmax", "validation": [0, 0.4]}
    decides = write_run(tmp_path, "ns", [9, 1], 10, [0, 0.4], **more)
    more["validation"] = [0, 0.9]
    write_run(tmp_path, "ns", [9, 1], 10, [0, 0.9], seed=1, **more)
    (row,) = as_rows(collect(tmp_path, tmp_path).answers, {})
    assert decides.name in row["deploy"]["command"]
    assert row["deploy"]["recall"] == 0.4


def test_few_of_many_ties_are_named():
    ties = [SimpleNamespace(name=name) for name in "abcde"]
    assert sentences.tied_sentence(ties) == "Tied with the trained arm: a, b, c, 2 more."
    assert sentences.tied_sentence(ties[:3]) == "Tied with the trained arm: a, b, c."
    assert sentences.tied_sentence([]) == ""
