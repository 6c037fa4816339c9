"""The encoders' fast ways on CPU beside their plain references: milliseconds forward, and forward
and backward.

    python benchmarks/bench_encoders.py --json FILE
    python benchmarks/bench_encoders.py --cells 'gru/*,transformer/*' --rounds 3 --json FILE

Texts like CiteULike's: 11,563 words by Zipf's law, lengths around two thirds of the longest, half
of the words removed by dropout. All ways of one size are measured in turn. The last column sets the
operations of a plain forward convolution (2 J E F for each position of the padded texts), over the
seconds that the fast way needs for the same result, beside this machine's rate of large matrix
products. For mlp, which reads dense features in place of words, plain is its matrix products alone,
with ReLU between them, and fast the encoder: its ratio is at most 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from harness import Benchmark, Found, machine
from measuring import interleaved, timed

from ncfbench.catalog import find_encoder
from ncfbench.config import complete
from ncfbench.errors import CheckFailedError
from ncfbench.models.encoders.bow import block_sums, plain_sums
from ncfbench.models.encoders.cnn import plain_pool, projected_pool
from ncfbench.models.encoders.lstm import grouped_recur, plain_recur
from ncfbench.models.encoders.mlp import FeatureMlp
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.reporting.table import Col, Table, under
from ncfbench.timing import allocator

WORDS, SIZE = 11_563, 50
"""Words of the vocabulary; length of word vectors, filters and units."""
WIDE = 300
"""The same of the bag of words, whose fast way is for long vectors, and of mlp's vectors."""
UNITS = 1024
"""Of mlp's hidden layer."""
WIDTH = 3
BLOCK_SECONDS = 0.3
Way: TypeAlias = Callable[..., jax.Array]
WAYS: dict[str, tuple[Way, Way]] = {
    "bow": (
        lambda table, texts: plain_sums(table, texts.tokens, texts.present),
        lambda table, texts: block_sums(table, texts.tokens, texts.present),
    ),
    "cnn": (plain_pool, projected_pool),
    "lstm": (plain_recur, grouped_recur),
}
"""Plain and fast, by encoder. Others pack texts on a CPU and pad them elsewhere; they are measured
whole.
"""
SIZES = {
    "bow": ((184, 40), (512, 40), (4272, 40), (184, 300)),
    "cnn": ((184, 40), (512, 40), (1000, 40), (4272, 40), (184, 300), (512, 300), (4272, 300)),
    "lstm": ((184, 40), (512, 40), (2336, 40), (184, 300), (512, 300)),
    "gru": ((184, 40), (512, 40), (2336, 40), (184, 300)),
    "transformer": ((184, 40), (512, 40), (4272, 40), (184, 300)),
    "mlp": ((184, 300), (512, 300), (4272, 300)),
}
"""Items, and words of the longest text; for mlp features."""
PRODUCT = 2048
"""Rows and columns of the matrices whose product is this machine's rate."""
COLUMNS = [
    Col("encoder", "encoder"),
    Col("items", "items", ","),
    Col("words", "length"),
    *under(
        "forward",
        Col("plain", "plain forward", ".2f"),
        Col("fast", "fast forward", ".2f"),
        Col("ratio", "forward", ".2f"),
    ),
    *under(
        "both ways",
        Col("plain", "plain", ".2f"),
        Col("fast", "fast", ".2f"),
        Col("ratio", "both", ".2f"),
    ),
    Col("rate %", "rate", ".0f", absent=""),
]


class Encoders(Benchmark):
    """A cell for each encoder and size of the texts."""

    name, rounds = "encoders", 7

    def cells(self, options: argparse.Namespace) -> Mapping[str, tuple[str, int, int]]:
        sizes = dict.fromkeys(SIZES, ((8, 6),)) if options.quick else SIZES
        return {
            f"{encoder}/{items}x{length}": (encoder, items, length)
            for encoder, of_encoder in sizes.items()
            for items, length in of_encoder
        }

    def measure(self, name: str, cell: tuple[str, int, int], options: argparse.Namespace) -> Found:
        encoder, items, length = cell
        matrix = jnp.asarray(np.random.default_rng(0).normal(size=(PRODUCT, PRODUCT)), jnp.float32)
        arms = {way: timed(call) for way, call in programs(encoder, items, length).items()}
        arms["product"] = timed(jax.jit(jnp.matmul), matrix, matrix)
        seconds = interleaved(arms, options.rounds, 0 if options.quick else BLOCK_SECONDS)
        return {"encoder": encoder, "items": items, "length": length, "seconds": seconds}

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> list[Table]:
        rows = []
        for cell in cells:
            ms = {way: 1e3 * float(np.median(each)) for way, each in cell["seconds"].items()}
            operations = 2 * WIDTH * SIZE * SIZE * cell["items"] * cell["length"]
            share = (operations / ms["fast forward"]) / (2 * PRODUCT**3 / ms["product"])
            ratios = {way: ms[f"plain{way}"] / ms[f"fast{way}"] for way in (" forward", "")}
            rate = 100 * share if cell["encoder"] == "cnn" else None
            both = {"forward": ratios[" forward"], "both": ratios[""], "rate": rate}
            rows.append({**cell, **ms, **both})
        where = environments[cells[0]["environment_key"]]
        product = np.median([np.median(cell["seconds"]["product"]) for cell in cells])
        notes = [
            "Rate: operations of the plain forward convolution over the fast way's seconds, as a"
            f" share of {2 * PRODUCT**3 / product / 1e9:.0f} GFLOP/s, the rate of products of"
            f" {PRODUCT} x {PRODUCT}.",
            f"{machine(where, 'jax')}, {where['time']}",
        ]
        title = "Milliseconds, plain and fast; ratios of medians"
        return [Table.of(title, COLUMNS, rows, notes)]


def texts_of(items: int, length: int) -> EncoderInput:
    """Return random texts."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.normal(0.65 * length, 0.24 * length, items), 1, length).astype(np.int32)
    ranks = np.minimum(rng.zipf(1.2, (items, length)), WORDS)
    tokens = np.where(
        np.arange(length) < lengths[:, None], (rng.permutation(WORDS) + 1)[ranks - 1], 0
    ).astype(np.int32)
    present = (tokens > 0) & (rng.random(tokens.shape) < 0.5)
    features = rng.normal(size=(items, length)).astype(np.float32)
    arrays = (np.arange(items, dtype=np.int32), tokens, present, lengths, features)
    return EncoderInput(*map(jnp.asarray, arrays))


def parameters(encoder: str) -> list[jax.Array]:
    """Return random parameters in the order that the encoder's ways take them."""
    rng = np.random.default_rng(1)
    gates = 4 * SIZE
    shapes: tuple[tuple[int, ...], ...] = ((WORDS + 1, SIZE), (WIDTH, SIZE, SIZE), (SIZE,))
    if encoder == "lstm":
        shapes = ((WORDS + 1, SIZE), (2 * SIZE, gates), (gates,))
    if encoder == "bow":
        shapes = ((WORDS + 1, WIDE),)
    return [jnp.asarray(rng.normal(0, 0.1, shape).astype(np.float32)) for shape in shapes]


def packed_ways(encoder: str) -> tuple[list[Any], tuple[Way, Way]]:
    """Return the parameters of an encoder, and its two ways of computing."""
    build, facts = find_encoder(encoder).load(), DataFacts(1, 1, WORDS)
    graph, values = nnx.split(build(complete({"encoder": encoder}), facts, rngs=nnx.Rngs(0)))

    def way(backend: str) -> Way:
        def encode(values: Any, texts: EncoderInput) -> jax.Array:
            with patch.object(jax, "default_backend", lambda: backend):
                vectors: jax.Array = nnx.merge(graph, values)(texts)
                return vectors

        return encode

    return [values], (way("gpu"), way("cpu"))


def layers_of(features: int) -> tuple[list[Any], tuple[Way, Way]]:
    """Return the parameters of mlp, its products alone, and the encoder."""
    config = complete({"encoder": "mlp", "mlp_units": UNITS, "dimension": WIDE})
    facts = DataFacts(1, 1, 0, item_features=features)
    graph, values = nnx.split(FeatureMlp(config, facts, rngs=nnx.Rngs(0)))

    def products(values: Any, texts: EncoderInput) -> jax.Array:
        layers = values["layers"]
        first, last = (layer["kernel"][...] for layer in (layers["hidden"][0], layers["dense"]))
        vectors: jax.Array = jnp.maximum(texts.features @ first, 0) @ last
        return vectors

    return [values], (products, lambda values, texts: nnx.merge(graph, values)(texts))


def programs(encoder: str, items: int, length: int) -> dict[str, Callable[[], Any]]:
    """Return each way forward, and forward and backward, compiled and called once.

    Raises:
        CheckFailedError: the two ways disagree.
    """
    texts = texts_of(items, length)
    if encoder in WAYS:
        arrays, ways = parameters(encoder), WAYS[encoder]
    else:
        arrays, ways = layers_of(length) if encoder == "mlp" else packed_ways(encoder)
    size = (items, WIDE if encoder in ("bow", "mlp") else SIZE)
    weights = jnp.asarray(np.random.default_rng(2).normal(size=size).astype(np.float32))
    calls: dict[str, Callable[[], Any]] = {}
    for name, way in zip(("plain", "fast"), ways, strict=True):
        # The texts are arguments, as in training: the compiler must not know them.
        def total(*arguments: Any, way: Way = way) -> jax.Array:
            return jnp.sum(way(*arguments) * weights)

        gradient = jax.jit(jax.value_and_grad(total, argnums=tuple(range(len(arrays)))))
        calls[f"{name} forward"] = partial(jax.jit(way), *arrays, texts)
        calls[name] = partial(gradient, *arrays, texts)
    plain, fast = (np.asarray(calls[f"{name} forward"]()) for name in ("plain", "fast"))
    if not np.allclose(plain, fast, rtol=1e-3, atol=1e-4):
        raise CheckFailedError(f"{encoder}: the plain and the fast way disagree.")
    return calls


if __name__ == "__main__":
    allocator.restart()
    Encoders().main()
