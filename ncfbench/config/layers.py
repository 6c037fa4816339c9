"""Layers of settings: flags, ``--set``, the environment, a file, and the defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.catalog import BUILT_IN, SETTINGS
from ncfbench.config.completion import complete, known_settings, unknown
from ncfbench.config.run_config import RunConfig
from ncfbench.errors import UsageError, reason
from ncfbench.settings import Kind

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


def resolve(
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[RunConfig, Locations]:
    """Merge the layers: flag, then ``--set``, then environment, then file, then the default for the
    loss and encoder.

    Args:
        flags: settings given by flags; None stands for "not given".
        assignments: ``key=value`` strings.
        file: a TOML file of settings.
        environment: variables to look at (``os.environ`` by default).

    Raises:
        UsageError: an unknown key (with the nearest valid one), a malformed value, or an impossible
            combination.
    """
    merged, locations = merge(flags, assignments, file, environment)
    return complete(merged), locations


def merge(
    flags: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    chosen: Mapping[Kind, Iterable[str]] | None = None,
) -> tuple[dict[str, Any], Locations]:
    """Return the settings that the layers of :func:`resolve` give, without defaults.

    Args:
        flags, assignments, file, environment: as for :func:`resolve`.
        chosen: as for :func:`convert`.
    """
    environment = os.environ if environment is None else environment
    layers: list[Mapping[str, Any]] = [
        _read_file(file) if file else {},
        {
            key: environment[variable]
            for key, variable in LOCATION_VARIABLES.items()
            if environment.get(variable)
        },
        dict(split_assignment(text) for text in assignments),
        {key: value for key, value in (flags or {}).items() if value is not None},
    ]
    merged = {
        key.replace("-", "_").rstrip("_"): value for layer in layers for key, value in layer.items()
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
    known = known_settings([named, chosen or {}])
    for name in settings:
        if name not in known:
            raise UsageError(unknown(name, [*known, *LOCATION_VARIABLES]))
    return {name: known[name].convert(value) for name, value in settings.items()}


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


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Cannot read the configuration {path}: {reason(error)}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {reason(error)}.") from error
