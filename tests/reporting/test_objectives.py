"""Arms of different objectives: compared by recall and time, never by probe."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import write_run

from ncfbench.reporting.answers import find_answers
from ncfbench.reporting.frames import group
from ncfbench.reporting.objectives import compare_objectives, objective_tables
from ncfbench.reporting.rows import speedup_rows
from ncfbench.runs.folder import read_all


def test_another_objective_is_another_answer(tmp_path: Path) -> None:
    """Its probes are out of the race; its recall stands in one table with the others'."""
    write_run(tmp_path, "iid", [9, 5, 3], 40, [0, 0.1, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3])
    write_run(tmp_path, "ns", [9, 1, 1], 20, [0, 0.22, 0.4], hardest=16)
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.1, 0.25], loss="softmax")
    comparisons = group(read_all(tmp_path)[0])
    answers = find_answers(comparisons)
    found = {(each.config.loss, each.settings): len(each.arms) for each in answers}
    assert found == {("sg", ""): 2, ("sg", "hardest=16"): 1, ("softmax", ""): 1}
    hard = next(each for each in answers if each.settings)
    assert hard.target is None
    (arms,) = compare_objectives(answers)
    # 0.4 is the best recall of all: each is timed to a half and to nine tenths of it.
    assert arms[0].levels == pytest.approx([0.2, 0.36])
    racers = {
        (each.arm.name, each.answer.config.loss, each.answer.settings): (
            *each.to_levels,
            each.peak.recall,
            each.peak.seconds,
        )
        for each in arms
    }
    # The one that reaches both levels first, then the others by their time to the lower one.
    assert list(racers.items()) == [
        (("N.S.", "sg", "hardest=16"), (2.0, 4.0, pytest.approx(0.4), 4.0)),
        (("N.S.", "sg", ""), (1.0, None, pytest.approx(0.3), 2.0)),
        (("N.S.", "softmax", ""), (2.0, None, pytest.approx(0.25), 2.0)),
        (("IID", "sg", ""), (8.0, None, pytest.approx(0.2), 8.0)),
    ]
    # No command asks for a baseline with another's objective.
    rows = [
        row for each in comparisons for row in speedup_rows(each, allow_mixed=False, locations={})
    ]
    assert not [row for row in rows if row["settings"] and row.get("command")]
    (table,) = objective_tables(answers)
    assert "hardest=16" in str(table.rows)
    assert [row[3].text for row in table.rows] == ["4", "never", "never", "never"]


def test_one_objective_has_no_such_table(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 40, [0, 0.1, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3])
    assert objective_tables(find_answers(group(read_all(tmp_path)[0]))) == []


def test_seeds_are_averaged_at_common_evaluations(tmp_path: Path) -> None:
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3], seed=0)
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.4, 0.1], seed=1)
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.1, 0.25], loss="softmax", seed=0)
    answers = find_answers(group(read_all(tmp_path)[0]))
    (arms,) = compare_objectives(answers)
    own = next(each for each in arms if each.answer.config.loss == "sg")
    assert (own.peak.recall, own.peak.seconds) == (pytest.approx(0.3), 1.0)
    assert sorted(own.peak.recalls) == [0.2, 0.4]
    (table,) = objective_tables(answers)
    assert "0.300 (0.200 to 0.400)" in str(table.rows)
    assert any(cell.text == "0.250" for row in table.rows for cell in row)


def test_diverged_arms_stay_out(tmp_path: Path) -> None:
    """Also where no baseline gives the arms a standing."""
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3])
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.1, 0.25], loss="softmax")
    write_run(tmp_path, "strat-ns", [9, 1, 1], 10, [0, 0.9], loss="softmax", status="diverged")
    (arms,) = compare_objectives(find_answers(group(read_all(tmp_path)[0])))
    assert sorted(each.arm.name for each in arms) == ["N.S.", "N.S."]
    assert arms[0].levels == pytest.approx([0.15, 0.27])


def test_times_of_two_machines_do_not_stand_side_by_side(tmp_path: Path) -> None:
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3])
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.1, 0.25], loss="softmax", key="another")
    answers = find_answers(group(read_all(tmp_path)[0]))
    assert compare_objectives(answers) == []
    (arms,) = compare_objectives(answers, allow_mixed=True)
    assert len(arms) == 2
