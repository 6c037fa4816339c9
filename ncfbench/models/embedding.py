"""Vectors of texts by a frozen checkpoint: each text encoded once, in blocks that are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
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
from ncfbench.models.precision import full
from ncfbench.runs.progress import Progress
from ncfbench.storage import tables
from ncfbench.timing.clock import format_duration

KEPT_TOGETHER = 16
"""Blocks in one file: some eight seconds of MiniLM on two cores, which an interruption loses."""
TIMED = 2
"""Blocks after compilation whose time makes the forecast."""


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
    architecture = read_verified(checkpoint)
    if int(texts.words.max(initial=0)) >= architecture.words:
        raise UsageError(
            f"--embed {checkpoint}: its tokenizer has more pieces than its model, which has"
            f" {architecture.words:,}. They do not belong together."
        )
    module = Pretrained(
        architecture, dict(read_weights(checkpoint, architecture)), 0, rngs=nnx.Rngs(0)
    )
    graph, parameters = nnx.split(module)

    @jax.jit
    @full
    def encode(parameters: Any, tokens: jax.Array) -> jax.Array:
        lengths = jnp.sum(tokens > 0, axis=1)
        inputs = EncoderInput(jnp.arange(len(tokens)), tokens, tokens > 0, lengths)
        return nnx.merge(graph, parameters)(inputs)

    tokens_NxL = texts.padded()
    order, blocks = by_length(texts.lengths, tokens_NxL.shape[1])
    slots = [length * len(rows) for length, rows in blocks]
    groups = range(0, len(blocks), KEPT_TOGETHER)
    kept = {}
    for group in groups:
        n_rows = sum(len(rows) for _, rows in blocks[group : group + KEPT_TOGETHER])
        kept[group] = _read(folder / f"{group}.npz", (n_rows, architecture.width))
    seconds = time.perf_counter() - begin
    parts, done = [], 0
    timed, compiled = list[float](), set[int]()
    ahead = sum(sum(slots[g : g + KEPT_TOGETHER]) for g in groups if kept[g] is None)
    if ahead < sum(slots):
        say(f"Kept from before: {1 - ahead / sum(slots):.0%} of the embeddings.")
    progress.start(len(texts), 0, "item")
    try:
        for group in groups:
            found = kept[group]
            if found is None:
                begin, vectors = time.perf_counter(), []
                for index, (length, rows) in enumerate(blocks[group : group + KEPT_TOGETHER]):
                    began = time.perf_counter()
                    block = jnp.asarray(tokens_NxL[order[rows], :length])
                    vectors.append(np.asarray(encode(parameters, block)))
                    if length in compiled and len(timed) < TIMED:
                        timed.append((time.perf_counter() - began) / slots[group + index])
                        if len(timed) == TIMED:
                            left = format_duration(min(timed) * ahead)
                            say(f"Embedding by {checkpoint.name} takes about {left}.")
                    compiled.add(length)
                    done += len(rows)
                    progress.move(min(done, len(texts)), "embedding")
                found = np.concatenate(vectors), time.perf_counter() - begin
                _write(folder / f"{group}.npz", *found)
            else:
                done += len(found[0])
            parts.append(found[0])
            seconds += found[1]
    except KeyboardInterrupt as error:
        say("The embeddings so far are kept: the same command continues.")
        error.folder = folder  # type: ignore[attr-defined]
        raise
    finally:
        progress.end()
    vectors_NxE = np.empty((len(texts), architecture.width), np.float32)
    vectors_NxE[order] = np.concatenate(parts)[: len(texts)]
    return vectors_NxE, seconds


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
