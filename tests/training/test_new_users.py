"""Recommendations for users whom training does not know, from a file of their histories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from invoked import check, invoke
from processes import SMALL

from ncfbench.config import Locations, complete
from ncfbench.data.store import Dataset
from ncfbench.runs.folder import RunRecord
from ncfbench.training import run as training
from ncfbench.training.recommend import FILE, NEW_USERS_FILE, recommend

SETTINGS = SMALL | {"sampler": "ns", "encoder": "mf", "epochs": 1}


@pytest.fixture(scope="module")
def trained(linked_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    config = complete(SETTINGS | {"user_tower": "history", "history_items": 100})
    runs_dir = tmp_path_factory.mktemp("runs")
    record = training.run(config, Locations(linked_dir, runs_dir))
    assert record is not None
    return record


def write(path: Path, rows: list[tuple[Any, Any]]) -> Path:
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in rows))
    return path


def test_a_new_user_gets_what_her_twin_gets(
    linked_dir: Path, linked: Dataset, trained: RunRecord, tmp_path: Path
) -> None:
    """The same items and scores as a user of training with the same history; what does not count is
    said.
    """
    graph = linked.graph
    users = [int(user) for user in (graph.user_degrees > 2).nonzero()[0][:3]]
    rows: list[tuple[Any, Any]] = [
        (f"twin of {user}", item)
        for user in users
        for item in graph.link_item[graph.user_offsets[user] : graph.user_offsets[user + 1]]
    ]
    new_item = int((graph.item_degrees == 0).nonzero()[0][0])
    rows += [rows[0], (rows[0][0], 600), (rows[0][0], new_item), ("nobody", 601), ("", 3)]
    file = write(tmp_path / "new.csv", rows)
    words = "--history", file, "-m", 7, "--data-dir", linked_dir
    result = invoke("recommend", trained.name, "--runs-dir", trained.folder.parent, *words)
    n = len(rows)
    check(
        result,
        0,
        f"Left out, rows of new.csv without a user or an item: 1 of {n}.",
        f"Left out, rows of new.csv of items that tiny does not have: 2 of {n}.",
        f"of items without training links, whose vectors are not trained: 1 of {n}.",
        "Left out, users of new.csv of whom no row is left: 1.",
        f"3 users with {n - 5} items in their histories; 600 items ranked.",
    )
    found = pq.read_table(trained.folder / NEW_USERS_FILE).to_pylist()
    recommend(trained.folder, count=7, data_dir=linked_dir)
    known = pq.read_table(trained.folder / FILE).to_pylist()
    expected = [row for row in known if row["user"] in users]
    assert len(found) == 21
    for row, of_twin in zip(found, expected, strict=True):
        assert row["user"] == f"twin of {of_twin['user']}"
        assert (row["item"], row["rank"]) == (of_twin["item"], of_twin["rank"])
        assert row["score"] == pytest.approx(of_twin["score"], rel=1e-5)


def test_the_last_rows_of_a_long_history_count(
    linked_dir: Path, linked: Dataset, tmp_path: Path
) -> None:
    config = complete(SETTINGS | {"user_tower": "history", "history_items": 2})
    record = training.run(config, Locations(linked_dir, tmp_path))
    assert record is not None
    items = [int(item) for item in linked.graph.items_in_use[:4]]
    rows = [("long", item) for item in (*items, items[0])]
    scores = []
    for name, some in (("long", rows), ("short", [("short", items[0]), ("short", items[3])])):
        file, output = write(tmp_path / "new.csv", some), tmp_path / f"{name}.parquet"
        words = "--history", file, "--output", output, "--data-dir", linked_dir, "--json"
        result = invoke("recommend", record.folder, *words)
        check(result, 0)
        assert json.loads(result.stdout)["recommendations"] == str(output)
        rows_of_user = pq.read_table(output).to_pylist()
        scores.append({row["item"]: row["score"] for row in rows_of_user})
    long, short = scores
    both = [item for item in long if item in short]
    assert len(both) > 40
    assert [long[item] for item in both] == pytest.approx([short[item] for item in both], abs=1e-6)


def test_what_cannot_work_is_refused(
    linked_dir: Path, data_dir: Path, trained: RunRecord, tmp_path: Path
) -> None:
    """In a sentence, before anything is written."""
    file, output = write(tmp_path / "new.csv", [("a", 1), ("a", 2)]), tmp_path / "out.parquet"
    there = "--output", output, "--data-dir", linked_dir
    plain = training.run(complete(SETTINGS), Locations(linked_dir, tmp_path / "plain"))
    assert plain is not None
    unknown = write(tmp_path / "unknown.csv", [("a", "x")])
    nameless = tmp_path / "nameless.csv"
    nameless.write_text("who,what\na,1\n")
    other = "--output", output, "--data-dir", data_dir
    for folder, history, more, words in (
        (plain.folder, file, there, "(--user-tower table), and none for others. Train with"),
        (trained.folder, unknown, there, "no row with a user and an item of tiny that training"),
        (trained.folder, nameless, there, "--user-column NAME"),
        (trained.folder, tmp_path / "gone.csv", there, "gone.csv"),
        (trained.folder, file, other, "is not the data set that"),
        (trained.folder, file, (*there, "-m", 0), "it must be at least 1"),
        (tmp_path, file, there, "config.json"),
    ):
        result = invoke("recommend", folder, "--history", history, *more)
        assert result.exit_code != 0
        check(result, result.exit_code, words)
        assert not output.exists()
