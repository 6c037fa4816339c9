"""The settings of a run: where they come from, which cannot work together, and what names a run.

They come from flags, then ``--set``, then the environment, then a file, then the defaults.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ncfbench.catalog import BUILT_IN, Info, infos_of, settings_for
from ncfbench.catalog import MAX_SEED as MAX_SEED
from ncfbench.catalog import SETTINGS as SETTINGS
from ncfbench.catalog import all_settings as all_settings
from ncfbench.config.checks import canonical_noise
from ncfbench.config.checks import is_digest as is_digest
from ncfbench.config.help import as_toml as as_toml
from ncfbench.config.help import default_text as default_text
from ncfbench.config.help import setting_facts as setting_facts
from ncfbench.config.help import toml_value as toml_value
from ncfbench.config.help import unused_settings as unused_settings
from ncfbench.config.run_config import RunConfig as RunConfig
from ncfbench.config.run_config import digest as digest
from ncfbench.config.run_config import digest_of as digest_of
from ncfbench.config.run_config import identity_of as identity_of
from ncfbench.errors import UsageError, reason, refusal
from ncfbench.settings import Kind, Setting

LOCATION_VARIABLES = {"data_dir": "NCFBENCH_DATA_DIR", "runs_dir": "NCFBENCH_RUNS_DIR"}
Choices = Mapping[Kind, Iterable[str]]
Folder = str | PathLike[str] | None


@dataclass(frozen=True)
class Locations:
    """Folders of prepared data and of runs."""

    data_dir: Path = Path("data")
    runs_dir: Path = Path("runs")

    @classmethod
    def of(cls, data_dir: Folder = None, runs_dir: Folder = None) -> Locations:
        """Return the given folders; in place of None those of the environment, or the defaults."""
        return merge({"data_dir": data_dir, "runs_dir": runs_dir})[1]


def cache_dir() -> Path:
    """Return the folder of downloads and compiled programs."""
    if folder := os.environ.get("NCFBENCH_CACHE_DIR"):
        return Path(folder)
    import pooch

    return Path(pooch.os_cache("ncfbench"))


def merge(
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    file: Path | None = None,
    chosen: Choices | None = None,
) -> tuple[dict[str, Any], Locations]:
    """Return the settings that a user gives, without defaults, and the folders.

    Args:
        flags: settings given by flags; None stands for "not given".
        assignments: ``key=value`` strings.
        file: a TOML file of settings.
        chosen: as for :func:`convert`.

    Raises:
        UsageError: an unknown key (with the nearest valid one), or a malformed value.
    """
    in_file = read_toml(file, "the configuration") if file else {}
    variables = {key: os.environ.get(name) or None for key, name in LOCATION_VARIABLES.items()}
    merged = {
        **named_once(in_file.items(), str(file)),
        **named_once(variables.items(), "The environment"),
        **named_once(map(split_assignment, assignments), "--set"),
        **named_once((flags or {}).items(), "The settings"),
    }
    folders = {key: Path(str(merged.pop(key))) for key in LOCATION_VARIABLES if key in merged}
    return convert(merged, chosen), Locations(**folders)


def convert(settings: Mapping[str, Any], chosen: Choices | None = None) -> dict[str, Any]:
    """Return settings with values of the types that they have.

    Args:
        chosen: samplers, losses and so on whose own settings are valid, beside those of what the
            settings name.

    Raises:
        UsageError: an unknown setting or a malformed value.
    """
    named = {kind: [SETTINGS[kind].convert(settings[kind])] for kind in BUILT_IN & settings.keys()}
    known = all_settings(chosen) | all_settings(named)
    for name in settings:
        if name not in known:
            raise UsageError(refusal("Unknown setting", name, [*known, *LOCATION_VARIABLES]))
    return {name: known[name].convert(value) for name, value in settings.items()}


def complete(settings: Mapping[str, Any], *, ignore_unknown: bool = False) -> RunConfig:
    """Return a :class:`RunConfig` from some settings, with defaults for the rest.

    Settings of built-in classes that the run does not have are checked and left out, so that one
    grid can name them for all; with ``ignore_unknown`` unknown ones are left out too.

    Raises:
        UsageError: an unknown setting, a value of a wrong type or out of range, or a combination
            that cannot work.
    """
    given = named_once(settings.items(), "The settings")
    chosen = {
        kind: SETTINGS[kind].convert(given.get(kind, SETTINGS[kind].default)) for kind in BUILT_IN
    }
    infos = infos_of(chosen, str(given.get("strata", RunConfig.strata)))
    _refuse_taken_names(chosen, infos)
    had = settings_for(infos.values())
    known = all_settings() | had
    for name, value in given.items():
        if name in known:
            given[name] = known[name].convert(value)
            known[name].check(given[name])
        elif not ignore_unknown:
            raise UsageError(refusal("Unknown setting", name, had))
    values = _with_defaults(given, had, infos)
    values["noise"] = canonical_noise(values["noise"])
    shared = {setting.attribute: values.pop(name) for name, setting in SETTINGS.items()}
    return RunConfig(**shared, own=tuple(values.items()))


def default_values(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a run would have of which only sampler, encoder and loss are named.

    The own settings of its other choices have their defaults too, and ``uniform_items`` is the
    run's own ``batch_size``.
    """
    given = {name: getattr(config, name) for name in (*BUILT_IN, "batch_size")}
    values = _with_defaults(given, config.settings, config.infos)
    return values | {name: SETTINGS[name].default for name in ("batch_size", "user_tower")}


def named_once(given: Iterable[tuple[str, Any]], origin: str) -> dict[str, Any]:
    """Return values by setting, whose names may have hyphens; None is left out.

    Raises:
        UsageError: a setting is given twice; the message begins with ``origin``.
    """
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, value in given:
        if value is None:
            continue
        name = key.replace("-", "_").rstrip("_")
        if name in values:
            both = "" if written[name] == key else f", as {written[name]} and as {key}"
            raise UsageError(f"{origin}: {name} is given twice{both}. Leave one of them out.")
        values[name], written[name] = value, key
    return values


def split_assignment(text: str, example: str = "filters=100") -> tuple[str, str]:
    """Split ``key=value``.

    Raises:
        UsageError: it is not of that form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {text!r} is not of the form key=value, for example --set {example}."
        )
    return key.strip(), value.strip()


def split_list(text: str) -> list[str]:
    """Split a list at its commas; empty parts are left out."""
    return [part.strip() for part in text.split(",") if part.strip()]


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return the keys and values of a TOML file; a byte order mark before them is skipped.

    Raises:
        UsageError: it cannot be read, or is no TOML; ``what`` is the file in words.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"Cannot read {what} {path}: {reason(error)}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {reason(error)}.") from error


def _refuse_taken_names(chosen: Mapping[Kind, str], infos: Mapping[Kind, Info]) -> None:
    declared = [name for info in infos.values() for name in info.own]
    for kind, info in infos.items():
        for name, setting in info.own.items():
            if hasattr(RunConfig, setting.attribute) or declared.count(name) > 1:
                raise UsageError(
                    f"{chosen[kind]} declares a setting {name!r}, a name that is taken. Rename it."
                )


def _with_defaults(
    given: Mapping[str, Any], settings: Mapping[str, Setting], infos: Mapping[Kind, Info]
) -> dict[str, Any]:
    """Return values of all settings, in their order."""
    values: dict[str, Any] = {}
    for name, setting in settings.items():
        default = values.get(setting.default_from, setting.default)
        if setting.default_from in infos:
            default = getattr(infos[setting.default_from], setting.attribute)
        values[name] = given.get(name, default)
    return values
