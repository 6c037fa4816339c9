"""`describe`: every figure derived a second way, and what is printed."""

import json
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import check, invoke
from support.training import content_of, store_prepared

from ncfbench.cli.description import bar
from ncfbench.config import complete
from ncfbench.data import store
from ncfbench.data.description import describe as describe_data
from ncfbench.data.description import distribution
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.sources import Preparation
from ncfbench.data.text import Texts
from ncfbench.rng import Streams
from ncfbench.sampling import contents
from ncfbench.sampling.contents import configurations, distinct_nodes
from ncfbench.sampling.listed import IidSampler


def describe(dataset, configs, **more):
    return describe_data(dataset) | contents.describe(dataset, configs, **more)


def test_a_distribution_by_hand():
    facts = distribution(np.array([0, 9, 1, 3, 2, 1, 4]))
    bins = [(0, 0, 1, 0), (1, 1, 2, 2), (2, 3, 2, 5), (4, 7, 1, 4), (8, 9, 1, 9)]
    assert [tuple(bin_.values()) for bin_ in facts["bins"]] == bins
    assert distribution(np.zeros(0, np.int32)) is None
    empty = distribution(np.zeros(3, np.int32))
    assert (empty["gini"], empty["top_1_percent"], empty["mean"]) == (None, None, 0)
    assert len(empty["bins"]) == 1


@given(st.lists(st.integers(0, 300), min_size=1, max_size=250).filter(any))
@settings(max_examples=40)
def test_distributions_against_their_definitions(counts):
    facts = distribution(np.array(counts, np.int32))
    n, total = len(counts), sum(counts)
    assert (facts["nodes"], facts["total"], facts["mean"]) == (n, total, total / n)
    of_three = min(counts), np.median(counts), max(counts)
    assert (facts["smallest"], facts["median"], facts["largest"]) == of_three
    differences = sum(abs(one - other) for one in counts for other in counts) / n**2
    assert facts["gini"] == pytest.approx(differences / (2 * total / n))
    most = sorted(counts, reverse=True)
    assert facts["top_1_percent"] == pytest.approx(sum(most[: math.ceil(n / 100)]) / total)
    assert facts["top_10_percent"] == pytest.approx(sum(most[: math.ceil(n / 10)]) / total)
    for bin_ in facts["bins"]:
        inside = [count for count in counts if bin_["low"] <= count <= bin_["high"]]
        assert (bin_["nodes"], bin_["total"]) == (len(inside), sum(inside))
    assert sum(bin_["nodes"] for bin_ in facts["bins"]) == n


# --- batches


def test_items_named_by_masked_links_count():
    """User 0 has both items, so each of her negatives is masked; it is embedded all the same."""
    graph = BipartiteGraph.from_links(np.array([0, 0]), np.array([0, 1]), 1, 2)
    config = complete({"sampler": "iid", "batch_size": 1, "negatives": 6})
    sampler = IidSampler(graph, config, Streams(0))
    batches = [sampler.assemble(draw) for draw in sampler.draw(0, 200)]
    assert all(not batch.negatives.weight.any() for batch in batches)
    items = np.mean([distinct_nodes(batch)[1] for batch in batches])
    assert items == pytest.approx(2 - 0.5**6, abs=0.05)


# --- a data set made of literals

LINKS = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 3), (2, 1), (4, 1), (4, 2), (4, 4)]
SPLIT = [0, 0, 0, 2, 1, 0]
"""Item 5 is a training item without a link; user 3 has no link."""
IDS = {
    "user_ids": pa.array(["ann", "bob", "cy", "di", "eve"]),
    "item_ids": pa.array(["B00\x1b[31m", "[bold]B01", "B02", "B03", "B04", "B05"]),
}
MORE = {
    "texts": Texts(np.ones(7, np.int32), np.array([2, 0, 3, 1, 1, 0], np.int32)),
    "removed": {"duplicate_links": 4, "unknown_items": 0},
    "item_features": np.array([[0, 0, 1], [0, 2, 0]] * 3, np.float32),
}


def prepared(folder, **ids):
    files = {"a.dat": {"verified": True}, "items": {"name": "b"}}
    origin = {"label": "Five users, by hand", "files": files}
    content = content_of(*zip(*LINKS, strict=True), SPLIT, 5, **MORE, **ids)
    preparation = Preparation(origin, {"text": ["title"]}, lambda: content)
    store_prepared(preparation, folder, "hand", "citeulike")
    return store.load(folder, "hand")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder with the data set ``hand``."""
    home = tmp_path_factory.mktemp("data")
    prepared(home, **IDS)
    return home


def test_a_description_by_hand(folder):
    given = configurations({"batch_size": 4, "stratum_size": 2, "negatives": 2})
    facts = describe(store.load(folder, "hand"), given, batches=400)
    training = [(user, item) for user, item in LINKS if SPLIT[item] == 0]
    assert len(training) == 7
    assert facts["removed"] == {"duplicate_links": 4}
    assert facts["missing"] == {
        "items_without_text": 2,
        "training_items_without_links": 1,
        "users_without_training_links": 1,
        "users_without_test_items": 4,
    }
    for name, side, ids in (
        ("user", 0, ["ann", "eve", "bob", "cy"]),
        ("item", 1, ["[bold]B01", "B02", "B00\x1b[31m"]),
    ):
        degrees = Counter(link[side] for link in training)
        summary = facts[f"links_of_a{'n' if side else ''}_{name}"]
        assert (summary["nodes"], summary["total"]) == (len(degrees), 7)
        assert summary["median"] == np.median(list(degrees.values()))
        ranked = sorted(degrees.items(), key=lambda pair: (-pair[1], pair[0]))
        most = facts[f"most_linked_{name}s"]
        assert [(row["number"], row["links"]) for row in most] == ranked
        assert [row["id"] for row in most] == ids
    assert facts["words_of_an_item"]["mean"] == pytest.approx(7 / 6)
    origin = facts["label"], facts["source"], facts["options"]["text"]
    assert origin == ("Five users, by hand", "citeulike", ["title"])
    rows = {row["sampler"]: row for row in facts["batches"]}
    assert rows["iid"]["fewer_items"] == 1
    items = {name: row["distinct_items"] for name, row in rows.items()}
    assert rows["ns"]["fewer_items"] == pytest.approx(items["iid"] / items["ns"])
    expected = sum(1 - math.comb(7 - degree, 4) / math.comb(7, 4) for degree in (1, 4, 2))
    assert items["ns"] == pytest.approx(expected, abs=0.1)


def test_what_a_sampler_cannot_draw_is_told(tmp_path):
    dataset = prepared(tmp_path)
    facts = describe(dataset, configurations({"batch_size": 3}))
    reasons = {row["sampler"]: row["reason"] for row in facts["batches"]}
    assert "not a multiple of stratum_size" in reasons["strat"]
    assert reasons["iid"] is None
    assert facts["most_linked_users"][0] == {"number": 0, "id": None, "links": 3}
    for row in describe(dataset, configurations({"batch_size": 8}))["batches"]:
        assert "larger than the 7 training links" in row["reason"]
        assert row["distinct_items"] is None
    cold = content_of([0], [1], [0, 2], 1)
    store_prepared(Preparation({}, {}, lambda: cold), tmp_path, "cold", "citeulike")
    facts = describe(store.load(tmp_path, "cold"), configurations({}))
    assert facts["links_of_a_user"] is None
    assert all("no training links" in row["reason"] for row in facts["batches"])
    check(invoke("describe", "cold", "--data-dir", tmp_path), 0, "There are no")


# --- the command

SETTINGS = {"batch_size": 4, "stratum_size": 2, "seed": 3}
SET = [f"--set={name}={value}" for name, value in SETTINGS.items()]
SAID = (
    *("Five users, by hand", "4 duplicate links", "a.dat (verified), b", "[bold]B01", "B00?[31m"),
    *("4 users without test items", "caution Test items: 1, at most 50"),
    *("features of items 3 columns, standardised", "b=4, k=10, s=2, P_n unigram"),
    "4 users, 7 links: min 1, median 1.5, mean 1.8, max 3",
)


@pytest.mark.parametrize("width", [80, 140])
def test_the_page_fits_its_window_and_says_everything(folder, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    page = invoke("describe", "hand", *SET, "--data-dir", folder)
    check(page, 0, *SAID)
    assert max(map(len, page.stdout.splitlines())) <= width
    assert "\x1b" not in page.stdout


def test_bars_are_proportional_and_visible():
    bars = [bar(share, 4) for share in (0, 1e-9, 0.25, 0.5 + 1 / 32, 1)]
    assert bars == ["", "▏", "█", "██▏", "████"]


def test_the_command_prints_json_and_makes_synthetic_data(folder):
    facts = json.loads(invoke("describe", "hand", "--json", *SET, "--data-dir", folder).stdout)
    assert facts["batch_settings"].items() >= SETTINGS.items()
    assert facts["item_features"] == {"columns": 3, "constant": 1}
    assert facts["fingerprint"] == store.load(folder, "hand").fingerprint
    synthetic = ["describe", "synthetic", "--set", "batch_size=64", "--data-dir", folder]
    words = "Making the synthetic data set", "Distinct nodes in a batch (b=64"
    check(invoke(*synthetic), 0, *words)
    assert "Making" not in invoke(*synthetic).output
