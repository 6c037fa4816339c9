"""cuDNN's LSTM: our weights in its layout. Its mathematics by JAX's reference here; the thing
itself where there is a GPU.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.experimental import rnn

from ncfbench.config import complete
from ncfbench.models import device
from ncfbench.models.encoders import cudnn
from ncfbench.models.encoders.lstm import Lstm
from ncfbench.models.encoders.protocol import Texts
from ncfbench.models.precision import at

UNITS, WIDTH, WORDS = 5, 3, 7
LENGTHS = np.array([7, 1, 0, 4, 6], np.int32)

on_gpu = pytest.mark.skipif(not cudnn.available(), reason="no NVIDIA GPU")


def reference(x: Any, h: Any, c: Any, weights: Any, lengths: Any, *sizes: Any) -> Any:
    """``rnn.lstm`` in plain JAX, with weights unpacked by JAX's own function."""
    unpacked = rnn.unpack_lstm_weights(weights, sizes[0], sizes[1], 1, False)
    return rnn.lstm_ref(x, h, c, *unpacked, lengths, *sizes)


def made() -> tuple[Any, Any, Any]:
    """An encoder with biases that are not zero, its texts, and the words' vectors with rubbish
    behind the texts' ends.
    """
    config = complete(
        {"encoder": "lstm", "lstm_units": UNITS, "word_dimension": WIDTH, "dimension": 4}
    )
    encoder = Lstm(config, 10, 20, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    encoder.input_gates.bias[...] = jnp.asarray(rng.normal(size=4 * UNITS), jnp.float32)
    encoder.dense.bias[...] = jnp.asarray(rng.normal(size=4), jnp.float32)
    places = np.arange(WORDS)[None, :]
    tokens = np.where(
        places < LENGTHS[:, None], rng.integers(1, 21, (len(LENGTHS), WORDS)), 0
    ).astype(np.int32)
    present = (tokens > 0) & (rng.random(tokens.shape) < 0.7)  # some words dropped inside the texts
    texts = Texts(*map(jnp.asarray, (np.arange(len(LENGTHS)), tokens, present, LENGTHS)))
    return encoder, texts, rng.normal(size=(len(LENGTHS), WORDS, WIDTH)).astype(np.float32)


def by_cudnn(encoder: Any, texts: Any, rubbish: Any) -> jax.Array:
    words = encoder.words(texts.tokens) * texts.present[..., None]
    in_text = (jnp.arange(WORDS)[None, :] < texts.lengths[:, None])[..., None]
    gates, recurrent = encoder.input_gates, encoder.recurrent_gates.kernel[...]
    inputs = jnp.where(in_text, words, rubbish)
    last = cudnn.last_output(inputs, texts.lengths, gates.kernel[...], gates.bias[...], recurrent)
    assert last.shape == (len(LENGTHS), UNITS)
    dense: jax.Array = encoder.dense(last)
    return dense


def compared() -> None:
    """Values, and gradients of all parameters, against the plain encoder."""
    encoder, texts, rubbish = made()
    graph, parameters = nnx.split(encoder)
    cotangent = np.random.default_rng(1).normal(size=(len(LENGTHS), 4)).astype(np.float32)
    functions = (lambda e: e(texts), lambda e: by_cudnn(e, texts, rubbish))
    found = []
    for function in functions:

        def objective(parameters: Any, function: Any = function) -> Any:
            vectors = function(nnx.merge(graph, parameters))
            return jnp.sum(cotangent * vectors), vectors

        found.append(
            jax.jit(at("float32", jax.value_and_grad(objective, has_aux=True)))(parameters)
        )
    ((_, plain), expected), ((_, vectors), gradients) = found
    np.testing.assert_allclose(vectors, plain, atol=1e-5)
    np.testing.assert_allclose(vectors[2], encoder.dense.bias[...], atol=1e-6)
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
        assert jnp.linalg.norm(other) > 1e-3
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_by_jaxs_reference_it_is_our_lstm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn.rnn, "lstm", reference)
    compared()


@on_gpu
def test_on_a_gpu_it_is_our_lstm() -> None:
    compared()


def test_jaxs_function_takes_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, traced as for a GPU: order of arguments, types, sizes; and TF32 exactly
    where it may be.
    """
    monkeypatch.setattr(
        rnn.gpu_rnn,
        "compute_rnn_workspace_reserve_space_sizes",
        lambda *sizes: (64, 64),
        raising=False,
    )
    encoder, texts, rubbish = made()
    graph, parameters = nnx.split(encoder)

    def objective(parameters: Any) -> jax.Array:
        return jnp.sum(by_cudnn(nnx.merge(graph, parameters), texts, rubbish))

    for precision, tf32 in (("float32", False), ("tf32", True), ("bfloat16", True)):
        text = str(jax.make_jaxpr(at(precision, jax.grad(objective)))(parameters))
        for primitive in ("rnn_fwd", "rnn_bwd"):
            (described,) = text.split(f"{primitive}[")[1:]
            stated = dict(
                line.strip().split("=", 1) for line in described.split("]")[0].strip().splitlines()
            )
            assert stated["cudnn_allow_tf32"] == str(tf32)
            assert (stated["input_size"], stated["hidden_size"], stated["num_layers"]) == (
                str(WIDTH),
                str(UNITS),
                "1",
            )
            assert (stated["dropout"], stated["bidirectional"]) == ("0.0", "False")


def test_the_weights_unpack_to_what_was_packed() -> None:
    rng = np.random.default_rng(3)
    kernel, bias, recurrent = (
        rng.normal(size=size).astype(np.float32)
        for size in ((WIDTH, 4 * UNITS), 4 * UNITS, (UNITS, 4 * UNITS))
    )
    packed = cudnn.packed_weights(jnp.asarray(kernel), jnp.asarray(bias), jnp.asarray(recurrent))
    assert packed.shape == (rnn.get_num_params_in_lstm(WIDTH, UNITS, 1, False),)
    w_ih, w_hh, b_ih, b_hh = rnn.unpack_lstm_weights(packed, WIDTH, UNITS, 1, False)
    np.testing.assert_array_equal(w_ih[0], kernel.T)
    np.testing.assert_array_equal(w_hh[0], recurrent.T)
    np.testing.assert_array_equal(b_ih[0], bias)
    np.testing.assert_array_equal(b_hh[0], [0] * UNITS + [1] * UNITS + [0] * 2 * UNITS)


def test_it_is_for_nvidia_gpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, expected in ((None, False), (7.5, True)):
        monkeypatch.setattr(cudnn, "compute_capability", lambda capability=capability: capability)
        assert cudnn.available() is expected
    if jax.default_backend() == "cpu":
        assert device.compute_capability() is None
