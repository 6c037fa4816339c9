"""Seconds that derived item features took: added where they are read, and told."""

import pytest
from support.records import floor_row, write_run

from ncfbench.floors.kept import FILE
from ncfbench.reporting.answers import find_answers
from ncfbench.reporting.figures import curves
from ncfbench.reporting.frames import arms_table, group
from ncfbench.reporting.results import collect
from ncfbench.reporting.views import answers as views
from ncfbench.reporting.views import sentences
from ncfbench.reporting.views.run import run_table
from ncfbench.runs.folder import read, read_all
from ncfbench.storage import schemas, tables

WAITED = "Times count the item features: 3.5 s."
HISTORY = {"encoder": "mf", "user_tower": "history"}


def answer_of(folder, **more):
    """The best arm is at its recalls after 2 and 4 s, the other one after 20 and 40."""
    more |= {"feature_seconds": 3.5, "errors": (0.003, 0.004)}
    write_run(folder, "strat-ns", [9, 3, 2.9], 20, [0, 0.4, 0.53], **more)
    write_run(folder, "iid", [9, 4, 3], 200, [0, 0.3, 0.4], **more)
    tables.write_rows(folder / FILE, [floor_row("profile", 0.512, 3.5)], schemas.FLOOR)
    (answer,) = find_answers(*group(read_all(folder)[0]))
    return answer


def test_times_to_a_recall_count_them_and_ratios_do_not(tmp_path):
    answer = answer_of(tmp_path)
    best = answer.best
    # 0.95 of 0.53 is 0.5035: linear between 0.4 after 2 s and 0.53 after 4 s.
    waits = 3.5 + 2 + 2 * (0.95 * 0.53 - 0.4) / 0.13
    assert best.total_seconds == pytest.approx(waits)
    assert [seconds for seconds, _ in best.means("test_recall_at_50")] == pytest.approx([5.5, 7.5])
    table = views.answer_tables(collect(tmp_path, tmp_path).answers, {})[0]
    assert [row[1].text for row in table.rows] == [f"{waits:.3g}", "never", "3.5"]
    assert [row[2].text for row in table.rows] == ["4", "40", "-"]
    assert "above profile (+0.018 ± 0.007, after 7.5 s)." in table.lead
    assert table.lead.endswith(WAITED)
    assert set(
        arms_table(run for arm in answer.arms for run in arm.runs.values())[
            "feature_seconds"
        ].to_pylist()
    ) == {3.5}


def test_the_table_of_a_run_names_them(tmp_path):
    run = read(write_run(tmp_path, "ns", [9, 3], 20, feature_seconds=3.5))
    rows = [
        [cell.text for cell in row]
        for row in run_table(
            run.summary | {"train_seconds": 2.0}, run.curve, run.feature_seconds
        ).rows
    ]
    assert ["item features", "3.5 s before training"] in rows


def test_runs_that_do_not_read_features_do_not_wait_for_them(tmp_path):
    for name, more, seconds in (
        ("added", {}, 3.5),
        ("ignored", {"features": "ignore"}, 0.0),
        ("read", {"encoder": "mlp", "features": "ignore"}, 3.5),
        ("no content", {"encoder": "mf"}, 0.0),
        ("histories", HISTORY | {"history_of": "content"}, 3.5),
        ("histories of both", HISTORY | {"history_of": "both"}, 3.5),
        ("histories of ids", HISTORY | {"history_of": "ids"}, 0.0),
    ):
        folder = write_run(tmp_path / name, "ns", [9, 3], 20, feature_seconds=3.5, **more)
        record = read(folder)
        assert record.feature_seconds == seconds, name
    answer = answer_of(tmp_path / "runs", features="ignore")
    assert answer.feature_seconds == 0.0
    assert "item features" not in sentences.headline(answer)


def test_the_figure_begins_after_them(tmp_path):
    drawing = curves.draw_answer(answer_of(tmp_path))
    axis = drawing.figure.axes[1]
    assert axis.get_xlabel().startswith("features and training, s")
    arms = [line for line in axis.lines if not line.get_label().startswith("_")]
    assert min(line.get_xdata()[0] for line in arms) == pytest.approx(5.5)
