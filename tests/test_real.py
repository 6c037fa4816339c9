"""The real data, where NCFBENCH_SHARED_DATA names a folder with it."""

import pytest

from ncfbench.config import Locations, complete
from ncfbench.data import prepare, store
from ncfbench.data.options import HOLD_OUTS
from ncfbench.data.sources import citeulike
from ncfbench.data.store import prepare_dataset
from ncfbench.rng import Streams
from ncfbench.runs.plan import RunPlan
from ncfbench.sampling import make_sampler
from ncfbench.sampling.contents import batch_counts
from ncfbench.training import run as training

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def data(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    options = citeulike.Options(
        from_=shared_data / "citeulike-a",
        allow_unverified=True,
        text=("title", "tags"),
        max_length=40,
        min_count=3,
        validation_fraction=0,
    )
    prepare("citeulike", options, folder, say=lambda text: None)
    return folder


def test_citeulike_has_the_papers_counts(data):
    manifest = store.load(data, "citeulike").manifest
    statistics = manifest["statistics"]
    assert [statistics[name] for name in ("users", "items", "links")] == [5551, 16980, 204986]
    assert {name: file["verified"] for name, file in manifest["files"].items()} == {
        "users.dat": True,
        "raw-data.csv": False,
        "item-tag.dat": True,
        "tags.dat": True,
    }
    assert 11_000 < statistics["vocabulary"] < 12_000
    assert (statistics["test_items"], statistics["training_items"]) == (3396, 13584)


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [("iid", 4150), ("neg", 4150), ("strat", 160), ("ns", 495), ("strat-ns", 160)],
)
def test_distinct_items_of_a_batch(data, sampler, expected):
    """KDD 2017's speedups per iteration are ratios of these counts (4150 / 495 = 8.4)."""
    graph = store.load(data, "citeulike").graph
    found = batch_counts(make_sampler(graph, complete({"sampler": sampler}), Streams(0)), 50)
    assert found["distinct_items"] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("loss", "least"), [("hinge", 0.40), ("log", 0.40), ("mse", 0.385), ("sg", 0.37)]
)
def test_recall_on_cold_articles(data, tmp_path, loss, least):
    record = training.run(
        RunPlan.of(complete({"loss": loss, "epochs": 10}), Locations(data, tmp_path))
    )
    assert record.summary["test_recall_at_50"] >= least


@pytest.mark.parametrize("kind", HOLD_OUTS)
def test_hold_outs_of_movielens(shared_data, tmp_path, kind):
    """Ratings with times: 943 users, 1,682 films."""
    folder = shared_data / "movielens-100k"
    dataset = prepare_dataset(
        "custom",
        name="ml",
        data_dir=tmp_path,
        links=folder / "ratings.csv.gz",
        items=folder / "movies.csv",
        hold_out=kind,
    )
    counts = dataset.manifest["statistics"]
    names = ("training_links", "test_links", "test_links_to_new_items")
    expected = {
        "items": [69_109, None, None],
        "newest-items": [93_745, None, None],
        "links": [71_981, 20_000, 29],
        "last": [98_114, 943, 3],
        "time": [72_001, 2_571, 114],
    }
    assert [counts.get(name) for name in names] == expected[kind]
    encoder = "mf" if dataset.ranks_known_items else "bow"
    config = complete({"dataset": "ml", "encoder": encoder, "loss": "softmax", "epochs": 5})
    summary = training.run(RunPlan.of(config, Locations(tmp_path, tmp_path / "runs"))).summary
    recall, chance = (summary[f"test_recall_at_50{end}"] for end in ("", "_chance"))
    assert recall > (5 if encoder == "mf" else 1) * chance


def test_links_of_citeulike(data, shared_data, tmp_path):
    dataset = prepare_dataset(
        "citeulike",
        name="links",
        data_dir=tmp_path,
        from_=shared_data / "citeulike-a",
        allow_unverified=True,
        text=("title", "tags"),
        max_length=40,
        min_count=3,
        hold_out="links",
    )
    counts = dataset.manifest["statistics"]
    assert counts["users_with_test_links"] == 5551
    assert counts["training_links"] + counts["validation_links"] + counts["test_links"] == 204_986
    config = complete({"dataset": "links", "encoder": "bow", "loss": "softmax", "epochs": 3})
    summary = training.run(RunPlan.of(config, Locations(tmp_path, tmp_path / "runs"))).summary
    assert summary["test_recall_at_50"] > 0.2
    assert summary["test_recall_at_50_new_items"] is not None
