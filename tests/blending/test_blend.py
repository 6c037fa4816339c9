"""Blends by plain arithmetic, and of trained runs: what is kept, shown and exported ranks as
reported; docs/deploy.md.
"""

import csv
import json
import re
import shlex
import statistics
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import check, invoke
from support.training import SMALL, quiet, recall_of_files

from ncfbench import export_vectors
from ncfbench.blending import blend
from ncfbench.blending.blend import Blend, scale
from ncfbench.blending.vectors import factorise
from ncfbench.config import Locations, complete
from ncfbench.data import open_dataset
from ncfbench.data.sources import synthetic
from ncfbench.data.store import prepare
from ncfbench.floors import kept
from ncfbench.floors.floor import floor
from ncfbench.floors.models import FLOORS, Fitted
from ncfbench.floors.task import HeldOut, Task, contents_of
from ncfbench.runs.folder import read_all
from ncfbench.runs.progress import Progress
from ncfbench.training import blended, vectors
from ncfbench.training.blended import blend_run, quick_floors
from ncfbench.training.run import run_and_blend

RECALL = "test_recall_at_50"
TINY = {"users": 30, "items": 60, "links": 400}


@pytest.fixture(scope="module")
def case(tiny):
    """The validation links of a small data set, and scores of profiles and of chance."""
    task = Task.of(tiny, contents_of(tiny)[0]["TF-IDF"])
    held_out = HeldOut.of(task, tiny)["validation"]
    profiles = FLOORS["profile"].fit(task, 0.0)(held_out.candidates)
    drawn = np.random.default_rng(0).normal(3, 9, (tiny.n_users, len(held_out.candidates)))
    return held_out, profiles, np.float32(drawn).__getitem__


@given(
    rows=st.lists(st.lists(st.integers(-9, 9), min_size=5, max_size=5), min_size=1, max_size=4),
    known=st.lists(st.integers(0, 4), max_size=3, unique=True),
)
def test_the_scale_of_a_user_is_that_of_his_candidates(rows, known):
    users = np.arange(len(rows))
    mean, deviation = scale(np.float32(rows), users, lambda user: np.array(known, int))
    for user, row in enumerate(rows):
        rest = [score for item, score in enumerate(row) if item not in known]
        assert mean[user, 0] == pytest.approx(statistics.fmean(rest), abs=1e-6)
        assert deviation[user, 0] == pytest.approx(statistics.pstdev(rest) or 1.0, rel=1e-5)


def recall_by_sort(scores, tiny, held_out, m):
    """Mean recall@m over users, by a sort of each user's scores."""
    users, items = tiny.links("validation")
    place = {item: at for at, item in enumerate(held_out.candidates.tolist())}
    recalls = []
    for user in np.unique(users[tiny.has_links[users]]):
        linked = [place[item] for item in items[users == user].tolist()]
        best = np.argsort(-scores(np.array([user]))[0], kind="stable")[:m]
        recalls.append(np.isin(linked, best).mean())
    return statistics.fmean(recalls)


def test_the_weight_is_the_best_of_eleven(tiny, case):
    held_out, profiles, drawn = case
    parts = [np.float64(scores(np.arange(tiny.n_users))) for scores in (profiles, drawn)]
    floor, run = ((part - part.mean(1)[:, None]) / part.std(1)[:, None] for part in parts)
    floor = np.nan_to_num(floor)
    chosen, heights, quality = Blend(profiles, drawn, held_out).choose("recall_at_10")
    assert [*heights] == pytest.approx([step / 10 for step in range(11)])
    for weight, height in heights.items():
        if weight:  # of profiles alone many scores are equal
            mixed = (1 - weight) * floor + weight * run
            expected = recall_by_sort(mixed.__getitem__, tiny, held_out, 10)
            assert height == pytest.approx(expected, abs=1e-3)
    most = max(heights.values())
    best = [weight for weight, height in heights.items() if height == most]
    assert chosen == min(best, key=lambda weight: abs(weight - 0.5))
    assert quality.figures["recall_at_10"] == most
    assert most >= max(heights[0.0], heights[1.0])


def test_both_ends_are_the_parts(case):
    held_out, profiles, drawn = case
    _, heights, _ = Blend(profiles, drawn, held_out).choose("recall_at_50")
    for weight, scores in ((0.0, profiles), (1.0, drawn)):
        alone = held_out.evaluate(scores).figures["recall_at_50"]
        assert heights[weight] == pytest.approx(alone, abs=1e-3)
    assert Blend(profiles, profiles, held_out).choose("recall_at_50")[0] == 0.5


@pytest.mark.parametrize("block", [7, 2**16])
def test_vectors_are_the_best_of_their_rank(monkeypatch, block):
    """Beside NumPy's decomposition of the whole matrix."""
    monkeypatch.setattr("ncfbench.blending.vectors.BLOCK_ROWS", block)
    rng = np.random.default_rng(0)
    falling = np.float32(2.0 ** -np.arange(40))
    scores = (rng.normal(size=(90, 40)) * falling @ rng.normal(size=(40, 70))).astype(np.float32)
    left, values, right = np.linalg.svd(scores, full_matrices=False)
    products = scores.__matmul__, scores.T.__matmul__
    users, items = factorise(*products, 90, 70, 8)
    assert (users.shape, items.shape) == ((90, 8), (70, 8))
    for rank in (2, 8):
        best = (left[:, :rank] * values[:rank]) @ right[:rank]
        np.testing.assert_allclose(users[:, :rank] @ items[:, :rank].T, best, atol=0.01)
    whole = factorise(*products, 90, 70, 500)
    np.testing.assert_allclose(whole[0] @ whole[1].T, scores, atol=1e-3)


# Of trained runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
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
        assert recall_of_files(folder, dataset) == pytest.approx(meta[RECALL], abs=1e-6)
        assert meta[RECALL] == pytest.approx(row[RECALL], abs=3e-3)
        assert meta[f"{RECALL}_of_all_ranks"] == row[RECALL]
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


def test_on_all_links_everything_trains(trained, tmp_path):
    """The same epochs once more, kept within the run; lists have no linked item at all."""
    record, dataset, home = trained
    words = ("export", record.folder, tmp_path / "v", "--floor", "ridge", "--on-all-links")
    done = invoke(*words, "--top", "20", "--data-dir", home)
    check(done, 0, "trained on all links", "recommendations.parquet")
    meta = json.loads((tmp_path / "v/meta.json").read_text())
    (again,) = (record.folder / "on-all-links").glob("*/config.json")
    epochs = json.loads(again.read_text())["config"]["epochs"]
    assert (meta["on_all_links"], meta["epoch"]) == (True, epochs)
    assert not [name for name in meta if "recall" in name], "none can be known"
    assert epochs == record.summary["reported_epoch"]
    assert {*pq.read_table(tmp_path / "v/items.parquet")["split"].to_pylist()} == {"training"}
    shown = linked(pq.read_table(tmp_path / "v/recommendations.parquet"))
    assert shown.isdisjoint(zip(dataset.users.tolist(), dataset.items.tolist(), strict=True))
    assert len(shown) == 20 * len(np.unique(dataset.users))


def test_the_whole_catalogue_is_ranked_by_default(trained, tmp_path):
    record, dataset, home = trained
    export_vectors(record.folder, tmp_path / "v", top=9, data_dir=home)
    pairs = linked(pq.read_table(tmp_path / "v/recommendations.parquet"))
    training = {*zip(*(side.tolist() for side in dataset.links("train")), strict=True)}
    assert pairs.isdisjoint(training)
    user = min(user for user, _ in training)
    of_users, of_items = (np.load(tmp_path / "v" / f"{side}.npy") for side in ("users", "items"))
    scores = of_items @ of_users[user]
    scores[[item for one, item in training if one == user]] = -np.inf
    best = {(user, item) for item in np.argsort(-scores)[:9].tolist()}
    assert best == {pair for pair in pairs if pair[0] == user}


def test_a_report_and_its_copy_have_the_blend(trained, tmp_path):
    """A blend in which one part has all the weight is that part, and not shown."""
    record, _, home = trained
    rows = record.blends
    blend.write(record.folder, [row | {"weight": 1.0} for row in rows])
    assert "Both together" not in invoke("report", home / "runs", "--data-dir", home).stdout
    blend.write(record.folder, [row | {"weight": 0.4} for row in rows])
    words = ("report", home / "runs", "--data-dir", home, "--export", tmp_path / "out", "--json")
    (answer,) = json.loads(invoke(*words).stdout)["answers"]
    (shown,) = answer["blends"]
    wanted = {name: best_of(record)[name] for name in ("floor", "weight", RECALL)}
    assert shown.items() >= wanted.items()
    (copied,), _ = read_all(tmp_path / "out")
    assert copied.blends == [row | {"run": record.name} for row in record.blends]
    published = invoke("report", tmp_path / "out", "--data-dir", tmp_path)
    check(published, 0, "Both together", "DEPLOY ")
    blend.write(record.folder, rows)


def test_a_blend_of_other_parameters_is_made_again(trained):
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
