"""The encoders' fast ways on CPU beside their plain references: milliseconds forward, and forward
and backward.

    python benchmarks/bench_encoders.py --json FILE
    python benchmarks/bench_encoders.py --encoders gru,transformer --rounds 3 --json FILE

Texts like CiteULike's: 11,563 words by Zipf's law, lengths around two thirds of the longest, half
of the words removed by dropout. All ways of one size are measured in turn, round after round. The
last column sets the operations of a plain forward convolution (2 J E F for each position of the
padded texts), over the seconds that the fast way needs for the same result, beside this machine's
rate of large matrix products.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ncfbench.catalog import find_encoder
from ncfbench.config import complete
from ncfbench.errors import CheckFailedError
from ncfbench.models.encoders.cnn import plain_pool, projected_pool
from ncfbench.models.encoders.lstm import grouped_recur, plain_recur
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Header, Table, columns_of
from ncfbench.timing import allocator, environment

WORDS, SIZE = 11_563, 50
"""Words of the vocabulary; length of word vectors, filters and units."""
WIDTH = 3
BLOCK_SECONDS = 0.3
Way: TypeAlias = Callable[..., jax.Array]
WAYS: dict[str, tuple[Way, Way]] = {
    "cnn": (plain_pool, projected_pool),
    "lstm": (plain_recur, grouped_recur),
}
"""Plain and fast."""
PACKED = ("gru", "transformer")
"""Encoders that pack texts on a CPU and pad them elsewhere; measured whole, with the defaults."""
SIZES = {
    "cnn": ((184, 40), (512, 40), (1000, 40), (4272, 40), (184, 300), (512, 300), (4272, 300)),
    "lstm": ((184, 40), (512, 40), (2336, 40), (184, 300), (512, 300)),
    "gru": ((184, 40), (512, 40), (2336, 40), (184, 300)),
    "transformer": ((184, 40), (512, 40), (4272, 40), (184, 300)),
}
PRODUCT = 2048
"""Rows and columns of the matrices whose product is this machine's rate."""


def texts_of(items: int, length: int) -> EncoderInput:
    """Random texts."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.normal(0.65 * length, 0.24 * length, items), 1, length).astype(np.int32)
    ranks = np.minimum(rng.zipf(1.2, (items, length)), WORDS)
    tokens = np.where(
        np.arange(length) < lengths[:, None], (rng.permutation(WORDS) + 1)[ranks - 1], 0
    ).astype(np.int32)
    present = (tokens > 0) & (rng.random(tokens.shape) < 0.5)
    return EncoderInput(
        *map(jnp.asarray, (np.arange(items, dtype=np.int32), tokens, present, lengths))
    )


def parameters(encoder: str) -> list[jax.Array]:
    """Random ones, in the order that the encoder's ways take them."""
    rng = np.random.default_rng(1)
    gates = 4 * SIZE
    shapes: tuple[tuple[int, ...], ...] = ((WORDS + 1, SIZE), (WIDTH, SIZE, SIZE), (SIZE,))
    if encoder == "lstm":
        shapes = ((WORDS + 1, SIZE), (2 * SIZE, gates), (gates,))
    return [jnp.asarray(rng.normal(0, 0.1, shape).astype(np.float32)) for shape in shapes]


def packed_ways(encoder: str) -> tuple[list[Any], tuple[Way, Way]]:
    """The parameters of an encoder, and its two ways of computing."""
    build, facts = find_encoder(encoder).load(), DataFacts(1, 1, WORDS)
    graph, parameters = nnx.split(build(complete({"encoder": encoder}), facts, rngs=nnx.Rngs(0)))

    def way(backend: str) -> Way:
        def encode(parameters: Any, texts: EncoderInput) -> jax.Array:
            with patch.object(jax, "default_backend", lambda: backend):
                vectors: jax.Array = nnx.merge(graph, parameters)(texts)
                return vectors

        return encode

    return [parameters], (way("gpu"), way("cpu"))


def programs(encoder: str, items: int, length: int) -> dict[str, Callable[[], Any]]:
    """Each way forward, and forward and backward, compiled and called once.

    Raises:
        CheckFailedError: the two ways disagree.
    """
    texts = texts_of(items, length)
    arrays, ways = (
        packed_ways(encoder) if encoder in PACKED else (parameters(encoder), WAYS[encoder])
    )
    weights = jnp.asarray(np.random.default_rng(2).normal(size=(items, SIZE)).astype(np.float32))
    found: dict[str, Callable[[], Any]] = {}
    for name, way in zip(("plain", "fast"), ways, strict=True):
        forward = jax.jit(way)

        # The texts are arguments, as in training: the compiler must not know them.
        def total(*arguments: Any, way: Way = way) -> jax.Array:
            return jnp.sum(way(*arguments) * weights)

        gradient = jax.jit(jax.value_and_grad(total, argnums=tuple(range(len(arrays)))))
        found[f"{name} forward"] = partial(forward, *arrays, texts)
        found[name] = partial(gradient, *arrays, texts)
    results = {name: jax.block_until_ready(call()) for name, call in found.items()}
    plain, fast = (np.asarray(results[f"{name} forward"]) for name in ("plain", "fast"))
    if not np.allclose(plain, fast, rtol=1e-3, atol=1e-4):
        raise CheckFailedError(f"{encoder}: the plain and the fast way disagree.")
    return found


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of a call, round by round."""
    counts, seconds = dict.fromkeys(calls, 1), {name: [] for name in calls}  # type: dict[str, int], dict[str, list[float]]
    for number in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                jax.block_until_ready(call())
            each = (time.perf_counter() - begin) / counts[name]
            if number == 0:  # the first round only says how many calls fill a block
                counts[name] = int(np.clip(BLOCK_SECONDS / each, 1, 1000))
            else:
                seconds[name].append(each)
    return seconds


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--encoders", default=",".join(SIZES), help="one or more, separated by commas"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep raw seconds and environment"
    )
    arguments = parser.parse_args(words)
    matrix = jnp.asarray(
        np.random.default_rng(0).normal(size=(PRODUCT, PRODUCT)).astype(np.float32)
    )
    product = jax.jit(lambda matrix: matrix @ matrix)
    cells: list[dict[str, Any]] = []
    for encoder in arguments.encoders.split(","):
        for items, length in SIZES[encoder]:
            calls = programs(encoder, items, length) | {"product": lambda: product(matrix)}
            cells.append(
                {
                    "encoder": encoder,
                    "items": items,
                    "length": length,
                    "seconds": measure(calls, arguments.rounds),
                }
            )
    result = {
        "environment": environment.describe(),
        "words": WORDS,
        "size": SIZE,
        "rounds": arguments.rounds,
        "cells": cells,
    }
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print one table."""
    rows = []
    for cell in result["cells"]:
        ms = {name: 1e3 * float(np.median(seconds)) for name, seconds in cell["seconds"].items()}
        operations = 2 * WIDTH * SIZE * SIZE * cell["items"] * cell["length"]
        share = (operations / ms["fast forward"]) / (2 * PRODUCT**3 / ms["product"])
        rows.append(
            [
                cell["encoder"],
                f"{cell['items']:,}",
                str(cell["length"]),
                f"{ms['plain forward']:.2f}",
                f"{ms['fast forward']:.2f}",
                f"{ms['plain forward'] / ms['fast forward']:.2f}",
                f"{ms['plain']:.2f}",
                f"{ms['fast']:.2f}",
                f"{ms['plain'] / ms['fast']:.2f}",
                f"{100 * share:.0f}" if cell["encoder"] == "cnn" else "",
            ]
        )
    where = result["environment"]
    product = np.median([np.median(cell["seconds"]["product"]) for cell in result["cells"]])
    notes = [
        "Rate: operations of the plain forward convolution over the fast way's seconds, as a share"
        f" of {2 * PRODUCT**3 / product / 1e9:.0f} GFLOP/s, the rate of products of {PRODUCT} x"
        f" {PRODUCT}.",
        f"{where['cpu']}, {where['cores']} cores, jax {where['packages']['jax']}, {where['time']}",
    ]
    header: Header = [
        "encoder",
        "items",
        "words",
        *columns_of("forward", "plain", "fast", "ratio"),
        *columns_of("both ways", "plain", "fast", "ratio"),
        "rate %",
    ]
    title = "Milliseconds, plain and fast; ratios of medians"
    print_table(make_console(), Table(title, header, rows, notes))


if __name__ == "__main__":
    allocator.restart()
    main()
