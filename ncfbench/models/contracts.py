"""Checks of models before anything is trained: the content that they read, and plug-ins, which are
built and called on a few made items or scores.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ncfbench.catalog import BUILT_IN, find
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import NcfbenchError, UsageError, reason
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput
from ncfbench.models.losses import make_loss
from ncfbench.runs.plan import require_content

ITEMS, LISTED = 7, 3
"""Items, and negatives of each positive link, in a call."""
SCORES = np.array([0.07, 0.3, 0.9, 3.1, 11.0, 50.0], np.float32)
"""Scores at which a loss is called, and their negatives."""
TOLERANCE = 1e-4
"""Difference of two results that count as equal, relative to the largest number."""

Faults: TypeAlias = Iterator[str]
"""The faults of a plug-in, each as the end of a sentence; the first one is reported."""


def require_contracts(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a model that reads what the data set does not have, and plug-ins that fail or do not
    keep their contract.

    Raises:
        UsageError: the message says what to use instead, or names the plug-in and what it must do.
    """
    require_content(config, dataset)
    _require_plugins(config, DataFacts.of(dataset), dataset.tokens_IxL.shape[1])


@functools.cache
def _require_plugins(config: RunConfig, data: DataFacts, length: int) -> None:
    checks = {"encoder": _encoder_faults(config, data, length), "loss": _loss_faults(config)}
    for kind, faults in checks.items():
        name = getattr(config, kind)
        if name in BUILT_IN[kind]:
            continue
        try:
            for fault in faults:
                raise UsageError(f"The {kind} {name} {fault}.")
        except NcfbenchError:
            raise
        except Exception as error:
            where = _line(error, find(kind, name).load())
            raise UsageError(
                f"The {kind} {name} fails{where}: {type(error).__name__}: {reason(error)}."
            ) from error


def _line(error: Exception, plugin: type) -> str:
    """Return where in the plug-in's own file an error was raised; empty if that is not known."""
    file = inspect.getsourcefile(plugin) or ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


def _encoder_faults(config: RunConfig, data: DataFacts, length: int) -> Faults:
    """Yield faults of shape, of values, and of a vector that depends on padding."""
    module = find("encoder", config.encoder).load()(config, data, rngs=nnx.Rngs(config.seed))
    rng, longest = np.random.default_rng(0), max(length // 2, 1)
    # Biases that are zero would hide faults.
    nnx.update(
        module, jax.tree.map(lambda leaf: leaf + rng.normal(0, 0.1, leaf.shape), nnx.state(module))
    )
    encode = nnx.jit(lambda module, texts: module(texts))
    lengths = np.minimum([longest, (longest + 1) // 2, 0, 1, 2, 3, longest], longest)
    lengths = (lengths * bool(data.words)).astype(np.int32)
    tokens = rng.integers(1, max(data.words, 1) + 1, (ITEMS, 2 * longest), np.int32)
    present = np.arange(2 * longest)[None, :] < lengths[:, None]
    features = rng.normal(size=(ITEMS, data.item_features)).astype(np.float32)
    items = np.arange(ITEMS, dtype=np.int32) % data.items
    arrays = items, tokens * present, present, lengths, features if data.item_features else None
    padded = EncoderInput(*jax.device_put(arrays))
    texts = padded._replace(tokens=padded.tokens[:, :longest], present=padded.present[:, :longest])
    vectors = encode(module, padded)
    yield from _shape_faults(vectors, (ITEMS, config.dimension), f"for {ITEMS} items")
    if not jnp.isfinite(vectors).all():
        yield "returns vectors that are not finite"
    if not _are_alike(vectors, encode(module, texts), np.abs(vectors).max()):
        yield (
            "gives a text another vector where more padding follows its last word: leave out"
            " tokens at which texts.present is false"
        )


def _loss_faults(config: RunConfig) -> Faults:
    """Yield faults of the rows and slopes of a loss, at scores and at minus these, where the other
    scores are 0; a squared distance need not be monotone.
    """
    loss = make_loss(config)

    def rows(positive: jax.Array, negative: jax.Array, weight: jax.Array) -> jax.Array:
        return loss.batch_rows(positive, negative, weight, config.lambda_)

    scores, n = np.concatenate([SCORES, -SCORES]), 2 * len(SCORES)
    positive = jnp.concatenate([scores, 0 * scores])
    negative = jnp.zeros((2 * n, LISTED)).at[n:, 0].set(scores)
    weight = jnp.full(negative.shape, 1 / LISTED)
    losses = rows(positive, negative, weight)
    yield from _shape_faults(losses, (2 * n,), f"for {2 * n} links of {LISTED} negatives")
    slopes = jax.grad(lambda *s: jnp.sum(rows(s[0], s[1], weight)), (0, 1))(positive, negative)
    if not all(jnp.isfinite(part).all() for part in (losses, *slopes)):
        yield (
            "is not finite, or its slope is not, at scores of -50 to 50: use a form without"
            " overflow, such as jax.nn.softplus or logsumexp"
        )
    longer, padded = (jnp.pad(part, ((0, 0), (0, 1))) for part in (negative, weight))
    if not _are_alike(losses, rows(positive, longer, padded), 1e-2):
        yield "counts negatives whose weight is 0"
    high, low, above, below = np.split(np.asarray(losses), 4)
    falls, rises = low - high, above - below
    least = TOLERANCE * np.abs(low)
    if (falls < -least).any() or (falls <= least).all():
        yield "does not fall when the score of a positive link rises"
    # The square of a negative's score is the same at minus the score, and rises above 0.
    most, least = max(rises.max(), above[-1] - above[0]), TOLERANCE * np.abs(above)
    if (rises < -least).any() or most <= least.max():
        yield "does not rise when the score of a negative link rises"


def _shape_faults(result: Any, shape: tuple[int, ...], what: str) -> Faults:
    expected = f"float32[{', '.join(map(str, shape))}]"
    given = f"a {type(result).__name__}"
    if isinstance(result, jax.Array):
        given = f"{result.dtype}[{', '.join(map(str, result.shape))}]"
    if given != expected:
        yield f"returns {given} {what}, and it must return {expected}"


def _are_alike(one: Any, other: Any, scale: float) -> bool:
    return bool(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * scale))
