"""Free item vectors that are pulled towards g: the penalty, and the vectors that score."""

from __future__ import annotations

from itertools import islice
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from ncfbench.config import complete, digest, identity_of, unused_settings
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.training.inference import Embedder
from ncfbench.training.recall import RecallEvaluator
from ncfbench.training.step import Trainer

SMALL: dict[str, Any] = {"dataset": "tiny", "batch_size": 64, "coupling": "regularised"}
SMALL |= {"dimension": 6, "word_dimension": 6, "encoder": "bow"}


def gradient_of(dataset: Dataset, **more: Any) -> tuple[float, Any, Any, Any]:
    """Loss and gradient of a batch without dropout; the parameters, and the batch."""
    trainer, state = Trainer.create(complete(SMALL | more), dataset)
    batch = next(islice(batches(dataset.graph, trainer.config, Streams(0)), 1, None))
    value, gradient = jax.jit(trainer.gradient)(
        state.parameters, batch, DeviceContent.of(dataset), None
    )
    return float(value), gradient, state.parameters, batch


@pytest.mark.long_cases("neg-sg$")
@pytest.mark.parametrize(("sampler", "loss"), [("neg", "sg"), ("strat-ns", "hinge")])
def test_the_penalty_is_a_mean_over_positive_links(tiny: Dataset, sampler: str, loss: str) -> None:
    """Items of several links count for each; negatives and padding do not. Against NumPy."""
    chosen = {"sampler": sampler, "loss": loss}
    without, base, parameters, batch = gradient_of(tiny, **chosen, coupling_weight=0.0)
    value, gradient, _, _ = gradient_of(tiny, **chosen, coupling_weight=3.0)
    trainer, _ = Trainer.create(complete(SMALL | chosen), tiny)
    ids = batch.items[batch.pos_item]
    towers = nnx.merge(trainer.towers, parameters)
    g = np.asarray(jax.jit(towers.cold_items)(ids, DeviceContent.of(tiny)), float)
    table = np.asarray(parameters["free_items"]["embedding"], float)
    lengths = np.linalg.norm(table, axis=1, keepdims=True) if loss == "hinge" else np.ones((1, 1))
    h = (table / lengths)[ids]
    assert value - without == pytest.approx(3 * np.mean(np.sum((h - g) ** 2, axis=1)), rel=1e-4)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(base["encoder"])), "W = 0"
    assert any(np.any(leaf) for leaf in jax.tree.leaves(gradient["encoder"]))
    # By a row of the table: 2 W / b for each link, along the surface of the ball if scaled to it.
    expected = np.zeros(table.shape)
    np.add.at(expected, ids, 3 * 2 / len(ids) * (h - g))
    if loss == "hinge":
        units = table / lengths
        expected = (expected - units * np.sum(units * expected, 1, keepdims=True)) / lengths
    found = np.asarray(gradient["free_items"]["embedding"], float) - np.asarray(
        base["free_items"]["embedding"], float
    )
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_g_scores_items_that_training_does_not_know(tiny: Dataset) -> None:
    config = complete(SMALL | {"sampler": "ns"})
    trainer, state = Trainer.create(config, tiny)
    embedder = Embedder(trainer.towers, DeviceContent.of(tiny))
    free = np.asarray(state.parameters["free_items"]["embedding"])
    known = tiny.graph.items_in_use
    np.testing.assert_array_equal(embedder.items(state.parameters, known), free[known])
    direct = Trainer.create(complete(SMALL | {"sampler": "ns", "coupling": "direct"}), tiny)
    alone = Embedder(direct[0].towers, DeviceContent.of(tiny))
    cold = tiny.items_of("test")
    g = alone.items(direct[1].parameters, cold)
    np.testing.assert_array_equal(embedder.cold_items(state.parameters, cold), g)
    ranks = [
        RecallEvaluator(tiny, "test", each).ranks(parameters)
        for each, parameters in ((embedder, state.parameters), (alone, direct[1].parameters))
    ]
    np.testing.assert_array_equal(*ranks)


def test_its_weight_counts_only_where_it_is_used() -> None:
    plain, weighted = (complete(each) for each in ({}, {"coupling_weight": 5.0}))
    assert plain == weighted
    assert not {"coupling", "coupling_weight"} & identity_of(plain).keys()
    (warning,) = unused_settings(["coupling_weight"], weighted)
    assert warning == (
        "--coupling-weight changes nothing with --coupling direct; it is used by regularised."
    )
    regularised = [complete({"coupling": "regularised", "coupling_weight": w}) for w in (1.0, 5.0)]
    assert len({digest(each) for each in (plain, *regularised)}) == 3
    assert not unused_settings(["coupling_weight"], regularised[0])
    with pytest.raises(UsageError, match="free themselves. Use --encoder cnn, lstm, "):
        complete({"encoder": "mf", "coupling": "regularised"})
