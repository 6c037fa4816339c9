"""Settings of the bag of words, beside their definitions in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.training import texts_of

from ncfbench.config import complete
from ncfbench.errors import UsageError
from ncfbench.models.encoders.bow import BLOCK_WORDS, BagOfWords, block_sums, plain_sums
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput

WORDS, SIZE = 9, 5


def bag(**settings):
    """A bag of noise: words, kernel and bias of its dense layer as float64."""
    config = complete({"encoder": "bow", "word_dimension": SIZE, "dimension": 3} | settings)
    facts = DataFacts(1, 1, WORDS)
    module = BagOfWords(config, facts, rngs=nnx.Rngs(1))
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=shape) for shape in ((WORDS + 1, SIZE), (SIZE, 3), (3,))]
    for variable, value in zip(
        (module.words.embedding, module.dense.kernel, module.dense.bias), arrays, strict=True
    ):
        variable[...] = jnp.asarray(value, jnp.float32)
    return module, *arrays


def test_a_bag_is_its_definition():
    """A mean over the words that are left, then dense; a text without words has the bias alone."""
    module, table, kernel, bias = bag()
    texts = texts_of(np.random.default_rng(3), 12, 6, WORDS, 0.3)
    actual = jax.jit(module)(texts)
    for item in range(12):
        left = np.asarray(texts.tokens[item])[np.asarray(texts.present[item])]
        mean = table[left].mean(axis=0) if len(left) else np.zeros(SIZE)
        np.testing.assert_allclose(actual[item], mean @ kernel + bias, atol=1e-5)


def test_a_bare_bag_is_the_mean():
    """Without parameters but the words', where both lengths are one; a text without words is 0."""
    module, table, *_ = bag()
    config = complete(
        {"encoder": "bow", "word_dimension": SIZE, "dimension": SIZE, "bare_bag": True}
    )
    bare = BagOfWords(config, DataFacts(1, 1, WORDS), rngs=nnx.Rngs(1))
    bare.words = module.words
    tokens = jnp.array([[1, 4, 4, 0], [0, 0, 0, 0]])
    texts = EncoderInput(jnp.arange(2), tokens, tokens > 0, jnp.array([3, 0]))
    expected = [(table[1] + 2 * table[4]) / 3, np.zeros(SIZE)]
    np.testing.assert_allclose(bare(texts), expected, atol=1e-6)
    assert set(nnx.split(bare)[1]) == {"words"}
    with pytest.raises(UsageError, match=r"word_dimension = 5 .* Use --set word_dimension=3\."):
        bag(bare_bag=True)


def test_blocks_of_texts_give_the_same_sums():
    """Values and gradients, where texts fill no whole block, words repeat, and some have none."""
    rng = np.random.default_rng(4)
    texts = texts_of(rng, BLOCK_WORDS // 2, 7, WORDS, 0.3)
    table = jnp.asarray(rng.normal(size=(WORDS + 1, SIZE)), jnp.float32)

    def total(table, sums):
        value = sums(table, texts.tokens, texts.present)
        return jnp.sum(jnp.sin(value)), value

    gradient = jax.jit(jax.grad(total, has_aux=True), static_argnums=1)
    for one, other in zip(
        *(gradient(table, sums) for sums in (plain_sums, block_sums)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
