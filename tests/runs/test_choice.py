"""Which run a command continues, among folders that are written from literals."""

import dataclasses
import os
import shutil

import pytest
from folders import make_run, write_run

from ncfbench.config import complete
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.storage import locks, tables
from ncfbench.sweeps.cells import Cell, read_progress

DATA = "f" * 64


def test_the_newest_run_counts(tmp_path):
    """Of those with these settings, data and devices."""
    config = complete({"dataset": "citeulike", "sampler": "ns"})
    assert choice.find(tmp_path, config, DATA) is None
    older, newer = (make_run(tmp_path, config, DATA) for _ in range(2))
    os.utime(older / "config.json", (1, 1))
    assert choice.find(tmp_path, config, DATA) == newer
    os.utime(newer / "config.json", (0, 0))
    assert choice.find(tmp_path, config, DATA) == older
    assert choice.find(tmp_path, config, "0" * 64) is None
    others = dataclasses.replace(config, devices=2)
    assert choice.find(tmp_path, others, DATA) is None, "it would have other times"


@pytest.mark.parametrize(("revisions", "is_found"), [({}, True), ({"loss": 2}, False)])
def test_a_run_of_another_revision_does_not_count(tmp_path, revisions, is_found):
    config = complete({"dataset": "citeulike", "sampler": "ns"})
    folder = make_run(tmp_path, config, DATA)
    document = tables.read_json(folder / "config.json") | {"revisions": revisions}
    tables.write_json(folder / "config.json", document)
    cell = Cell(config)
    assert choice.find(tmp_path, config, DATA) == (folder if is_found else None)
    assert read_progress([cell], tmp_path, {config.dataset: DATA}) == []
    assert cell.folder == (folder if is_found else None)


def test_a_repeated_command_finds_its_finished_run(tmp_path):
    """One that was begun counts if there is something to continue."""
    begun = write_run(tmp_path, "ns", [9, 5], 10, status="interrupted", interleaved=[None])
    (begun / "checkpoints" / "100").mkdir(parents=True)
    config = runs.read(begun).config
    assert choice.find_trained(tmp_path, config, DATA) == (None, begun)
    others = dataclasses.replace(config, devices=2)
    assert choice.find_trained(tmp_path, others, DATA) == (None, None)
    finished = write_run(tmp_path, "ns", [9, 5], 10, status="finished")
    assert choice.find_trained(tmp_path, config, DATA) == (finished, begun)
    assert choice.find_trained(tmp_path, config, "0" * 64) == (None, None)
    shutil.rmtree(begun / "checkpoints")
    assert choice.find_trained(tmp_path, config, DATA) == (finished, None)
    with locks.held(begun, "writing"):
        assert choice.find_trained(tmp_path, config, DATA) == (finished, begun)
