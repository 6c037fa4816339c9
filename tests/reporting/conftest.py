"""Records that many tests of this room read."""

import pytest
from support.records import write_folder


@pytest.fixture(scope="session")
def rich(tmp_path_factory):
    """The runs of two data sets (:func:`support.records.write_folder`); no test changes them."""
    return write_folder(tmp_path_factory.mktemp("rich"))
