"""Real packages, where they are installed: a batch of ours has the loss that they give."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from ncfbench.auditing.frameworks import draws
from ncfbench.auditing.frameworks.audit import built_in_graph, items_in_use
from ncfbench.auditing.frameworks.claims import CLAIMS, DIMENSION
from ncfbench.auditing.frameworks.estimators import BY_NAME
from ncfbench.auditing.frameworks.losses import SCALE
from ncfbench.data.graph import BipartiteGraph

pytestmark = pytest.mark.filterwarnings("ignore")
"""The packages warn about what they import; that is not ours to mend."""


@pytest.fixture(autouse=True)
def _keras_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow Recommenders asks for Keras 2 when it is imported."""
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")


@pytest.fixture(scope="module")
def graph() -> BipartiteGraph:
    return items_in_use(built_in_graph())


def sentence_transformers(users: np.ndarray, items: np.ndarray, batch: draws.Drawn) -> float:
    torch, losses = import_module("torch"), import_module("sentence_transformers.losses")
    # The model is the identity: the vectors are given.
    loss = losses.MultipleNegativesRankingLoss(lambda vectors: vectors, scale=SCALE)
    real = batch.weight > 0
    vectors = users[batch.user[real]], items[batch.item[real]]
    return float(loss([{"sentence_embedding": torch.from_numpy(rows)} for rows in vectors], None))


def tfrs(name: str, users: np.ndarray, items: np.ndarray, batch: draws.Drawn) -> float:
    retrieval = import_module("tensorflow_recommenders").tasks.Retrieval(
        temperature=1 / SCALE, remove_accidental_hits=name == "tfrs-hits"
    )
    loss = retrieval(
        users[batch.user],
        items[batch.item],
        candidate_sampling_probability=batch.probability if name == "tfrs-logq" else None,
        candidate_ids=batch.item,
        compute_metrics=False,
    )
    return float(loss) / len(batch.user)


def recbole(users: np.ndarray, items: np.ndarray, batch: draws.Drawn) -> float:
    torch, losses = import_module("torch"), import_module("recbole.model.loss")
    scores = [
        torch.from_numpy(np.sum(users[batch.user] * items[ids], axis=1))
        for ids in (batch.item, batch.other_item)
    ]
    return float(losses.BPRLoss()(*scores))


def pyg(users: np.ndarray, items: np.ndarray, batch: draws.Drawn) -> float:
    torch = import_module("torch")
    pairs = (batch.user, batch.item), (batch.other_user, batch.other_item)
    scores = [np.sum(users[user] * items[item], axis=1) for user, item in pairs]
    labels = np.repeat(np.array([1, 0], np.float32), [len(part) for part in scores])
    logits = torch.from_numpy(np.concatenate(scores))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels))
    return float(loss)


def pairs_of_pyg(graph: BipartiteGraph, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Negatives that the package draws."""
    torch, utils = import_module("torch"), import_module("torch_geometric.utils")
    edges = torch.from_numpy(np.stack([graph.link_user, graph.link_item]).astype(np.int64))
    user, item = utils.negative_sampling(edges, (graph.n_users, graph.n_items), count).numpy()
    return user, item


PACKAGES = {
    "tfrs": "tensorflow_recommenders",
    "tfrs-logq": "tensorflow_recommenders",
    "tfrs-hits": "tensorflow_recommenders",
    "st-mnrl": "sentence_transformers",
    "st-no-duplicates": "sentence_transformers",
    "recbole": "recbole",
    "recbole-popular": "recbole",
    "pyg": "torch_geometric",
}


@pytest.mark.parametrize("name", PACKAGES)
def test_loss_is_that_of_the_package(name: str, graph: BipartiteGraph) -> None:
    pytest.importorskip(PACKAGES[name], exc_type=ImportError)
    estimator, rng = BY_NAME[name], np.random.default_rng(0)
    users, items = (
        rng.normal(size=(n, DIMENSION)).astype(np.float32) for n in (graph.n_users, graph.n_items)
    )
    if CLAIMS[estimator.claim].is_unit:
        users, items = (raw / np.linalg.norm(raw, axis=1, keepdims=True) for raw in (users, items))
    batch = draws.Drawn(*(part[0] for part in estimator.draw(graph, rng, (1, 32))))
    if name == "pyg":
        user, item = pairs_of_pyg(graph, 32)
        batch = batch._replace(other_user=user, other_item=item)
    losses: dict[str, Any] = {
        "tensorflow_recommenders": lambda *vectors: tfrs(name, *vectors),
        "sentence_transformers": sentence_transformers,
        "recbole": recbole,
        "torch_geometric": pyg,
    }
    theirs = losses[PACKAGES[name]](users, items, batch)
    assert float(jax.jit(estimator.loss)(users, items, batch)) == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("kind", ["uniform", "popularity"])
@pytest.mark.parametrize("whose", ["all users", "the busiest user"])
def test_recbole_draws_as_ours(kind: str, whose: str, graph: BipartiteGraph) -> None:
    """RecBole's sampler and ours draw from the items that a user is not linked with, uniformly or
    by their links: counts in twenty bins of items against the exact shares.
    """
    torch = pytest.importorskip("torch")
    sampler = pytest.importorskip("recbole.sampler", exc_type=ImportError)
    # RecBole's ids begin at 1: 0 is padding. The sampler reads these attributes of a data set.
    columns = {
        "user": torch.from_numpy(graph.link_user + np.int64(1)),
        "item": torch.from_numpy(graph.link_item + np.int64(1)),
    }
    sizes = {"user_num": graph.n_users + 1, "item_num": graph.n_items + 1}
    data = SimpleNamespace(uid_field="user", iid_field="item", inter_feat=columns, **sizes)
    by_popularity = kind == "popularity"
    theirs = sampler.Sampler(["train"], [data], kind).set_phase("train")
    busiest = int(np.argmax(graph.user_degrees))
    user = np.resize(graph.link_user if whose == "all users" else np.int32([busiest]), 20_000)
    np.random.seed(0)  # noqa: NPY002 - which RecBole draws by
    drawn = {
        "theirs": theirs.sample_by_user_ids(user + 1, None, 1).numpy() - 1,
        "ours": draws.unlinked_items(
            graph, np.random.default_rng(0), user, by_popularity=by_popularity
        ),
    }
    is_free = ~graph.linked(np.arange(graph.n_users)[:, None], np.arange(graph.n_items)[None, :])
    weight = is_free * (graph.item_degrees if by_popularity else 1.0)
    share = (weight / weight.sum(axis=1, keepdims=True))[user].sum(axis=0)
    order = np.argsort(graph.item_degrees, kind="stable")
    bins = np.minimum((np.cumsum(share[order]) * 20 / len(user)).astype(int), 19)
    bins = np.unique(bins, return_inverse=True)[1]
    expected = np.bincount(bins, share[order])
    for whom, item in drawn.items():
        assert not graph.linked(user, item).any(), whom
        counts = np.bincount(item, minlength=graph.n_items)[order]
        found = np.bincount(bins, counts)
        # Chi-square with 19 degrees of freedom is above 60 once in 250,000 times.
        assert ((found - expected) ** 2 / expected).sum() < 60, whom


def test_pyg_draws_no_links(graph: BipartiteGraph) -> None:
    pytest.importorskip("torch_geometric")
    user, item = pairs_of_pyg(graph, 256)
    assert len(user) == 256
    assert not graph.linked(user, item).any()


def test_batches_without_duplicates_agree(graph: BipartiteGraph) -> None:
    """The same shuffled links give the same batches."""
    torch = pytest.importorskip("torch")
    sampler = pytest.importorskip("sentence_transformers.base.sampler")
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(
        {
            "anchor": [f"user {user}" for user in graph.link_user.tolist()],
            "positive": [f"item {item}" for item in graph.link_item.tolist()],
        }
    )
    theirs = sampler.NoDuplicatesBatchSampler(
        data, batch_size=64, drop_last=False, generator=torch.Generator(), seed=3
    )
    order = torch.randperm(graph.n_links, generator=torch.Generator().manual_seed(3)).numpy()
    ours = draws.without_duplicates(order, graph, 64)
    assert [batch.tolist() for batch in ours] == [list(map(int, batch)) for batch in theirs]
