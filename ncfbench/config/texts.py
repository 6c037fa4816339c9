"""Settings in words: as ``--help``, the settings reference and warnings show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS, Info, SamplerInfo, find
from ncfbench.config.completion import declared_default
from ncfbench.config.own import built_in_settings
from ncfbench.config.run_config import RunConfig
from ncfbench.errors import either
from ncfbench.settings import Kind, Setting


def users_of(setting: Setting) -> list[str]:
    """Return the built-in choices whose runs use a setting; none where all do."""
    return list(setting.only_with[1:]) or _choices_with(setting)


def _choices_with(setting: Setting) -> list[str]:
    """Return the built-in samplers, losses and so on whose runs have a setting; none if all do."""
    for kind, names in BUILT_IN.items():
        users = [name for name in names if _is_user(find(kind, name), setting, kind)]
        if users:
            return users if len(users) < len(names) or setting.name not in SETTINGS else []
    return []


def default_text(setting: Setting) -> str:
    """Return a default as ``--help`` shows it: ``10; lstm 5`` where the encoder decides."""
    if setting.shown or not setting.default_from:
        return setting.shown or _text(setting, setting.default)
    if setting.default_from in SETTINGS and setting.default_from not in BUILT_IN:
        return f"as {setting.default_from}"
    kind = next(kind for kind in BUILT_IN if kind == setting.default_from)
    values = {name: declared_default(find(kind, name), setting) for name in BUILT_IN[kind]}
    # A default for all, and the exceptions; or one for each of those that have one.
    usual = None if None in values.values() else values[SETTINGS[kind].default]
    named = [f"{name} {value:g}" for name, value in values.items() if value not in (None, usual)]
    return "; ".join(([] if usual is None else [f"{usual:g}"]) + named)


def unused_settings(given: Iterable[str], config: RunConfig) -> list[str]:
    """Return a sentence on each given setting that the run does not use.

    The declarations of the run's sampler, encoder and other choices decide
    (:mod:`ncfbench.catalog`).

    Args:
        given: names of the settings that a user gave.
    """
    values, used, others = config.to_dict(), config.effective(), built_in_settings()
    found = []
    for name in given:
        setting = SETTINGS.get(name) or others.get(name)
        if setting is None:
            continue
        is_unused = setting.used_by and used.get(name) is None
        if name in config.settings and setting.is_active(values) and not is_unused:
            continue
        is_had = setting.only_with and setting.only_with[0] in config.settings
        users = users_of(setting) if is_had else _choices_with(setting)
        kinds = [kind for kind in BUILT_IN if setting in built_in_settings([kind]).values()]
        other = setting.only_with[0] if is_had else setting.used_by or kinds[0]
        chooser = config.settings[other]
        found.append(
            f"{setting.flag} changes nothing with {chooser.flag} {values[other]}"
            + (f"; it is used by {either(users)}." if users else ".")
        )
    return found


def _is_user(traits: Info, setting: Setting, kind: Kind) -> bool:
    if setting.default_from == kind == "loss":
        return declared_default(traits, setting) is not None
    by_user = traits.uses_by_user if isinstance(traits, SamplerInfo) else ()
    is_theirs = setting.used_by == kind or built_in_settings([kind]).get(setting.name) == setting
    is_used = is_theirs and setting.name in (*traits.names, *by_user)
    return is_used or setting in traits.settings


def _text(setting: Setting, value: Any) -> str:
    if setting.type == "bool":
        return setting.flag.removeprefix("--") if value else f"no-{setting.flag.removeprefix('--')}"
    return f"{value:g}" if setting.type == "float" else setting.text(value)
