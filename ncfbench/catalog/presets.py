"""Settings that begin a run, by name: the paper's, and one choice for all data."""

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


def preset(name: str) -> Mapping[str, Any]:
    """Return the settings of a preset.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in PRESETS:
        raise UsageError(f"--preset {name!r}{nearest(name, PRESETS)} Valid: {', '.join(PRESETS)}.")
    return PRESETS[name]
