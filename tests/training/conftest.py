"""Fixtures of tests of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trained import train

from ncfbench.data import prepare
from ncfbench.data.sources import synthetic
from ncfbench.data.store import Dataset, load
from ncfbench.runs.folder import RunRecord


@pytest.fixture(scope="session")
def whole(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run of :data:`trained.SMALL` that was never interrupted."""
    return train(data_dir, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="session")
def linked_dir(tmp_path_factory: pytest.TempPathFactory, tiny_options: synthetic.Options) -> Path:
    folder = tmp_path_factory.mktemp("linked")
    options = replace(tiny_options, items=600, hold_out="links")
    prepare("synthetic", options, folder, "tiny", say=lambda text: None)
    return folder


@pytest.fixture(scope="session")
def linked(linked_dir: Path) -> Dataset:
    """Like ``tiny``, of more items; links are held out, and some items have no other."""
    return load(linked_dir, "tiny")
