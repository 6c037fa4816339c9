"""Vectors and lists that leave the program, and the programs of docs/deploy.md that read them."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from support.cli import check, invoke
from support.tables import as_csv, prepare
from support.training import Said, recall_of_lists, train

import ncfbench
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.storage import schemas, tables
from ncfbench.training import evaluation, export, inference, trained
from ncfbench.training.export import BEST, FILES, require_items, write_recommendations
from ncfbench.training.vectors import Vectors, best_items

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs/deploy.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
NEW_ITEM = HOME / "examples/new_item_in_pytorch.py"
PAGES_RUN = re.compile(r"runs/custom-\S+\w")
USERS, ITEMS = 60, 250
TRAINED = {"dataset": "x", "sampler": "ns", "epochs": 2, "learning_rate": 0.03}
MODELS = {
    "bow": ("items", {"loss": "softmax"}),
    "history": ("links", {"encoder": "mf", "user_tower": "history"}),
}
"""Kind of hold-out, and settings."""


def shop(home, hold_out):
    """Prepare 60 users and 250 items; most links are of a user to items of his kind."""
    rng, rows = np.random.default_rng(0), []
    for user in range(USERS):
        of_kind = rng.permutation(ITEMS // 5)[:9] * 5 + user % 5
        items = {*of_kind.tolist(), *range(user, ITEMS, USERS)}
        rows += [{"user": f"u{user}", "item": f"sku-{item}"} for item in items]
    texts = [{"item": f"sku-{item}", "title": f"kind{item % 5} no{item}"} for item in range(ITEMS)]
    files = as_csv(home / "r.csv", rows), as_csv(home / "m.csv", texts)
    return prepare(home, *files, hold_out=hold_out, test_fraction=0.4)[0]


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    """In blocks of 32 vectors, the last of which is not full."""
    home, (hold_out, settings) = tmp_path_factory.mktemp(request.param), MODELS[request.param]
    folders = {"data_dir": home / "data", "runs_dir": home / "runs"}
    dataset, record = shop(home, hold_out), train(**folders, **TRAINED | settings)
    more = folders | {"top": 50, "candidates": "test", "progress": (said := Said())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "BLOCK_ROWS", 32)
        meta = ncfbench.export_vectors(record.name, home / "vectors", **more)
    read = {"home": home, "dataset": dataset, "record": record, "meta": meta}
    for side, letter in (("users", "f"), ("items", "g")):
        ids = pq.read_table(home / "vectors" / f"{side}.parquet")["id"].to_pylist()
        read |= {side: ids, letter: np.load(home / "vectors" / f"{side}.npy")}
    said = " ".join(said.texts)
    return SimpleNamespace(model=request.param, said=said, **read)


ONLY_BOW = pytest.mark.parametrize("exported", ["bow"], indirect=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A vector for each item, of items that are held out: these have none."""
    home = tmp_path_factory.mktemp("plain")
    shop(home, "items")
    more = TRAINED | {"encoder": "mf", "epochs": 1}
    return train(home / "data", home / "runs", **more)


def test_vectors_are_in_the_order_of_the_data(exported):
    dataset, f, g = exported.dataset, exported.f, exported.g
    assert (f.shape, g.shape, f.dtype, g.dtype) == ((USERS, 8), (ITEMS, 8), np.float32, np.float32)
    assert exported.users == dataset.user_ids.to_pylist()
    assert exported.items == dataset.item_ids.to_pylist()
    n_new = exported.meta["items_without_training_links"]
    assert n_new == np.sum(dataset.graph.item_degrees == 0) > 0
    untrained = f"{n_new} items without training links have the vectors that training began with"
    assert (untrained in exported.said) == (exported.model == "history")
    is_unit = np.allclose(np.linalg.norm(g, axis=1), 1, atol=1e-6)
    assert exported.meta["unit_length"] == is_unit == (exported.model != "history")
    for side, columns, vectors in (("users", ["id"], f), ("items", ["id", "split"], g)):
        table = pq.read_table(exported.home / "vectors" / f"{side}.parquet")
        assert table.column_names == [*columns, "vector"]
        assert table.schema.field("vector").type == pa.list_(pa.float32(), 8)
        np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), "f"), vectors)
    names = np.array(["training", "validation", "test"])
    assert table["split"].to_pylist() == names[dataset.split].tolist()


def test_lists_have_the_best_of_all_candidates(exported):
    """By a plain sort; with the run's recall."""
    dataset, folder, summary = exported.dataset, exported.home / "vectors", exported.record.summary
    table = tables.read_table(folder / BEST, schemas.recommendations(True, True))
    scores, hits = exported.f @ exported.g.T, np.zeros((USERS, ITEMS), bool)
    hits[dataset.links("test")] = True
    if dataset.ranks_known_items:
        scores[dataset.links("train")] = -np.inf
    else:
        scores[:, dataset.split != 2] = -np.inf
    assert table["user"].to_pylist() == [user for user in exported.users for _ in range(50)]
    assert table["rank"].to_pylist() == [*range(1, 51)] * USERS
    index = np.array([*map(exported.items.index, table["item"].to_pylist())]).reshape(USERS, 50)
    assert all(len({*row}) == 50 for row in index.tolist())
    listed = table["score"].to_numpy().reshape(USERS, 50)
    for expected in (np.take_along_axis(scores, index, 1), -np.sort(-scores)[:, :50]):
        np.testing.assert_allclose(listed, expected, rtol=1e-6, atol=1e-5)
    assert table["hit"].to_pylist() == np.take_along_axis(hits, index, 1).ravel().tolist()
    assert 0 < summary["test_recall_at_50"] < 1
    recall = recall_of_lists(folder, dataset)
    assert recall == pytest.approx(summary["test_recall_at_50"], abs=1e-12)
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert about["parameters"] == "of the reported epoch"
    assert (about["epoch"], about["iteration"]) == ("2", str(summary["iterations"]))


@pytest.mark.parametrize("users_of_a_block", [2, 9])
def test_many_ties_against_a_sort(monkeypatch, users_of_a_block):
    """Scores of -1, 0, -0 and 1: nearly all are ties. Some items are excluded for some users."""
    monkeypatch.setattr(evaluation, "BLOCK_SCORES", 11 * users_of_a_block)
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


def test_lists_are_not_of_training_links(linked, tmp_path, monkeypatch):
    """Each user gets all other items once, in blocks of 16 users; one without links none."""
    data = replace(linked, n_users=linked.n_users + 1)
    monkeypatch.setattr(evaluation, "BLOCK_SCORES", 16 * data.n_items)
    rng = np.random.default_rng(0)
    sides = (rng.normal(size=(n, 3)).astype("f") for n in (data.n_users, data.n_items))
    drawn = Vectors(*sides, np.arange(data.n_items, dtype=np.int32))
    write_recommendations(tmp_path / BEST, data, drawn, 999, "all", {})
    shown, hits = np.zeros((2, data.n_users, data.n_items), np.int64)
    for row in pq.read_table(tmp_path / BEST).to_pylist():
        shown[row["user"], row["item"]] += 1
        hits[row["user"], row["item"]] = row["hit"]
    expected = np.ones(shown.shape, np.int64)
    expected[-1] = expected[data.links("train")] = 0
    np.testing.assert_array_equal(shown, expected)
    assert hits.sum() == hits[data.links("test")].sum() == len(data.links("test")[0])


def test_parameters_are_those_of_the_checkpoint(exported):
    with safe_open(exported.home / "vectors/towers.safetensors", "numpy") as file:
        written = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["ncfbench"])
    last = exported.record.summary["iterations"]
    kept = np.load(exported.record.folder / "checkpoints" / f"{last}.npz")
    paths = [path for path in kept if path.startswith(".parameters")]
    assert len(written) == len(paths)
    for path in paths:
        name = ".".join(re.findall(r"'(\w+)'", path))
        np.testing.assert_array_equal(written[name], kept[path], strict=True)
    assert exported.meta == json.loads((exported.home / "vectors/meta.json").read_text())
    assert about == {name: value for name, value in exported.meta.items() if name != "seconds"}
    assert about["settings"] == exported.record.config.to_dict()
    assert about["data_fingerprint"] == exported.dataset.fingerprint
    assert (about["iteration"], about["epoch"]) == (last, 2)


def test_repeated_bytes_and_an_interrupted_replacement(plain, tmp_path, monkeypatch):
    """Until all is written there are other names only, so a kill leaves nothing under these."""
    data_dir = plain.folder.parents[1] / "data"
    one, other, new = (tmp_path / name / "vectors" for name in ("one", "other", "new"))
    for folder in (one, other):
        ncfbench.export_vectors(plain.folder, folder, data_dir=data_dir)
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in FILES[:5])
    write, seen = export._write_parameters, []

    def interrupted(path, *more):
        write(path, *more)
        names = [entry.name for entry in path.parent.parent.iterdir()]
        seen.append([name for name in names if name[0] != "."])
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "_write_parameters", interrupted)
    before = (one / "meta.json").read_bytes()
    for folder, again in ((one, True), (new, False)):
        with pytest.raises(KeyboardInterrupt):
            ncfbench.export_vectors(plain.folder, folder, again=again, data_dir=data_dir)
    assert seen == [["vectors"], []]
    assert (one / "meta.json").read_bytes() == before
    assert [*one.parent.iterdir(), *new.parent.iterdir()] == [one]


def test_items_without_a_vector_are_left_out(plain, tmp_path):
    words = (tmp_path / "v", "--data-dir", plain.folder.parents[1] / "data")
    printed = invoke("export", plain.name, *words, "--runs-dir", plain.folder.parent)
    check(printed, 0, "items without training links, of which mf has no vector.")
    shown = json.loads((tmp_path / "v/meta.json").read_text())
    table, vectors = pq.read_table(tmp_path / "v/items.parquet"), np.load(tmp_path / "v/items.npy")
    assert len(table) == len(vectors) == shown["items"] == ITEMS - shown["items_left_out"]
    assert {*table["split"].to_pylist()} == {"training"}
    with safe_open(tmp_path / "v/towers.safetensors", "numpy") as file:
        embedding = file.get_tensor("encoder.vectors.embedding")
    rows = [int(name.removeprefix("sku-")) for name in table["id"].to_pylist()]
    np.testing.assert_array_equal(embedding[rows], vectors)
    again = invoke("export", plain.folder, *words, "--again", "--json", "--quiet")
    check(again, 0)
    assert json.loads(again.stdout) | {"seconds": 0} == shown | {"seconds": 0}


def test_what_cannot_work_is_refused(tiny, plain, tmp_path, monkeypatch):
    """In a sentence that says what to do, and nothing is written."""
    folder, data_dir = plain.folder, plain.folder.parents[1] / "data"
    lost = shutil.copytree(folder, tmp_path / "lost", ignore=lambda *_: ["checkpoints"])
    for name, file in (("used", "letter"), ("old", "meta.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    before = sorted(tmp_path.rglob("*"))

    def refuse(kind, words, run, name="v", **more):
        with pytest.raises(kind, match=words):
            ncfbench.export_vectors(run, tmp_path / name, **({"data_dir": data_dir} | more))
        assert sorted(tmp_path.rglob("*")) == before

    refuse(DataError, "final checkpoint .* is missing. Train it again: ncfbench run --again", lost)
    refuse(UsageError, "it holds letter. Name a new folder", folder, "used", again=True)
    refuse(UsageError, "holds vectors already. To replace them, use --again", folder, "old")
    refuse(DataError, "no run 'lst'.*; did you mean 'lost'", Path("lst"), runs_dir=tmp_path)
    refuse(DataError, "is not prepared", folder, data_dir=tmp_path)
    refuse(UsageError, "Train with --encoder cnn, lstm, bow", folder, top=5, candidates="test")
    refuse(UsageError, "--top 0: it must be at least 1", folder, top=0)
    with monkeypatch.context() as patch:
        nans = lambda _, parameters, ids, is_new: np.full((len(ids), 8), np.nan)  # noqa: E731
        patch.setattr(inference.Embedder, "candidates", nans)
        refuse(DivergedError, "A vector is not finite", folder)
        patch.chdir(tmp_path / "old")
        refuse(UsageError, "as a whole. Name a new folder: .*old/vec", folder, "old", again=True)
    with pytest.raises(UsageError, match="has none. Prepare more links"):
        require_items(None, replace(tiny, split=np.zeros_like(tiny.split)), 5, "test")
    status = plain.summary | {"status": "diverged"}
    monkeypatch.setattr(trained.runs, "read", lambda _: replace(plain, summary=status))
    refuse(UsageError, "is diverged and has no usable checkpoint", folder)


@pytest.fixture
def exporting(exported, tmp_path, monkeypatch):
    """Run the page's first program in a new folder; return its names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NCFBENCH_DATA_DIR", str(exported.home / "data"))
    assert len(PROGRAMS) == 3
    names = {}
    exec(PAGES_RUN.sub(str(exported.record.folder), PROGRAMS[0]), names)
    return names


class FlatIndex:
    """FAISS's index of inner products."""

    def __init__(self, width):
        self.items = np.zeros((0, width), np.float32)

    def add(self, items):
        self.items = np.concatenate([self.items, items])

    def search(self, users, count):
        scores = users @ self.items.T
        rows = np.argsort(-scores, axis=1)[:, :count]
        return np.take_along_axis(scores, rows, axis=1), rows


@ONLY_BOW
def test_the_best_items_are_those_of_the_page(exported, exporting, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", SimpleNamespace(IndexFlatIP=FlatIndex))
    assert exporting["meta"]["items"] == ITEMS
    plain, index = {}, {}
    exec(PROGRAMS[1], plain)
    exec(PROGRAMS[2], index)
    for row, user in enumerate(exported.users):
        products = [float(np.dot(exported.f[row], vector)) for vector in exported.g]
        scores = dict(zip(exported.items, products, strict=True))
        expected = pytest.approx(sorted(products, reverse=True)[:10], abs=1e-6)
        best, values = zip(*plain["best_items"](user), strict=True)
        for items, numbers in ((best, values), (index["best"][row], index["scores"][row])):
            assert [*numbers] == expected
            assert [scores[item] for item in items] == expected


@ONLY_BOW
@pytest.mark.usefixtures("exporting")
def test_pytorch_repeats_the_items_vectors(exported):
    """From the words of each item, and from none."""
    pytest.importorskip("torch")
    names = {}
    exec(NEW_ITEM.read_text("utf-8"), names)
    dataset = exported.dataset
    for item, vector in enumerate(exported.g):
        text = " ".join(dataset.vocabulary[token - 1] for token in dataset.texts[item])
        np.testing.assert_allclose(names["item_vector"](text).numpy(), vector, atol=1e-6)
    bias = names["weights"]["encoder.dense.bias"].numpy()
    bias /= np.linalg.norm(bias)
    np.testing.assert_allclose(names["item_vector"]("unknown").numpy(), bias, atol=1e-6)
    assert names["scores"].shape == (USERS,)


@ONLY_BOW
def test_lists_from_the_command_line(exported, tmp_path):
    folder, data_dir = tmp_path / "vectors", exported.home / "data"
    words = "export", exported.record.folder, folder, "--data-dir", data_dir, "--again"
    many = invoke(*words, "--top", "999", "--candidates", "test")
    check(many, 0, "--top 999: there are only 100 items to rank.")
    assert pq.read_table(folder / BEST)["rank"].to_pylist()[:101] == [*range(1, 101), 1]
    check(invoke(*words), 0, "towers.safetensors, meta.json in")
    assert not (folder / BEST).exists()
