"""The settings of a run: what they are, where they come from, and which cannot work together."""

from __future__ import annotations

from ncfbench.catalog import MAX_SEED, SETTINGS, TUNABLE
from ncfbench.config.checks import is_digest
from ncfbench.config.completion import complete, default_values, known_settings
from ncfbench.config.layers import (
    LOCATION_VARIABLES,
    Locations,
    cache_dir,
    convert,
    merge,
    resolve,
    split_assignment,
)
from ncfbench.config.own import built_in_settings
from ncfbench.config.run_config import RunConfig
from ncfbench.config.texts import default_text, unused_settings, users_of
from ncfbench.config.toml import as_toml, toml_value

__all__ = [
    "LOCATION_VARIABLES",
    "MAX_SEED",
    "SETTINGS",
    "TUNABLE",
    "Locations",
    "RunConfig",
    "as_toml",
    "built_in_settings",
    "cache_dir",
    "complete",
    "convert",
    "default_text",
    "default_values",
    "is_digest",
    "known_settings",
    "merge",
    "resolve",
    "split_assignment",
    "toml_value",
    "unused_settings",
    "users_of",
]
