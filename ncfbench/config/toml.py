"""Settings as TOML: a value, and a run's complete settings as ``--config`` reads them."""

from __future__ import annotations

import json
from typing import Any

from ncfbench.config.run_config import RunConfig
from ncfbench.settings import PANELS


def toml_value(value: str | float | list[Any]) -> str:
    """Return a text, a number, a truth value or a list of them as TOML."""
    # JSON's texts, numbers and lists are TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(config: RunConfig) -> str:
    """Return the settings that change a run's numbers or times, which read back to the same run.

    Each has its help as a comment. Settings that the run does not use are left out.
    """
    values, used = config.to_dict(), {**config.effective(), **config.placement}
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
