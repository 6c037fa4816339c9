"""From what a user gives to the complete settings of a run: flags, ``--set``, the environment, a
file, and the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS, Info, all_settings, find, settings_for
from ncfbench.config.checks import canonical_noise
from ncfbench.config.run_config import RunConfig, field_name
from ncfbench.config.toml import read_toml
from ncfbench.errors import UsageError, nearest
from ncfbench.settings import Kind, Setting

CACHE_DIR_VARIABLE = "NCFBENCH_CACHE_DIR"
LOCATION_VARIABLES = {"data_dir": "NCFBENCH_DATA_DIR", "runs_dir": "NCFBENCH_RUNS_DIR"}


@dataclass(frozen=True)
class Locations:
    """Folders of prepared data and of runs."""

    data_dir: Path = Path("data")
    runs_dir: Path = Path("runs")


def cache_dir() -> Path:
    """Return the folder of downloads, measured peaks and compiled programs.

    ``NCFBENCH_CACHE_DIR``, or the user's cache folder (XDG on Linux).
    """
    if CACHE_DIR_VARIABLE in os.environ:
        return Path(os.environ[CACHE_DIR_VARIABLE])
    import pooch

    return Path(pooch.os_cache("ncfbench"))


def merge(
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    chosen: Mapping[Kind, Iterable[str]] | None = None,
) -> tuple[dict[str, Any], Locations]:
    """Return the settings that flags give, then ``--set``, then the environment, then a file; and
    the folders. Defaults are :func:`complete`'s.

    Args:
        flags: settings given by flags; None stands for "not given".
        assignments: ``key=value`` strings.
        file: a TOML file of settings.
        environment: variables to look at (``os.environ`` by default).
        chosen: as for :func:`convert`.

    Raises:
        UsageError: an unknown key (with the nearest valid one), or a malformed value.
    """
    environment = os.environ if environment is None else environment
    given = {name: environment.get(name) for name in LOCATION_VARIABLES.values()}
    merged = {
        **(named_once(read_toml(file, "the configuration").items(), str(file)) if file else {}),
        **{key: given[name] for key, name in LOCATION_VARIABLES.items() if given[name]},
        **named_once(map(split_assignment, assignments), "--set"),
        **named_once((flags or {}).items(), "The settings"),
    }
    locations = Locations(
        **{key: Path(str(merged.pop(key))) for key in LOCATION_VARIABLES if key in merged}
    )
    return convert(merged, chosen), locations


def convert(
    settings: Mapping[str, Any], chosen: Mapping[Kind, Iterable[str]] | None = None
) -> dict[str, Any]:
    """Return settings with their values as the types that they have.

    Args:
        settings: values by name.
        chosen: names of samplers, losses and so on whose own settings are valid, beside those of
            what the settings name.

    Raises:
        UsageError: an unknown setting or a malformed value.
    """
    named = {
        kind: [SETTINGS[kind].convert(settings[kind])] for kind in BUILT_IN if kind in settings
    }
    known = all_settings(chosen) | all_settings(named)
    for name in settings:
        if name not in known:
            raise UsageError(unknown(name, [*known, *LOCATION_VARIABLES]))
    return {name: known[name].convert(value) for name, value in settings.items()}


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
    given = named_once(settings.items(), "The settings")
    chosen: dict[Kind, str] = {
        kind: SETTINGS[kind].convert(given.get(kind, SETTINGS[kind].default)) for kind in BUILT_IN
    }
    had, others = settings_for(chosen), all_settings()
    for kind, choice in chosen.items():
        for name in find(kind, choice).own:
            if hasattr(RunConfig, name):
                raise UsageError(f"{choice} declares a setting {name!r}, a name that is taken.")
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
    values = _with_defaults(values, had, chosen)
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
    followed = {setting.default_from for setting in SETTINGS.values()} & SETTINGS.keys()
    given = {name: getattr(config, name) for name in {*config.choices, *followed}}
    values = _with_defaults(given, config.settings, config.choices)
    usual = (followed - BUILT_IN.keys()) | {"user_tower", "interaction"}
    return values | {name: SETTINGS[name].default for name in usual}


def declared_default(info: Info, setting: Setting) -> Any:
    """Return the default that the record of a loss or an encoder has for a setting."""
    return getattr(info, field_name(setting.name))


def named_once(given: Iterable[tuple[str, Any]], origin: str) -> dict[str, Any]:
    """Return values by setting, of which each may be written with hyphens; None is left out.

    Args:
        origin: who gives them, as an error says it.

    Raises:
        UsageError: a setting is given twice.
    """
    found: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, value in given:
        if value is None:
            continue
        name = key.replace("-", "_").rstrip("_")
        if name in found:
            both = "" if written[name] == key else f", as {written[name]} and as {key}"
            raise UsageError(f"{origin}: {name} is given twice{both}. Leave one of them out.")
        found[name], written[name] = value, key
    return found


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the message that refuses an unknown setting."""
    valid = list(known)
    return f"Unknown setting {name!r}{nearest(name, valid)} Valid: {', '.join(valid)}."


def split_assignment(text: str) -> tuple[str, str]:
    """Split ``key=value``.

    Raises:
        UsageError: it is not of that form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {text!r} is not of the form key=value, for example --set filters=100."
        )
    return key.strip(), value.strip()


def _with_defaults(
    values: Mapping[str, Any], settings: Mapping[str, Setting], chosen: Mapping[Kind, str]
) -> dict[str, Any]:
    """Return values of all settings, in their order."""
    infos: dict[str, Info] = {kind: find(kind, name) for kind, name in chosen.items()}
    found: dict[str, Any] = {}
    for name, setting in settings.items():
        default = found.get(setting.default_from, setting.default)
        if setting.default_from in infos:
            default = declared_default(infos[setting.default_from], setting)
        found[name] = values.get(name, default)
    return found
