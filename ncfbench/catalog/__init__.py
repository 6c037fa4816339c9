"""What a user can choose, and every setting: plain records, from which help, checks, defaults,
identity and documentation are made.

What is not built in is a plug-in: a class named ``package.module:Class``, or by a name that an
installed package registers under one of the entry-point groups of :data:`GROUPS`.
"""

from __future__ import annotations

from ncfbench.catalog.built_in import BUILT_IN
from ncfbench.catalog.choices import (
    GROUPS,
    all_settings,
    baseline_sampler,
    find,
    find_encoder,
    find_interaction,
    find_loss,
    find_sampler,
    find_user_tower,
    import_path,
    losses_for,
    registered,
    samplers_for,
    serves,
    settings_for,
)
from ncfbench.catalog.infos import (
    FAMILIES,
    EncoderInfo,
    Info,
    InteractionInfo,
    LossFamily,
    LossInfo,
    SamplerInfo,
    UserTowerInfo,
)
from ncfbench.catalog.models import ENCODERS, INTERACTIONS, LOSSES, USER_TOWERS
from ncfbench.catalog.samplers import SAMPLERS
from ncfbench.catalog.shared import MAX_SEED, SETTINGS, TUNABLE, SharedSettings

__all__ = [
    "BUILT_IN",
    "ENCODERS",
    "FAMILIES",
    "GROUPS",
    "INTERACTIONS",
    "LOSSES",
    "MAX_SEED",
    "SAMPLERS",
    "SETTINGS",
    "TUNABLE",
    "USER_TOWERS",
    "EncoderInfo",
    "Info",
    "InteractionInfo",
    "LossFamily",
    "LossInfo",
    "SamplerInfo",
    "SharedSettings",
    "UserTowerInfo",
    "all_settings",
    "baseline_sampler",
    "find",
    "find_encoder",
    "find_interaction",
    "find_loss",
    "find_sampler",
    "find_user_tower",
    "import_path",
    "losses_for",
    "registered",
    "samplers_for",
    "serves",
    "settings_for",
]
