"""Settings that begin a run, by name, and those that begin a race."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncfbench.errors import UsageError, nearest

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "good": {
        "encoder": "bow",
        "loss": "softmax",
        "sampler": "strat-ns",
        "user_tower": "history",
        "dimension": 100,
        "word_dimension": 100,
        "word_dropout": 0.2,
        "epochs": 0,
        "patience": 2,
    },
}
"""``paper`` is the defaults of all settings; ``good`` was chosen by validation on five data sets,
its user tower after one epoch, see docs/encoders.md; it stops where validation does.
"""
_USERS_BY_HISTORY = {"loss": "softmax", "user_tower": "history", "own_vector": True}
PORTFOLIO: Mapping[str, Mapping[str, Any]] = {
    "good": PRESETS["good"],
    "convolution": {
        **_USERS_BY_HISTORY,
        "encoder": "cnn",
        "sampler": "strat-ns",
        "batch_size": 256,
        "stratum_size": 8,
        "gamma": 5.0,
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        "word_dropout": 0.0,
        "feature_dropout": 0.2,
        "item_dropout": 0.0,
        "dimension": 50,
        "features": "ignore",
    },
    "bare bag": {
        "encoder": "bow",
        "loss": "softmax",
        "sampler": "ns",
        "user_tower": "history",
        "history_of": "both",
        "bare_bag": True,
        "features": "ignore",
        "gamma": 5.0,
        "learning_rate": 0.01,
        "word_dropout": 0.2,
        "feature_dropout": 0.2,
        "dimension": 100,
    },
    "in-batch convolution": {
        **_USERS_BY_HISTORY,
        "encoder": "cnn",
        "sampler": "ns",
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        "word_dropout": 0.0,
        "dimension": 100,
    },
    "layer": {
        "encoder": "mlp",
        "loss": "log",
        "sampler": "strat-ns",
        "user_tower": "table",
        "stratum_size": 8,
        "gamma": 5.0,
        "learning_rate": 0.01,
        "weight_decay": 0.01,
        "item_dropout": 0.0,
        "dimension": 50,
        "mlp_units": 1024,
        "mlp_layers": 1,
    },
    "larger batches": {
        **_USERS_BY_HISTORY,
        "encoder": "bow",
        "sampler": "strat-ns",
        "batch_size": 1024,
        "learning_rate": 0.003,
        "word_dropout": 0.0,
        "item_dropout": 0.0,
        "dimension": 100,
    },
    "wider bag": {
        "encoder": "bow",
        "loss": "softmax",
        "sampler": "strat-ns",
        "user_tower": "history",
        "bare_bag": True,
        "features": "ignore",
        "batch_size": 1024,
        "learning_rate": 0.01,
        "weight_decay": 0.01,
        "word_dropout": 0.2,
        "dimension": 300,
    },
}
"""Settings that a race begins with, by name. One of them is nearly the best on each of six data
sets, and loses little on one that does not choose (benchmarks/bench_portfolio.py, docs/advice.md).
"""


def preset(name: str) -> Mapping[str, Any]:
    """Return the settings of a preset.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in PRESETS:
        raise UsageError(f"--preset {name!r}{nearest(name, PRESETS)} Valid: {', '.join(PRESETS)}.")
    return PRESETS[name]
