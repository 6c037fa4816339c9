"""The functions of ``import ncfbench``."""

import pkgutil

import pytest
from support.training import quiet

import ncfbench
from ncfbench.errors import DataError, UsageError

SMALL = {"batch_size": 64, "epochs": 2, "dimension": 8, "word_dimension": 8, "encoder": "bow"}
SIZES = {"users": 60, "items": 80, "links": 600, "topics": 3, "vocabulary_size": 90}


def test_no_room_takes_the_name_of_a_function():
    """An imported room becomes an attribute of the package."""
    rooms = {module.name for module in pkgutil.iter_modules(ncfbench.__path__)}
    assert len(rooms) > 15
    assert not rooms & {*ncfbench.__all__}
    assert {*ncfbench.__all__} <= {*dir(ncfbench)}
    assert all("Raises:" in getattr(ncfbench, name).__doc__ for name in ncfbench.__all__)


def test_from_data_to_report(tmp_path):
    places = {"data_dir": tmp_path / "data", "runs_dir": tmp_path / "runs"}
    data = {"data_dir": tmp_path / "data", "say": quiet}
    dataset = ncfbench.prepare("synthetic", name="mine", min_words=3, max_length=9, **SIZES, **data)
    assert ncfbench.open_dataset("mine", **data).fingerprint == dataset.fingerprint
    record = ncfbench.run(dataset="mine", sampler="iid", **SMALL, **places)
    assert record.summary["epochs"] == 2
    again = ncfbench.run(dataset="mine", sampler="iid", **SMALL, **places)
    assert again.folder == record.folder
    assert str(record.folder) in repr(record)
    assert "finished, 9 probes in 2 of 2 epochs, smallest probe loss" in repr(record)
    with pytest.warns(UserWarning, match="stratum_size changes nothing with sampler iid"):
        ncfbench.run(dataset="mine", sampler="iid", stratum_size=2, **SMALL, **places)
    grid = {"dataset": "mine", "sampler": ("iid", "ns"), "loss": "sg", "seed": [0], **SMALL}
    swept = ncfbench.sweep("smoke", say=quiet, **grid, **places)
    assert (swept.exit_code, len(swept.cells)) == (0, 2)
    results = ncfbench.report(**places)
    assert {row["sampler"] for row in results.speedup} >= {"iid", "ns"}
    assert results.tables


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UsageError, match="no option 'sise'"):
        ncfbench.prepare("synthetic", sise=3, data_dir=tmp_path)
    with pytest.raises(UsageError, match="is not a data set's name"):
        ncfbench.prepare("synthetic", name="../x", data_dir=tmp_path)
    with pytest.raises(UsageError, match="batch_sise"):
        ncfbench.run(batch_sise=3)
    with pytest.raises(DataError, match="ncfbench prepare citeulike"):
        ncfbench.open_dataset("citeulike", data_dir=tmp_path)
