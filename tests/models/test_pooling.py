"""The projected pooling against the plain one: values and gradients, on texts that ask for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.training import texts_of

from ncfbench.models.encoders import cnn
from ncfbench.models.encoders.cnn import plain_pool, projected_pool
from ncfbench.models.encoders.protocol import EncoderInput


def parameters(rng, words, width, size=6, filters=5):
    shapes = ((words + 1, size), (width, size, filters), (filters,))
    return tuple(jax.device_put(rng.normal(size=shape).astype(np.float32)) for shape in shapes)


def gradients(pool, arrays, texts, weights):
    """The value, and the gradients of a weighted sum of it."""

    def total(arrays):
        value = pool(*arrays, texts)
        return jnp.sum(value * weights), value

    by_array, value = jax.grad(total, has_aux=True)(arrays)
    return [value, *by_array]


compiled = jax.jit(gradients, static_argnums=0)


def assert_agree(arrays, texts, rng, *, is_anew=False):
    """JAX caches by the function what it traced: ``is_anew`` where a constant has changed."""
    both = jax.jit(lambda *given: gradients(*given), static_argnums=0) if is_anew else compiled
    weights = rng.normal(size=(len(texts.items), len(arrays[2]))).astype(np.float32)
    plain, projected = (both(pool, arrays, texts, weights) for pool in (plain_pool, projected_pool))
    names = ("value", "table", "kernel", "bias")
    for name, one, other in zip(names, plain, projected, strict=True):
        # Terms of a sum may cancel; what is rounded is as large as they are.
        scale = max(float(np.linalg.norm(one)), float(np.linalg.norm(weights)))
        assert np.linalg.norm(one - other) <= 3e-6 * scale, name


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("words", "width", "length", "items"),
    [
        pytest.param(3, 3, 9, 23, id="tied"),
        pytest.param(40, 3, 9, 23, id="vocabulary projected"),
        pytest.param(4000, 3, 9, 23, id="columns projected"),
        (40, 1, 1, 1),
        (4000, 4, 2, 23),
        pytest.param(3, 1, 9, 23, marks=LONG),
        pytest.param(4000, 1, 9, 23, marks=LONG),
        pytest.param(3, 4, 2, 23, marks=LONG),
        pytest.param(40, 3, 1, 12, marks=LONG),
    ],
)
def test_both_agree(words, width, length, items):
    """Few words tie often; many take the other way. Some, none or all are removed."""
    rng = np.random.default_rng(width)
    for removed in (0.0, 0.4, 1.0):
        texts = texts_of(rng, items, length, words, removed)
        assert_agree(parameters(rng, words, width), texts, rng)


@pytest.mark.parametrize("rows_per_word", [0, 10**6], ids=["by word and filter", "row by row"])
def test_both_ways_back_agree(rows_per_word, monkeypatch):
    monkeypatch.setattr(cnn, "ROWS_PER_WORD", rows_per_word)
    rng = np.random.default_rng(5)
    texts = texts_of(rng, 40, 12, 30, 0.5)
    assert_agree(parameters(rng, 30, 3), texts, rng, is_anew=True)


def test_a_repeated_word_gets_one_gradient():
    """Every inner place ties: the word gets the gradient of one of them, and not of all."""
    table, kernel, bias = jnp.ones((3, 1)), jnp.ones((3, 1, 1)), jnp.zeros(1)
    tokens = jnp.array([[2, 2, 2, 2, 2]], jnp.int32)
    texts = EncoderInput(jnp.array([0]), tokens, tokens > 0, jnp.array([5], jnp.int32))
    for pool in (plain_pool, projected_pool):
        value, of_table, of_kernel, of_bias = compiled(
            pool, (table, kernel, bias), texts, jnp.ones((1, 1))
        )
        assert value.item() == 3
        assert of_table.ravel().tolist() == [0, 0, 3]
        assert of_kernel.ravel().tolist() == [1, 1, 1]
        assert of_bias.tolist() == [1]


def test_one_array_of_activities_at_most():
    """The plain way holds three: words, activities, and the gradient of each."""
    rng = np.random.default_rng(0)
    arrays, texts = parameters(rng, 50, 3, 8, 16), texts_of(rng, 400, 200, 50, 0.5)

    def held(pool):
        gradient = jax.grad(lambda *arrays: jnp.sum(pool(*arrays, texts)), argnums=(0, 1, 2))
        analysis = jax.jit(gradient).lower(*arrays).compile().memory_analysis()
        return float(analysis.temp_size_in_bytes)

    activities = 4 * texts.tokens.size * 16
    assert held(plain_pool) > 3 * activities
    assert held(projected_pool) < 1.2 * activities


def test_no_cell_is_numbered_beyond_int32(monkeypatch):
    """With more cells rows take the gradient one by one, without a table of cells."""
    rng = np.random.default_rng(0)
    arrays, texts = parameters(rng, 3, 3, 4, 2), texts_of(rng, 40, 6, 3, 0.5)
    cells = arrays[0].shape[0] * 3 * 2

    def program():
        gradient = jax.grad(lambda *arrays: jnp.sum(projected_pool(*arrays, texts)))
        return str(jax.make_jaxpr(gradient)(*arrays))

    monkeypatch.setattr(cnn, "MOST_CELLS", cells)
    assert f"f32[{cells}]" in program()
    monkeypatch.setattr(cnn, "MOST_CELLS", cells - 1)
    assert f"f32[{cells}]" not in program()
    assert_agree(arrays, texts, rng, is_anew=True)
