"""Verification of answers: every value is computed again, and none of them is wrong."""

import pytest
from folders import answers_of, change, write_folder, write_run
from invoked import invoke
from test_profiles import profile

from ncfbench.reporting.verify import verification
from ncfbench.storage import schemas, tables


@pytest.fixture
def answered(tmp_path):
    """Runs of one machine, which have an answer with all arms."""
    folder = write_folder(tmp_path / "answered")
    assert invoke("report", folder).exit_code == 0
    return folder


ANSWERED = {
    "item_slots": 1.001,
    "full_iteration_seconds": 1.001,
    "iterations_to_target": 1.001,
    "seconds_to_target": 1.001,
    "times_sooner": 1.001,
    "times_sooner_lower": 1.001,
    "times_sooner_upper": 1.001,
    "seeds": 2,
    "sampler": 2,
    "status": 2,
}


def test_every_value_of_an_answer_is_checked(answered):
    """Numbers of an arm, its recall, its bound, the target, the best; and no other."""
    (answer,) = answers_of(answered)
    arms = {arm["sampler"]: arm for arm in answer["arms"]}
    for column, factor in ANSWERED.items():
        arms["ns"][column] *= factor
    arms["ns"]["quality"]["values"]["recall_at_50"] *= 1.001
    arms["strat"]["times_sooner_at_most"] *= 1.01
    answer["target"] += 0.001
    answer["best"] = "iid"
    found = verification.verify(answered, {"answers": [answer]}).mismatches
    assert {one.table for one in found} == {"answer"}
    name = "citeulike/cnn/sg"
    assert sorted((one.cell, one.column) for one in found) == sorted(
        [
            *((f"{name}/ns", column) for column in (*ANSWERED, "recall_at_50")),
            (f"{name}/strat", "times_sooner_at_most"),
            *((name, column) for column in ("target", "best")),
        ]
    )


def test_arms_of_an_answer_have_their_runs(answered):
    (answer,) = answers_of(answered)
    first, second, third = answer["arms"][:3]
    first["runs"] = first["runs"][:-1]
    second["arm"], third["arm"] = third["arm"], second["arm"]
    notes = [one.note for one in verification.verify(answered, {"answers": [answer]}).mismatches]
    assert sum("no arm has just" in note for note in notes) == 2
    assert sum("its name lacks" in note for note in notes) == 2
    gone = verification.verify(answered, {"answers": []}).mismatches
    assert {one.note for one in gone} == {"no answer has this run"}


@pytest.mark.parametrize("key", ["one", "other"])
def test_answers_with_a_profile_s_times_verify(tmp_path, key):
    """Runs of two machines have the profile's times; those of one that took turns their own."""
    turns = {"interleaved": ["a"]} if key == "one" else {}
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 5, 3], 400, seed=seed, **turns)
        write_run(tmp_path, "ns", [9, 4 - seed, 2], 4000, seed=seed, key=key, **turns)
        write_run(tmp_path, "strat", [9, 4, 1], 1, seed=seed, **turns)
    rows = [row | {"rounds": 7} for row in profile(("iid", 40), ("ns", 10))]
    tables.write_rows(tmp_path / "costmodel.parquet", rows, schemas.COSTMODEL)
    assert invoke("report", tmp_path).exit_code == 0
    (answer,) = answers_of(tmp_path)
    assert answer["profile_rounds"] == (None if key == "one" else 7)
    assert verification.verify(tmp_path, {"answers": [answer]}).mismatches == []
    answer["arms"][0]["times_sooner_upper"] *= 1.001
    (wrong,) = verification.verify(tmp_path, {"answers": [answer]}).mismatches
    assert wrong.column == "times_sooner_upper"


def test_a_changed_summary_changes_the_answer(answered):
    """The answer's times are those of the summaries, the second computation's of raw samples."""

    def faster(rows):
        rows[0]["full_iteration_seconds"] /= 2

    run = next(path for path in answered.iterdir() if "-sg-ns-seed0" in path.name)
    change(run, "summary", faster)
    result = invoke("report", answered, "--verify")
    assert result.exit_code == 6
    assert "citeulike/cnn/sg/ns" in result.stdout
    assert "times_sooner_lower" in result.stdout
