"""Encoders: properties that any right implementation has, and a plain one to compare with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support.tiny_bert import write_checkpoint
from support.training import CHECKPOINT_DIGEST, FROM_SCRATCH

from ncfbench.config import complete
from ncfbench.data.assets.checkpoint import kept_path
from ncfbench.errors import UsageError
from ncfbench.models.dropout import FIRST_OUTPUT, Dropout, Rate, rates_of
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.models.scores import unit_vectors
from ncfbench.models.towers import DeviceContent, Towers

WORDS, DIMENSION = 9, 4
HALF = Rate.of(0.5)


def small(encoder, **settings):
    sizes = {"dimension": DIMENSION, "word_dimension": 3, "filters": 5, "lstm_units": 6}
    sizes |= {"gru_units": 4, "layers": 2, "heads": 2, "width": 6, "feed_forward": 7}
    sizes |= {"mlp_units": 5, "user_units": 5}
    if encoder == "bert":
        settings["checkpoint"] = CHECKPOINT_DIGEST
    return complete({"encoder": encoder} | sizes | settings)


def content_of(texts, length):
    tokens = np.array([text + [0] * (length - len(text)) for text in texts], np.int32)
    lengths = np.array([len(text) for text in texts], np.int32)
    return DeviceContent(*jax.device_put((tokens, lengths)))


def towers(config, n_items=6, features=0, folder=None):
    """Towers of noise: biases begin at zero, which would hide one that is applied to padding."""
    facts = DataFacts(7, n_items, WORDS, features, folder)
    abstract = nnx.eval_shape(lambda: Towers(config, facts, rngs=nnx.Rngs(0)))
    graph, shapes = nnx.split(abstract)
    rng = np.random.default_rng(0)
    noise = jax.tree.map(lambda leaf: rng.normal(0, 0.5, leaf.shape).astype(np.float32), shapes)
    return nnx.merge(graph, jax.device_put(noise))


TEXTS = [[1, 2, 3, 4], [], [5], [6, 6, 7, 8, 9], [2, 1], [3, 3, 3]]


@pytest.mark.long_cases("(transformer|gru|bert)$")
@pytest.mark.parametrize("encoder", [*FROM_SCRATCH, "mlp", "bert"])
def test_an_item_depends_on_nothing_but_itself(encoder, tmp_path):
    """Not on slot, neighbours, longest text; a slot after the last item has no words."""
    write_checkpoint(kept_path(tmp_path, CHECKPOINT_DIGEST))
    embed = jax.jit(towers(small(encoder), features=3, folder=tmp_path).items)
    features = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    features[[0, 4]] = features[1]
    features = jax.device_put(features)
    short, long = (content_of(TEXTS, size)._replace(item_features=features) for size in (5, 23))
    dropout = Dropout(jnp.uint32(3), jnp.uint32(7), rates_of(small(encoder)))

    def vectors(items, content, count):
        return np.asarray(embed(np.array(items), content, dropout, n_items=jnp.int32(count)))

    everything = vectors(range(6), short, 6)
    assert np.ptp(everything, axis=0).min() > 1e-3, "the test could not fail"
    for items, content in (
        ([5, 3, 3, 0, 1, 4], short),
        ([4, 2, 2, 2, 2, 2], short),
        ([2, 5, 0, 3], long),
    ):
        actual = vectors(items, content, len(items))
        np.testing.assert_allclose(actual, everything[items], atol=2e-6)
    if encoder not in ("mf", "mlp"):
        padded = vectors([2, 0, 3, 4, 0, 0], short, 3)
        np.testing.assert_allclose(padded, everything[[2, 0, 3, 1, 1, 1]], atol=2e-6)


def test_a_user_does_not_depend_on_its_slot():
    """Nor on the other users; two users' vectors differ."""
    content = content_of(TEXTS, 6)
    embed = jax.jit(towers(small("mf")).users)
    everything, order = np.asarray(embed(content).raw), np.array([6, 2, 2, 0])
    np.testing.assert_allclose(embed(content, order).raw, everything[order], atol=2e-6)
    assert np.ptp(everything, axis=0).min() > 1e-3


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays_of(module):
    """A module's parameters, float64 by their names."""
    pure = nnx.to_pure_dict(nnx.state(module))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), pure)


def linear(layer, x):
    return x @ layer["kernel"] + layer.get("bias", 0.0)


def words_left(seed=0):
    """Texts of which some words are removed, and the (position, word) pairs that are left."""
    content = content_of(TEXTS, 8)
    present = (content.tokens > 0) & (np.random.default_rng(seed).random((6, 8)) < 0.7)
    left = [
        [(position, word) for position, word in enumerate(text) if present[item, position]]
        for item, text in enumerate(TEXTS)
    ]
    return EncoderInput(jnp.arange(6), content.tokens, present, content.lengths), left


def bag(parameters, words, length):
    """A bare one has no parameters but the words'."""
    assert len(parameters) == 1 + ("dense" in parameters)
    return np.mean([parameters["words"]["embedding"][word] for _, word in words], axis=0)


def cnn(parameters, words, length):
    """A filter sees zeros where a word was removed, and beyond both ends."""
    table, layer = parameters["words"]["embedding"], parameters["convolution"]
    inputs = np.zeros((length + 2, table.shape[1]))
    for position, word in words:
        inputs[position + 1] = table[word]
    activities = [
        layer["bias"] + sum(inputs[at + tap] @ layer["kernel"][tap] for tap in range(3))
        for at in range(length)
    ]
    return np.max([*activities, 0 * layer["bias"]], axis=0)


def lstm(parameters, words, length):
    output, cell = np.zeros(6), np.zeros(6)
    for _, word in words:
        inputs = linear(parameters["input_gates"], parameters["words"]["embedding"][word])
        i, f, g, o = np.split(inputs + linear(parameters["recurrent_gates"], output), 4)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
        output = sigmoid(o) * np.tanh(cell)
    return output


def gru(parameters, words, length):
    """Words that were removed are skipped, in both directions."""
    inputs, means = [parameters["words"]["embedding"][word] for _, word in words], []
    for direction, order in ((0, 1), (1, -1)):
        gates, state, states = parameters["directions"][direction], np.zeros(4), []
        for word in inputs[::order]:
            ir, iu, inew = np.split(linear(gates["input_gates"], word), 3)
            hr, hu, hnew = np.split(linear(gates["recurrent_gates"], state), 3)
            update = sigmoid(iu + hu)
            new = np.tanh(inew + sigmoid(ir + hr) * hnew)
            state = update * state + (1 - update) * new
            states.append(state)
        means.append(np.mean(states, axis=0))
    return np.concatenate(means)


def normed(layer, x):
    deviation = np.sqrt(((x - x.mean()) ** 2).mean() + 1e-6)
    return (x - x.mean()) / deviation * layer["scale"] + layer["bias"]


def gelu(x):
    return x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def attended(layer, rows):
    parts = [np.split(linear(layer["inputs"], row), 3) for row in rows]
    outputs = []
    for query, _, _ in parts:
        heads = []
        for head in (slice(0, 3), slice(3, 6)):
            weights = np.exp([query[head] @ key[head] / 3**0.5 for _, key, _ in parts])
            values = np.array([value[head] for _, _, value in parts])
            heads.append(weights / weights.sum() @ values)
        outputs.append(linear(layer["output"], np.concatenate(heads)))
    return outputs


def transformer(parameters, words, length):
    """One position and one head after the other; words keep their positions in the text."""
    stack = parameters["stack"]
    table, positions = parameters["words"]["embedding"], stack["positions"]["embedding"]
    rows = [table[word] + positions[position] for position, word in words]
    for number in (0, 1):
        block = stack["blocks"][number]
        added = attended(block["attention"], [normed(block["attention_norm"], r) for r in rows])
        rows = [row + more for row, more in zip(rows, added, strict=True)]
        hidden = [linear(block["hidden"], normed(block["hidden_norm"], row)) for row in rows]
        added = [linear(block["output"], gelu(units)) for units in hidden]
        rows = [row + more for row, more in zip(rows, added, strict=True)]
    return np.mean([normed(stack["last_norm"], row) for row in rows], axis=0)


BARE = {"bare_bag": True, "word_dimension": DIMENSION}


DEFINITIONS = {"bow": bag, "cnn": cnn, "lstm": lstm, "gru": gru, "transformer": transformer}


@pytest.mark.parametrize(("encoder", "more"), [("bow", BARE), *((by, {}) for by in DEFINITIONS)])
def test_encoders_by_definition(encoder, more):
    """An encoder is a dense layer on what a plain computation gives for the words left."""
    texts, left = words_left()
    module = towers(small(encoder, **more)).encoder
    parameters = arrays_of(module)
    dense = parameters["dense"] if more != BARE else {"kernel": np.eye(DIMENSION)}
    actual = jax.jit(module)(texts)
    for item, words in enumerate(left):
        vector = 0 * dense["kernel"][:, 0]
        if words or encoder == "cnn":
            vector = DEFINITIONS[encoder](parameters, words, len(TEXTS[item]))
        np.testing.assert_allclose(actual[item], linear(dense, vector), rtol=1e-4, atol=1e-5)


def test_a_bare_bag_has_the_length_of_its_words():
    with pytest.raises(UsageError, match=r"word_dimension = 3 .* Use --set word_dimension=4\."):
        small("bow", bare_bag=True)


def test_unit_vectors_keep_zeros():
    rows = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)
    np.testing.assert_allclose(jax.jit(unit_vectors)(rows), [[0, 0], [0.6, 0.8]], rtol=1e-6)
    weights = np.array([[1.0, 2.0]], np.float32)
    gradient = np.asarray(jax.jit(jax.grad(lambda x: jnp.sum(unit_vectors(x) * weights)))(rows))
    assert np.isfinite(gradient).all()
    assert not gradient[0].any()


def test_dropout_is_a_function_of_its_counter():
    """Seed, iteration, item and position decide, and nothing else."""
    items = np.array([4, 9, 4, 0])

    def keep(items=items, count=40, first=0, seed=1, iteration=5):
        dropout = Dropout(np.uint32(seed), np.uint32(iteration))
        return np.asarray(dropout.keep(jnp.asarray(items), count, HALF, first))

    kept = keep()
    np.testing.assert_array_equal(kept[0], kept[2])
    np.testing.assert_array_equal(kept[:, :11], keep(count=11))
    np.testing.assert_array_equal(kept[1:2], keep(items[1:2]))
    for more in ({"seed": 2}, {"iteration": 6}, {"items": items + 1}, {"first": FIRST_OUTPUT}):
        assert (keep(**more)[0] != kept[0]).any()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_removes_the_stated_share(rate):
    """Shares within 5 standard deviations, over all cells and between neighbours."""
    dropout = Dropout(jnp.uint32(0), jnp.uint32(0))
    keep = np.asarray(jax.jit(lambda: dropout.keep(jnp.arange(1000), 100, Rate.of(rate)))(), float)
    deviation = (rate * (1 - rate) / keep.size) ** 0.5
    assert abs(keep.mean() - (1 - rate)) < 5 * deviation
    centred = keep - (1 - rate)
    for product in (centred[:, 1:] * centred[:, :-1], centred[1:] * centred[:-1]):
        assert abs(product.mean()) < 5 * rate * (1 - rate) / product.size**0.5


def test_word_dropout_rescales_nothing():
    """Each item's embedding under dropout is that of a text whose removed words are blank."""
    model = towers(small("cnn", item_dropout=0.0))
    content = content_of(TEXTS, 6)
    dropout = Dropout(jnp.uint32(0), jnp.uint32(1), rates_of(small("cnn")))
    keep = jax.jit(lambda: dropout.keep(jnp.arange(6), 6, HALF))()
    present = (np.asarray(content.tokens) > 0) & np.asarray(keep)
    texts = EncoderInput(np.arange(6), content.tokens, present, content.lengths)
    actual = jax.jit(model.items)(np.arange(6), content, dropout)
    np.testing.assert_allclose(actual, jax.jit(model.encoder)(texts), atol=1e-6)


def test_item_dropout_keeps_the_expectation():
    config, content = small("mf", item_dropout=0.5), content_of(TEXTS, 6)
    model, rates = towers(config), rates_of(config)
    plain = np.asarray(jax.jit(model.items)(np.arange(6), content))

    def dropped(iteration):
        return model.items(jnp.arange(6), content, Dropout(jnp.uint32(0), iteration, rates))

    values = np.asarray(jax.jit(jax.vmap(dropped))(np.arange(600, dtype=np.uint32)))
    assert ((values == 0) | np.isclose(values, 2 * plain[None], rtol=1e-5)).all()
    np.testing.assert_allclose(values.mean(axis=0), plain, atol=5 * np.abs(plain).max() / 600**0.5)
