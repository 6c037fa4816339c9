"""Texts of any lengths."""

from unittest.mock import patch

import jax
import numpy as np

from ncfbench.catalog import ENCODERS, find_encoder
from ncfbench.models.encoders.protocol import EncoderInput

FROM_SCRATCH = [
    name
    for name in ENCODERS
    if "features" not in find_encoder(name).content and not find_encoder(name).pretrained_parts
]
"""Encoders that need neither dense features nor a checkpoint."""
CHECKPOINT_DIGEST = "0123456789ab"


def traced_for(backend):
    """A context in which encoders are traced for a kind of device: "cpu" fast, "gpu" plainly."""
    return patch.object(jax, "default_backend", lambda: backend)


def texts_of(rng, items, length, words, removed):
    """Some empty, some full-length, words that repeat, some of them removed."""
    lengths = rng.integers(0, length + 1, items).astype(np.int32)
    lengths[: min(items, 3)] = [0, length, 1][: min(items, 3)]
    tokens = np.where(
        np.arange(length) < lengths[:, None], rng.integers(1, words + 1, (items, length)), 0
    )
    present = (tokens > 0) & (rng.random(tokens.shape) >= removed)
    return EncoderInput(
        *map(
            jax.device_put,
            (np.arange(items, dtype=np.int32), tokens.astype(np.int32), present, lengths),
        )
    )
