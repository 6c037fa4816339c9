"""The board: ways to train beside each other on several data sets."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from folders import floor_row, write_run
from hypothesis import given
from hypothesis import strategies as st
from invoked import check, invoke

from ncfbench.reporting.board import FACTORS, TargetTime, find_board, ordered, profile
from ncfbench.reporting.figures import figures
from ncfbench.reporting.figures.board import steps
from ncfbench.reporting.results import collect
from ncfbench.storage import schemas, tables
from ncfbench.sweeps.files import read_sweep, write_sweep

SECONDS = st.one_of(st.floats(0.01, 1e4), st.just(math.inf))


def write_data_set(folder: Path, name: str, digit: str, recalls: dict[str, list[float]]) -> None:
    """Two seeds of each sampler, 1 s an epoch, the second seed as the first."""
    for seed in (0, 1):
        for sampler, values in recalls.items():
            more: dict[str, Any] = {"loss": "sg" if sampler == "iid" else "softmax"}
            more |= {"dataset": name, "fingerprint": digit * 64, "seed": seed}
            write_run(folder, sampler, [9, 5, 4, 3], 10, [0, *values], **more)


def write_two(folder: Path) -> None:
    write_data_set(
        folder, "a", "a", {"iid": [0.1, 0.2, 0.3], "ns": [0.2, 0.4, 0.4], "neg": [0.2, 0.3, 0.39]}
    )
    write_data_set(folder, "b", "b", {"iid": [0.1, 0.1, 0.1], "ns": [0.2, 0.2, 0.2]})
    rows = [
        floor_row("ridge", 0.5, 0.25, dataset="b", data_fingerprint="b" * 64),
        floor_row("profile", 0.1, 0.1, dataset="a", data_fingerprint="a" * 64),
    ]
    tables.write_rows(folder / "floors.parquet", rows, schemas.FLOOR)


def test_contestants_are_compared_on_all_data_sets(tmp_path: Path) -> None:
    """On a the best is 0.4, on b a floor has 0.5, which no arm reaches."""
    write_two(tmp_path)
    board = find_board(collect(tmp_path, tmp_path).overall)
    assert board is not None
    assert board.names == ["a", "b"]
    assert board.left_out == ["softmax neg"]
    assert (board.seeds, board.metric, board.split) == (2, "recall@50", "test")
    found = board.standings[0.9]
    never = TargetTime(math.inf, False)
    # 0.36 of 0.4: between the first evaluation, 0.2 after 1 s, and the second.
    assert found["softmax ns"] == [TargetTime(pytest.approx(1.8), True), never]
    assert found["sg iid"] == [never, never]
    assert found["ridge"] == [never, TargetTime(0.25, True)]
    assert found["profile"] == [never, never]
    counts = profile(found)
    assert counts["softmax ns"] == [1, 1, 1, 1, 1]
    assert counts["sg iid"] == [0] * 5


def test_one_data_set_or_unlike_ones_have_no_board(tmp_path: Path) -> None:
    write_data_set(tmp_path, "a", "a", {"iid": [0.1, 0.2, 0.3], "ns": [0.2, 0.4, 0.4]})
    assert find_board(collect(tmp_path, tmp_path).overall) is None


@given(st.lists(st.lists(SECONDS, min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_profile_counts_what_is_within_a_factor(times: list[list[float]]) -> None:
    """By data set and contestant, counted plainly."""
    standings = {str(at): [TargetTime(row[at]) for row in times] for at in range(3)}
    found = profile(standings)
    for name, own in found.items():
        assert own[1:] == [
            sum(
                math.isfinite(row[int(name)]) and row[int(name)] <= factor * min(row)
                for row in times
            )
            for factor in (*FACTORS, 1e9)
        ]
    assert sorted(ordered(standings)) == sorted(standings)
    reached = [found[name][-1] for name in ordered(standings)]
    assert reached == sorted(reached, reverse=True)


def test_a_figure_rises_where_a_contestant_is_within_a_factor() -> None:
    own = [TargetTime(3.0), TargetTime(math.inf), TargetTime(2.0)]
    assert steps(own, [1.5, 1.0, 2.0]) == ([1.0, 1.0, 2.0, 16.0], [1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_the_board_is_drawn(tmp_path: Path) -> None:
    write_two(tmp_path)
    found = figures(collect(tmp_path, tmp_path))
    drawing = found["board"]()
    assert drawing is not None
    assert drawing.title == "The board: a, b"


def test_a_report_begins_with_the_board(tmp_path: Path) -> None:
    write_two(tmp_path)
    done = invoke("report", tmp_path, "--data-dir", tmp_path)
    check(done, 0)
    assert done.stdout.startswith("The board: soonest to 0.97 of the best recall@50")
    done = invoke(
        "report", tmp_path, "--data-dir", tmp_path, "--table", "board", "--format", "json"
    )
    check(done, 0)
    titles = [table["title"] for table in json.loads(done.stdout)["tables"]]
    assert titles == [
        f"The board: soonest to {share} of the best recall@50" for share in (0.97, 0.9)
    ]


def test_the_name_of_a_sweep_reports_its_runs_alone(tmp_path: Path) -> None:
    write_two(tmp_path)
    file = tmp_path / "own.toml"
    file.write_text('dataset = "a"\nsampler = "ns"\nloss = "softmax"\nseed = [0, 1]\n')
    write_sweep(read_sweep(str(file)), tmp_path)
    done = invoke("report", "own", "--runs-dir", tmp_path, "--data-dir", tmp_path, "--json")
    check(done, 0)
    (answer,) = json.loads(done.stdout)["answers"]
    assert {arm["sampler"] for arm in answer["arms"]} == {"ns"}
    assert answer["dataset"] == "a"
