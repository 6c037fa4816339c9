"""Settings in words: as ``--help``, the settings reference and warnings show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS, Info, all_settings
from ncfbench.config.resolve import declared_default
from ncfbench.config.run_config import RunConfig
from ncfbench.errors import either
from ncfbench.settings import Kind, Setting


def users_of(setting: Setting) -> list[str]:
    """Return the built-in choices whose runs use a setting; none where all do."""
    return list(setting.only_with[1:]) or _choices_with(setting)


def default_text(setting: Setting) -> str:
    """Return a default as ``--help`` shows it: ``10; lstm 5`` where the encoder decides."""
    if setting.shown or not setting.default_from:
        return setting.shown or _text(setting, setting.default)
    if setting.default_from in SETTINGS.keys() - BUILT_IN.keys():
        return f"as {setting.default_from}"
    kind = next(kind for kind in BUILT_IN if kind == setting.default_from)
    values = {name: declared_default(info, setting) for name, info in BUILT_IN[kind].items()}
    # A default for all, and the exceptions; or one for each of those that have one.
    usual = None if None in values.values() else values[SETTINGS[kind].default]
    named = [f"{name} {value:g}" for name, value in values.items() if value not in (None, usual)]
    return "; ".join(([] if usual is None else [f"{usual:g}"]) + named)


def unused_settings(given: Iterable[str], config: RunConfig) -> list[str]:
    """Return a sentence on each given setting that the run does not use.

    Args:
        given: names of the settings that a user gave.
    """
    values, found = config.to_dict(), []
    known = {**all_settings(), **config.settings}
    for name in given:
        setting = known.get(name)
        if setting is None or (
            name in values and setting.is_active(values) and config.reads(setting)
        ):
            continue
        is_had = setting.only_with and setting.only_with[0] in config.settings
        users = users_of(setting) if is_had else _choices_with(setting)
        other = setting.only_with[0] if is_had else setting.used_by
        assert other is not None
        found.append(
            f"{setting.flag} changes nothing with {config.settings[other].flag} {values[other]}"
            + (f"; it is used by {either(users)}." if users else ".")
        )
    return found


def _choices_with(setting: Setting) -> list[str]:
    """Return the built-in samplers, losses and so on whose runs have a setting; none if all do."""
    for kind, infos in BUILT_IN.items():
        users = [name for name, info in infos.items() if _is_user(info, setting, kind)]
        if users:
            return users if len(users) < len(infos) or setting.name not in SETTINGS else []
    return []


def _is_user(info: Info, setting: Setting, kind: Kind) -> bool:
    if setting.default_from == kind == "loss":
        return declared_default(info, setting) is not None
    return setting.used_by == kind and info.reads(setting.name, "user")


def _text(setting: Setting, value: Any) -> str:
    if setting.type == "bool":
        return setting.flag.removeprefix("--") if value else f"no-{setting.flag.removeprefix('--')}"
    return f"{value:g}" if setting.type == "float" else setting.text(value)
