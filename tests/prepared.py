"""Data sets whose content a test makes itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ncfbench.data import prepare
from ncfbench.data.options import SourceOptions
from ncfbench.data.sources import Preparation


def quiet(text: str) -> None:
    """Show nothing."""


def store_prepared(
    preparation: Preparation, data_dir: Path, name: str, source: str = "synthetic"
) -> dict[str, Any]:
    """Store what a preparation makes, as if the source had planned it."""
    module = SimpleNamespace(plan=lambda options, **more: preparation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ncfbench.data.store.find_source", lambda *names: SimpleNamespace(load=lambda: module)
        )
        return prepare(source, SourceOptions(), data_dir, name, say=print)
