"""Each user's best items: exact in any blocks, with the run's recall and the source's ids."""

import dataclasses
import itertools
import shutil
import sys
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from invoked import check, invoke
from stopping import StopAt
from trained import LISTS, SMALL, Said, ends_of, recommend, train
from trial import Trial

from ncfbench import prepare
from ncfbench.config import complete
from ncfbench.errors import DataError, UsageError
from ncfbench.runs import folder as runs
from ncfbench.storage import schemas, tables
from ncfbench.training import vectors
from ncfbench.training.export import BEST, require_items, write_recommendations
from ncfbench.training.vectors import Vectors, best_items

SETTINGS = SMALL | {"epochs": 2, "learning_rate": 0.03}


def write_best(path, dataset, trial, parameters):
    items = np.arange(dataset.n_items, dtype=np.int32)
    of_users = trial.embedder.users(parameters).scored
    of_items = trial.embedder.candidates(parameters, items, dataset.graph.item_degrees == 0)
    exported = Vectors(np.asarray(of_users), np.asarray(of_items), items)
    write_recommendations(path, dataset, exported, 4, "test", {})


def read(path, *, named=False):
    return tables.read_table(path, schemas.recommendations(named, named))


def recall_of(table, dataset):
    """Mean over users with test items of the share of these that is in the table; counted link by
    link.
    """
    held_out: dict[int, set[int]] = defaultdict(set)
    for user, item in zip(*(side.tolist() for side in dataset.links("test")), strict=True):
        held_out[user].add(item)
    shown: dict[int, set[int]] = defaultdict(set)
    for row in table.to_pylist():
        shown[row["user"]].add(row["item"])
    return float(
        np.mean([len(items & shown[user]) / len(items) for user, items in held_out.items()])
    )


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("users_of_a_block", [1, 2, 9])
def test_many_ties_against_a_sort(monkeypatch, users_of_a_block):
    """Scores of -1, 0, -0 and 1: nearly all are ties. Some items are excluded for some users."""
    monkeypatch.setattr(vectors, "BLOCK_SCORES", 11 * users_of_a_block)
    rng = np.random.default_rng(0)
    for _ in range(10):
        f = rng.integers(-1, 2, (5, 1)).astype(np.float32)
        g = rng.choice(np.array([-1.0, -0.0, 0.0, 1.0], np.float32), (11, 1))
        taken = [rng.choice(11, rng.integers(0, 5), replace=False) for _ in range(5)]
        blocks = list(best_items(f, g, np.arange(5), 6, taken.__getitem__))
        users, best, index = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        assert users.tolist() == [*range(5)]
        scores = f @ g.T
        for user in range(5):
            left = [item for item in range(11) if item not in taken[user]]
            ranking = sorted(left, key=lambda item: (-scores[user, item], item))[:6]
            assert index[user].tolist() == ranking
            assert best[user].tolist() == [scores[user, item] for item in ranking]


@pytest.fixture(scope="module")
def record(data_dir, tmp_path_factory):
    return train(data_dir, tmp_path_factory.mktemp("runs"), **SETTINGS)


@pytest.fixture(scope="module")
def found(data_dir, record):
    """Each user's 50 best items."""
    recommend(record.folder, data_dir=data_dir)
    return read(record.folder / LISTS)


@pytest.mark.long
def test_a_run_on_two_devices(data_dir, tiny, tmp_path):
    record = train(data_dir, tmp_path, **SETTINGS | {"devices": 2})
    recommend(record.folder, data_dir=data_dir)
    assert recall_of(read(record.folder / LISTS), tiny) == pytest.approx(
        record.curve[-1]["test_recall_at_50"], abs=1e-12
    )


def test_the_recall_of_the_table_is_that_of_the_run(record, found, tiny):
    assert record.curve[-1]["test_recall_at_50"] > 0
    assert recall_of(found, tiny) == pytest.approx(record.curve[-1]["test_recall_at_50"], abs=1e-12)
    for m in (10, 20):
        best = found.filter(pc.less_equal(found["rank"], m))
        assert recall_of(best, tiny) == pytest.approx(
            record.curve[-1][f"test_recall_at_{m}"], abs=1e-12
        )
    rows = found.to_pylist()
    with_links = sorted(set(tiny.users.tolist()))
    assert [row["user"] for row in rows] == [user for user in with_links for _ in range(50)]
    test_items, links = (
        set(tiny.items_of("test").tolist()),
        set(zip(*(side.tolist() for side in tiny.links("test")), strict=True)),
    )
    for user, own in itertools.groupby(rows, key=lambda row: row["user"]):
        own = list(own)
        assert [row["rank"] for row in own] == list(range(1, 51))
        items = [row["item"] for row in own]
        assert set(items) <= test_items
        assert len(set(items)) == 50
        assert [(-row["score"], row["item"]) for row in own] == sorted(
            (-row["score"], row["item"]) for row in own
        )
        assert [row["hit"] for row in own] == [(user, item) in links for item in items]
    metadata = {key.decode(): value.decode() for key, value in found.schema.metadata.items()}
    assert metadata["parameters"] == "of the reported epoch"
    assert (metadata["epoch"], metadata["iteration"]) == ("2", str(record.summary["iterations"]))


def test_blocks_of_users_and_a_second_table(data_dir, tmp_path, record, found, tiny, monkeypatch):
    """Blocks of 50 users, the last of which is partly padding; all other files stay as they are,
    and a later table replaces an earlier one.
    """
    monkeypatch.setattr(vectors, "BLOCK_SCORES", 4000)
    folder = tmp_path / record.folder.name
    shutil.copytree(record.folder, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    recommend(folder, data_dir=data_dir)
    again = read(folder / LISTS)
    assert recall_of(again, tiny) == pytest.approx(recall_of(found, tiny), abs=1e-12)
    np.testing.assert_allclose(again["score"].to_numpy(), found["score"].to_numpy(), atol=1e-5)
    assert again.schema.metadata == found.schema.metadata
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert after == before
    recommend(folder, count=3, data_dir=data_dir)
    assert read(folder / LISTS)["rank"].to_pylist()[:4] == [1, 2, 3, 1]
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(DataError, match="no checkpoint of its end"):
        recommend(folder, data_dir=data_dir)


def test_the_reported_epoch_is_recommended_from(data_dir, tmp_path, tiny, monkeypatch):
    """An earlier one than the last, of a run that is interrupted after it and trained on."""
    monkeypatch.setattr("ncfbench.runs.reported.MEASURE", "validation_recall_at_10")
    monkeypatch.setattr("ncfbench.training.train.CHECKPOINT_SECONDS", 0.0)
    more = SETTINGS | {"epochs": 5, "learning_rate": 0.3, "loss": "mse"}
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, progress=StopAt(ends_of(tiny, 5)[3] + 2), **more)
    record = train(data_dir, tmp_path, **more)
    at = record.reported_iteration
    assert at is not None
    assert at in ends_of(tiny, 5)[:3], "the data no longer peak early: choose other settings"
    recommend(record.folder, count=10, data_dir=data_dir)
    found = read(record.folder / LISTS)
    assert recall_of(found, tiny) == pytest.approx(record.summary["test_recall_at_10"], abs=1e-12)
    assert found.schema.metadata[b"iteration"] == str(at).encode()
    # A torn last checkpoint does not matter: an older one has these parameters too.
    last = record.folder / "checkpoints" / f"{ends_of(tiny, 5)[-1]}.npz"
    last.write_bytes(last.read_bytes()[:-99])
    recommend(record.folder, count=10, data_dir=data_dir)
    assert read(record.folder / LISTS).equals(found)


def test_without_validation_a_cut_epoch_is_left_out(tmp_path, tiny_options):
    """The last whole epoch is reported, and its parameters are handed out, not those of the cut."""
    options = vars(tiny_options) | {"validation_fraction": 0.0}
    tiny = prepare("synthetic", name="tiny", data_dir=tmp_path, say=lambda text: None, **options)
    assert not tiny.holds_out("validation")
    more, runs_dir = SETTINGS | {"epochs": 4}, tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, runs_dir, progress=StopAt(ends_of(tiny, 4)[1] + 3), **more)
    (folder,) = runs_dir.iterdir()
    record = runs.read(folder)
    assert record.summary["reported_epoch"] == 2 < record.summary["epochs"]
    meta = recommend(folder, data_dir=tmp_path)
    found = read(folder / LISTS)
    assert recall_of(found, tiny) == pytest.approx(record.summary["test_recall_at_50"], abs=1e-12)
    assert found.schema.metadata[b"iteration"] == str(ends_of(tiny, 4)[1]).encode()
    assert (meta["iteration"], meta["parameters"]) == (ends_of(tiny, 4)[1], "of the reported epoch")


def test_parameters_without_recall_are_said_to_be(data_dir, tmp_path):
    """Cut in the first epoch, nothing was evaluated: output and metadata say so."""
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, progress=StopAt(7), **SETTINGS)
    (folder,) = (path for path in tmp_path.iterdir())
    said = Said()
    meta = recommend(folder, data_dir=data_dir, said=said)
    assert said.texts[0].endswith("its last iteration, 7, and no recall belongs to them.")
    metadata = read(folder / LISTS).schema.metadata
    assert metadata[b"parameters"] == b"of the last iteration, never evaluated"
    assert metadata[b"iteration"] == b"7"
    assert (meta["iteration"], meta["parameters"]) == (7, metadata[b"parameters"].decode())


EDITED = """
import jax.numpy as jnp
from flax import nnx
from ncfbench.catalog import EncoderInfo

names = ["a", "b"]


class Twins(nnx.Module):
    info = EncoderInfo(uses=())

    def __init__(self, config, data, *, rngs):
        self.words = nnx.Embed(data.words + 1, config.dimension, rngs=rngs)
        for name in names:
            width = config.dimension
            setattr(self, name, nnx.Linear(width, width, use_bias=False, rngs=rngs))

    def __call__(self, texts):
        vectors = (self.words(texts.tokens) * texts.present[..., None]).sum(axis=1)
        for name in names:
            vectors = jnp.tanh(getattr(self, name)(vectors))
        return vectors
"""


def test_an_edited_encoder_is_refused(data_dir, tmp_path, monkeypatch):
    """By all that read a checkpoint, of finished and interrupted runs; whatever stays stays, and
    works once the edit is undone.
    """
    (tmp_path / "edited_twins.py").write_text(EDITED)
    monkeypatch.syspath_prepend(tmp_path)
    more = SETTINGS | {"encoder": "edited_twins:Twins"}
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "cut", progress=StopAt(30), **more)
    (cut,) = (tmp_path / "cut").iterdir()
    whole = train(data_dir, tmp_path / "whole", **more).folder
    recommend(whole, data_dir=data_dir)
    expected = read(whole / LISTS)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*/checkpoints/*")}
    assert len(before) >= 2
    edits = {
        ("a", "z"): "has no .parameters['encoder']['z']['kernel']",
        ("a", "b", "c"): "has no .parameters['encoder']['c']['kernel']",
        ("a",): "the model has no .parameters['encoder']['b']['kernel']",
    }
    for names, difference in edits.items():
        monkeypatch.setattr(sys.modules["edited_twins"], "names", names)
        for reading in (
            lambda: recommend(whole, data_dir=data_dir),
            lambda: recommend(cut, data_dir=data_dir),
            lambda: train(data_dir, tmp_path / "cut", **more),
        ):
            with pytest.raises(DataError, match="does not fit the model") as refused:
                reading()
            assert difference in str(refused.value)
            assert str(refused.value).endswith("train the run again: ncfbench run --again.")
    monkeypatch.setattr(sys.modules["edited_twins"], "names", ["a", "b"])
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*/checkpoints/*")} == before
    recommend(whole, data_dir=data_dir)
    assert read(whole / LISTS).equals(expected)
    train(data_dir, tmp_path / "cut", **more)
    recommend(cut, data_dir=data_dir)
    assert read(cut / LISTS).equals(expected)


def test_a_torn_end_is_said(data_dir, tmp_path, tiny):
    """Nothing else has the parameters of the reported epoch, the last one."""
    record = train(data_dir, tmp_path, **SETTINGS)
    last = record.folder / "checkpoints" / f"{ends_of(tiny, 2)[-1]}.npz"
    last.write_bytes(last.read_bytes()[:-99])
    said = Said()
    with pytest.raises(DataError, match="no checkpoint of its end"):
        recommend(record.folder, data_dir=data_dir, said=said)
    assert said.texts == [f"Checkpoint {last.stem} is damaged, and is skipped: {last}."]
    assert last.exists()


def with_names(dataset):
    """The same data where the source names its users u900, u901, ... and its items backwards; user
    3 has no link.
    """
    kept = dataset.users != 3
    return dataclasses.replace(
        dataset,
        users=np.asarray(dataset.users)[kept],
        items=np.asarray(dataset.items)[kept],
        user_ids=pa.array([f"u{900 + user}" for user in range(dataset.n_users)]),
        item_ids=pa.array([f"i{dataset.n_items - item}" for item in range(dataset.n_items)]),
    )


def test_the_source_ids_come_back(data_dir, tmp_path, tiny):
    """Written with ids and without from the same parameters: each row names the same user and
    item.
    """
    trial = Trial(tiny, SETTINGS)
    assert 3 in tiny.users
    tables_by_name = {}
    for name, dataset in (
        ("numbers", dataclasses.replace(with_names(tiny), user_ids=None, item_ids=None)),
        ("names", with_names(tiny)),
    ):
        (tmp_path / name).mkdir()
        write_best(tmp_path / name / BEST, dataset, trial, trial.parameters)
        tables_by_name[name] = read(tmp_path / name / BEST, named=name == "names").to_pylist()
    assert len(tables_by_name["names"]) == 4 * (len(set(tiny.users.tolist())) - 1)
    for row, same in zip(tables_by_name["names"], tables_by_name["numbers"], strict=True):
        assert row == same | {
            "user": f"u{900 + same['user']}",
            "item": f"i{tiny.n_items - same['item']}",
        }
    assert "u903" not in {row["user"] for row in tables_by_name["names"]}


@pytest.mark.parametrize(
    ("encoder", "count", "split", "message"),
    [
        ("bow", 5, 0, "has none. Prepare more links"),
        ("bow", 0, 2, "--top 0: it must be at least 1"),
        ("mf", 5, 2, "Train with --encoder cnn, lstm, bow"),
    ],
)
def test_nothing_to_rank_is_refused(tiny, encoder, count, split, message):
    dataset = dataclasses.replace(tiny, split=np.full_like(tiny.split, split))
    with pytest.raises(UsageError, match=message):
        require_items(complete({"encoder": encoder}), dataset, count, "test")


def test_from_the_command_line(data_dir, tmp_path, record):
    folder = tmp_path / "vectors"
    words = "export", record.folder, folder, "--data-dir", data_dir, "--again"
    check(invoke(*words, "--top", "0"), 2, "--top 0: it must be at least 1")
    assert not folder.exists()
    check(invoke(*words, "--top", "3"), 0, "meta.json, recommendations.parquet in")
    assert "there are only" not in invoke(*words, "--top", "3").output
    check(
        invoke(*words, "--top", "999", "--candidates", "test"),
        0,
        "--top 999: there are only 80 items to rank.",
    )
    assert pq.read_table(folder / BEST)["rank"].to_pylist()[:81] == [*range(1, 81), 1]
    check(invoke(*words), 0, "towers.safetensors, meta.json in")
    assert not (folder / BEST).exists()
