"""Verification of the board: a second computation finds each changed number, and no other."""

import copy
import shutil
from typing import Any

import pytest
from folders import write_run
from invoked import check, invoke
from test_board import write_data_set, write_two

from ncfbench.reporting.results import collect
from ncfbench.reporting.verify import verification


def boarded(folder):
    assert invoke("report", folder, "--data-dir", folder).exit_code == 0
    return collect(folder, folder).answered["board"]


def wrong(folder, board):
    """Return the cells and columns of the board that do not match."""
    results = collect(folder, folder)
    answered = {"answers": results.answered["answers"], "board": board}
    found = verification.verify(folder, answered, results.floor_rows)
    return {(one.cell, one.column) for one in found.mismatches if one.table == "board"}


def test_every_value_of_a_board_is_checked(tmp_path):
    write_two(tmp_path)
    board = boarded(tmp_path)
    assert wrong(tmp_path, board) == set()
    assert len(board["standings"]) == 4
    for at, row in enumerate(board["standings"]):
        other = copy.deepcopy(board)
        changed = other["standings"][at]
        for on in changed["on"]:
            on["seconds"] = 1.001 * (on["seconds"] or 1.0)
            on["is_tied"] = not on["is_tied"]
        cells = [f"{row['contestant']}/{on['dataset']}" for on in row["on"]]
        assert wrong(tmp_path, other) == {
            *((own, column) for own in cells for column in ("seconds", "is_tied")),
        }


def test_who_is_on_a_board_is_checked(tmp_path):
    """A contestant that is not there, a floor that is not, one without its runs on a data set."""
    write_two(tmp_path)
    board = boarded(tmp_path)
    for row in board["standings"]:
        others = [other for other in board["standings"] if other is not row]
        assert wrong(tmp_path, {**board, "standings": others}), row["contestant"]
    for edit in (lambda on: on.pop(), lambda on: on[0]["runs"].pop()):
        other = copy.deepcopy(board)
        (ns,) = (row for row in other["standings"] if row["contestant"] == "softmax ns")
        edit(ns["on"])
        assert wrong(tmp_path, other)
    assert wrong(tmp_path, None) == {("", "")}
    assert wrong(tmp_path, board | {"split": "validation"}) == {("", "split")}
    assert wrong(tmp_path, board | {"left_out": []}) == {("", "left_out")}


def test_a_board_that_must_not_be_there_is_noticed(tmp_path):
    write_two(tmp_path)
    board = boarded(tmp_path)
    for path in tmp_path.glob("b-*"):
        shutil.rmtree(path)
    assert invoke("report", tmp_path).exit_code == 0
    assert wrong(tmp_path, None) == set()
    assert wrong(tmp_path, board) == {("", "")}


@pytest.mark.parametrize("diverges", ["some", "all"])
def test_ties_divergence_and_the_best_of_several_are_computed_again(tmp_path, diverges):
    """Of ns the sooner of two that differ in patience alone; seeds of mixed-ns diverge on b."""
    for digit, ms in (("a", 11), ("b", 30)):
        for seed in range(3):
            recalls = [0, 0.2, 0.4 + seed / 1000, 0.4]
            more: dict[str, Any] = {"loss": "softmax", "dataset": digit, "seed": seed}
            more["fingerprint"] = digit * 64
            fails = "diverged" if digit == "b" and seed == 2 else "finished"
            status = fails if diverges == "all" else "finished"
            write_run(tmp_path, "ns", [9, 5, 4, 3], 10, recalls, status=status, **more)
            later = more | {"patience": 2}
            write_run(tmp_path, "ns", [9, 5, 4, 3], 8, recalls, status=status, **later)
            write_run(tmp_path, "neg", [9, 5, 4, 3], ms, recalls, status=status, **more)
            write_run(tmp_path, "mixed-ns", [9, 5, 4], 10, recalls[:3], status=fails, **more)
    board = boarded(tmp_path)
    on = {row["contestant"]: row["on"] for row in board["standings"]}
    assert [each["is_tied"] for each in on["neg"]] == [True, False]
    assert (on["mixed-ns"][1]["seconds"], board["seeds"]) == (None, 3)
    assert (on["ns"][1]["seconds"] is None) == (diverges == "all")
    assert wrong(tmp_path, board) == set()


def test_contestants_that_all_diverged_have_no_board(tmp_path):
    for digit in "ab":
        for sampler in ("ns", "neg"):
            more = {"loss": "softmax", "dataset": digit, "fingerprint": digit * 64}
            write_run(tmp_path, sampler, [9, 5], 10, [0, 0.4], status="diverged", **more)
    assert invoke("report", tmp_path).exit_code == 0
    assert collect(tmp_path, tmp_path).board is None
    assert wrong(tmp_path, None) == set()


def test_the_command_verifies_the_board(tmp_path):
    write_two(tmp_path)
    write_data_set(tmp_path, "c", "c", {"iid": [0.2, 0.2, 0.2], "ns": [0.1, 0.3, 0.2]})
    assert invoke("report", tmp_path).exit_code == 0
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")
