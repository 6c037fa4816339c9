"""The programs of docs/integrate.md, run as they stand, with stand-ins for the frameworks."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

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


def unit(x, axis=1):
    return x / np.linalg.norm(x, axis=axis, keepdims=True)


def gathered(table, index, axis, batch_dims):
    """``tf.gather`` of one entry a row."""
    assert (axis, batch_dims) == (1, 1)
    return table[np.arange(len(table)), index]


def numpy_for_tensorflow():
    """The functions of TensorFlow that the page calls, in double precision."""
    data = SimpleNamespace(from_generator=lambda stream, output_signature: stream)
    return SimpleNamespace(
        TensorSpec=lambda shape, kind: (shape, kind),
        int32="int32",
        float32="float32",
        data=SimpleNamespace(Dataset=data),
        math=SimpleNamespace(l2_normalize=unit, log=np.log, softplus=lambda x: np.logaddexp(0, x)),
        linalg=SimpleNamespace(matmul=lambda a, b, transpose_b: a @ b.T),
        gather=gathered,
        reduce_mean=np.mean,
        reduce_logsumexp=lambda x, axis: np.logaddexp.reduce(x, axis=axis),
    )


def test_tensorflow_s_loss_is_our_softmax(monkeypatch):
    """The first block of Python below the page's heading."""
    pairs = np.random.default_rng(0).choice(USERS * ITEMS, 3000, replace=False)
    links, rng = np.stack(np.divmod(pairs, ITEMS)).astype(np.int32), np.random.default_rng(1)
    tables = [rng.normal(size=(n, WIDTH)).astype(np.float32) for n in (USERS, ITEMS)]
    recommenders = ModuleType("tensorflow_recommenders")
    vars(recommenders)["Model"] = object
    graph, fitted = BipartiteGraph.from_links(*links, USERS, ITEMS), []
    model = SimpleNamespace(fit=lambda data, **more: fitted.append((data, more)))
    names = {"graph": graph, "model": model}
    program = PAGE.split("\n## TensorFlow Recommenders\n")[1].split("```python\n")[1]
    with monkeypatch.context() as patch:  # JAX asks whether TensorFlow is there
        patch.setitem(sys.modules, "tensorflow", numpy_for_tensorflow())
        patch.setitem(sys.modules, "tensorflow_recommenders", recommenders)
        exec(program.split("```")[0], names)
    ((stream, more),) = fitted
    assert more["steps_per_epoch"] == 3000 // 512
    towers = names["TwoTower"]()
    towers.user_model, towers.item_model = (table.__getitem__ for table in tables)
    batch = next(stream())
    with np.errstate(divide="ignore"):
        loss = float(towers.compute_loss(batch))
    config = complete({"sampler": "strat-ns", "loss": "softmax", "batch_size": 512})
    ours = next(make_sampler(graph, config, Streams(0)).batches())
    np.testing.assert_array_equal(ours.users, batch[0])
    users, items = map(unit, tables)
    scores = batch_scores(users[ours.users], items[ours.items], ours)
    expected = link_loss(*scores, ours.negatives.weight, make_loss(config), config.lambda_)
    assert loss == pytest.approx(float(expected), rel=1e-5)
