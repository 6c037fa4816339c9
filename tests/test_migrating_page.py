"""The programs of docs/integrate.md, run as they stand, with stand-ins for the frameworks."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ncfbench.config import complete
from ncfbench.data import BipartiteGraph
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_scores, link_loss
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler

PAGE = (Path(__file__).parents[1] / "docs/integrate.md").read_text("utf-8")
USERS, ITEMS, WIDTH = 300, 200, 6


def program(heading):
    """The first block of Python below a heading of the page."""
    return PAGE.split(f"\n## {heading}\n")[1].split("```python\n")[1].split("```")[0]


@pytest.fixture(scope="module")
def links():
    pairs = np.random.default_rng(0).choice(USERS * ITEMS, 3000, replace=False)
    return np.stack(np.divmod(pairs, ITEMS)).astype(np.int32)


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(1)
    users, items = (rng.normal(size=(n, WIDTH)).astype(np.float32) for n in (USERS, ITEMS))
    return users, items


def ours(batch, users, items, settings):
    """The objective of a batch, as this program computes it."""
    config = complete(settings)
    scores = batch_scores(users, items, batch)
    value = link_loss(*scores, batch.negatives.weight, make_loss(config), config.lambda_)
    return float(value)


def first_batch(graph, settings):
    return next(make_sampler(graph, complete(settings), Streams(0)).batches())


def gathered(table, index, axis, batch_dims):
    """``tf.gather`` of one entry a row."""
    assert (axis, batch_dims) == (1, 1)
    return table[np.arange(len(table)), index]


def numpy_for_tensorflow():
    """The functions of TensorFlow that the page calls, in double precision."""

    def norm(x, axis):
        return x / np.linalg.norm(x, axis=axis, keepdims=True)

    def matmul(a, b, transpose_b):
        assert transpose_b
        return a @ b.T

    def logarithm(x):
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(x, np.float64))

    data = SimpleNamespace(from_generator=lambda stream, output_signature: stream)
    return SimpleNamespace(
        TensorSpec=lambda shape, kind: (shape, kind),
        int32="int32",
        float32="float32",
        data=SimpleNamespace(Dataset=data),
        math=SimpleNamespace(
            l2_normalize=norm, log=logarithm, softplus=lambda x: np.logaddexp(0, x)
        ),
        linalg=SimpleNamespace(matmul=matmul),
        gather=gathered,
        reduce_mean=np.mean,
        reduce_logsumexp=lambda x, axis: np.logaddexp.reduce(x, axis=axis),
    )


def test_tensorflow_s_loss_is_our_softmax(links, vectors, monkeypatch):
    recommenders = ModuleType("tensorflow_recommenders")
    vars(recommenders)["Model"] = object
    graph, fitted = BipartiteGraph.from_links(*links, USERS, ITEMS), []
    model = SimpleNamespace(fit=lambda data, **more: fitted.append((data, more)))
    names: dict[str, Any] = {"graph": graph, "model": model}
    with monkeypatch.context() as patch:  # JAX asks whether TensorFlow is there
        patch.setitem(sys.modules, "tensorflow", numpy_for_tensorflow())
        patch.setitem(sys.modules, "tensorflow_recommenders", recommenders)
        exec(program("TensorFlow Recommenders"), names)
    ((stream, more),) = fitted
    assert more["steps_per_epoch"] == 3000 // 512
    towers = names["TwoTower"]()
    towers.user_model, towers.item_model = (table.__getitem__ for table in vectors)
    batch = next(stream())
    found = float(towers.compute_loss(batch))
    settings = {"sampler": "strat-ns", "loss": "softmax", "batch_size": 512}
    own = first_batch(graph, settings)
    np.testing.assert_array_equal(own.users, batch[0])
    unit = [table / np.linalg.norm(table, axis=1, keepdims=True) for table in vectors]
    expected = ours(own, unit[0][own.users], unit[1][own.items], settings)
    assert found == pytest.approx(expected, rel=1e-5)
