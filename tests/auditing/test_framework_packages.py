"""Real packages, where they are installed: a batch of ours has the loss that they give."""

from __future__ import annotations

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
