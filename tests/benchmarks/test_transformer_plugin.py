"""The transformer that the benchmarks plug in: what any right encoder does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ncfbench.config import complete
from ncfbench.data.store import Dataset
from ncfbench.models.dropout import Dropout
from ncfbench.models.encoders.protocol import DataSizes
from ncfbench.models.towers import Content, Towers
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.training.step import Trainer

TEXTS = [[1, 2, 3, 4], [], [5], [6, 6, 7, 8, 9], [2, 1], [3, 3, 3]]
SMALL = {
    "encoder": "transformer_plugin:Transformer",
    "sampler": "ns",
    "batch_size": 16,
    "dimension": 4,
    "width": 8,
}


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
        yield


@pytest.fixture(scope="module")
def towers() -> Towers:
    """With noise on all parameters: a bias of zero would hide that padding gets it."""
    graph, parameters = nnx.split(Towers(complete(SMALL), DataSizes(7, 6, 9), rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(0)
    noisy = jax.tree.map(
        lambda leaf: jnp.asarray(leaf + np.float32(0.3) * rng.normal(size=leaf.shape), leaf.dtype),
        jax.tree.map(np.asarray, parameters),
    )
    return nnx.merge(graph, noisy)


def content_of(length: int) -> Content:
    tokens = [text + [0] * (length - len(text)) for text in TEXTS]
    return Content(jnp.array(tokens, jnp.int32), jnp.array(list(map(len, TEXTS)), jnp.int32))


def test_padding_contributes_nothing(towers: Towers) -> None:
    embed = jax.jit(towers.items)
    dropout = Dropout(jnp.uint32(3), jnp.uint32(7))
    short, long = (embed(jnp.arange(6), content_of(size), dropout) for size in (5, 23))
    np.testing.assert_allclose(short, long, atol=2e-6)
    assert np.ptp(short, axis=0).min() > 1e-3


def test_items_do_not_see_each_other(towers: Towers) -> None:
    embed, content = jax.jit(towers.items), content_of(6)
    everything = embed(jnp.arange(6), content, None)
    for order in ([5, 3, 3, 0, 1, 4], [4, 2, 2, 2, 2, 2], [2]):
        some = embed(jnp.array(order), content, None)
        np.testing.assert_allclose(some, everything[np.array(order)], atol=2e-6)


def test_order_and_company_of_words_matter(towers: Towers) -> None:
    """It attends: a word's share depends on the others, and positions are seen."""
    content = Content(
        jnp.array([[1, 2, 3], [1, 3, 2], [1, 2, 0], [3, 0, 0]], jnp.int32),
        jnp.array([3, 3, 2, 1], jnp.int32),
    )
    found = np.asarray(jax.jit(towers.items)(jnp.arange(4), content))
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert np.abs(3 * found[0] - 2 * found[2] - found[3]).max() > 1e-2


def test_it_trains(tiny: Dataset) -> None:
    """With finite gradients, also where a text has no words: one that is not would stay."""
    config = complete(SMALL | {"learning_rate": 0.01})
    trainer, state = Trainer.create(config, tiny)
    batch, content = next(batches(tiny.graph, config, Streams(0))), Content.of(tiny)
    losses = []
    for _ in range(20):
        state, loss = trainer.step(state, batch, content)
        losses.append(float(loss))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.parameters))
    assert losses[-1] < 0.9 * losses[0]
