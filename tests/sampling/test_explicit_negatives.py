"""Explicit negatives: who is drawn for whom and how often, what is estimated, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explicit import EXPLICIT, GRAPH, LINKS, N_ITEMS, N_USERS, PLAIN, SHARES, noise, target
from invoked import check, invoke
from scipy.stats import chisquare
from tables_of import as_csv, prepare

from ncfbench.config import RunConfig, complete, digest, unused_settings
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import Draw, make_sampler
from ncfbench.sampling.batch import negative_ids

LOSS = {"pointwise": "sg", "pairwise": "log", "listwise": "softmax"}


def configure(sampler: str = "neg", **settings: Any) -> RunConfig:
    usual = {"sampler": sampler, "explicit_negatives": True, "batch_size": 4, "negatives": 3}
    return complete(usual | settings)


@pytest.mark.parametrize("name", ["unigram", "uniform", "0.5"])
@pytest.mark.parametrize(
    ("sampler", "family"),
    [
        ("neg", "pointwise"),
        ("neg", "pairwise"),
        ("neg", "listwise"),
        ("iid", "pointwise"),
        ("strat", "pairwise"),
        ("strat", "listwise"),
    ],
)
def test_expected_weights_are_those_of_the_objective(sampler: str, family: str, name: str) -> None:
    """All draws of one positive and one negative link, each with its probability."""
    strata = {"strata": "user", "stratum_size": 1} if sampler == "strat" else {}
    small = {"batch_size": 1, "negatives": 1, **strata}
    config = configure(sampler, loss=LOSS[family], noise=name, **small)
    made = make_sampler(GRAPH, config, Streams(0), weight_dtype=np.float64)
    found = np.zeros((N_USERS, N_ITEMS))
    for link, (own, _) in enumerate(LINKS):
        for user in range(N_USERS) if sampler == "iid" else [own]:
            explicit = EXPLICIT.get(user)
            of_items = noise(config.noise_exponent)
            if explicit:
                of_items = np.isin(np.arange(N_ITEMS), explicit) / len(explicit)
            chance = (SHARES[user] if sampler == "iid" else 1.0) / len(LINKS)
            for item in np.flatnonzero(of_items):
                users = np.full((1, int(sampler == "iid")), user, np.int32)
                drawn = Draw(np.array([link], np.int32), users, np.array([[item]], np.int32))
                batch = made.assemble(drawn)
                (users_, items_), weights = negative_ids(batch), batch.negatives.weight
                assert (int(users_[0, 0]), int(items_[0, 0])) == (user, item)
                found[user, item] += chance * of_items[item] * float(weights[0, 0])
    expected = SHARES[:, None] * target(family, config.noise_exponent)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("sampler", ["neg", "iid", "strat"])
def test_frequencies_of_drawn_items(sampler: str) -> None:
    """Explicit ones alike for users who have some, P_n for the others, and never another item."""
    strata = {"strata": "user", "stratum_size": 2} if sampler == "strat" else {}
    made = make_sampler(GRAPH, configure(sampler, noise="0.5", **strata), Streams(3))
    counts = np.zeros((N_USERS, N_ITEMS))
    for draw in made.draw(0, 3000):
        users = draw.users if sampler == "iid" else PLAIN.link_user[draw.links][:, None]
        assert draw.items.dtype == np.int32
        assert draw.items.shape == (4, 3)
        np.add.at(counts, (np.broadcast_to(users, draw.items.shape), draw.items), 1)
    for user in range(N_USERS):
        expected = noise(0.5)
        if user in EXPLICIT:
            expected = np.isin(np.arange(N_ITEMS), EXPLICIT[user]) / len(EXPLICIT[user])
        assert set(np.flatnonzero(counts[user])) <= set(np.flatnonzero(expected))
        is_drawn = expected > 0
        if is_drawn.sum() > 1:
            drawn = counts[user][is_drawn]
            assert chisquare(drawn, expected[is_drawn] * drawn.sum()).pvalue > 1e-4


def test_draws_do_not_depend_on_how_they_are_cut() -> None:
    whole = make_sampler(GRAPH, configure(), Streams(5)).draw(0, 40)
    parts = make_sampler(GRAPH, configure(), Streams(5))
    cut = [*parts.draw(0, 7), *parts.draw(7, 1), *parts.draw(8, 32)]
    again = make_sampler(GRAPH, configure(), Streams(5)).draw(23, 1)[0]
    for one, other in zip([*whole, whole[23]], [*cut, again], strict=True):
        assert np.array_equal(one.items, other.items)
        assert np.array_equal(one.links, other.links)


@pytest.mark.parametrize("sampler", ["neg", "iid", "ns", "strat"])
def test_off_batches_and_digests_are_as_without(sampler: str) -> None:
    config = configure(sampler, explicit_negatives=False, stratum_size=2, loss="sg")
    given = {"sampler": sampler, "batch_size": 4, "negatives": 3, "stratum_size": 2, "loss": "sg"}
    assert digest(config) == digest(complete(given))
    batches = [
        made.assemble(made.draw(6, 1)[0])
        for made in (make_sampler(graph, config, Streams(2)) for graph in (GRAPH, PLAIN))
    ]
    for name in ("users", "items", "pos_user", "pos_item"):
        assert np.array_equal(getattr(batches[0], name), getattr(batches[1], name))
    assert np.array_equal(*(batch.negatives.weight for batch in batches))


def test_refusals() -> None:
    with pytest.raises(UsageError, match=r"^--explicit-negatives: no user .*--negative-column"):
        make_sampler(PLAIN, configure(), Streams(0))
    with pytest.raises(UsageError, match=r"^--mined 5 and --explicit-negatives both say"):
        configure(mined=5)
    for sampler in ("ns", "strat"):
        assert unused_settings(["explicit_negatives"], configure(sampler, loss="sg")) == [
            f"--explicit-negatives changes nothing with --sampler {sampler}; it is used by iid, neg"
            " or strat with --set strata=user."
        ]


def test_a_run_from_a_file_of_shown_items(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    rows = [
        {"user": int(user), "item": int(item), "clicked": int((user + item) % 3 == 0)}
        for user, item in zip(rng.integers(20, size=900), rng.integers(30, size=900), strict=True)
    ]
    items = as_csv(tmp_path / "m.csv", [{"item": n, "title": f"w{n % 3} v{n}"} for n in range(30)])
    links = as_csv(tmp_path / "r.csv", rows)
    dataset, _ = prepare(tmp_path, links, items, negative_column="clicked", validation_fraction=0.1)
    usable = dataset.training_negatives
    assert usable is not None
    assert dataset.graph.negative_items is not None
    assert dataset.graph.negative_items.tolist() == usable[1].tolist()
    shown = set(zip(*usable.tolist(), strict=True))
    config = complete({"sampler": "neg", "explicit_negatives": True, "batch_size": 16})
    draw = make_sampler(dataset.graph, config, Streams(0)).draw(0, 1)[0]
    owners = np.repeat(dataset.graph.link_user[draw.links], draw.items.shape[1])
    assert set(zip(owners.tolist(), draw.items.reshape(-1).tolist(), strict=True)) <= shown
    words = "run", "--dataset=x", "--encoder=bow", "--sampler=neg", "--epochs=1", "--batch-size=16"
    folders = "--data-dir", tmp_path / "data", "--runs-dir", tmp_path / "runs"
    check(invoke(*words, "--explicit-negatives", *folders), 0)
    assert list((tmp_path / "runs").rglob("summary.parquet"))
