"""Held-out links: ranks among all items that a user has no training link with."""

import re

import numpy as np
import pyarrow.compute as pc
import pytest
from support.cli import check, invoke
from support.tables import as_csv, prepare
from support.training import Trial, recommend

from ncfbench.advice.pipeline import require_recall
from ncfbench.advice.question import Question
from ncfbench.config import Locations, complete
from ncfbench.data.options import HOLD_OUTS
from ncfbench.errors import UsageError
from ncfbench.floors.task import HeldOut, Task
from ncfbench.models.towers import UserVectors
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.quality import chance
from ncfbench.storage import schemas, tables
from ncfbench.storage.schemas import CUTOFFS
from ncfbench.training import run as training
from ncfbench.training.export import BEST

SIZES = {"batch_size": 64, "epochs": 1, "dimension": 8, "word_dimension": 8, "filters": 8}


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize(
    ("kind", "changed"),
    [("links", {"encoder": "mf"}), ("links", {"coupling": "regularised"}), ("items", {})],
)
def test_the_evaluator_ranks_by_brute_force(linked, tiny, monkeypatch, split, kind, changed):
    """Of held-out links all items but the user's: new ones by g, known ones by the vector that
    training scores, in one ranking. Of held-out items those of the split. In blocks that are partly
    padding.
    """
    monkeypatch.setattr("ncfbench.training.evaluation.BLOCK_USERS", 7)
    dataset = linked if kind == "links" else tiny
    trial = Trial(dataset, {"dimension": 6, **changed})
    embedder, parameters = trial.evaluators.embedder, trial.parameters
    embedder.block = 32
    graph, ids = dataset.graph, np.arange(dataset.n_items, dtype=np.int32)
    is_new = graph.item_degrees == 0
    known, new = embedder.items(parameters, ids), embedder.cold_items(parameters, ids)
    g = np.where(is_new[:, None], new, known).astype(np.float64)
    scores = np.asarray(embedder.users(parameters).scored, np.float64) @ g.T
    left_out = np.zeros(scores.shape, bool)
    if kind == "links":
        assert 0 < is_new.sum() < dataset.n_items / 2
        left_out[graph.link_user, graph.link_item] = True
    else:
        left_out[:, ~np.isin(ids, dataset.items_of(split))] = True
    scores[left_out] = -np.inf
    users, items = dataset.links(split)
    ahead = scores[users] - scores[users, items][:, None]
    expected = (ahead > 0).sum(axis=1)
    is_clear = (np.abs(ahead) > 1e-7).sum(axis=1) == dataset.n_items - 1  # all but its own
    assert is_clear.mean() > 0.9
    np.testing.assert_array_equal(trial.ranks(split).above[is_clear], expected[is_clear])
    figures = trial.evaluators.evaluate(parameters)[split].figures
    for m in CUTOFFS:
        recalls = [np.mean(expected[users == user] < m) for user in np.unique(users)]
        assert figures[f"recall_at_{m}"] == pytest.approx(np.mean(recalls), abs=2e-3)
    left = (~left_out).sum(axis=1)[np.unique(users)]
    assert figures["recall_at_50_chance"] == pytest.approx(np.mean(np.minimum(50 / left, 1)))
    note = f"{100 * is_new[items].mean():.1f} % of the {split} links are to new items"
    notes = trial.evaluators.notes()
    assert any(each.startswith(note) for each in notes) == (trial.config.encoder == "mf")
    assert (figures["recall_at_50_known_items"] is not None) == (kind == "links")


def test_all_rooms_count_the_same_items(linked, tiny):
    """Chance of the race is that of the evaluation; mf is refused where items are held out only."""
    for dataset in (linked, tiny):
        held_out = Trial(dataset, {"dimension": 6}).evaluators.splits["test"]
        assert chance(dataset, "test") == held_out.ranking.chances["recall_at_50_chance"]
    with pytest.raises(UsageError, match="mf has no vectors"):
        require_recall(Question({"encoder": "mf"}), tiny)


def test_floors_and_models_have_one_figure_of_one_score(linked, tiny, monkeypatch):
    """Users' and items' vectors of whole numbers, with many ties and users of no vector."""
    rng = np.random.default_rng(2)
    f = rng.integers(-1, 2, (linked.n_users, 3)).astype(np.float32)
    g = rng.integers(-1, 2, (linked.n_items, 3)).astype(np.float32)
    f[:5] = 0
    for dataset in (linked, tiny):
        evaluators = Trial(dataset, {"dimension": 3}).evaluators
        monkeypatch.setattr(evaluators.embedder, "users", lambda _: UserVectors(f, f))
        monkeypatch.setattr(evaluators.embedder, "candidates", lambda _, items, is_new: g[items])
        candidates = dataset.candidates("test")
        held_out = HeldOut(Task.of(dataset), *dataset.links("test"), candidates)
        floor = held_out.evaluate((f @ g[candidates].T).__getitem__)
        model = evaluators.evaluate({})["test"]
        assert model.figures == floor.figures
        np.testing.assert_array_equal(model.user_recalls, floor.user_recalls)
        np.testing.assert_array_equal(model.item_shares, floor.item_shares)


def test_recommended_items_are_not_those_of_training(linked_dir, linked, tmp_path):
    """More items than a user may get: each gets all others, once."""
    config = complete({"dataset": "tiny", "encoder": "mf", **SIZES})
    record = training.run(RunPlan.of(config, Locations(linked_dir, tmp_path)))
    folder = recommend(record.folder, count=999, data_dir=linked_dir)
    table = tables.read_table(folder / BEST, schemas.recommendations(False, False))
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
    {"user": user, "item": (7 * user + 3 * place) % 60, "time": 10**9 + 1000 * place + 7 * user}
    for user in range(40)
    for place in range(8)
]


WORDS_OF_ITEMS = r"(test|validation|held-out|cold) items"
"""Words that are wrong where links are held out."""


@pytest.mark.long_cases(r"(items|last|time)$")
@pytest.mark.parametrize("kind", HOLD_OUTS)
def test_every_hold_out_trains_and_is_reported(tmp_path, kind):
    links = as_csv(tmp_path / "r.csv", ROWS)
    items = as_csv(
        tmp_path / "m.csv", [{"item": item, "title": f"w{item % 7} v{item}"} for item in range(60)]
    )
    dataset, _ = prepare(
        tmp_path, links, items, hold_out=kind, test_fraction=0.2, validation_fraction=0.1
    )
    words = ["--data-dir", str(tmp_path / "data"), "--runs-dir", str(tmp_path / "runs")]
    sizes = [f"--set={name}={value}" for name, value in SIZES.items()]
    # A vector for each item: what only items of training links can have.
    encoder = "mf" if dataset.ranks_known_items else "bow"
    run = f"run --dataset x --encoder {encoder} --sampler ns".split()
    trained = invoke(*run, *sizes, *words)
    check(trained, 0)
    (path,) = (tmp_path / "runs").rglob("summary.parquet")
    check(invoke("export", path.parent, tmp_path / "v", *words[:2], "--top", "3"), 0, "Written")
    summary = tables.read_rows(path, schemas.SUMMARY)[0]
    assert 0 <= summary["test_recall_at_50"] <= 1
    has_known = summary["test_recall_at_50_known_items"] is not None
    assert has_known == dataset.ranks_known_items
    kind_of_test = "test links" if has_known else "cold test items"
    reported = invoke("report", "--full", *words)
    check(reported, 0, f"Recall@50 on {kind_of_test}")
    check(invoke("describe", "x", "--set", "batch_size=16", *words[:2]), 0, HOLD_OUTS[kind])
    if not has_known:
        return
    assert not re.search(WORDS_OF_ITEMS, trained.output + reported.output)
    has_new = summary["test_recall_at_50_new_items"] is not None
    text = " ".join(reported.output.split())
    assert ("known items count alike" in text) == has_new
    assert "nown items: recall@50 of these alone." in text
