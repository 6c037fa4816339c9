"""All built-in choices, and the settings that they have as their own."""

from __future__ import annotations

from collections.abc import Mapping

from ncfbench.catalog.infos import Info
from ncfbench.catalog.models import ENCODERS, INTERACTIONS, LOSSES, USER_TOWERS
from ncfbench.catalog.samplers import SAMPLERS
from ncfbench.settings import Kind, Setting

BUILT_IN: Mapping[Kind, Mapping[str, Info]] = {
    "sampler": SAMPLERS,
    "loss": LOSSES,
    "encoder": ENCODERS,
    "user_tower": USER_TOWERS,
    "interaction": INTERACTIONS,
}


def records() -> list[Info]:
    """Return the records of all built-in choices."""
    return [info for infos in BUILT_IN.values() for info in infos.values()]


def own_settings() -> dict[str, Setting]:
    """Return the settings that built-in choices have as their own, by name."""
    return {name: setting for info in records() for name, setting in info.own.items()}
