"""Fixtures of tests of training."""

from __future__ import annotations

from pathlib import Path

import pytest
from trained import train

from ncfbench.runs.folder import RunRecord


@pytest.fixture(scope="session")
def whole(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run of :data:`trained.SMALL` that was never interrupted."""
    return train(data_dir, tmp_path_factory.mktemp("whole"))
