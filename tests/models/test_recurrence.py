"""The grouped LSTM against the plain one: values and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import texts_of, traced_for

from ncfbench.catalog import find_encoder
from ncfbench.config import complete
from ncfbench.models.encoders.lstm import grouped_recur, plain_recur
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput


@partial(jax.jit, static_argnums=0)
def both(way: Any, arrays: list[jax.Array], texts: EncoderInput, weights: jax.Array) -> Any:
    """The value, and the gradients of a weighted sum of it."""

    def total(arrays: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        value = way(*arrays, texts)
        return jnp.sum(value * weights), value

    gradients, value = jax.grad(total, has_aux=True)(arrays)
    return [value, *gradients]


def assert_agree(
    rng: np.random.Generator, texts: EncoderInput, words: int, size: int = 4, units: int = 5
) -> None:
    shapes = ((words + 1, size), (size + units, 4 * units), (4 * units,))
    arrays = [jnp.asarray(rng.normal(scale=0.5, size=shape).astype(np.float32)) for shape in shapes]
    weights = jnp.asarray(rng.normal(size=(len(texts.items), units)).astype(np.float32))
    plain, grouped = (both(way, arrays, texts, weights) for way in (plain_recur, grouped_recur))
    names = ("value", "table", "kernel", "bias")
    for name, one, other in zip(names, plain, grouped, strict=True):
        assert np.linalg.norm(one - other) <= 3e-6 * max(float(np.linalg.norm(one)), 1e-6), name


@pytest.mark.parametrize(("items", "length"), [(7, 6), (8, 1)])
def test_both_agree(items: int, length: int) -> None:
    """Fewer texts than groups, and as many; empty and full-length ones among them."""
    rng = np.random.default_rng(items)
    assert_agree(rng, texts_of(rng, items, length, 30, 0.3), 30)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 1.0]))
def test_both_agree_on_any_texts(seed: int, removed: float) -> None:
    """More texts than groups."""
    rng = np.random.default_rng(seed)
    assert_agree(rng, texts_of(rng, 20, 6, 9, removed), 9)


@pytest.mark.parametrize("way", [plain_recur, grouped_recur])
def test_a_removed_word_is_skipped(way: Any) -> None:
    """Removed words give what texts that never had them give."""
    rng = np.random.default_rng(2)
    texts = texts_of(rng, 20, 6, 9, 0.5)
    left = [row[kept] for row, kept in zip(texts.tokens, np.asarray(texts.present), strict=True)]
    tokens = np.zeros((20, 6), np.int32)
    for row, words in zip(tokens, left, strict=True):
        row[: len(words)] = words
    shorter = EncoderInput(
        texts.items,
        jnp.asarray(tokens),
        jnp.asarray(tokens > 0),
        jnp.asarray(list(map(len, left)), dtype=jnp.int32),
    )
    shapes = ((10, 4), (9, 20), (20,))
    arrays = [jnp.asarray(rng.normal(size=shape).astype(np.float32)) for shape in shapes]
    one, other = (way(*arrays, each) for each in (texts, shorter))
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_a_cpu_groups_and_others_do_not() -> None:
    texts = texts_of(np.random.default_rng(3), 20, 6, 9, 0.5)
    config = complete({"encoder": "lstm", "dimension": 4, "word_dimension": 3, "lstm_units": 5})
    encoder = find_encoder("lstm").load()(config, DataFacts(1, 1, 9), rngs=nnx.Rngs(0))
    for backend in ("cpu", "gpu"):
        with traced_for(backend):
            program = str(jax.make_jaxpr(lambda texts: encoder(texts))(texts))
        assert ("scan[" in program) == (backend == "gpu"), "only the plain way scans"
