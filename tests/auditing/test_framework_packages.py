"""Real packages, where they are installed: a batch of ours has the loss that they give."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ncfbench.auditing.frameworks import packages
from ncfbench.auditing.frameworks.audit import built_in_graph
from ncfbench.auditing.frameworks.catalog import BY_NAME
from ncfbench.auditing.frameworks.links import Links
from ncfbench.auditing.frameworks.sentence_transformers import without_duplicates

pytestmark = pytest.mark.filterwarnings("ignore")
"""The packages warn about what they import; that is not ours to mend."""


@pytest.fixture(autouse=True)
def _keras_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow Recommenders asks for Keras 2 when it is imported."""
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")


@pytest.fixture(scope="module")
def links() -> Links:
    return Links.of(built_in_graph())


@pytest.mark.parametrize("name", packages.PACKAGES)
def test_loss_is_that_of_the_package(name: str, links: Links) -> None:
    pytest.importorskip(packages.PACKAGES[name].module, exc_type=ImportError)
    (row,) = packages.compare(links, [BY_NAME[name]], 32)
    assert row["our_loss"] == pytest.approx(row["package_loss"], rel=1e-5)
    assert row["agrees"]


@pytest.mark.parametrize("name", ["recbole", "recbole-popular"])
@pytest.mark.parametrize("whose", ["all users", "the busiest user"])
def test_recbole_draws_as_ours(name: str, whose: str, links: Links) -> None:
    """RecBole's sampler and ours draw from the items that a user is not linked with, uniformly or
    by their links: counts in twenty bins of items against the exact shares.
    """
    torch = pytest.importorskip("torch")
    sampler = pytest.importorskip("recbole.sampler", exc_type=ImportError)
    # RecBole's ids begin at 1: 0 is padding. The sampler reads these attributes of a data set.
    columns = {
        "user": torch.from_numpy(links.user + np.int64(1)),
        "item": torch.from_numpy(links.item + np.int64(1)),
    }
    sizes = {"user_num": links.n_users + 1, "item_num": links.n_items + 1}
    data = SimpleNamespace(uid_field="user", iid_field="item", inter_feat=columns, **sizes)
    estimator = BY_NAME[name]
    kind = "popularity" if estimator.by_popularity else "uniform"
    theirs = sampler.Sampler(["train"], [data], kind).set_phase("train")
    busiest = int(np.argmin(links.unlinked))
    user = np.resize(links.user if whose == "all users" else np.int32([busiest]), 20_000)
    np.random.seed(0)  # noqa: NPY002 - which RecBole draws by
    drawn = {
        "theirs": theirs.sample_by_user_ids(user + 1, None, 1).numpy() - 1,
        "ours": links.unlinked_item(
            np.random.default_rng(0), user, by_popularity=estimator.by_popularity
        ),
    }
    weight = ~links.table * (links.degree if estimator.by_popularity else 1.0)
    share = (weight / weight.sum(axis=1, keepdims=True))[user].sum(axis=0)
    order = np.argsort(links.degree, kind="stable")
    bins = np.minimum((np.cumsum(share[order]) * 20 / len(user)).astype(int), 19)
    bins = np.unique(bins, return_inverse=True)[1]
    expected = np.bincount(bins, share[order])
    for whom, item in drawn.items():
        assert not links.table[user, item].any(), whom
        counts = np.bincount(item, minlength=links.n_items)[order]
        found = np.bincount(bins, counts)
        # Chi-square with 19 degrees of freedom is above 60 once in 250,000 times.
        assert ((found - expected) ** 2 / expected).sum() < 60, whom


def test_pyg_draws_no_links(links: Links) -> None:
    pytest.importorskip("torch_geometric")
    users, items = np.eye(500, 32, dtype=np.float32), np.eye(links.n_items, 32, dtype=np.float32)
    drawn = BY_NAME["pyg"].draw(links, np.random.default_rng(0), 256, 1)
    batch = type(drawn)(*(part[0] for part in drawn))
    _, batch = packages.PYG.loss(BY_NAME["pyg"], users, items, batch, links)
    assert len(batch.other_user) == 256
    assert not links.table[batch.other_user, batch.other_item].any()


def test_batches_without_duplicates_agree(links: Links) -> None:
    """The same shuffled links give the same batches."""
    torch = pytest.importorskip("torch")
    sampler = pytest.importorskip("sentence_transformers.base.sampler")
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(
        {
            "anchor": [f"user {user}" for user in links.user.tolist()],
            "positive": [f"item {item}" for item in links.item.tolist()],
        }
    )
    theirs = sampler.NoDuplicatesBatchSampler(
        data, batch_size=64, drop_last=False, generator=torch.Generator(), seed=3
    )
    order = torch.randperm(len(links.user), generator=torch.Generator().manual_seed(3)).numpy()
    ours = without_duplicates(order, links, 64)
    assert [batch.tolist() for batch in ours] == [list(map(int, batch)) for batch in theirs]
