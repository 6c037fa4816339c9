"""The settings of a run: where they come from, which cannot work together, and what names a run."""

from __future__ import annotations

from ncfbench.catalog import MAX_SEED, SETTINGS, TUNABLE, all_settings
from ncfbench.config.checks import is_digest
from ncfbench.config.help import default_text, unused_settings, users_of
from ncfbench.config.identity import digest, identity_of, named
from ncfbench.config.resolve import (
    LOCATION_VARIABLES,
    Locations,
    cache_dir,
    complete,
    convert,
    default_values,
    merge,
    named_once,
    resolve,
    split_assignment,
    unknown,
)
from ncfbench.config.run_config import RunConfig
from ncfbench.config.toml import as_toml, read_toml, toml_value

__all__ = [
    "LOCATION_VARIABLES",
    "MAX_SEED",
    "SETTINGS",
    "TUNABLE",
    "Locations",
    "RunConfig",
    "all_settings",
    "as_toml",
    "cache_dir",
    "complete",
    "convert",
    "default_text",
    "default_values",
    "digest",
    "identity_of",
    "is_digest",
    "merge",
    "named",
    "named_once",
    "read_toml",
    "resolve",
    "split_assignment",
    "toml_value",
    "unknown",
    "unused_settings",
    "users_of",
]
