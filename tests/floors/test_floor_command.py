"""``ncfbench floor``: what is fitted, kept, refused and printed; the references on real data."""

import itertools
import json
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from support.cli import check, invoke
from support.training import quiet

from ncfbench.data import prepare
from ncfbench.data.sources import citeulike, custom
from ncfbench.data.store import load
from ncfbench.errors import UsageError
from ncfbench.floors import floor, kept, linear, models
from ncfbench.floors.models import FLOORS
from ncfbench.floors.task import HeldOut, Task, contents_of
from ncfbench.reporting.views.floors import floors_table
from ncfbench.storage import tables
from ncfbench.storage.schemas import FLOOR


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_options):
    """``cold`` holds items out, ``warm`` links, ``unvalidated`` items without validation."""
    folder = tmp_path_factory.mktemp("floors")
    for name, changed in {
        "cold": {},
        "warm": {"hold_out": "links"},
        "unvalidated": {"validation_fraction": 0.0},
        "unvalidated-warm": {"hold_out": "links", "validation_fraction": 0.0},
    }.items():
        prepare("synthetic", replace(tiny_options, **changed), folder, name, say=quiet)
    return folder


def fitted(folder, name, *floors, **more):
    return floor.floor(name, floors=floors, data_dir=folder, say=quiet, **more)


def watched(monkeypatch, name, fit=None):
    """Return the tasks and penalties that a floor is fitted to from here on."""
    fits, fit = [], fit or FLOORS[name].fit
    seen = replace(FLOORS[name], fit=lambda *given: [fits.append(given), fit(*given)][1])
    monkeypatch.setitem(models.FLOORS, name, seen)
    return fits


def test_floors_that_fit_are_measured_and_kept(folder):
    result = fitted(folder, "cold", again=True)
    assert [row["floor"] for row in result.rows] == ["profile", "ridge", "denoised"]
    assert set(result.left_out) == {"popularity", "ease", "ials"}
    assert len(result.notes) == 1, "one reason for all three"
    assert kept.read(folder / "cold", result.fingerprint) == result.rows
    assert kept.read(folder / "cold", "another") == []
    profile, ridge, _ = result.rows
    assert profile["penalty"] is None
    assert ridge["recalls"][ridge["penalties"].index(ridge["penalty"])] == max(ridge["recalls"])
    assert ridge["validation_recall_at_50"] == max(ridge["recalls"])
    assert ridge["chosen_by"] == "validation"
    assert ridge["test_hit_rate_at_50"] >= ridge["test_recall_at_50"] > 0
    for row, split in itertools.product(result.rows, ("validation", "test")):
        recall = row[f"{split}_recall_at_50"]
        assert np.mean(row[f"{split}_user_recalls"]) == pytest.approx(recall)
        assert sum(row[f"{split}_item_shares"]) == pytest.approx(recall)


def test_known_items_are_ranked_without_those_of_training(folder):
    """By brute force: a user's ranking holds all items but those of his training links."""
    result = fitted(folder, "warm", "popularity", "ease", "ials", penalty=0.1)
    data = load(folder, "warm")
    training, test = (
        set(zip(*map(np.ndarray.tolist, data.links(split)), strict=True))
        for split in ("train", "test")
    )
    degrees = np.bincount(data.links("train")[1], minlength=data.n_items)
    recalls, shares = [], dict.fromkeys(sorted({item for _, item in test}), 0.0)
    users = sorted({user for user, _ in test})
    for user in users:
        ranked = degrees[[item for item in range(data.n_items) if (user, item) not in training]]
        items = [item for other, item in test if other == user]
        hits = {
            item: np.clip((50 - (ranked > degree).sum()) / (ranked == degree).sum(), 0, 1)
            for item, degree in zip(items, degrees[items], strict=True)
        }
        recalls.append(sum(hits.values()) / len(items))
        for item in items:
            shares[item] += hits[item] / len(items) / len(users)
    row = result.rows[0]
    assert row["test_user_recalls"] == pytest.approx(recalls)
    assert row["test_item_shares"] == pytest.approx(list(shares.values()))
    assert row["test_recall_at_50"] == pytest.approx(np.mean(recalls))
    assert row["test_cold_users"] == 0
    assert row["validation_recall_at_50"] is not None
    assert result.rows[1]["test_recall_at_50"] > row["test_recall_at_50_chance"]
    lacks = {name for name in FLOORS if floor.lack(data, name)}
    assert lacks == {"denoised"}, "all others rank known items"
    wordless = replace(data, vocabulary=())
    assert "neither texts nor features" in floor.lack(wordless, "profile")


@pytest.mark.parametrize(
    ("name", "share"), [("unvalidated", "items"), ("unvalidated-warm", "links")]
)
def test_without_validation_training_links_choose(folder, name, share, monkeypatch):
    """The fits that choose neither see the links apart nor any test link."""
    fits = watched(monkeypatch, "ridge")
    (row,) = fitted(folder, name, "ridge", again=True).rows
    assert row["chosen_by"] == f"a tenth of the training {share}"
    assert row["validation_recall_at_50"] is None
    *choosing, last = [task.links_UxI.nnz for task, _ in fits]
    assert last == len(load(folder, name).links("train")[0])
    assert all(0.75 * last < links < 0.97 * last for links in choosing)
    assert choosing[0] == choosing[-1]
    task = Task.of(load(folder, name))
    reduced, apart = task.apart()
    assert apart.n_users > 0
    assert (task.links_UxI - reduced.links_UxI).min() == 0
    if task.leaves_out_known:  # all users keep a link
        few = np.eye(200, dtype=np.float32)
        few[0] = 1
        reduced, _ = replace(task, links_UxI=sparse.csr_array(few)).apart()
        assert np.diff(reduced.links_UxI.indptr)[1:].min() == 1
    else:
        assert not reduced.item_degrees[apart.candidates].any()


@pytest.mark.parametrize("name", ["ridge", "ease"])
def test_the_best_fit_of_a_choice_is_used_again(folder, name, monkeypatch):
    """Each penalty is fitted once, and the row is that of a fit with the chosen one alone."""
    fits = watched(monkeypatch, name)
    (row,) = fitted(folder, "warm", name, again=True).rows
    assert sorted(penalty for _, penalty in fits) == sorted(row["penalties"])
    (alone,) = fitted(folder, "warm", name, penalty=row["penalty"], again=True).rows
    for column in ("validation_recall_at_50", "test_recall_at_50", "test_mrr"):
        assert row[column] == alone[column]


def test_a_kept_floor_is_not_fitted_again(folder, monkeypatch):
    fits = watched(monkeypatch, "ridge")
    (first,) = fitted(folder, "cold", "ridge", penalty=7.0).rows
    assert (first["chosen_by"], first["penalties"]) == ("given", [])
    assert fitted(folder, "cold", "ridge", penalty=7.0).rows == [first]
    assert len(fits) == 1
    fitted(folder, "cold", "ridge", penalty=7.0, again=True)
    assert len(fits) == 2
    monkeypatch.setattr("ncfbench.timing.environment.host_key", lambda: "another machine")
    fitted(folder, "cold", "ridge", penalty=7.0)
    assert [penalty for _, penalty in fits] == [7.0] * 3
    settings = [row["settings"] for row in tables.read_rows(folder / "cold/floors.parquet", FLOOR)]
    assert len(settings) == len(set(settings))


def test_a_damaged_table_is_made_again(folder):
    (folder / "warm/floors.parquet").write_bytes(b"no table")
    said = []
    floor.floor("warm", floors=["popularity"], data_dir=folder, say=said.append)
    assert "Cannot read" in said[0]
    assert len(kept.read(folder / "warm", load(folder, "warm").fingerprint)) == 1


def test_what_does_not_fit_is_refused_before_it_starts(folder, monkeypatch):
    words = r"No profile, ease: it would take about .* has 0 s\. A larger --budget overrules this\."
    with pytest.raises(UsageError, match=words):
        fitted(folder, "warm", "profile", "ease", again=True, budget_seconds=1e-9)
    monkeypatch.setattr(floor, "available_memory", lambda: 100_000)
    result = fitted(folder, "warm", "popularity", "profile", again=True)
    assert [row["floor"] for row in result.rows] == ["popularity"]
    assert re.search("about .* GiB of memory, and .* are free", result.left_out["profile"])
    monkeypatch.setattr(floor.Case, "of", lambda *given, **more: pytest.fail("read"))
    with pytest.raises(UsageError, match="No ease, popularity: the held-out items of cold"):
        fitted(folder, "cold", "ease", "popularity", again=True)
    with pytest.raises(UsageError, match="no meaning for profile"):
        fitted(folder, "cold", "profile", penalty=3.0)


def test_without_time_to_choose_the_usual_penalty_serves(folder, monkeypatch):
    """It is kept, and takes no time again; with more time a penalty is chosen."""

    def seconds(case, name, *, is_chosen):
        return 100.0 if is_chosen else 10.0

    (folder / "cold/floors.parquet").unlink(missing_ok=True)
    monkeypatch.setattr("ncfbench.floors.case.expected_seconds", seconds)
    said = []
    given = {"floors": ["ridge"], "data_dir": folder, "say": said.append}
    (row,) = floor.floor("cold", **given, budget_seconds=50.0).rows
    assert (row["penalty"], row["chosen_by"]) == (30, "given")
    assert row["penalty"] == FLOORS["ridge"].usual_penalty
    assert "ridge has its usual penalty, 30. To choose one, it would take about 100 s" in said[-1]
    with monkeypatch.context() as patch:
        patch.setattr(floor, "measure", lambda *given: pytest.fail("it is kept"))
        assert floor.floor("cold", **given, budget_seconds=5.0).rows == [row]
    (chosen,) = floor.floor("cold", **given, budget_seconds=200.0).rows
    assert chosen["chosen_by"] == "validation"
    with pytest.raises(UsageError, match="it would take about 10 s"):
        floor.floor("cold", **given, again=True, budget_seconds=5.0)
    # A floor of less than a second is fitted though others took the time of all.
    monkeypatch.setattr("ncfbench.floors.case.expected_seconds", lambda *_, **__: 0.9)
    assert floor.floor("cold", **given, again=True, total_seconds=-5.0).rows


def singular(*given):
    return linear.inverse(-np.eye(3), 0.5)


def unbounded(*given):
    return lambda items: lambda users: np.full((len(users), len(items)), np.nan, np.float32)


@pytest.mark.parametrize(("fit", "penalty"), [(singular, None), (unbounded, 1e-12)])
def test_too_small_a_penalty_is_named(folder, monkeypatch, fit, penalty):
    watched(monkeypatch, "ease", fit)
    with pytest.raises(UsageError, match="so small a penalty: use a larger --penalty"):
        fitted(folder, "warm", "ease", penalty=penalty, again=True)


def test_a_penalty_is_climbed_to_from_the_middle():
    for top, asked in {2.0: [3, 4, 2, 1], 3.0: [3, 4, 2], 5.0: [3, 4, 5]}.items():
        heights = floor.climb([1, 2, 3, 4, 5], lambda value: -abs(value - top))  # noqa: B023
        assert [*heights] == asked


@pytest.mark.parametrize(
    ("name", "direct", "n_users", "width"),
    [("ridge", 1024, 900, 2000), ("ridge", 0, 1500, 700), ("ease", 0, 900, 700)],
)
def test_a_cost_counts_the_bytes_of_the_matrices(name, direct, n_users, width, monkeypatch):
    monkeypatch.setattr(linear, "DIRECT", direct)
    monkeypatch.setattr(linear, "SYSTEMS", 8)
    rng = np.random.default_rng(0)
    links = sparse.random_array((n_users, 1100), density=0.01, rng=rng, dtype=np.float32)
    content = sparse.random_array((1100, width), density=0.01, rng=rng, dtype=np.float32)
    task, candidates = Task(links.tocsr(), content.tocsr()), np.arange(600)
    tracemalloc.start()
    FLOORS[name].fit(task, 5.0)(candidates)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    bytes_, _ = models.cost(name, task, len(candidates))
    assert 0.5 < bytes_ / peak < 2


def test_a_common_word_takes_no_memory():
    """With it the products of all pairs of texts differ from 0."""
    content = sparse.random_array((2000, 300), density=0.01, rng=np.random.default_rng(0)).tolil()
    content[:, 0] = 1.0
    rows = sparse.csr_array(content, dtype=np.float32)
    tracemalloc.start()
    gram = linear.gram(rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * gram.nbytes
    assert gram.flags.f_contiguous
    np.testing.assert_allclose(gram, rows.toarray() @ rows.toarray().T, rtol=1e-5)


def test_a_cost_counts_operations_of_the_matrices():
    """Of 5 users, 40 items with a text of one word of 30, and 200 links."""
    links, content = sparse.csr_array(np.ones((5, 40))), sparse.csr_array(np.eye(40, 30))
    task = Task(links, content)
    assert models.cost("popularity", task, 10)[1] == 0
    assert models.cost("profile", task, 10)[1] == models.SLOW * 2 * (200 + 30) * 10
    assert models.cost("ease", task, 8)[1] == 5**3
    for candidates, sides in ((3, 3), (8, 5)):
        products = models.SLOW * 2 * 30 * (30 + sides)
        solved = 30**3 / 3 + 2 * 30**2 * sides
        assert models.cost("ridge", task, candidates)[1] == products + solved
    systems = 2 * 2 * 200 * 64**2 + models.SLOW * 45 * 64**3
    assert models.cost("ials", Task(links), 8)[1] == 10 * systems


def test_the_command_prints_one_table(folder):
    words = ("floor", "cold", "--data-dir", folder)
    check(invoke(*words), 0, "Floors of cold", "profile", "Kept:", "No popularity, ease, ials")
    printed = json.loads(invoke(*words, "--json", "--floors", "ridge", "--quiet").stdout)
    assert printed["rows"][0]["floor"] == "ridge"
    assert not re.findall("user_recalls|shares", str(printed["rows"][0].keys()))
    assert printed["fingerprint"] == load(folder, "cold").fingerprint
    check(invoke(*words, "--floors", "ease"), 2, "Error: No ease: the held-out items of cold")
    check(invoke(*words, "--budget", "soon"), 2, "is not a time")


def test_notes_on_penalties_and_kinds_of_items(folder):
    row = fitted(folder, "cold", "ridge").rows[0]
    kinds = {"test_recall_at_50_new_items": 0.25, "test_recall_at_50_known_items": 0.5}
    for more, words in (
        ({"penalty": 1.0}, ["ridge: 1 is the smallest of its penalties"]),
        ({"penalty": 1000.0}, ["ridge: 1000 is the largest of its penalties"]),
        ({"penalty": 30.0}, []),
        (kinds | {"penalty": 30.0}, ["new items: recall@50 ridge 0.25", "known items: recall@50"]),
    ):
        notes = " ".join(floors_table("cold", [row | more]).notes)
        assert [text for text in words if text not in notes] == []
        assert notes.count("may lie beyond") + notes.count(" items: recall@50 ") == len(words)


def test_an_interrupt_keeps_what_is_done(folder, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    (folder / "cold/floors.parquet").unlink(missing_ok=True)
    watched(monkeypatch, "ridge", interrupted)
    words = ("floor", "cold", "--data-dir", folder, "--floors", "profile,ridge", "--again")
    said = "Interrupted. Floors that were done are kept. To go on: ncfbench"
    check(invoke(*words), 130, said)
    rows = kept.read(folder / "cold", load(folder, "cold").fingerprint)
    assert [row["floor"] for row in rows] == ["profile"]


REFERENCES = {
    "citeulike-a": {None: 0.5120, 3: 0.5381, 5: 0.5498, 10: 0.5624, 20: 0.5666},
    "movielens-plots": {None: 0.1827, 1: 0.2547, 5: 0.2754, 20: 0.2703},
    "anime": {None: 0.3517, 1: 0.4460, 5: 0.4581, 20: 0.4466},
    "yelp": {None: 0.0608},
    "debian": {None: 0.3188},
}
"""Recall@50 of profiles and of ridge by its penalty, computed apart from this program, without
validation items."""


@pytest.mark.real
@pytest.mark.parametrize("name", REFERENCES)
def test_references_are_met(name, shared_data, tmp_path):
    source = shared_data / name
    if name == "citeulike-a":
        more = {"allow_unverified": True, "text": ("title", "tags"), "max_length": 40}
        options = citeulike.Options(from_=source, min_count=3, validation_fraction=0, **more)
        prepare("citeulike", options, tmp_path, name, say=quiet)
    else:
        ids = {"item_column": "package", "id_column": "package"} if name == "debian" else {}
        columns = {"text_columns": ("title", "description")} if name == "debian" else {}
        (items,) = source.glob("items.csv*")
        options = custom.Options(
            links=source / "links.csv.gz", items=items, validation_fraction=0, **ids, **columns
        )
        prepare("custom", options, tmp_path, name, say=quiet)
    dataset = load(tmp_path, name)
    task = Task.of(dataset, contents_of(dataset)[0]["TF-IDF"])
    test = HeldOut(task, *dataset.links("test"), dataset.candidates("test"))
    for penalty, recall in REFERENCES[name].items():
        model = FLOORS["profile" if penalty is None else "ridge"]
        quality = test.evaluate(model.fit(task, penalty or 0.0)(test.candidates))
        # The references count users without training links too.
        figures, n_scored = quality.figures, len(quality.user_recalls)
        cold, share = figures["cold_users"] or 0.0, figures["recall_at_50_cold_users"] or 0.0
        result = (n_scored * figures["recall_at_50"] + cold * share) / (n_scored + cold)
        assert result == pytest.approx(recall, abs=0.002), penalty


def test_many_users_are_ranked_by_a_sample(tiny, monkeypatch):
    """A sample of many users is ranked: the same one for floors and runs, and its recalls
    are those that all users have.
    """
    whole = HeldOut.of(Task.of(tiny), tiny)["test"]
    scores = np.random.default_rng(0).random((tiny.n_users, len(whole.candidates)))
    of_all = whole.evaluate(np.float32(scores).__getitem__).user_recalls.tolist()
    monkeypatch.setattr("ncfbench.floors.task.MOST_RANKED_USERS", 9)
    sample, again = (HeldOut.of(Task.of(tiny), tiny)["test"] for _ in range(2))
    assert sample.n_users == 9 < whole.n_users
    recalls = sample.evaluate(np.float32(scores).__getitem__).user_recalls
    assert recalls.tolist() == again.evaluate(np.float32(scores).__getitem__).user_recalls.tolist()
    assert {*recalls.tolist()} <= {*of_all}
