"""Encoders as a CPU computes them, packed, in groups or projected, against the plain forms of
accelerators: values, gradients, memory.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training import texts_of, traced_for

from ncfbench.catalog import find_encoder
from ncfbench.config import complete
from ncfbench.models.encoders import bow, cnn, gru, packing, transformer
from ncfbench.models.encoders.cnn import plain_pool, projected_pool
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput

WORDS = 9
SMALL = {"dimension": 4, "word_dimension": 3, "gru_units": 4, "lstm_units": 5}
SMALL |= {"layers": 1, "width": 6}
ENCODERS = {"lstm": {}, "gru": {}, "transformer": {}, "bow": {"word_dimension": bow.WIDE}}
LONG = pytest.mark.long


def program(encoder, backend, **more):
    """Value, and the gradients of a weighted sum of it; parameters; compiled."""
    config = complete({"encoder": encoder, "feed_forward": 5} | SMALL | more)
    module = find_encoder(encoder).load()(config, DataFacts(1, 1, WORDS), rngs=nnx.Rngs(0))
    graph, parameters = nnx.split(module)

    def total(parameters, texts):
        with traced_for(backend):
            value = nnx.merge(graph, parameters)(texts)
        weights = jnp.sin(1 + jnp.arange(value.size, dtype=jnp.float32).reshape(value.shape))
        return jnp.sum(value * weights), value

    return jax.jit(jax.grad(total, has_aux=True)), parameters


@pytest.fixture(scope="module", autouse=True)
def _small_blocks():
    """Several blocks of four rows, the last one partly filled."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (gru, transformer):
            patch.setattr(module, "SHAPE", packing.Shape(11, 44, 2))
        patch.setattr(bow, "BLOCK_WORDS", 16)
        yield


@pytest.fixture(scope="module", params=ENCODERS)
def both(request):
    more = ENCODERS[request.param]
    return [program(request.param, backend, **more) for backend in ("gpu", "cpu")]


@pytest.mark.long_cases("(transformer|gru)$")
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 1.0]))
def test_both_agree(both, seed, removed):
    """Empty texts, full-length ones, words that repeat, and all words removed."""
    texts = texts_of(np.random.default_rng(seed), 20, 9, WORDS, removed)
    plain, packed = (jax.tree.leaves(call(parameters, texts)) for call, parameters in both)
    norm = max(float(np.linalg.norm(leaf)) for leaf in plain[:-1])
    for one, other in zip(plain, packed, strict=True):
        assert np.linalg.norm(one - other) <= 3e-6 * (norm + float(np.linalg.norm(one)))


@pytest.mark.long_cases("transformer")
@pytest.mark.parametrize(
    ("encoder", "items", "length"), [("lstm", 3, 2), ("transformer", 1, 1), ("transformer", 5, 0)]
)
def test_both_agree_on_few_texts(encoder, items, length):
    """Fewer texts than a block or the groups hold, one word, and data without any."""
    tokens = np.random.default_rng(0).integers(1, WORDS, (items, length), np.int32)
    lengths = np.full(items, length, np.int32)
    texts = EncoderInput(*jax.device_put((np.arange(items), tokens, tokens > 0, lengths)))
    programs = [program(encoder, backend) for backend in ("gpu", "cpu")]
    results = [call(parameters, texts) for call, parameters in programs]
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


@LONG
def test_many_texts_are_encoded_in_parts(monkeypatch):
    """Plainly too: to the same numbers, with the activations of one part in memory."""
    texts = texts_of(np.random.default_rng(1), 203, 8, WORDS, 0.3)
    results, sizes = [], []
    for words in (10**6, 160):
        monkeypatch.setattr(packing, "PLAIN_WORDS", words)
        call, parameters = program("transformer", "gpu")
        results.append(jax.tree.leaves(call(parameters, texts)))
        compiled = call.lower(parameters, texts).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
    assert sizes[1] < sizes[0] / 3


@pytest.mark.long_cases("gru|transformer")
@pytest.mark.parametrize(
    ("encoder", "more", "words", "backends"),
    [
        # Gradients on a CPU have loops whose length depends on the texts.
        *((encoder, more, "while", ["cpu"]) for encoder, more in ENCODERS.items()),
        ("bow", {"word_dimension": bow.WIDE - 1}, "while", []),
        ("cnn", {}, "conv_general_dilated", ["gpu"]),
        ("cnn", {"convolution": "plain"}, "conv_general_dilated", ["cpu", "gpu"]),
        ("cnn", {"convolution": "projected"}, "conv_general_dilated", []),
    ],
)
def test_the_device_chooses_the_form(encoder, more, words, backends):
    """Unless a setting does."""
    texts = texts_of(np.random.default_rng(0), 5, 4, WORDS, 0.0)
    devices = []
    for backend in ("cpu", "gpu"):
        call, parameters = program(encoder, backend, **more)
        devices += [backend] * (words in str(jax.make_jaxpr(call)(parameters, texts)))
    assert devices == backends


# The pooling of the convolution


def arrays_of(rng, words, width, size=6, filters=5):
    shapes = ((words + 1, size), (width, size, filters), (filters,))
    return tuple(jax.device_put(rng.normal(size=shape).astype(np.float32)) for shape in shapes)


def gradients(pool, arrays, texts, weights):
    """The value, and the gradients of a weighted sum of it."""

    def total(arrays):
        value = pool(*arrays, texts)
        return jnp.sum(value * weights), value

    by_array, value = jax.grad(total, has_aux=True)(arrays)
    return [value, *by_array]


def assert_agree(arrays, texts, rng):
    """Compiled anew, for JAX caches what it traced by the function, and a constant may change."""
    both = jax.jit(lambda *given: gradients(*given), static_argnums=0)
    weights = rng.normal(size=(len(texts.items), len(arrays[2]))).astype(np.float32)
    plain, projected = (both(pool, arrays, texts, weights) for pool in (plain_pool, projected_pool))
    names = ("value", "table", "kernel", "bias")
    for name, one, other in zip(names, plain, projected, strict=True):
        # Terms of a sum may cancel; what is rounded is as large as they are.
        scale = max(float(np.linalg.norm(one)), float(np.linalg.norm(weights)))
        assert np.linalg.norm(one - other) <= 3e-6 * scale, name


@pytest.mark.parametrize(
    ("words", "width", "length", "items"),
    [
        pytest.param(3, 3, 9, 23, id="tied"),
        pytest.param(40, 3, 9, 23, id="vocabulary projected"),
        pytest.param(4000, 3, 9, 23, id="columns projected"),
        (40, 1, 1, 1),
        (4000, 4, 2, 23),
        pytest.param(3, 4, 2, 23, marks=LONG),
        pytest.param(40, 3, 1, 12, marks=LONG),
    ],
)
def test_both_poolings_agree(words, width, length, items):
    """Few words tie often; many take the other way. Some, none or all are removed."""
    rng = np.random.default_rng(width)
    for removed in (0.0, 0.4, 1.0):
        texts = texts_of(rng, items, length, words, removed)
        assert_agree(arrays_of(rng, words, width), texts, rng)


def test_one_array_of_activities_at_most():
    """The plain way holds three: words, activities, and the gradient of each."""
    rng = np.random.default_rng(0)
    arrays, texts = arrays_of(rng, 50, 3, 8, 16), texts_of(rng, 400, 200, 50, 0.5)

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
    arrays, texts = arrays_of(rng, 3, 3, 4, 2), texts_of(rng, 40, 6, 3, 0.5)
    cells = arrays[0].shape[0] * 3 * 2

    def program():
        gradient = jax.grad(lambda *arrays: jnp.sum(projected_pool(*arrays, texts)))
        return str(jax.make_jaxpr(gradient)(*arrays))

    monkeypatch.setattr(cnn, "MOST_CELLS", cells)
    assert f"f32[{cells}]" in program()
    monkeypatch.setattr(cnn, "MOST_CELLS", cells - 1)
    assert f"f32[{cells}]" not in program()
    assert_agree(arrays, texts, rng)
