"""Equal scores and users without training links, from files to figures."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from scipy import sparse
from support.cli import check, invoke
from support.tables import as_csv

from ncfbench.data.store import load
from ncfbench.floors import floor, models
from ncfbench.floors.task import Task
from ncfbench.storage.schemas import QUALITY

N_ITEMS, TEXTS = 260, 90


def text_of(item):
    """One of 90 texts, so that items have twins; the words of some are in no training item."""
    rng = np.random.default_rng(item % TEXTS)
    words = rng.zipf(1.3, rng.integers(2, 12)) % 1000
    return " ".join(f"w{word}" for word in words)


def write_files(folder, *, reverse=False):
    """Write items in the order of their popularity, the first the most popular, or the reverse, and
    the links of users of whom a third has links to test items alone.
    """
    rng = np.random.default_rng(1)
    split = rng.choice(["train", "validation", "test"], N_ITEMS, p=[0.3, 0.2, 0.5])
    weights = 1 / np.arange(1, N_ITEMS + 1)
    links = set()
    for user in range(120):
        allowed = weights * (split == "test" if user % 3 == 0 else True)
        size = int(rng.integers(2, 9))
        items = rng.choice(N_ITEMS, size, replace=False, p=allowed / allowed.sum())
        links |= {(user, int(item)) for item in items}
    order = range(N_ITEMS)[::-1] if reverse else range(N_ITEMS)
    items = [{"id": f"i{v}", "text": text_of(v), "split": split[v]} for v in order]
    pairs = [{"user": f"u{user}", "item": f"i{item}"} for user, item in sorted(links)]
    words = as_csv(folder / "links.csv", pairs), as_csv(folder / "items.csv", items)
    return ["--links", words[0], "--items", words[1]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``popular`` and ``reversed``, the same data with their items in opposite orders."""
    folder = tmp_path_factory.mktemp("ties")
    for name in ("popular", "reversed"):
        files = write_files(folder, reverse=name == "reversed")
        words = [*files, "--name", name, "--data-dir", folder]
        check(invoke("prepare", "custom", *words), 0)
    return folder


def test_the_order_of_the_items_file_changes_no_floor(folder):
    rows = {
        name: {row["floor"]: row for row in floor.floor(name, data_dir=folder).rows}
        for name in ("popular", "reversed")
    }
    columns = [f"{split}_{name}" for split in ("validation", "test") for name in QUALITY]
    for name, row in rows["popular"].items():
        other = rows["reversed"][name]
        for column in columns:
            value = other[column]
            expected = None if value is None else pytest.approx(value, rel=1e-6)
            assert row[column] == expected, (name, column)
        assert sorted(row["test_item_shares"]) == pytest.approx(sorted(other["test_item_shares"]))


def test_a_profile_by_hand(folder):
    """Words that no training item has count in the length of a text, as words of df = 0."""
    data = load(folder, "popular")
    (row,) = floor.floor("popular", data_dir=folder, floors=["profile"], again=True).rows
    texts = [text_of(int(str(name)[1:])).split() for name in data.graph.item_ids]
    training = set(data.items_of("train").tolist())
    df = Counter(word for item in training for word in {*texts[item]})
    assert any(word not in df for text in texts for word in text)

    def vector(text, *, with_unseen):
        weights = {
            word: (1 + math.log(tf)) * (math.log((1 + len(training)) / (1 + df[word])) + 1)
            for word, tf in Counter(text).items()
            if with_unseen or word in df
        }
        length = math.hypot(*weights.values())
        return {word: weight / length for word, weight in weights.items()}

    tested = data.items_of("test").tolist()
    linked, held_out = (
        {user: items[users == user].tolist() for user in range(data.n_users)}
        for users, items in map(data.links, ("train", "test"))
    )

    def recall(*, with_unseen):
        vectors = [vector(text, with_unseen=with_unseen) for text in texts]
        recalls = []
        for user in (user for user in linked if linked[user] and held_out[user]):
            profile = Counter()
            for item in linked[user]:
                profile.update(vectors[item])
            scores = np.array(
                [round(math.fsum(profile[w] * x for w, x in vectors[v].items()), 9) for v in tested]
            )
            held = scores[[tested.index(item) for item in held_out[user]], None]
            above, equal = (scores > held).sum(axis=1), (scores == held).sum(axis=1)
            recalls.append(np.clip((50 - above) / equal, 0, 1).mean())
        return np.mean(recalls)

    assert row["test_recall_at_50"] == pytest.approx(recall(with_unseen=True), abs=1e-6)
    assert abs(recall(with_unseen=False) - recall(with_unseen=True)) > 1e-4


@pytest.mark.parametrize("width", [5, 30])
@pytest.mark.parametrize("n_users", [1, 3, 40])
def test_items_of_one_content_tie_to_the_last_bit(width, n_users):
    """Of dense content too, of which libraries round a column by where it stands; by both
    forms of ridge regression.
    """
    rng = np.random.default_rng(width)
    content = np.tile(rng.normal(size=(23, width)).astype(np.float32), (4, 1))
    links = sparse.csr_array((rng.random((n_users, 92)) < 0.2).astype(np.float32))
    candidates = rng.permutation(92)
    for given in (content, sparse.csr_array(content)):
        task = Task(links, given)
        for fitted in (models.profile(task), models.ridge(task, 3.0)):
            scores = fitted(candidates)(np.arange(n_users))
            by_item = scores[:, np.argsort(candidates)]
            for start in (23, 46, 69):
                np.testing.assert_array_equal(by_item[:, :23], by_item[:, start : start + 23])


def test_users_without_training_links_get_chance(folder, tmp_path):
    """Neither the file's order nor a table of users helps them; all say how many they are."""
    data = load(folder, "popular")
    cold = sum(not data.has_links[user] for user in np.unique(data.links("test")[0]))
    assert cold >= 30
    chance = 50 / len(data.items_of("test"))
    words = ("popular", "--data-dir", folder)
    (row,) = json.loads(invoke("floor", *words, "--floors", "profile", "--json").stdout)["rows"]
    said = f"{cold} users without training links stand apart: recall@50 profile {chance:.3f}."
    check(invoke("floor", *words, "--floors", "profile"), 0, said)
    settings = {"encoder": "bow", "sampler": "ns", "batch_size": 64, "epochs": 1, "dimension": 8}
    flags = [f"--set={name}={value}" for name, value in settings.items()]
    run = ("run", "--dataset", *words, "--runs-dir", tmp_path, *flags, "--set=user_tower=history")
    said = f"{cold} users with test links have no training link"
    check(invoke(*run), 0, said, f"apart, {cold} users without training links")
    printed = json.loads(invoke(*run, "--json").stdout)
    for facts in (row, printed):
        assert facts["test_cold_users"] == cold
        assert facts["test_recall_at_50_cold_users"] == pytest.approx(chance)
        assert facts["test_recall_at_50_chance"] == pytest.approx(chance)
    for floor_row in printed["floors"]:
        assert floor_row["this_run"] in {"passes", "level", "below"}
        assert floor_row["above_by_error"] > 0
