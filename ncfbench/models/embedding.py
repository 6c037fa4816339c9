"""Vectors of texts by a frozen checkpoint: each text encoded once."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.data.assets.checkpoint import read_verified, read_weights
from ncfbench.data.text import Texts
from ncfbench.errors import UsageError
from ncfbench.models.blocks import by_length
from ncfbench.models.encoders.bert import Pretrained
from ncfbench.models.encoders.protocol import EncoderInput
from ncfbench.runs.progress import Progress


def embed_texts(
    checkpoint: Path, texts: Texts, progress: Progress | None = None
) -> tuple[NDArray[np.float32], float]:
    """Return the checkpoint's vectors of texts, float32[n, E], and the seconds that they took,
    compilation included.

    Args:
        texts: pieces of the checkpoint's own tokenizer, at most as many as it knows positions.

    Raises:
        DataError: the checkpoint is damaged.
        UsageError: the checkpoint's tokenizer and model do not belong together.
    """
    begin, progress = time.perf_counter(), progress or Progress()
    encode, width = _encoder(checkpoint, texts)
    tokens_NxL = texts.padded()
    order, blocks = by_length(texts.lengths, tokens_NxL.shape[1])
    parts: list[NDArray[np.float32]] = []
    progress.start(len(texts), 0, "item")
    try:
        for length, rows in blocks:
            parts.append(np.asarray(encode(jnp.asarray(tokens_NxL[order[rows], :length]))))
            progress.move(sum(map(len, parts)), "embedding")
    finally:
        progress.end()
    vectors_NxE = np.empty((len(texts), width), np.float32)
    vectors_NxE[order] = np.concatenate(parts)[: len(texts)]
    return vectors_NxE, time.perf_counter() - begin


def _encoder(checkpoint: Path, texts: Texts) -> tuple[Callable[[jax.Array], jax.Array], int]:
    """Return a function from tokens, int32[n, L], to a checkpoint's vectors, and their length."""
    architecture = read_verified(checkpoint)
    if int(texts.words.max(initial=0)) >= architecture.words:
        raise UsageError(
            f"--embed {checkpoint}: its tokenizer has more pieces than its model, which has"
            f" {architecture.words:,}. They do not belong together."
        )
    weights = dict(read_weights(checkpoint, architecture))
    graph, parameters = nnx.split(Pretrained(architecture, weights, rngs=nnx.Rngs(0)))

    @jax.jit
    def encode(parameters: Any, tokens: jax.Array) -> jax.Array:
        lengths = jnp.sum(tokens > 0, axis=1)
        inputs = EncoderInput(jnp.arange(len(tokens)), tokens, tokens > 0, lengths)
        return nnx.merge(graph, parameters)(inputs)

    return partial(encode, parameters), architecture.width
