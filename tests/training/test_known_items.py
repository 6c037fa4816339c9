"""Held-out links: ranks among all items that a user has no training link with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invoked import check, invoke
from tables_of import as_csv, prepare

from ncfbench.advice.curves import chance
from ncfbench.advice.pipeline import require_recall
from ncfbench.advice.question import Question
from ncfbench.config import Locations, complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.options import HOLD_OUTS
from ncfbench.data.store import Dataset, load, prepare_dataset
from ncfbench.errors import UsageError
from ncfbench.models.interaction import make_interaction
from ncfbench.models.towers import DeviceContent
from ncfbench.storage import schemas, tables
from ncfbench.sweeps.cells import Cell
from ncfbench.sweeps.tuning import require_validation
from ncfbench.training import recall as recall_module
from ncfbench.training import run as training
from ncfbench.training.inference import Embedder
from ncfbench.training.recall import RecallEvaluator, link_ranks
from ncfbench.training.recommend import FILE
from ncfbench.training.step import Trainer

DOT = make_interaction(complete({}))
SIZES = {"batch_size": 64, "epochs": 1, "dimension": 8, "word_dimension": 8, "filters": 8}


@pytest.fixture(scope="module")
def linked_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("linked")
    prepare_dataset(
        "synthetic",
        name="linked",
        data_dir=folder,
        users=90,
        items=150,
        links=900,
        topics=5,
        vocabulary_size=200,
        min_words=3,
        max_length=12,
        hold_out="links",
        say=lambda text: None,
    )
    return folder


@pytest.fixture(scope="module")
def linked(linked_dir: Path) -> Dataset:
    return load(linked_dir, "linked")


def rank_by_hand(scores: list[float], own: int, left_out: set[int]) -> int:
    return sum(
        not score <= scores[own] or (score == scores[own] and item < own)
        for item, score in enumerate(scores)
        if item not in left_out
    )


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(7, 13, 20, 5), (24, 13, 1, 32), (40, 1, 8, 2), (40, 13, 10_000, 5)]),
)
@settings(max_examples=30, deadline=None)
def test_known_items_are_left_out(seed: int, sizes: tuple[int, int, int, int]) -> None:
    """Few different scores, so that most are equal to others; some are no numbers."""
    rng, (n_items, n_links, block_scores, block_links) = np.random.default_rng(seed), sizes
    f = rng.integers(-1, 2, (5, 2)).astype(np.float32)
    g = rng.integers(-1, 2, (n_items, 2)).astype(np.float32)
    odd = rng.random(g.shape) < 0.1
    g[odd] = rng.choice([np.nan, np.inf, -np.inf], int(odd.sum()))
    is_known = rng.random((5, n_items)) < 0.4
    is_known[0, 0] = True
    users = rng.integers(0, 5, n_links).astype(np.int32)
    places = rng.integers(0, n_items, n_links).astype(np.int32)
    is_known[users, places] = False
    if not is_known.any():
        is_known[(users[0] + 1) % 5, :] = True
        is_known[users, places] = False
    known = BipartiteGraph.from_links(*np.nonzero(is_known), 5, n_items)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall_module, "BLOCK_SCORES", block_scores)
        patch.setattr(recall_module, "LINK_SCORES", block_scores)
        found = link_ranks(DOT, f, g, users, places, known)
    with np.errstate(invalid="ignore"):
        scores = (f[:, None, :] * g[None, :, :]).sum(axis=2)
    assert found.tolist() == [
        rank_by_hand(scores[u].tolist(), v, set(np.flatnonzero(is_known[u])))
        for u, v in zip(users, places, strict=True)
    ]


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("changed", [{"encoder": "mf"}, {"coupling": "regularised"}])
def test_the_evaluator_ranks_all_but_training_items(
    linked: Dataset, split: Any, changed: dict[str, str]
) -> None:
    """New items by g, known ones by the vector that training scores; in one ranking."""
    trainer, state = Trainer.create(complete({"dimension": 6, **changed}), linked)
    embedder, parameters = Embedder(trainer.towers, DeviceContent.of(linked)), state.parameters
    evaluator = RecallEvaluator(linked, split, embedder)
    graph, ids = linked.graph, np.arange(linked.n_items, dtype=np.int32)
    is_new = graph.item_degrees == 0
    assert 0 < is_new.sum() < 30
    known, new = embedder.items(parameters, ids), embedder.cold_items(parameters, ids)
    g = np.where(is_new[:, None], new, known).astype(np.float64)
    scores = np.asarray(embedder.users(parameters).scored, np.float64) @ g.T
    scores[graph.link_user, graph.link_item] = -np.inf
    users, items = linked.links(split)
    own = scores[users, items]
    expected = (scores[users] > own[:, None]).sum(axis=1)
    assert np.abs(evaluator.ranks(parameters) - expected).max() <= 1, "but for rounding"
    figures = evaluator(parameters).figures
    recalls = []
    for user in np.unique(users):
        recalls.append(np.mean(expected[users == user] < 50))
    assert figures["recall_at_50"] == pytest.approx(np.mean(recalls), abs=0.01)
    left = linked.n_items - graph.user_degrees[np.unique(users)]
    assert figures["recall_at_50_chance"] == pytest.approx(np.mean(50 / left))
    n_new = is_new[items].sum()
    assert evaluator.share_of_new == n_new / len(items)
    assert figures["recall_at_50_known_items"] is not None


def test_all_rooms_count_the_same_items(linked: Dataset, tiny: Dataset) -> None:
    """Chance of the race is that of the evaluation; mf is refused where items are held out only."""
    for dataset in (linked, tiny):
        trainer, _ = Trainer.create(complete({"dimension": 6}), dataset)
        embedder = Embedder(trainer.towers, DeviceContent.of(dataset))
        evaluator = RecallEvaluator(dataset, "test", embedder)
        found = evaluator.ranking(np.zeros(len(evaluator.users), np.int64)).figures
        assert chance(dataset, "test") == pytest.approx(found["recall_at_50_chance"])
    cells = [Cell(complete({"dataset": "x", "encoder": "mf"}))]
    assert require_validation(cells, {"x": linked}) == []
    with pytest.raises(UsageError, match="mf has no vector"):
        require_validation(cells, {"x": tiny})
    with pytest.raises(UsageError, match="mf has none"):
        require_recall(Question({"encoder": "mf"}), tiny)


def test_recommended_items_are_not_those_of_training(linked_dir: Path, tmp_path: Path) -> None:
    """More items than a user may get: each gets all others, once."""
    linked = load(linked_dir, "linked")
    record = training.run(
        complete({"dataset": "linked", "encoder": "mf", **SIZES}),
        Locations(linked_dir, tmp_path),
        recommend=999,
    )
    table = tables.read_table(record.folder / FILE, schemas.recommendations(False, False))
    users, items = (table[name].to_numpy() for name in ("user", "item"))
    shown = np.zeros((linked.n_users, linked.n_items), np.int64)
    np.add.at(shown, (users, items), 1)
    assert set(np.unique(shown)) == {0, 1}
    assert not shown[linked.graph.link_user, linked.graph.link_item].any()
    has_link = np.bincount(linked.users, minlength=linked.n_users) > 0
    left = linked.n_items - linked.graph.user_degrees
    assert (shown.sum(axis=1) == left * has_link).all()
    test = linked.links("test")
    assert pc.sum(table["hit"]).as_py() == len(test[0]) == shown[test].sum()


ROWS = [
    {"user": user, "item": (7 * user + 3 * place) % 60, "time": 1000 * place + 7 * user}
    for user in range(40)
    for place in range(8)
]


WORDS_OF_ITEMS = r"(test|validation|held-out|cold) items"
"""Words that are wrong where links are held out."""


@pytest.mark.long_cases(r"(items|last|time)$")
@pytest.mark.parametrize("kind", HOLD_OUTS)
def test_every_hold_out_trains_and_is_reported(tmp_path: Path, kind: str) -> None:
    links = as_csv(tmp_path / "r.csv", ROWS)
    items = as_csv(
        tmp_path / "m.csv", [{"item": item, "title": f"w{item % 7} v{item}"} for item in range(60)]
    )
    dataset, _ = prepare(
        tmp_path, links, items, hold_out=kind, test_fraction=0.2, validation_fraction=0.1
    )
    words = ["--data-dir", str(tmp_path / "data"), "--runs-dir", str(tmp_path / "runs")]
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    # A vector for each item: what only items of training links can have.
    encoder = "mf" if dataset.ranks_known_items else "bow"
    run = [
        "run",
        "--dataset",
        "x",
        "--encoder",
        encoder,
        "--sampler",
        "ns",
        *sizes,
        *words,
        "--recommend",
        "3",
    ]
    trained = invoke(*run)
    check(trained, 0)
    (path,) = (tmp_path / "runs").rglob("summary.parquet")
    assert (path.parent / FILE).exists()
    summary = tables.read_rows(path, schemas.SUMMARY)[0]
    assert 0 <= summary["test_recall_at_50"] <= 1
    has_known = summary["test_recall_at_50_known_items"] is not None
    assert has_known == dataset.ranks_known_items
    kind_of_test = "test links" if has_known else "cold test items"
    reported = invoke("report", "--full", *words)
    check(reported, 0, f"Recall@50 on {kind_of_test}")
    check(invoke("describe", "x", "--batch-size", "16", *words[:2]), 0, HOLD_OUTS[kind])
    if not has_known:
        return
    assert not re.search(WORDS_OF_ITEMS, trained.output + reported.output)
    has_new = summary["test_recall_at_50_new_items"] is not None
    text = " ".join(reported.output.split())
    for note in ("links to new and to known items together", "known items count alike"):
        assert (note in text) == has_new
    assert "MRR, cold users, new items and known items has no part of the items" in text
