"""Settings that samplers, losses, encoders and other choices declare as their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ncfbench.catalog import BUILT_IN, find
from ncfbench.errors import UsageError
from ncfbench.settings import Kind, Setting


def own_settings(chosen: Mapping[Kind, str], taken: Collection[str]) -> dict[str, Setting]:
    """Return the settings that a run has beside those of every run.

    These are the settings that its choices declare, and those of other choices that they use. A
    plug-in without ``uses`` may read any of them.

    Args:
        chosen: the names of its sampler, its loss, its encoder and so on.
        taken: names that these settings cannot have.

    Raises:
        UsageError: a name is taken.
    """
    declared: dict[str, Setting] = {}
    borrowed: dict[str, Setting] = {}
    for kind, name in chosen.items():
        traits = find(kind, name)
        for setting in traits.settings:
            if setting.name in taken or setting.name in declared:
                raise UsageError(
                    f"{name} declares a setting {setting.name!r}, a name that is taken. Rename it."
                )
            declared[setting.name] = setting
        borrowed |= {
            other: setting for other, setting in built_in_settings().items() if traits.reads(other)
        }
    return borrowed | declared


def settings_of(kind: Kind, name: str) -> dict[str, Setting]:
    """Return the settings that runs with one choice have for it.

    These are the ``settings`` that it declares, and those of others of its kind that its ``uses``
    name. A plug-in without ``uses`` has those of all built-in ones of its kind.
    """
    traits, others = find(kind, name), built_in_settings([kind])
    borrowed = [other for other in others if traits.reads(other)]
    declared = {setting.name: setting for setting in traits.settings}
    return {other: others[other] for other in borrowed} | declared


def built_in_settings(kinds: Iterable[Kind] = BUILT_IN) -> dict[str, Setting]:
    """Return the settings that built-in choices declare as their own."""
    return {
        setting.name: setting
        for kind in kinds
        for info in BUILT_IN[kind].values()
        for setting in info.settings
    }
