"""Fixtures of all tests of data."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Force nothing to the disk: these tests write many small files."""
    monkeypatch.setattr("ncfbench.storage.tables.sync", lambda path: None)
