"""A pretrained BERT-like encoder, fine-tuned end to end.

Devlin et al. 2019: embeddings, layers of self-attention and a hidden layer, each normalised after
it is added to its input. The pooling is the checkpoint's own; a dense layer makes item vectors.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.data.assets.checkpoint import (
    Architecture,
    Arrays,
    kept_path,
    read_weights,
)
from ncfbench.models.encoders import packing
from ncfbench.models.encoders.attention import Block
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.models.scores import unit_vectors

SHAPE = packing.Shape(row_words=128, block_words=4096, block_rows=1)
"""Blocks of 1,024 words take 15 % longer, as each adds to the gradients of all weights; a block of
4,096 keeps 1.3 GB of activations with MiniLM.
"""
MOST_KEPT = 2**15 * 6 * 384
"""Word slots times layers times width up to which the encoder pads texts and keeps activations for
the backward pass, which is faster: about 10 GB, at 32,768 slots with MiniLM. More are encoded
twice: packed on a CPU, else padded, in parts of that size.
"""


class Stack(nnx.Module):
    """Positions, normalisation, layers; the word's vectors come from outside."""

    def __init__(self, architecture: Architecture, *, rngs: nnx.Rngs) -> None:
        self.pooling, width = architecture.pooling, architecture.width
        norm: dict[str, Any] = {"epsilon": architecture.epsilon, "use_fast_variance": False}
        sizes = width, architecture.heads, architecture.feed_forward
        form: dict[str, Any] = {"norms_first": False, "approximate": False, **norm}
        self.positions = nnx.Embed(architecture.positions, width, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs, **norm)
        self.layers = nnx.List(
            [Block(*sizes, **form, rngs=rngs) for _ in range(architecture.layers)]
        )

    def __call__(
        self, words_RxLxE: jax.Array, positions: jax.Array, texts_RxL: jax.Array
    ) -> jax.Array:
        """Return float32[R, L, E]; see :data:`ncfbench.models.encoders.packing.Encode`.

        Where a text's vector is that of its first word, those of the others are zero.
        """
        words_RxLxE = self.norm(words_RxLxE + self.positions(positions))
        for layer in self.layers:
            words_RxLxE = layer(words_RxLxE, texts_RxL)
        if self.pooling == "first":
            words_RxLxE = jnp.where((positions == 0)[..., None], words_RxLxE, 0)
        return words_RxLxE


class Pretrained(nnx.Module):
    """The words and the stack: all weights that come from the checkpoint."""

    def __init__(self, architecture: Architecture, weights: Arrays, *, rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(architecture.words, architecture.width, rngs=rngs)
        self.stack = Stack(architecture, rngs=rngs)
        self.normalises = architecture.normalises
        _fill(self, weights)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return the checkpoint's vector of each text, float32[V, E]; zero without words."""
        stack, table = self.stack, self.words.embedding[...]
        most_words = MOST_KEPT // (len(stack.layers) * table.shape[1])
        shape = None if texts.tokens.size <= most_words else SHAPE
        vectors_VxE = packing.run(Stack.__call__, stack, table, texts, shape, most_words)
        if stack.pooling == "first":
            # The mean over the words, of which all but the first are zero.
            vectors_VxE *= jnp.sum(texts.present, axis=1, keepdims=True)
        return unit_vectors(vectors_VxE) if self.normalises else vectors_VxE


class Bert(nnx.Module):
    """A pretrained encoder's vector of the text -> dense.

    The data set must have been prepared with the checkpoint's tokenizer. Words are not dropped:
    the texts that the checkpoint was trained on were whole.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        folder = kept_path(data.folder, config.checkpoint)
        architecture = Architecture.read(folder)
        weights = dict(read_weights(folder, architecture))
        self.pretrained = Pretrained(architecture, weights, rngs=rngs)
        self.dense = nnx.Linear(architecture.width, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        return self.dense(self.pretrained(texts))


def _fill(pretrained: Pretrained, weights: Arrays) -> None:
    """Put a checkpoint's weights into the modules; linear maps are stored [out, in] there."""

    def fill(module: Any, *names: str) -> None:
        parts = [weights[f"{name}.weight"].T for name in names]
        variable: Any = module.scale if isinstance(module, nnx.LayerNorm) else module.kernel
        variable[...] = jnp.asarray(np.concatenate(parts, axis=-1))
        module.bias[...] = jnp.asarray(np.concatenate([weights[f"{name}.bias"] for name in names]))

    pretrained.words.embedding[...] = jnp.asarray(weights["embeddings.word_embeddings.weight"])
    # All words are of the first of the two types of a sentence.
    of_type = weights["embeddings.token_type_embeddings.weight"][0]
    positions = weights["embeddings.position_embeddings.weight"] + of_type
    pretrained.stack.positions.embedding[...] = jnp.asarray(positions)
    fill(pretrained.stack.norm, "embeddings.LayerNorm")
    for number, layer in enumerate(pretrained.stack.layers):
        at = f"encoder.layer.{number}"
        names = [f"{at}.attention.self.{name}" for name in ("query", "key", "value")]
        fill(layer.attention.inputs, *names)
        fill(layer.attention.output, f"{at}.attention.output.dense")
        fill(layer.attention_norm, f"{at}.attention.output.LayerNorm")
        fill(layer.hidden, f"{at}.intermediate.dense")
        fill(layer.output, f"{at}.output.dense")
        fill(layer.hidden_norm, f"{at}.output.LayerNorm")
