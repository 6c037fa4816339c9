"""The board: ways to train beside each other on several data sets."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from folders import floor_row, write_run
from invoked import check, invoke

from ncfbench.reporting.board import find_board
from ncfbench.reporting.results import collect
from ncfbench.storage import schemas, tables
from ncfbench.sweeps.cells import expand, has_cell
from ncfbench.sweeps.files import read_sweep, write_sweep


def write_data_set(folder, name, digit, recalls):
    """Two seeds of each sampler, 1 s an epoch, the second seed as the first."""
    for seed in (0, 1):
        for sampler, values in recalls.items():
            more: dict[str, Any] = {"loss": "sg" if sampler == "iid" else "softmax"}
            more |= {"dataset": name, "fingerprint": digit * 64, "seed": seed}
            write_run(folder, sampler, [9, 5, 4, 3], 10, [0, *values], **more)


def write_two(folder):
    write_data_set(
        folder, "a", "a", {"iid": [0.1, 0.2, 0.3], "ns": [0.2, 0.4, 0.4], "neg": [0.2, 0.3, 0.39]}
    )
    write_data_set(folder, "b", "b", {"iid": [0.1, 0.1, 0.1], "ns": [0.2, 0.2, 0.2]})
    rows = [
        floor_row("ridge", 0.5, 0.25, dataset="b", data_fingerprint="b" * 64),
        floor_row("profile", 0.1, 0.1, dataset="a", data_fingerprint="a" * 64),
    ]
    tables.write_rows(folder / "floors.parquet", rows, schemas.FLOOR)


def test_contestants_are_compared_on_all_data_sets(tmp_path):
    """On a the best is 0.4, on b a floor has 0.5, which no arm reaches."""
    write_two(tmp_path)
    board = find_board(collect(tmp_path, tmp_path).answers)
    assert board.names == ["a", "b"]
    assert board.left_out == ["softmax neg"]
    assert (board.metric, board.split) == ("recall@50", "test")
    found, never = board.standings, math.inf
    # 0.388 of 0.4: between the first evaluation, 0.2 after 1 s, and the second.
    assert found["softmax ns"] == [pytest.approx(1.94), never]
    assert found["sg iid"] == [never, never]
    assert found["ridge"] == [None, 0.25]
    assert found["profile"] == [never, None]
    assert [*found] == ["ridge", "softmax ns", "sg iid", "profile"]
    (row,) = [collect(tmp_path, tmp_path).answered["board"]]
    assert row["standings"]["ridge"] == {"b": 0.25}


def test_one_data_set_or_unlike_ones_have_no_board(tmp_path):
    """Nor do data sets with fewer than two contestants in common."""
    write_data_set(tmp_path, "a", "a", {"iid": [0.1, 0.2, 0.3], "ns": [0.2, 0.4, 0.4]})
    assert collect(tmp_path, tmp_path).board is None
    write_data_set(tmp_path, "b", "b", {"neg": [0.1, 0.2, 0.3], "ns": [0.2, 0.4, 0.4]})
    results = collect(tmp_path, tmp_path)
    assert results.board is None
    assert not [table for table in results.tables if table.name.startswith("board")]
    write_data_set(tmp_path, "b", "b", {"iid": [0.1, 0.2, 0.3]})
    results = collect(tmp_path, tmp_path)
    assert results.board is not None
    one, other = results.answers
    assert find_board([one, replace(other, split="validation")]) is None


def test_what_diverged_never_comes_to_a_target(tmp_path):
    """On b one seed of ns did, and the other one would set the target there."""
    write_data_set(tmp_path, "a", "a", {"iid": [0.1, 0.2, 0.3], "ns": [0.2, 0.4, 0.4]})
    write_data_set(tmp_path, "b", "b", {"iid": [0.1, 0.2, 0.3], "ns": [0.6, 0.6, 0.6]})
    more = {"loss": "softmax", "dataset": "b", "fingerprint": "b" * 64, "seed": 2}
    write_run(tmp_path, "ns", [9, 5, 4, 3], 10, [0, 0.1, 0.1, 0.1], status="diverged", **more)
    board = collect(tmp_path, tmp_path).board
    assert not board.left_out
    on_b = {name: own[1] for name, own in board.standings.items()}
    assert on_b == {"softmax ns": math.inf, "sg iid": pytest.approx(2.91)}


def test_a_folder_has_the_board_after_its_answers(tmp_path):
    write_two(tmp_path)
    done = invoke("report", tmp_path, "--data-dir", tmp_path)
    check(done, 0)
    assert done.stdout.startswith("What ranks best soonest: a, recall@50")
    assert "The board: soonest to 0.97 of the best recall@50" in done.stdout
    done = invoke(
        "report", tmp_path, "--data-dir", tmp_path, "--table", "board", "--format", "json"
    )
    check(done, 0)
    (table,) = json.loads(done.stdout)["tables"]
    assert table["title"] == "The board: soonest to 0.97 of the best recall@50"


def keep_sweep(folder, name, **settings):
    file = folder / f"{name}.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    write_sweep(read_sweep(str(file)), folder)


def test_the_name_of_a_sweep_reports_its_runs_alone(tmp_path, monkeypatch):
    """All sweeps of the name count, also beside a folder of the name; the report begins with the
    board.
    """
    write_two(tmp_path)
    own = {"sampler": '["ns", "iid"]', "loss": '["sg", "softmax"]', "seed": "[0, 1]"}
    keep_sweep(tmp_path, "own", dataset='"a"', **own)
    words = ("--runs-dir", tmp_path, "--data-dir", tmp_path)
    (tmp_path / "elsewhere" / "own").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    (answer,) = json.loads(invoke("report", "own", *words, "--json").stdout)["answers"]
    assert {arm["arm"] for arm in answer["arms"]} == {"cnn softmax ns", "cnn sg iid"}
    assert answer["dataset"] == "a"
    keep_sweep(tmp_path, "own", dataset='"b"', **own)
    done = invoke("report", "own", *words)
    check(done, 0)
    assert done.stdout.startswith("The board: soonest to 0.97 of the best recall@50")
    check(invoke("report", "own", *words, "--verify"), 2, "looks at whole folders")
    keep_sweep(tmp_path, "none", dataset='"absent"', sampler='"ns"')
    check(invoke("report", "none", *words), 7, "No cell of this sweep is finished")


def test_a_sweep_has_the_runs_of_its_cells():
    sweep = read_sweep("board", seeds=1)
    cells, _ = expand(sweep.axes, sweep.cells)
    has = has_cell(cells)
    assert has(cells[0].config)
    assert not has(replace(cells[0].config, seed=7))
    assert not has(replace(cells[0].config, learning_rate=0.123))
