"""Fixtures of tests of training."""

from dataclasses import replace

import pytest
from support.training import quiet, train

from ncfbench.data import prepare
from ncfbench.data.store import load
from ncfbench.training import optimizer as optimizers


@pytest.fixture
def by_row(monkeypatch):
    """Update the rows that a batch names, however few the others are."""
    for name in ("FEW", "FEW_WIDE"):
        monkeypatch.setattr(optimizers, name, dict.fromkeys(optimizers.FEW, 0))


@pytest.fixture(scope="session")
def whole(data_dir, tmp_path_factory):
    """A run of :data:`trained.SMALL` that was never interrupted."""
    return train(data_dir, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="session")
def linked(tmp_path_factory, tiny_options):
    """Like ``tiny``, of more items; links are held out, and some items have no other."""
    folder = tmp_path_factory.mktemp("linked")
    options = replace(tiny_options, items=600, hold_out="links")
    prepare("synthetic", options, folder, "tiny", say=quiet)
    return load(folder, "tiny")
