"""Data sets whose content a test makes itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from ncfbench.data import prepare
from ncfbench.data.content import Content
from ncfbench.data.options import SourceOptions
from ncfbench.data.text import Texts


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


def content_of(users, items, split, n_users, **more):
    """Links of users and items of these splits; by default every item has the one word."""
    ones = np.ones(len(split), np.int32)
    ends = {"users": np.array(users, np.int32), "items": np.array(items, np.int32)}
    usual = {"texts": Texts(ones, ones), "vocabulary": ("a",), "split": np.array(split, np.uint8)}
    return Content(n_users=n_users, **(usual | ends | more))
