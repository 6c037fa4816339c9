"""Settings in words: as ``--help``, the settings reference, warnings and TOML files show them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS, all_settings
from ncfbench.config.run_config import RunConfig, identity_of
from ncfbench.errors import either
from ncfbench.settings import PANELS, Setting


def users_of(setting: Setting) -> list[str]:
    """Return the built-in choices whose runs use a setting; none where all do."""
    if setting.used_by == "coupling":
        return ["regularised"]
    infos = BUILT_IN.get(setting.used_by or "", {})
    users = [name for name, info in infos.items() if info.reads(setting.name)]
    return [] if len(users) == len(infos) and setting.name in SETTINGS else users


def default_text(setting: Setting) -> str:
    """Return a default as ``--help`` shows it: ``10; lstm 5`` where the encoder decides."""
    source = setting.default_from
    if setting.shown or not source:
        default = setting.default
        return setting.shown or (
            f"{default:g}" if setting.type == "float" else setting.text(default)
        )
    if source not in BUILT_IN:
        return f"as {source}"
    values = {name: getattr(info, setting.attribute) for name, info in BUILT_IN[source].items()}
    # A default for all, and the exceptions; or one for each of those that have one.
    usual = None if None in values.values() else values[SETTINGS[source].default]
    named = [f"{name} {value:g}" for name, value in values.items() if value not in (None, usual)]
    return "; ".join(([] if usual is None else [f"{usual:g}"]) + named)


def setting_facts(setting: Setting) -> dict[str, str]:
    """Return a setting's name, default, valid values, those that `advise` tries, readers and
    meaning: a row of the settings reference.
    """
    words = {"int": ["whole number"], "float": ["number"]}.get(setting.type, [])
    valid = [*BUILT_IN.get(setting.name, ()), "or a plug-in"]
    if setting.name not in BUILT_IN:
        valid = [*words, setting.range] if setting.range else words
    return {
        "setting": setting.name,
        "default": default_text(setting),
        "valid": ", ".join(valid),
        "tried": ", ".join(map(setting.text, setting.tried)),
        "used by": ", ".join(users_of(setting)),
        "meaning": setting.help,
    }


def unused_settings(given: Iterable[str], config: RunConfig) -> list[str]:
    """Return a sentence on each setting that a user gave and the run does not use."""
    values, sentences = config.to_dict(), []
    known = {**all_settings(), **config.settings}
    for setting in (known[name] for name in given if name in known):
        if setting.name not in values or not config.reads(setting):
            kind, users = str(setting.used_by), users_of(setting)
            use = f"; it is used by {either(users)}" if users else ""
            sentences.append(f"{setting.name} changes nothing with {kind} {values[kind]}{use}.")
    return sentences


def toml_value(value: str | float | list[Any]) -> str:
    """Return a text, a number, a truth value or a list of them as TOML."""
    # JSON's texts, numbers and lists are TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(config: RunConfig) -> str:
    """Return the settings that change a run's numbers or times, which read back to the same run.

    Each has its help as a comment. Settings that the run does not use are left out.
    """
    values = config.to_dict()
    used = values | identity_of(config) | {"devices": config.devices}
    lines = []
    for panel in PANELS:
        rows = {
            f"{name} = {toml_value(values[name])}": setting.help
            for name, setting in config.settings.items()
            if setting.panel == panel and used[name] not in (None, "")
        }
        width = max(map(len, rows), default=0)
        texts = [f"{assignment:{width}}  # {text}" for assignment, text in rows.items()]
        lines += [f"# {panel}", *texts, ""] if rows else []
    return "\n".join(lines)
