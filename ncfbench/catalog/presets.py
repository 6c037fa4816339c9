"""Settings that begin a run, by name, and those that begin a race."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError, refusal

PORTFOLIO: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("portfolio.toml").read_text("utf-8")
)
"""Settings that a race begins with, by name."""
PRESETS: Mapping[str, Mapping[str, Any]] = {"paper": {}, "good": PORTFOLIO["good"]}
"""``paper`` is the defaults of all settings."""


def preset(name: str) -> Mapping[str, Any]:
    """Return the settings of a preset.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in PRESETS:
        raise UsageError(refusal("--preset", name, PRESETS))
    return PRESETS[name]
