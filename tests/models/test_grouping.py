"""Texts in groups by length against texts padded to one length: values, gradients, memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import texts_of

from ncfbench.config import complete
from ncfbench.models.encoders import grouping
from ncfbench.models.encoders.protocol import Texts
from ncfbench.registry import find_encoder

WORDS = 9
SMALL = {"dimension": 4, "word_dimension": 3, "gru_units": 4, "layers": 1, "width": 6}
WAYS = {"gru": "recurrence", "transformer": "attention"}


def program(encoder: str, way: str) -> Any:
    """Value, and the gradients of a weighted sum of it; parameters; compiled."""
    config = complete({"encoder": encoder, "feed_forward": 5, WAYS[encoder]: way} | SMALL)
    module = find_encoder(encoder).load()(config, 1, WORDS, rngs=nnx.Rngs(0))
    graph, parameters = nnx.split(module)

    def total(parameters: Any, texts: Texts) -> tuple[jax.Array, jax.Array]:
        value = nnx.merge(graph, parameters)(texts)
        weights = jnp.sin(1 + jnp.arange(value.size, dtype=jnp.float32).reshape(value.shape))
        return jnp.sum(value * weights), value

    return jax.jit(jax.grad(total, has_aux=True)), parameters


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Any:
    """Several blocks of each length, and a last one that reaches behind the texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "BLOCK_WORDS", 24)
        yield


@pytest.fixture(scope="module", params=WAYS)
def both(request: pytest.FixtureRequest) -> Any:
    return [program(request.param, way) for way in ("plain", "grouped")]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 1.0]))
def test_both_agree(both: Any, seed: int, removed: float) -> None:
    """Empty texts, full-length ones, words that repeat, and all words removed."""
    texts = texts_of(np.random.default_rng(seed), 20, 9, WORDS, removed)
    plain, grouped = (jax.tree.leaves(call(parameters, texts)) for call, parameters in both)
    norm = max(float(np.linalg.norm(leaf)) for leaf in plain[:-1])
    for one, other in zip(plain, grouped, strict=True):
        assert np.linalg.norm(one - other) <= 3e-6 * (norm + float(np.linalg.norm(one)))


@pytest.mark.parametrize(("items", "length"), [(1, 1), (3, 30), (5, 0)])
def test_both_agree_on_few_texts(items: int, length: int) -> None:
    """Fewer texts than a block holds, one word, and data without any."""
    tokens = np.random.default_rng(0).integers(1, WORDS, (items, length)).astype(np.int32)
    lengths = jnp.full(items, length, jnp.int32)
    texts = Texts(jnp.arange(items), jnp.asarray(tokens), jnp.asarray(tokens > 0), lengths)
    programs = [program("transformer", way) for way in ("plain", "grouped")]
    found = [call(parameters, texts) for call, parameters in programs]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


def test_many_texts_are_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plainly too: to the same numbers, with the activations of one part in memory."""
    texts = texts_of(np.random.default_rng(1), 203, 8, WORDS, 0.3)
    found, sizes = [], []
    for words in (10**6, 160):
        monkeypatch.setattr(grouping, "PLAIN_WORDS", words)
        call, parameters = program("transformer", "plain")
        found.append(jax.tree.leaves(call(parameters, texts)))
        compiled = call.lower(parameters, texts).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
    assert sizes[1] < sizes[0] / 3


@pytest.mark.parametrize("length", [1, 4, 5, 40, 300])
def test_groups_shorten_from_the_longest(length: int) -> None:
    lengths = grouping.group_lengths(length)
    assert lengths[0] == length
    assert lengths == sorted(set(lengths), reverse=True)
    assert lengths[-1] <= grouping.SHORTEST
    assert all(0.7 * a - 1 <= b for a, b in pairwise(lengths))


def test_the_setting_chooses() -> None:
    """``auto`` leaves it to the device."""
    for backend, fastest in (("cpu", grouping.grouped), ("gpu", grouping.plain)):
        assert grouping.choose("auto", backend) is fastest
        assert grouping.choose("plain", backend) is grouping.plain
        assert grouping.choose("grouped", backend) is grouping.grouped
