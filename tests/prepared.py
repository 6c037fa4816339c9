"""Data sets whose content a test makes itself."""

from types import SimpleNamespace

import pytest

from ncfbench.data import prepare
from ncfbench.data.options import SourceOptions


def quiet(text):
    """Show nothing."""


def store_prepared(preparation, data_dir, name, source="synthetic"):
    """Store what a preparation makes, as if the source had planned it."""
    module = SimpleNamespace(plan=lambda options, **more: preparation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ncfbench.data.store.find_source", lambda *names: SimpleNamespace(load=lambda: module)
        )
        return prepare(source, SourceOptions(), data_dir, name, say=print)
