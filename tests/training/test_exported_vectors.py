"""Vectors and lists that leave the program, and the programs of docs/deploy.md that read them."""

import json
import re
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from support.cli import check, invoke
from support.tables import as_csv, prepare
from support.training import Said, recall_of_files, recall_of_lists

import ncfbench
from ncfbench.config import Locations, complete
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import schemas, tables
from ncfbench.training import evaluation, export, inference, trained
from ncfbench.training import run as training
from ncfbench.training.export import BEST, FILES, require_items, write_recommendations
from ncfbench.training.vectors import Vectors, best_items

PAGE = (Path(__file__).parents[2] / "docs/deploy.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
NEW_ITEM = Path(__file__).parents[2] / "examples/new_item_in_pytorch.py"
PAGES_RUN = re.compile(r"runs/custom-\S+\w")
USERS, ITEMS = 60, 250
SMALL = {"dataset": "x", "sampler": "ns", "batch_size": 64, "epochs": 2, "learning_rate": 0.03}
SMALL |= {"encoder": "bow", "dimension": 8, "word_dimension": 8}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bow": ("items", {"loss": "softmax"}),
    "history": ("links", {"encoder": "mf", "user_tower": "history"}),
    "free": ("links", {"loss": "softmax", "coupling": "regularised"}),
}
"""Kind of hold-out, and settings."""
BOW = "encoder.dense.bias encoder.dense.kernel encoder.words.embedding"
PARAMETERS = {
    "bow": f"{BOW} user_tower.vectors.embedding",
    "history": "encoder.vectors.embedding user_tower.items.embedding",
    "free": f"{BOW} free_items.embedding user_tower.vectors.embedding",
}
"""In the order of their paths, in which a checkpoint numbers them, before all other arrays."""


@dataclass
class Exported:
    """A run in ``home/runs``, and its vectors in ``home/vectors``."""

    model: str
    home: Path
    dataset: Dataset
    record: RunRecord
    meta: dict[str, Any]
    said: str

    def vectors(self, side):
        ids = pq.read_table(self.home / "vectors" / f"{side}.parquet")["id"].to_pylist()
        return ids, np.load(self.home / "vectors" / f"{side}.npy")


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


def train(home, **more):
    return training.run(RunPlan.of(complete(SMALL | more), Locations(home / "data", home / "runs")))


@pytest.fixture(
    scope="module", params=["bow", "history", pytest.param("free", marks=pytest.mark.long)]
)
def exported(request, tmp_path_factory):
    """In blocks of 32 vectors, the last of which is not full."""
    home, (hold_out, settings) = tmp_path_factory.mktemp(request.param), MODELS[request.param]
    dataset, record, said = shop(home, hold_out), train(home, **settings), Said()
    places = {"data_dir": home / "data", "runs_dir": home / "runs"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "BLOCK_ROWS", 32)
        more = {"top": 50, "candidates": "test", "progress": said, **places}
        meta = ncfbench.export_vectors(record.name, home / "vectors", **more)
    return Exported(request.param, home, dataset, record, meta, " ".join(said.texts))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A vector for each item, of items that are held out: these have none."""
    home = tmp_path_factory.mktemp("plain")
    shop(home, "items")
    return train(home, encoder="mf", epochs=1)


def test_recall_of_the_files_is_that_of_the_run(exported):
    dataset, (users, f), (items, g) = exported.dataset, *map(exported.vectors, ("users", "items"))
    assert (f.shape, g.shape, f.dtype, g.dtype) == ((USERS, 8), (ITEMS, 8), np.float32, np.float32)
    assert users == dataset.user_ids.to_pylist()
    assert items == dataset.item_ids.to_pylist()
    n_new = exported.meta["items_without_training_links"]
    assert n_new == np.sum(dataset.graph.item_degrees == 0) > 0
    untrained = f"{n_new} items without training links have the vectors that training began with"
    assert (untrained in exported.said) == (exported.model == "history")
    recorded = exported.record.summary["test_recall_at_50"]
    assert 0 < recorded < 1
    recall = recall_of_files(exported.home / "vectors", dataset)
    assert recall == pytest.approx(recorded, abs=1e-12)


def test_lists_have_the_best_of_all_candidates(exported):
    """By the files' vectors and a plain sort; equal scores in the order of the items."""
    dataset, folder = exported.dataset, exported.home / "vectors"
    table = tables.read_table(folder / BEST, schemas.recommendations(True, True))
    (users, f), (items, g) = map(exported.vectors, ("users", "items"))
    place = {item: at for at, item in enumerate(items)}
    scores, hits = f @ g.T, np.zeros((USERS, ITEMS), bool)
    hits[dataset.links("test")] = True
    if dataset.ranks_known_items:
        scores[dataset.links("train")] = -np.inf
    else:
        scores[:, dataset.split != 2] = -np.inf
    rows = table.to_pylist()
    assert [row["user"] for row in rows] == [user for user in users for _ in range(50)]
    for user in range(USERS):
        best = rows[50 * user : 50 * user + 50]
        chosen, found = [place[row["item"]] for row in best], [row["score"] for row in best]
        assert [row["rank"] for row in best] == [*range(1, 51)]
        assert len({*chosen}) == 50
        assert found == pytest.approx(scores[user, chosen].tolist(), abs=1e-5)
        assert found == pytest.approx(sorted(scores[user], reverse=True)[:50], abs=1e-5)
        assert sorted(zip(np.negative(found), chosen, strict=True)) == [
            *zip(np.negative(found), chosen, strict=True)
        ]
        assert [row["hit"] for row in best] == hits[user, chosen].tolist()
    recorded = exported.record.summary["test_recall_at_50"]
    assert recall_of_lists(folder, dataset) == pytest.approx(recorded, abs=1e-12)
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert about["parameters"] == "of the reported epoch"
    iterations = str(exported.record.summary["iterations"])
    assert (about["epoch"], about["iteration"]) == ("2", iterations)
    is_unit = np.allclose(np.linalg.norm(g, axis=1), 1, atol=1e-6)
    assert exported.meta["unit_length"] == is_unit == (exported.model != "history")


def test_blocks_of_users_change_no_list(exported, tmp_path, monkeypatch):
    """Blocks of 16 users, the last of which is partly padding; the run's files stay as they are."""
    monkeypatch.setattr(evaluation, "BLOCK_SCORES", 16 * ITEMS)
    folder = exported.record.folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    more = {"top": 50, "candidates": "test", "data_dir": exported.home / "data"}
    ncfbench.export_vectors(folder, tmp_path / "v", **more)
    again, table = (pq.read_table(at / BEST) for at in (tmp_path / "v", exported.home / "vectors"))
    np.testing.assert_allclose(again["score"].to_numpy(), table["score"].to_numpy(), atol=1e-5)
    assert again.schema.metadata == table.schema.metadata
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("users_of_a_block", [1, 2, 9])
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


def test_ids_are_the_source_s_or_numbers(tiny, tmp_path):
    """Of the same vectors: each row names the same user and item. A user without links has none."""
    rng, kept = np.random.default_rng(0), tiny.users != 3
    numbers = {"user_ids": None, "item_ids": None}
    assert not kept.all()
    names = {
        "user_ids": pa.array([f"u{900 + user}" for user in range(tiny.n_users)]),
        "item_ids": pa.array([f"i{tiny.n_items - item}" for item in range(tiny.n_items)]),
    }
    f, g = (rng.normal(size=(n, 3)).astype(np.float32) for n in (tiny.n_users, tiny.n_items))
    drawn = Vectors(f, g, np.arange(tiny.n_items, dtype=np.int32))
    rows = []
    for ids in (numbers, names):
        dataset = replace(tiny, users=tiny.users[kept], items=tiny.items[kept], **ids)
        write_recommendations(tmp_path / BEST, dataset, drawn, 4, "test", {})
        rows.append(pq.read_table(tmp_path / BEST).to_pylist())
    assert len(rows[0]) == 4 * (len({*tiny.users.tolist()}) - 1)
    for number, name in zip(*rows, strict=True):
        user, item = number["user"], number["item"]
        assert user != 3
        assert name == number | {"user": f"u{900 + user}", "item": f"i{tiny.n_items - item}"}


def test_parquet_holds_the_same_vectors(exported):
    for side, columns in (("users", ["id"]), ("items", ["id", "split"])):
        table = pq.read_table(exported.home / "vectors" / f"{side}.parquet")
        assert table.column_names == [*columns, "vector"]
        assert table.schema.field("vector").type == pa.list_(pa.float32(), 8)
        listed = np.array(table["vector"].to_pylist(), np.float32)
        np.testing.assert_array_equal(listed, exported.vectors(side)[1])
    names = np.array(["training", "validation", "test"])
    assert table["split"].to_pylist() == names[exported.dataset.split].tolist()


def test_parameters_are_those_of_the_checkpoint(exported):
    with safe_open(exported.home / "vectors/towers.safetensors", "numpy") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["ncfbench"])
    assert sorted(found) == sorted(PARAMETERS[exported.model].split())
    last = exported.record.summary["iterations"]
    kept = np.load(exported.record.folder / "checkpoints" / f"{last}.npz")
    for name in PARAMETERS[exported.model].split():
        path = ".parameters" + "".join(f"['{part}']" for part in name.split("."))
        assert found[name].shape == kept[path].shape
        np.testing.assert_array_equal(found[name], kept[path])
    assert exported.meta == json.loads((exported.home / "vectors/meta.json").read_text())
    assert about == {name: value for name, value in exported.meta.items() if name != "seconds"}
    assert about["settings"] == exported.record.config.to_dict()
    assert about["data_fingerprint"] == exported.dataset.fingerprint
    assert (about["iteration"], about["epoch"]) == (last, 2)


def test_repeated_bytes_and_an_interrupted_replacement(plain, tmp_path, monkeypatch):
    """Until all is written there are other names only, so a kill leaves nothing under these."""
    places = {"data_dir": plain.folder.parents[1] / "data"}
    one, other, new = (tmp_path / name / "vectors" for name in ("one", "other", "new"))
    for folder in (one, other):
        ncfbench.export_vectors(plain.folder, folder, **places)
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in FILES[:5])
    write, seen = export._write_parameters, []

    def interrupted(path, *more):
        write(path, *more)
        seen.append([each.name for each in path.parent.parent.iterdir() if each.name[0] != "."])
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "_write_parameters", interrupted)
    before = (one / "meta.json").read_bytes()
    for folder, again in ((one, True), (new, False)):
        with pytest.raises(KeyboardInterrupt):
            ncfbench.export_vectors(plain.folder, folder, again=again, **places)
    assert seen == [["vectors"], []]
    assert (one / "meta.json").read_bytes() == before
    assert [*one.parent.iterdir(), *new.parent.iterdir()] == [one]


def test_items_without_a_vector_are_left_out(plain, tmp_path):
    words = (tmp_path / "v", "--data-dir", plain.folder.parents[1] / "data")
    left_out = "items without training links, of which mf has no vector."
    printed = invoke("export", plain.name, *words, "--runs-dir", plain.folder.parent)
    check(printed, 0, left_out, "Written: users.npy, users.parquet, items.npy, items.parquet")
    shown = json.loads((tmp_path / "v/meta.json").read_text())
    table, vectors = pq.read_table(tmp_path / "v/items.parquet"), np.load(tmp_path / "v/items.npy")
    assert len(table) == len(vectors) == shown["items"] == ITEMS - shown["items_left_out"]
    assert {*table["split"].to_pylist()} == {"training"}
    with safe_open(tmp_path / "v/towers.safetensors", "numpy") as file:
        trained = file.get_tensor("encoder.vectors.embedding")
    rows = [int(name.removeprefix("sku-")) for name in table["id"].to_pylist()]
    np.testing.assert_array_equal(trained[rows], vectors)
    again = invoke("export", plain.folder, *words, "--again", "--json", "--quiet")
    check(again, 0)
    assert json.loads(again.stdout) | {"seconds": 0} == shown | {"seconds": 0}


def test_what_cannot_work_is_refused(plain, tmp_path, monkeypatch):
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
    with monkeypatch.context() as patch:
        nans = lambda _, parameters, ids, is_new: np.full((len(ids), 8), np.nan)  # noqa: E731
        patch.setattr(inference.Embedder, "candidates", nans)
        refuse(DivergedError, "A vector is not finite", folder)
        patch.chdir(tmp_path / "old")
        refuse(UsageError, "as a whole. Name a new folder: .*old/vec", folder, "old", again=True)
    status = plain.summary | {"status": "diverged"}
    monkeypatch.setattr(trained.runs, "read", lambda _: replace(plain, summary=status))
    refuse(UsageError, "is diverged and has no usable checkpoint", folder)


def test_an_interrupted_run_gives_its_last_checkpoint(exported, tmp_path, monkeypatch):
    """As the winner of a race does: the same vectors as those of the same iteration at the end."""
    record = exported.record
    summary = record.summary | {"status": "interrupted"}
    monkeypatch.setattr(trained.runs, "read", lambda _: replace(record, summary=summary))
    ncfbench.export_vectors(record.folder, tmp_path / "v", data_dir=exported.home / "data")
    finished = exported.home / "vectors"
    for name in ("users.npy", "items.npy"):
        assert (tmp_path / "v" / name).read_bytes() == (finished / name).read_bytes()


@pytest.fixture
def programs(exported, monkeypatch):
    """The page's programs: one exports, the others read by NumPy and FAISS."""
    monkeypatch.chdir(exported.home)
    monkeypatch.setenv("NCFBENCH_DATA_DIR", "data")
    here = [(kind, PAGES_RUN.sub(f"runs/{exported.record.name}", text)) for kind, text in BLOCKS]
    commands = "".join(text for kind, text in here if kind == "sh").splitlines()
    (running,) = (shlex.split(line)[1:] for line in commands if line.startswith("ncfbench run "))
    (exporting,) = (shlex.split(line)[1:] for line in commands if line.endswith(" vectors --again"))
    check(invoke(*running, "--print-config"), 0, 'encoder = "bow"')
    check(invoke(*exporting, "--top", "50", "--candidates", "test"), 0, "Written: users")
    found = [text for kind, text in here if kind == "python"]
    assert len(found) == 3
    return found


@pytest.mark.parametrize("exported", ["bow"], indirect=True)
@pytest.mark.parametrize("package", ["numpy", "faiss"])
def test_the_best_items_are_found(exported, programs, package):
    pytest.importorskip(package)
    (users, f), (items, g) = map(exported.vectors, ("users", "items"))
    ours, theirs = dict[str, Any](), dict[str, Any]()
    exec(programs[0] + programs[1], ours)
    assert ours["meta"]["items"] == ITEMS
    exec(programs[2] if package == "faiss" else "", theirs)
    for row, user in enumerate(users):
        scores = {item: float(np.dot(f[row], own)) for item, own in zip(items, g, strict=True)}
        expected = sorted(scores.values(), reverse=True)[:10]
        found, values = zip(*ours["best_items"](user), strict=True)
        if package == "faiss":
            found, values = theirs["best"][row], theirs["scores"][row].tolist()
        assert list(values) == pytest.approx(expected, abs=1e-6)
        assert [scores[item] for item in found] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("exported", ["bow"], indirect=True)
def test_pytorch_repeats_the_items_vectors(exported, programs):
    """From the words of each item, and from none."""
    pytest.importorskip("torch")
    names: dict[str, Any] = {}
    exec(NEW_ITEM.read_text("utf-8"), names)
    dataset, (_, vectors) = exported.dataset, exported.vectors("items")
    for item, vector in enumerate(vectors):
        text = " ".join(dataset.vocabulary[token - 1] for token in dataset.texts[item])
        np.testing.assert_allclose(names["item_vector"](text).numpy(), vector, atol=1e-6)
    bias = names["weights"]["encoder.dense.bias"].numpy()
    bias /= np.linalg.norm(bias)
    np.testing.assert_allclose(names["item_vector"]("unknown").numpy(), bias, atol=1e-6)
    assert names["scores"].shape == (USERS,)


@pytest.mark.parametrize(
    ("encoder", "count", "split", "message"),
    [
        ("bow", 5, 0, "has none. Prepare more links"),
        ("bow", 0, 2, "--top 0: it must be at least 1"),
        ("mf", 5, 2, "Train with --encoder cnn, lstm, bow"),
    ],
)
def test_nothing_to_rank_is_refused(tiny, encoder, count, split, message):
    dataset = replace(tiny, split=np.full_like(tiny.split, split))
    with pytest.raises(UsageError, match=message):
        require_items(complete({"encoder": encoder}), dataset, count, "test")


@pytest.mark.parametrize("exported", ["bow"], indirect=True)
def test_from_the_command_line(exported, tmp_path):
    folder, data_dir = tmp_path / "vectors", exported.home / "data"
    words = "export", exported.record.folder, folder, "--data-dir", data_dir, "--again"
    check(invoke(*words, "--top", "0"), 2, "--top 0: it must be at least 1")
    assert not folder.exists()
    check(invoke(*words, "--top", "3"), 0, "meta.json, recommendations.parquet in")
    assert "there are only" not in invoke(*words, "--top", "3").output
    check(
        invoke(*words, "--top", "999", "--candidates", "test"),
        0,
        "--top 999: there are only 100 items to rank.",
    )
    assert pq.read_table(folder / BEST)["rank"].to_pylist()[:101] == [*range(1, 101), 1]
    check(invoke(*words), 0, "towers.safetensors, meta.json in")
    assert not (folder / BEST).exists()
