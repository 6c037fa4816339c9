"""Settings as TOML: a file, a value, and a run's complete settings as ``--config`` reads them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from ncfbench.config.identity import identity_of
from ncfbench.config.run_config import RunConfig
from ncfbench.errors import UsageError, reason
from ncfbench.settings import PANELS


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return the keys and values of a TOML file; a byte order mark before them is skipped.

    Args:
        what: the file in words, such as ``the sweep``.

    Raises:
        UsageError: it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"Cannot read {what} {path}: {reason(error)}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {reason(error)}.") from error


def toml_value(value: str | float | list[Any]) -> str:
    """Return a text, a number, a truth value or a list of them as TOML."""
    # JSON's texts, numbers and lists are TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(config: RunConfig) -> str:
    """Return the settings that change a run's numbers or times, which read back to the same run.

    Each has its help as a comment. Settings that the run does not use are left out.
    """
    values, used = config.to_dict(), identity_of(config) | config.placement
    lines = []
    for panel in PANELS:
        names = [
            name
            for name, setting in config.settings.items()
            if setting.panel == panel and used.get(name, values[name]) not in (None, "")
        ]
        width = max((len(f"{name} = {toml_value(values[name])}") for name in names), default=0)
        lines += [f"# {panel}"] if names else []
        for name in names:
            assignment = f"{name} = {toml_value(values[name])}"
            lines.append(f"{assignment:{width}}  # {config.settings[name].help}")
        lines += [""] if names else []
    return "\n".join(lines)
