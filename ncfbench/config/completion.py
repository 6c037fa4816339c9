"""Complete settings: conversion, defaults of the choices, and the settings that may be given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS, Info, find
from ncfbench.config.checks import canonical_noise
from ncfbench.config.own import built_in_settings
from ncfbench.config.run_config import RunConfig, field_name, run_settings
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind, Setting


def complete(settings: Mapping[str, Any], ignored: Collection[str] = ()) -> RunConfig:
    """Return a :class:`RunConfig` from some settings, with defaults for the rest.

    Settings of built-in encoders that the run does not have are checked and left out, so that one
    grid can name them for all.

    Args:
        settings: keys as in ``config.json``; None stands for "not given".
        ignored: more names that may be left out.

    Raises:
        UsageError: an unknown setting, a value of a wrong type or out of range, or a combination
            that cannot work.
    """
    given = {key.rstrip("_"): value for key, value in settings.items() if value is not None}
    chosen: dict[Kind, str] = {
        kind: SETTINGS[kind].convert(given.get(kind, SETTINGS[kind].default)) for kind in BUILT_IN
    }
    had, others = run_settings(chosen), built_in_settings()
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in had:
            values[name] = had[name].convert(value)
        elif name in others:
            others[name].check(others[name].convert(value))
        elif name not in ignored:
            raise UsageError(unknown(name, had))
    if "noise" in values:
        values["noise"] = canonical_noise(values["noise"])
    values = with_defaults(values, had, chosen)
    for name, setting in had.items():
        if not setting.is_active(values):
            setting.check(values[name])
            values[name] = setting.default
    return RunConfig(
        **{field_name(name): values.pop(name) for name in SETTINGS}, own=tuple(values.items())
    )


def default_values(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a run would have of which only sampler, encoder and loss are named.

    The own settings of its other choices have their defaults too. A setting whose default is the
    value of another follows the run's own: ``uniform_items`` is the run's ``batch_size``.
    """
    chosen: dict[Kind, str] = {kind: getattr(config, kind) for kind in BUILT_IN}
    followed = {setting.default_from for setting in SETTINGS.values()} & SETTINGS.keys()
    given = {name: getattr(config, name) for name in {*chosen, *followed}}
    values = with_defaults(given, config.settings, chosen)
    usual = (followed - chosen.keys()) | {"user_tower", "interaction"}
    return values | {name: SETTINGS[name].default for name in usual}


def with_defaults(
    values: Mapping[str, Any], settings: Mapping[str, Setting], chosen: Mapping[Kind, str]
) -> dict[str, Any]:
    """Return values of all settings, in their order."""
    traits: dict[str, Info] = {kind: find(kind, name) for kind, name in chosen.items()}
    found: dict[str, Any] = {}
    for name, setting in settings.items():
        if name in values:
            found[name] = values[name]
        elif setting.default_from in traits:
            found[name] = declared_default(traits[setting.default_from], setting)
        else:
            found[name] = found.get(setting.default_from, setting.default)
    return found


def declared_default(traits: Info, setting: Setting) -> Any:
    """Return the default that a loss or encoder declares for a setting."""
    return getattr(traits, field_name(setting.name))


def known_settings(chosen: Iterable[Mapping[Kind, Iterable[str]]] = ()) -> dict[str, Setting]:
    """Return all settings that may be given: those of every run, of everything built in, and of
    some choices.

    Args:
        chosen: names of samplers, losses and so on, by kind.
    """
    theirs = {
        setting.name: setting
        for each in chosen
        for kind, names in each.items()
        for name in names
        for setting in find(kind, name).settings
    }
    return SETTINGS | built_in_settings() | theirs


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the message that refuses an unknown setting."""
    valid = list(known)
    return f"Unknown setting {name!r}{nearest(name, valid)} Valid: {', '.join(valid)}."
