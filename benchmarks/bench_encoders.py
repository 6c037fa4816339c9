"""The encoders' fast ways on CPU beside their plain references: milliseconds forward, and forward
and backward.

    python benchmarks/bench_encoders.py --json FILE
    python benchmarks/bench_encoders.py --cells 'gru/*,transformer/*' --rounds 3 --json FILE

Texts like CiteULike's: 11,563 words by Zipf's law, lengths around two thirds of the longest, half
of the words removed by dropout. All ways of one size are measured in turn. For mlp, which reads
dense features in place of words, plain is its matrix products alone, with ReLU between them, and
fast the encoder: its ratio is at most 1.
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
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.reporting.table import Col, Table, under
from ncfbench.timing import allocator

WORDS = 11_563
WIDE = 300
"""Length of vectors of the bag of words, whose fast way is for long ones, and of mlp."""
UNITS = 1024
"""Of mlp's hidden layer."""
BLOCK_SECONDS = 0.3
Way: TypeAlias = Callable[..., jax.Array]
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "bow": {"word_dimension": WIDE, "dimension": WIDE, "bare_bag": True},
    "cnn": {"convolution": "auto"},
    "mlp": {"mlp_units": UNITS, "dimension": WIDE},
}
"""Settings of encoders that differ from the defaults."""
SIZES = {
    "bow": ((184, 40), (512, 40), (4272, 40), (184, 300)),
    "cnn": ((184, 40), (512, 40), (1000, 40), (4272, 40), (184, 300), (512, 300), (4272, 300)),
    "lstm": ((184, 40), (512, 40), (2336, 40), (184, 300), (512, 300)),
    "gru": ((184, 40), (512, 40), (2336, 40), (184, 300)),
    "transformer": ((184, 40), (512, 40), (4272, 40), (184, 300)),
    "mlp": ((184, 300), (512, 300), (4272, 300)),
}
"""Items, and words of the longest text; for mlp features."""
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
        arms = {way: timed(call) for way, call in programs(encoder, items, length).items()}
        seconds = interleaved(arms, options.rounds, 0 if options.quick else BLOCK_SECONDS)
        return {"encoder": encoder, "items": items, "length": length, "seconds": seconds}

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> list[Table]:
        rows = []
        for cell in cells:
            ms = {way: 1e3 * float(np.median(each)) for way, each in cell["seconds"].items()}
            forward, both = (ms[f"plain{way}"] / ms[f"fast{way}"] for way in (" forward", ""))
            rows.append({**cell, **ms, "forward": forward, "both": both})
        where = environments[cells[0]["environment_key"]]
        notes = [f"{machine(where, 'jax')}, {where['time']}"]
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


def ways_of(encoder: str, features: int) -> tuple[Any, dict[str, Way]]:
    """Return the parameters of an encoder, and what computes it plainly and fast: as other devices
    and as a CPU do, or for mlp its products alone and the encoder.
    """
    facts = DataFacts(1, 1, WORDS, item_features=features)
    config = complete({"encoder": encoder, **SETTINGS.get(encoder, {})})
    graph, values = nnx.split(find_encoder(encoder).load()(config, facts, rngs=nnx.Rngs(0)))

    def way(backend: str) -> Way:
        def encode(values: Any, texts: EncoderInput) -> jax.Array:
            with patch.object(jax, "default_backend", lambda: backend):
                vectors: jax.Array = nnx.merge(graph, values)(texts)
                return vectors

        return encode

    def products(values: Any, texts: EncoderInput) -> jax.Array:
        layers = values["layers"]
        first, last = (layer["kernel"][...] for layer in (layers["hidden"][0], layers["dense"]))
        vectors: jax.Array = jnp.maximum(texts.features @ first, 0) @ last
        return vectors

    return values, {"plain": products if encoder == "mlp" else way("gpu"), "fast": way("cpu")}


def programs(encoder: str, items: int, length: int) -> dict[str, Callable[[], Any]]:
    """Return each way forward, and forward and backward, compiled and called once.

    Raises:
        CheckFailedError: the two ways disagree.
    """
    texts = texts_of(items, length)
    values, ways = ways_of(encoder, length)
    size = jax.eval_shape(ways["fast"], values, texts).shape
    weights = jnp.asarray(np.random.default_rng(2).normal(size=size).astype(np.float32))
    calls: dict[str, Callable[[], Any]] = {}
    for name, way in ways.items():
        # The texts are an argument, as in training: the compiler must not know them.
        def total(values: Any, texts: EncoderInput, way: Way = way) -> jax.Array:
            return jnp.sum(way(values, texts) * weights)

        calls[f"{name} forward"] = partial(jax.jit(way), values, texts)
        calls[name] = partial(jax.jit(jax.value_and_grad(total)), values, texts)
    plain, fast = (np.asarray(calls[f"{name} forward"]()) for name in ("plain", "fast"))
    if not np.allclose(plain, fast, rtol=1e-3, atol=1e-4):
        raise CheckFailedError(f"{encoder}: the plain and the fast way disagree.")
    return calls


if __name__ == "__main__":
    allocator.restart()
    Encoders().main()
