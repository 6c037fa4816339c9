"""Blends of trained runs: what is kept, shown and exported ranks as reported; docs/deploy.md."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.cli import check, invoke
from support.training import SMALL, quiet, recall_of_files

from ncfbench import export_vectors
from ncfbench.blending import blend
from ncfbench.config import Locations, complete
from ncfbench.data import open_dataset
from ncfbench.data.sources import synthetic
from ncfbench.data.store import prepare
from ncfbench.floors import kept
from ncfbench.floors.floor import floor
from ncfbench.floors.models import Fitted
from ncfbench.runs.folder import read_all
from ncfbench.runs.progress import Progress
from ncfbench.training import blended, vectors
from ncfbench.training.blended import blend_run, quick_floors
from ncfbench.training.run import run_and_blend

RECALL = "test_recall_at_50"
TINY = {"users": 30, "items": 60, "links": 400}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a small data set with kept floors: its record, the data and its folder."""
    home = tmp_path_factory.mktemp("blended")
    options = synthetic.Options(users=120, items=900, links=4000)
    prepare("synthetic", options, home, "tiny", say=quiet)
    floor("tiny", floors=["profile", "ridge"], data_dir=home, say=quiet)
    settings = complete(SMALL | {"epochs": 3, "learning_rate": 0.03})
    places = Locations(home, home / "runs")
    record = run_and_blend(settings, places, fits_floors=False, progress=Progress())
    return record, open_dataset("tiny", data_dir=home), home


def linked(table):
    return {*zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)}


def best_of(record):
    return max(record.blends, key=kept.recall)


def test_blends_are_kept_beside_their_run(trained):
    record, dataset, home = trained
    floors = {row["floor"]: row for row in kept.read(home / "tiny", dataset.fingerprint)}
    assert [row["floor"] for row in record.blends] == sorted(
        floors, key=lambda name: -floors[name]["validation_recall_at_50"]
    )
    for row in record.blends:
        floor, last = floors[row["floor"]], record.summary["validation_recall_at_50"]
        assert row["penalty"] == floor["penalty"]
        assert row["heights"][0] == pytest.approx(floor["validation_recall_at_50"], abs=1e-3)
        assert row["heights"][-1] == pytest.approx(last, abs=1e-3)
        assert row["validation_recall_at_50"] == max(row["heights"])
        assert np.mean(row["test_user_recalls"]) == pytest.approx(row[RECALL], abs=1e-6)


def test_exported_vectors_rank_as_reported(trained, tmp_path):
    record, dataset, home = trained
    for row in record.blends:
        folder = tmp_path / f"both-{row['floor']}"
        meta = export_vectors(record.folder, folder, floor=row["floor"], data_dir=home)
        assert (meta["floor"], meta["weight_of_the_run"]) == (row["floor"], row["weight"])
        assert recall_of_files(folder, dataset) == pytest.approx(row[RECALL], abs=3e-3)
    for row in kept.read(home / "tiny", dataset.fingerprint):
        folder = tmp_path / row["floor"]
        export_vectors("tiny", folder, floor=row["floor"], data_dir=home)
        assert recall_of_files(folder, dataset) == pytest.approx(row[RECALL], abs=1e-2)
        assert not (folder / "towers.safetensors").exists()


def test_a_floor_of_a_long_fit_is_blended_when_asked_for(trained, monkeypatch):
    """`run` blends with the others, and says how; what is blended is not blended again."""
    record, dataset, home = trained
    rows, said = record.blends, []
    first, second = kept.ranked(kept.read(home / "tiny", dataset.fingerprint))
    seconds = {first["floor"]: 999.0}
    monkeypatch.setattr(kept, "seconds_again", lambda row: seconds.get(row["floor"], 0.1))
    assert quick_floors(record, dataset, said.append) == [second]
    assert not said, "it is blended with the best one already"
    blend.write(record.folder, rows[1:])
    quick_floors(record, dataset, said.append)
    assert f"export {record.name} vectors --floor {first['floor']}" in said[0]
    scored = {}
    row = blend_run(record, dataset, [first], scored=scored)
    assert scored.keys() == {(first["floor"], "validation"), (first["floor"], "test")}
    monkeypatch.setattr(blended, "refit", lambda *a: pytest.fail("it is fitted"))
    assert {**row, "seconds": 0.0} == {**rows[0], "seconds": 0.0}
    assert blend_run(record, dataset, [first, second]) == best_of(record)
    blend.write(record.folder, rows[1:])
    assert blend_run(record, dataset, [first], scored=scored)["heights"] == rows[0]["heights"]
    blend.write(record.folder, rows)
    assert blend_run(record, dataset, []) is None


@pytest.mark.parametrize("most", [9, 10**6])
@pytest.mark.parametrize("hold_out", ["items", "links"])
def test_many_items_scale_a_user_by_every_nth(tmp_path, monkeypatch, most, hold_out):
    monkeypatch.setattr(vectors, "MOST_SCALED", most)
    prepare("synthetic", synthetic.Options(hold_out=hold_out, **TINY), tmp_path, "d", say=quiet)
    data, rng = open_dataset("d", data_dir=tmp_path), np.random.default_rng(0)
    users_UxD, items_VxD = (rng.normal(size=(n, 3)) for n in (data.n_users, data.n_items))
    taken = np.arange(data.n_items) if hold_out == "links" else data.candidates("test")
    taken = taken[:: -(-len(taken) // most)]
    fitted = Fitted(users_UxD.astype(np.float32), items_VxD.astype(np.float32))
    by_user = vectors._deviations(fitted, np.arange(data.n_items), data)
    linked = set(zip(*map(np.ndarray.tolist, data.links("train")), strict=True))
    for user in range(data.n_users):
        left = [item for item in taken.tolist() if (user, item) not in linked]
        assert by_user[user] == pytest.approx(np.std(items_VxD[left] @ users_UxD[user]), rel=1e-4)


@pytest.mark.parametrize("floors", [[], ["--floor", "ridge"]])
def test_on_all_links_everything_trains(trained, tmp_path, floors):
    """The same epochs once more, kept within the run; lists have no linked item at all."""
    record, dataset, home = trained
    words = ("export", record.folder, tmp_path / "v", *floors, "--on-all-links", "--top", "20")
    check(invoke(*words, "--data-dir", home), 0, "trained on all links", "recommendations.parquet")
    meta = json.loads((tmp_path / "v/meta.json").read_text())
    (again,) = (record.folder / "on-all-links").glob("*/config.json")
    epochs = json.loads(again.read_text())["config"]["epochs"]
    assert (meta["on_all_links"], meta["epoch"]) == (True, epochs)
    assert epochs == record.summary["reported_epoch"]
    assert {*pq.read_table(tmp_path / "v/items.parquet")["split"].to_pylist()} == {"training"}
    shown = linked(pq.read_table(tmp_path / "v/recommendations.parquet"))
    assert shown.isdisjoint(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True))
    assert len(shown) == 20 * len(np.unique(dataset.users))


def test_the_whole_catalogue_is_ranked_by_default(trained, tmp_path):
    record, dataset, home = trained
    lists = {}
    for name in ("all", "test"):
        folder, more = tmp_path / name, {"top": 9, "candidates": name, "data_dir": home}
        export_vectors(record.folder, folder, **more)
        lists[name] = linked(pq.read_table(folder / "recommendations.parquet"))
    users, items = (side.tolist() for side in dataset.links("train"))
    test_items = {*dataset.items_of("test").tolist()}
    assert lists["all"].isdisjoint(zip(users, items, strict=True))
    assert {item for _, item in lists["all"]} - test_items
    assert {item for _, item in lists["test"]} <= test_items
    of_users, of_items = (np.load(tmp_path / "all" / f"{side}.npy") for side in ("users", "items"))
    scores = of_items @ of_users[users[0]]
    scores[[item for one, item in zip(users, items, strict=True) if one == users[0]]] = -np.inf
    assert {(users[0], item) for item in np.argsort(-scores)[:9].tolist()} <= lists["all"]


def test_a_report_and_its_copy_have_the_blend(trained, tmp_path):
    record, _, home = trained
    words = ("report", home / "runs", "--data-dir", home, "--export", tmp_path / "out", "--json")
    (answer,) = json.loads(invoke(*words).stdout)["answers"]
    (found,) = answer["blends"]
    for name in ("floor", "weight", RECALL):
        assert found[name] == best_of(record)[name]
    (copied,), _ = read_all(tmp_path / "out")
    assert copied.blends == [row | {"run": record.name} for row in record.blends]
    published = invoke("report", tmp_path / "out", "--data-dir", tmp_path)
    check(published, 0, "Both together", "DEPLOY ")


def test_a_blend_of_other_parameters_is_made_again(trained):
    """As where an interrupted run was blended, and trained on."""
    record, dataset, home = trained
    rows = record.blends
    old = [row | {"iteration": row["iteration"] - 1, "weight": 0.123} for row in rows]
    blend.write(record.folder, old)
    assert "Both together" not in invoke("report", home / "runs", "--data-dir", home).stdout
    again = blend_run(record, dataset, quick_floors(record, dataset))
    assert {**again, "seconds": 0} == {**best_of(record), "seconds": 0}
    assert [row["heights"] for row in record.blends] == [row["heights"] for row in rows]
    blend.write(record.folder, rows)


def test_a_floor_with_a_chosen_penalty_comes_first():
    def row(name, by, recall):
        return {"floor": name, "chosen_by": by, "validation_recall_at_50": recall}

    given, chosen = row("ridge", "given", 0.5), row("ridge", "validation", 0.4)
    profile = row("profile", None, 0.3)
    assert kept.named([chosen, given, profile], "ridge") is chosen
    assert kept.named([given, profile], "ridge") is given
    assert kept.named([], "ease") is kept.named([given], "ease") is None


REFUSED = [
    ("RUN --floor ials", 2, ["No ials: the held-out items of tiny have no training links"]),
    ("RUN --floor rigde", 2, ["no floor 'rigde'; did you mean 'ridge'?"]),
    ("RUN --floor denoised", 2, ["keeps no floor 'denoised'", "floor tiny --floors denoised"]),
    ("tiny --floor ridge --top 3 --candidates x", 2, ["--candidates 'x': it is one of all, test."]),
    ("tiny", 2, ["Name the floor", "--floor ridge"]),
    ("nobody --floor ridge", 3, ["No data set nobody is in", "There is no run 'nobody'"]),
    ("RUN --on-all-links --top 3 --candidates test", 2, ["nothing is held out"]),
    ("RACE", 2, ["is a race, whose answer exports: ncfbench export a b"]),
]


@pytest.mark.parametrize(("words", "code", "texts"), REFUSED)
def test_what_cannot_be_exported_is_refused(trained, tmp_path, words, code, texts):
    record, _, home = trained
    (tmp_path / "answer.json").write_text('{"deploy": {"command": "ncfbench export a b"}}')
    words = words.replace("RUN", str(record.folder)).replace("RACE", str(tmp_path))
    source, *flags = words.split()
    done = invoke("export", source, tmp_path / "v", *flags, "--data-dir", home)
    check(done, code, *texts)
    assert not (tmp_path / "v").exists()


PAGE = (Path(__file__).parents[2] / "docs/deploy.md").read_text("utf-8")
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)).replace("\\\n", "")
SHORT = "--epochs 1 --dimension 8 --set word_dimension=8 --batch-size 64"
"""Flags that make the page's run short."""


def write_files(folder):
    """Users of two kinds, each with links to items of one of two vocabularies."""
    rng = np.random.default_rng(0)
    movies, ratings = ["movieId,title"], ["userId,movieId"]
    for item, words in enumerate(rng.integers(0, 40, (900, 6))):
        movies.append(f"m{item}," + " ".join(f"word{word + 40 * (item % 2)}" for word in words))
    for user in range(60):
        items = 2 * rng.choice(450, 40, replace=False) + user % 2
        ratings += [f"u{user},m{item}" for item in items]
    for name, lines in (("movies", movies), ("ratings", ratings)):
        (folder / f"{name}.csv").write_text("\n".join(lines))


def test_the_page_on_deployment_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    assert len(COMMANDS.splitlines()) == 6
    for line in COMMANDS.splitlines():
        words = shlex.split(line) + SHORT.split() * (" run " in line)
        run = str(next(Path("runs").glob("custom-*"), None))
        done = invoke(*(re.sub(r"runs/custom-\S+\w", run, word) for word in words[1:]))
        check(done, 0)
        if "report" in line:
            assert re.search(r"^DEPLOY .*:\n  ncfbench export \S+ vectors ", done.stdout, re.M)
    with Path("ratings.csv").open() as file:
        links = {(row["userId"], row["movieId"]) for row in csv.DictReader(file)}
    shown = linked(pq.read_table("all/recommendations.parquet"))
    assert len(shown) == 60 * 50
    assert shown.isdisjoint(links)
    of_kind = [int(user[1:]) % 2 == int(item[1:]) % 2 for user, item in shown]
    assert np.mean(of_kind) > 0.8
