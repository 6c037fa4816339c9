"""Vectors of texts by a frozen checkpoint: each text encoded once, in blocks that are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.data.assets.architecture import read_verified, read_weights
from ncfbench.data.text import Texts
from ncfbench.errors import UsageError
from ncfbench.models.blocks import by_length
from ncfbench.models.encoders.bert import Pretrained
from ncfbench.models.encoders.protocol import EncoderInput
from ncfbench.runs.progress import Progress
from ncfbench.storage import tables
from ncfbench.timing.clock import format_duration

KEPT_TOGETHER = 4
"""Blocks in one file: some two seconds of MiniLM on two cores, which an interruption loses."""


def embed_texts(
    checkpoint: Path,
    texts: Texts,
    folder: Path,
    say: Callable[[str], None],
    progress: Progress | None = None,
) -> tuple[NDArray[np.float32], float]:
    """Return the checkpoint's vectors of texts, float32[n, E], and the seconds that they took.

    What a session has encoded is kept in a folder; the next one goes on from there. The seconds are
    those of all sessions, compilation included.

    Args:
        texts: pieces of the checkpoint's own tokenizer, at most as many as it knows positions.
        folder: of these texts and this checkpoint alone.
        say: receives the forecast.

    Raises:
        DataError: the checkpoint is damaged, or the folder cannot be written.
        UsageError: the checkpoint's tokenizer and model do not belong together.
        KeyboardInterrupt: what was encoded is kept.
    """
    begin, progress = time.perf_counter(), progress or Progress()
    encode, width = _encoder(checkpoint, texts)
    tokens_NxL = texts.padded()
    order, blocks = by_length(texts.lengths, tokens_NxL.shape[1])
    seconds, parts, done = time.perf_counter() - begin, [], 0
    compiled, is_forecast = set[int](), False
    progress.start(len(texts), 0, "item")
    try:
        for start in range(0, len(blocks), KEPT_TOGETHER):
            group, path = blocks[start : start + KEPT_TOGETHER], folder / f"{start}.npz"
            found = _read(path, (sum(len(rows) for _, rows in group), width))
            if found is None:
                if done and not compiled:
                    say(f"Embedded before: {done:,} of {len(texts):,} items.")
                begin, vectors = time.perf_counter(), []
                for length, rows in group:
                    block = tokens_NxL[order[rows], :length]
                    vectors.append(np.asarray(encode(jnp.asarray(block))))
                    progress.move(done + sum(map(len, vectors)), "embedding")
                found = np.concatenate(vectors), time.perf_counter() - begin
                _write(path, *found)
                lengths = {length for length, _ in group}
                if lengths <= compiled and not is_forecast:
                    is_forecast = True
                    left = _slots(blocks[start:]) / _slots(group) * found[1]
                    say(f"Embedding by {checkpoint.name} takes about {format_duration(left)}.")
                compiled |= lengths
            parts.append(found[0])
            done, seconds = done + len(found[0]), seconds + found[1]
    except KeyboardInterrupt as error:
        if folder.exists():
            say("The embeddings so far are kept: the same command continues.")
            error.folder = folder  # type: ignore[attr-defined]
        raise
    finally:
        progress.end()
    vectors_NxE = np.empty((len(texts), width), np.float32)
    vectors_NxE[order] = np.concatenate(parts)[: len(texts)]
    return vectors_NxE, seconds


def _encoder(checkpoint: Path, texts: Texts) -> tuple[Callable[[jax.Array], jax.Array], int]:
    """Return a function from tokens, int32[n, L], to a checkpoint's vectors, and their length."""
    architecture = read_verified(checkpoint)
    if int(texts.words.max(initial=0)) >= architecture.words:
        raise UsageError(
            f"--embed {checkpoint}: its tokenizer has more pieces than its model, which has"
            f" {architecture.words:,}. They do not belong together."
        )
    weights = dict(read_weights(checkpoint, architecture))
    graph, parameters = nnx.split(Pretrained(architecture, weights, 0, rngs=nnx.Rngs(0)))

    @jax.jit
    def encode(parameters: Any, tokens: jax.Array) -> jax.Array:
        lengths = jnp.sum(tokens > 0, axis=1)
        inputs = EncoderInput(jnp.arange(len(tokens)), tokens, tokens > 0, lengths)
        return nnx.merge(graph, parameters)(inputs)

    return partial(encode, parameters), architecture.width


def _slots(blocks: Sequence[tuple[int, NDArray[np.intp]]]) -> int:
    return sum(length * len(rows) for length, rows in blocks)


def _read(path: Path, shape: tuple[int, int]) -> tuple[NDArray[np.float32], float] | None:
    """Return vectors that were kept and their seconds; None where none are, or they are damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            vectors, seconds = file["vectors"], float(file["seconds"])
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return (vectors, seconds) if vectors.shape == shape else None


def _write(path: Path, vectors: NDArray[np.float32], seconds: float) -> None:
    with tables.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tables.atomic_path(path) as new, new.open("wb") as file:
            np.savez(file, vectors=vectors, seconds=seconds)
