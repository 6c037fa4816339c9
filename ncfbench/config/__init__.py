"""The settings of a run: where they come from, which cannot work together, and what names a run."""

from __future__ import annotations

from ncfbench.catalog import MAX_SEED as MAX_SEED
from ncfbench.catalog import SETTINGS as SETTINGS
from ncfbench.catalog import TUNABLE as TUNABLE
from ncfbench.catalog import all_settings as all_settings
from ncfbench.config.checks import is_digest as is_digest
from ncfbench.config.help import default_text as default_text
from ncfbench.config.help import unused_settings as unused_settings
from ncfbench.config.help import users_of as users_of
from ncfbench.config.identity import digest as digest
from ncfbench.config.identity import identity_of as identity_of
from ncfbench.config.identity import named as named
from ncfbench.config.resolve import LOCATION_VARIABLES as LOCATION_VARIABLES
from ncfbench.config.resolve import Locations as Locations
from ncfbench.config.resolve import cache_dir as cache_dir
from ncfbench.config.resolve import complete as complete
from ncfbench.config.resolve import convert as convert
from ncfbench.config.resolve import default_values as default_values
from ncfbench.config.resolve import merge as merge
from ncfbench.config.resolve import named_once as named_once
from ncfbench.config.resolve import split_assignment as split_assignment
from ncfbench.config.resolve import unknown as unknown
from ncfbench.config.run_config import RunConfig as RunConfig
from ncfbench.config.toml import as_toml as as_toml
from ncfbench.config.toml import read_toml as read_toml
from ncfbench.config.toml import toml_value as toml_value
