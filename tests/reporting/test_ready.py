"""Whether an encoder of texts beats an encoder of dense features alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from folders import answers_of, write_run
from invoked import check, invoke

from ncfbench.reporting.verify.verification import verify

RECALLS: dict[str, list[float]] = {
    "below": [0, 0.1, 0.2],
    "level": [0, 0.29, 0.3],
    "passes": [0, 0.2, 0.5],
}


def written(folder: Path, stands: str, **more: Any) -> dict[str, Any]:
    """The JSON of the CNN's answer; ready features reach 0.3 in 0.5 s of training, after 3."""
    ready: dict[str, Any] = {"encoder": "mlp", "loss": "log"} | more
    write_run(folder, "neg", [9, 4, 3], 5, [0, 0.2, 0.25], feature_seconds=3.0, **ready)
    write_run(folder, "ns", [9, 4, 3], 5, [0, 0.3, 0.28], feature_seconds=3.0, **ready)
    write_run(folder, "ns", [9, 3, 2.9], 20, RECALLS[stands], features="ignore")
    write_run(folder, "iid", [9, 4, 3], 200, [0, 0.05, 0.1], features="ignore")
    check(invoke("report", folder), 0)
    answers = answers_of(folder)
    (answer,) = (answer for answer in answers if answer["encoder"] == "cnn")
    assert all("ready_features" not in other for other in answers if other is not answer)
    return answer


@pytest.mark.parametrize("stands", RECALLS)
def test_the_answer_says_whether_texts_pay(tmp_path: Path, stands: str) -> None:
    answer = written(tmp_path, stands)
    reached = "on dense features (Log, N.S.) reaches 0.300 in 3.5 s"
    ends = {
        "below": "this arm stays below, so its encoder has not paid yet.",
        "level": "this arm is level with it.",
        "passes": "this arm passes it after 4 s.",
    }
    assert f"{reached}; {ends[stands]}" in answer["headline"]
    found = answer["ready_features"]
    assert (found["loss"], found["best_arm"]) == ("log", stands)
    assert found["recall_at_50"] == pytest.approx(0.3)
    assert found["seconds"] == pytest.approx(3.5)
    seconds = found["passed_after_seconds"]
    assert (seconds is None) if stands != "passes" else seconds == pytest.approx(4)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


@pytest.mark.parametrize("other", [{"fingerprint": "e" * 64}, {"key": "another machine"}])
def test_other_data_and_machines_are_not_set_beside(tmp_path: Path, other: dict[str, str]) -> None:
    answer = written(tmp_path, "below", **other)
    assert "ready_features" not in answer
    assert "dense features" not in answer["headline"]
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_arms_without_a_recall_are_not_set_beside(tmp_path: Path, status: str) -> None:
    """Nor those that diverged, whatever they had reached."""
    write_run(tmp_path, "ns", [9, 4, 3], 5, [0, 0.3, 0.28], encoder="mlp", loss="log")
    recalls = [0, 0.1, 0.2] if status == "diverged" else []
    for sampler in ("ns", "iid"):
        write_run(tmp_path, sampler, [9, 3, 2.9], 20, recalls, status=status)
    check(invoke("report", tmp_path), 0)
    assert all("ready_features" not in answer for answer in answers_of(tmp_path))
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_the_second_computation_finds_wrong_values(tmp_path: Path) -> None:
    written(tmp_path, "passes")
    answers = answers_of(tmp_path)
    assert verify(tmp_path, answers, []).mismatches == []
    (place,) = (at for at, answer in enumerate(answers) if "ready_features" in answer)
    for column, value in {
        "recall_at_50": 0.31,
        "seconds": 1.0,
        "best_arm": "level",
        "passed_after_seconds": 2.0,
    }.items():
        wrong = copy.deepcopy(answers)
        wrong[place]["ready_features"][column] = value
        (mismatch,) = verify(tmp_path, wrong, []).mismatches
        assert mismatch.column == column
    wrong = copy.deepcopy(answers)
    del wrong[place]["ready_features"]
    (mismatch,) = verify(tmp_path, wrong, []).mismatches
    assert mismatch.note == "it lacks the arm of dense features"
