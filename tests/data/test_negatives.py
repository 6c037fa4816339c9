"""Explicit negatives of users' files: which pairs they are, what is left out, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from invoked import check, invoke
from tables_of import FORMATS, named, prepare

from ncfbench.data import store
from ncfbench.data.content import cautions
from ncfbench.errors import DataError, NcfbenchError, UsageError

N_USERS, N_ITEMS, N_SHOWN = 9, 12, 200
SPELLINGS = {"csv": ("0", "1"), "jsonl": (False, True), "parquet": ("no", "Yes")}


def shown(seed: int) -> list[dict[str, Any]]:
    """Rows of random pairs, some given several times; user 99 and item 77 are never chosen."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "user": int(rng.integers(N_USERS)),
            "item": int(rng.integers(N_ITEMS + 1)),  # the last is not among the items
            "chosen": bool(rng.random() < 0.4),
            "rating": int(rng.integers(1, 6)),
        }
        for _ in range(N_SHOWN)
    ]
    return [*rows, {"user": 99, "item": 1, "chosen": False, "rating": 1}]


ITEMS = [{"item": n, "title": f"w{n}"} for n in range(N_ITEMS)]


def named_negatives(dataset: store.Dataset) -> list[tuple[int, int]]:
    assert dataset.negatives is not None
    assert dataset.negatives.dtype == np.int32
    return sorted((int(user), int(item)) for user, item in named(dataset, *dataset.negatives))


@pytest.mark.parametrize("form", list(SPELLINGS))
def test_negatives_are_those_of_plain_python(tmp_path: Path, form: str) -> None:
    rows = shown(1)
    spelled = [row | {"chosen": SPELLINGS[form][row["chosen"]]} for row in rows]
    links = FORMATS[form](tmp_path / f"r.{form}", spelled)
    dataset, said = prepare(tmp_path, links, ITEMS, negative_column="chosen")
    is_known = [row["item"] < N_ITEMS and row["user"] < N_USERS for row in rows]
    chosen, not_chosen = (
        {
            (row["user"], row["item"])
            for row, known in zip(rows, is_known, strict=True)
            if known and row["chosen"] == kind
        }
        for kind in (True, False)
    )
    assert named_negatives(dataset) == sorted(not_chosen - chosen)
    assert len(dataset.users) == len(chosen)
    removed = dataset.manifest["removed"]
    assert removed["negatives_that_are_links"] == len(not_chosen & chosen) > 0
    left_out = sum(
        not row["chosen"] and not known for row, known in zip(rows, is_known, strict=True)
    )
    assert removed["negatives_of_left_out"] == left_out > 1
    n_rows = sum(not row["chosen"] for row in rows)
    assert removed["duplicate_negatives"] == n_rows - left_out - len(not_chosen) > 0
    assert "but negatives where chosen is 0" in said[0]
    assert not any("chosen of" in line for line in said), "no warning for a column that is used"


def test_a_threshold_leaves_rows_that_are_neither(tmp_path: Path) -> None:
    rows = shown(2)
    dataset, said = prepare(tmp_path, rows, ITEMS, rating_threshold=4, negative_threshold=2)
    known = [row for row in rows if row["item"] < N_ITEMS and row["user"] < N_USERS]
    chosen = {(row["user"], row["item"]) for row in known if row["rating"] >= 4}
    disliked = {(row["user"], row["item"]) for row in known if row["rating"] <= 2}
    assert named_negatives(dataset) == sorted(disliked - chosen)
    assert len(dataset.users) == len(chosen)
    neither = sum(row["rating"] == 3 for row in rows)
    assert dataset.manifest["removed"]["links_below_threshold"] == neither
    assert "of rating 4 and more, negatives of 2 and less" in said[0]


def test_a_threshold_is_rounded_as_the_ratings_are(tmp_path: Path) -> None:
    ratings = pa.array([0.9, 0.3, 0.9, 0.9], pa.float32())
    table = {"user": [1, 1, 2, 2], "item": [1, 2, 1, 2], "rating": ratings}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    options = {"rating_threshold": 0.9, "negative_threshold": 0.3, "test_fraction": 0.0}
    dataset, _ = prepare(tmp_path, tmp_path / "r.parquet", ITEMS, **options)
    assert named_negatives(dataset) == [(1, 2)]


@pytest.mark.parametrize("hold_out", ["items", "links"])
def test_those_of_held_out_items_are_not_for_training(tmp_path: Path, hold_out: str) -> None:
    dataset, _ = prepare(tmp_path, shown(3), ITEMS, negative_column="chosen", hold_out=hold_out)
    usable, is_trained = dataset.training_negatives, dataset.graph.item_degrees > 0
    assert usable is not None
    assert dataset.negatives is not None
    expected = [pair for pair in dataset.negatives.T.tolist() if is_trained[pair[1]]]
    assert usable.T.tolist() == expected
    assert (len(expected) < dataset.negatives.shape[1]) == (hold_out == "items")
    trained = set(dataset.links("train")[0].tolist())
    statistics = dataset.manifest["statistics"]
    assert statistics["explicit_negatives"] == dataset.negatives.shape[1]
    assert statistics["explicit_negatives_of_training_items"] == len(expected)
    users = trained & {user for user, _ in expected}
    assert statistics["users_with_explicit_negatives"] == len(users) > 0


def test_data_without_negatives_keep_their_fingerprint(tmp_path: Path) -> None:
    """Frozen before there were explicit negatives."""
    dataset, _ = prepare(tmp_path)
    assert dataset.fingerprint[:12] == "693c56f19b6e"
    assert dataset.negatives is None
    assert dataset.training_negatives is None
    assert "explicit_negatives" not in dataset.manifest["statistics"]
    assert not {"negative_column", "negative_threshold"} & dataset.manifest["options"].keys()
    both, _ = prepare(tmp_path, rating_threshold=2, negative_threshold=1)
    without, _ = prepare(tmp_path, rating_threshold=2)
    assert both.fingerprint != without.fingerprint
    assert store.load(tmp_path / "data", "x").fingerprint == without.fingerprint


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"negative_column": "chosn"}, UsageError, "--negative-column chosn: .* 'chosen'"),
        ({"negative_column": "rating"}, DataError, r"line 4: rating '5' is neither 0 .* nor 1\.$"),
        ({"negative_column": "word"}, DataError, r"line 2: word 'maybe' is neither 0 .* nor 1\.$"),
        ({"negative_column": "empty"}, DataError, r"line 2: empty (is missing|'' is neither)"),
        ({"negative_column": "none"}, DataError, "holds no link, but negatives"),
        (
            {"negative_threshold": 2},
            UsageError,
            "^--negative-threshold 2 must be below --rating-threshold, ",
        ),
        (
            {"negative_threshold": 4, "rating_threshold": 4},
            UsageError,
            "^--negative-threshold 4 must be below --rating-threshold 4, ",
        ),
        (
            {"negative_column": "chosen", "negative_threshold": 0, "rating_threshold": 4},
            UsageError,
            "exclude each other",
        ),
        (
            {"negative_column": "chosen", "hold_out": "time"},
            UsageError,
            "^--hold-out time and explicit negatives exclude each other",
        ),
    ],
)
def test_what_cannot_mark_negatives_is_refused(
    tmp_path: Path, options: dict[str, Any], error: type[NcfbenchError], message: str
) -> None:
    more = {"word": "maybe", "empty": "", "none": 0}
    rows = [
        {"user": n, "item": n, "chosen": n % 2, "rating": rating} | more
        for n, rating in enumerate([1, 0, 5, 1])
    ]
    with pytest.raises(error, match=message):
        prepare(tmp_path, rows, ITEMS, **options)
    assert not (tmp_path / "data").exists(), "what is refused leaves nothing"


def test_describe_says_how_many_there_are(tmp_path: Path) -> None:
    dataset, _ = prepare(tmp_path, shown(4), ITEMS, negative_column="chosen")
    counts = dataset.manifest["statistics"]
    words = ["describe", "x", "--data-dir", tmp_path / "data", "--batch-size", "4"]
    result = invoke(*words, "--json")
    check(result, 0)
    users, trained = counts["users_with_explicit_negatives"], len(set(dataset.links("train")[0]))
    assert json.loads(result.stdout)["explicit_negatives"] == (
        f"{counts['explicit_negatives']} pairs shown and not chosen,"
        f" {counts['explicit_negatives_of_training_items']} of them of training items, for"
        f" {users} of {trained} users with training links ({100 * users / trained:.1f} %)"
    )
    check(invoke(*words), 0, "pairs shown and not chosen")


def test_negatives_that_are_all_left_out_are_said(tmp_path: Path) -> None:
    rows = [{"user": 1, "item": n, "chosen": 1} for n in range(4)]
    rows.append({"user": 2, "item": 1, "chosen": 0})
    dataset, _ = prepare(tmp_path, rows, ITEMS, negative_column="chosen")
    assert dataset.negatives is not None
    assert dataset.negatives.shape == (2, 0)
    assert any("there is none to train on" in line for line in cautions(dataset.manifest))
