"""The sweeps that come with the program: one TOML file each, which names its part of the paper."""

from __future__ import annotations

import tomllib
from pathlib import Path


def preset_paths() -> dict[str, Path]:
    """Return the files of the presets, by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}


def preset_titles() -> dict[str, str]:
    """Return the titles of the presets, by name."""
    return {
        name: tomllib.loads(path.read_text(encoding="utf-8"))["title"]
        for name, path in preset_paths().items()
    }
