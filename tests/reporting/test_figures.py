"""Figures: which runs and points they draw, and bounds where there are no points."""

from dataclasses import replace
from itertools import pairwise

import pytest
from support.records import floor_row, write_run

from ncfbench.floors.kept import FILE
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.figures import curves, drawing, drawn
from ncfbench.reporting.frames import by_variant, group
from ncfbench.reporting.results import collect
from ncfbench.reporting.rows import compare
from ncfbench.reporting.views.results import SIMULATED_NOTE, speedup_tables
from ncfbench.runs.folder import read, read_all
from ncfbench.storage import schemas, tables

BEGINS = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}


def test_bounds_are_thin_lines(tmp_path):
    """ns is past the first three levels of recall when it is first evaluated, after 2 s, and iid
    never comes to the last two, in 80 s; what both came to has a curve.
    """
    write_run(tmp_path, "iid", [9, 8, 7, 6, 5], 200, [0, 0.05, 0.1, 0.15, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 20, [0, 0.35, 0.4])
    (comparison,) = group(read_all(tmp_path)[0])
    figure = curves.draw_targets(comparison).figure
    thin_lines = [
        (line.get_xdata(), line.get_ydata())
        for line in figure.axes[1].lines
        if line.get_linewidth() == curves.BOUND["linewidth"] and line.get_marker() == "None"
    ]
    (bound,) = [line for line in thin_lines if line[0][0] > 0]
    assert bound[0] == pytest.approx([0.1, 0.15, 0.2, 0.35, 0.4])
    assert bound[1] == pytest.approx([20, 30, 40, 40, 20])
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["ns"]
    assert figure.get_supxlabel().startswith("b=512, k=10, seed 0. Bands: 95 %")


def test_of_many_arms_the_first_are_named(tmp_path, monkeypatch):
    """As many as a race can end with; the best is among them. All begin after the features."""
    most, more = curves.MOST_NAMED, {"word_dimension": 21, "dimension": 123, "patience": 17}
    for place in range(most + 1):
        more |= {"learning_rate": (place + 1) / 1000, "feature_seconds": 3.5}
        write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3 + place / 100], **more)
    (answer,) = collect(tmp_path, tmp_path).answers
    monkeypatch.setattr(Answer, "main", property(lambda answer: answer.arms))
    figure = curves.draw_answer(answer).figure
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [arm.name for arm in answer.arms[:most]]
    axis = figure.axes[1]
    assert axis.get_xlabel().startswith("features and training, s")
    arms = [line for line in axis.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] > 1]
    assert [line.get_xdata()[0] for line in arms] == pytest.approx([4.5] * (most + 1))
    named = [line for line in arms if line.get_label() in labels]
    looks = {(each.get_color(), each.get_linestyle(), each.get_marker()) for each in named}
    assert len(looks) == most, "arms of one sampler are told apart"
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_floors_are_dotted_lines(tmp_path):
    """Whole labels to the right of the axes, none on another, whatever the recalls."""
    for sampler, recall in (("ns", 0.53), ("iid", 0.2)):
        write_run(tmp_path, sampler, [9, 5, 3], 20, [0, 0.2, recall])
    floors = [("ridge", 0.567, 19), ("ease", 0.565, 1e-4), ("ials", 0.564, 60)]
    rows = [floor_row(*floor) for floor in (*floors, ("profile", 0.512, 3.5))]
    tables.write_rows(tmp_path / FILE, rows, schemas.FLOOR)
    (answer,) = collect(tmp_path, tmp_path).answers
    figure = curves.draw_answer(answer)
    figure.draw_without_rendering()
    axes = figure.axes[1]
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert {line.get_ydata()[0] for line in dotted} == {0.567, 0.565, 0.564, 0.512}
    assert [text.get_text() for text in axes.texts] == [
        *("ridge 0.567 (19 s)", "ease 0.565 (0.0001 s)", "ials 0.564 (60 s)"),
        "profile 0.512 (3.5 s)",
    ]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert all(box.x0 >= axes.bbox.x1 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(boxes))


def test_no_figure_takes_the_name_of_another(tmp_path):
    """Two data sets of one name, whose fingerprints begin alike."""
    for digits in ("f" * 64, "f" * 6 + "e" * 58):
        for sampler in ("iid", "ns"):
            write_run(tmp_path, sampler, [9, 5, 3], 10, [0, 0.2, 0.3], fingerprint=digits)
    names = ["answer-citeulike-ffffff", "targets-citeulike-cnn-sg-ffffff"]
    expected = [names[0], f"{names[0]}-2", names[1], f"{names[1]}-2"]
    assert [*drawn(collect(tmp_path, tmp_path))] == expected


def test_curves_are_of_the_papers_s_and_k(tmp_path):
    for sizes in ({}, {"stratum_size": 8}, {"negatives": 1}, {"strata": "user"}):
        write_run(tmp_path, "strat", [9, 4], 20, **sizes)
    write_run(tmp_path, "ns", [9, 1], 20)
    (comparison,) = group(read_all(tmp_path)[0])
    shown = drawing.main_variants(by_variant(comparison), "cnn")
    assert [one.label("cnn") for one in shown] == ["strat", "ns"]
    sizes = [arm for arm in by_variant(comparison) if arm.stratum_size == 8]
    assert drawing.main_variants(sizes, "cnn") == sizes


@pytest.mark.parametrize("is_simulated", [False, True])
def test_times_of_simulated_devices_are_marked_and_not_drawn(tmp_path, is_simulated):
    mesh = {"mesh": {"simulated": True}} if is_simulated else {}
    written = [write_run(tmp_path, name, [9, 4, end], 20) for name, end in (("iid", 3), ("ns", 2))]
    runs = [replace(run, environment=run.environment | mesh) for run in map(read, written)]
    (comparison,) = group(runs)
    assert (curves.draw_targets(comparison) is None) == is_simulated
    (table,) = speedup_tables(compare([comparison]))
    assert (SIMULATED_NOTE in table.notes) == is_simulated


@pytest.mark.long_cases("pdf|png")
@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_a_figure_drawn_again_has_the_same_bytes(tmp_path, kind):
    for sampler in ("iid", "ns"):
        write_run(tmp_path / "r", sampler, [9, 5, 3], 20)
    (comparison,) = group(read_all(tmp_path / "r")[0])
    paths = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for path in paths:
        drawing.save(curves.draw_targets(comparison), [path])
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes().startswith(BEGINS[kind])
