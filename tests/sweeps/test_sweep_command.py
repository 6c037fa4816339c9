"""``ncfbench sweep`` from the command line, and its progress."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from support import cli as invoked
from support.cli import check
from support.races import Noted, cells_of, interrupt, records

from ncfbench.errors import DataError
from ncfbench.storage import locks
from ncfbench.sweeps import progress
from ncfbench.sweeps.grid import Cell
from ncfbench.sweeps.progress import SweepProgress

WORDS = ["smoke", "--dataset", "tiny", "--epochs", "2"]
SETTINGS = {
    "sampler": "ns,strat-ns,iid",
    "loss": "hinge",
    "batch_size": "64",
    "dimension": "8",
    "encoder": "bow",
    "word_dimension": "8",
}


def invoke(data_dir, runs_dir, *words):
    """Run the sweep of :data:`SETTINGS`, but for those that the words give."""
    given = {word.partition("=")[0] for word in words}
    usual = [f"{name}={value}" for name, value in SETTINGS.items() if name not in given]
    settings = [word for assignment in usual for word in ("--set", assignment)]
    folders = ["--data-dir", data_dir, "--runs-dir", runs_dir]
    return invoked.invoke("sweep", *WORDS, *settings, *folders, *words)


def test_cells_whose_batches_do_not_fit_the_data_are_left_out(data_dir, tmp_path):
    """They would fail each by itself, and end a prediction."""
    size = ("--set", "batch_size=64,4096")
    planned = invoke(data_dir, tmp_path, *size, "--dry-run", "--json")
    check(planned, 0, "Left out (2): tiny: batch_size = 4096 is larger than the")
    plan = json.loads(planned.stdout)
    assert [row["config"]["batch_size"] for row in plan["cells"]] == [64, 64]
    assert [row["combinations"] for row in plan["left_out"]] == [2, 2]
    refused = invoke(data_dir, tmp_path, "--set", "batch_size=4096", "--set", "sampler=ns")
    check(refused, 2, "No combination of the sweep can work. The first: tiny: batch_size = 4096")
    assert list(tmp_path.iterdir()) == []


def test_data_without_a_negative_link_are_left_out(data_dir, tmp_path, monkeypatch):
    def refuse(graph, config, streams):
        if config.sampler == "ns":
            raise DataError("No negative link exists.")

    monkeypatch.setattr("ncfbench.sweeps.sweep.make_sampler", refuse)
    planned = invoke(data_dir, tmp_path, "--dry-run", "--json")
    check(planned, 0, "Left out (1): tiny: No negative link exists.")
    (cell,) = json.loads(planned.stdout)["cells"]
    assert cell["config"]["sampler"] == "strat-ns"


def test_a_sweep_trains_and_lists_its_cells(data_dir, tmp_path):
    trained = invoke(data_dir, tmp_path)
    check(trained, 0)
    for words in ("tiny bow hinge ns b=64 seed 0", "done", "2 of 2"):
        assert words in trained.stdout
    for words in ("Left out (1): --sampler iid", "2 cells: 2 waiting.", "ns b=64 seed 0: done"):
        assert words in trained.stderr
    (command,) = re.findall("ncfbench (report --runs-dir .*)", trained.stdout)
    check(invoked.invoke(*command.split(), "--data-dir", data_dir), 0, "strat-ns")
    folders = set(tmp_path.iterdir())
    planned = invoke(data_dir, tmp_path, "--dry-run", "--json", "--quiet", "--seeds", "2")
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert set(tmp_path.iterdir()) == folders, "nothing was trained"
    plan = json.loads(planned.stdout)
    cells = [
        (row["config"]["sampler"], row["config"]["seed"], row["status"]) for row in plan["cells"]
    ]
    ends = (0, "done"), (1, "waiting")
    assert cells == [(sampler, *end) for end in ends for sampler in ("ns", "strat-ns")]
    for row in plan["cells"][:2]:
        assert Path(row["folder"]).is_dir()
        assert row["test_recall_at_50"] is not None
    (left_out,) = plan["left_out"]
    assert left_out["combinations"] == 2
    assert "cells: 2 done." in invoke(data_dir, tmp_path, "--json").stderr


def test_one_cell_trains_beside_the_others(data_dir, tmp_path):
    """As tasks of a job array do, while another sweep holds the folder."""
    with locks.held(tmp_path, "running a sweep in"):
        check(invoke(data_dir, tmp_path), 2, "running a sweep in")
        trained = invoke(data_dir, tmp_path, "--cell", "1", "--json")
    check(trained, 0)
    rows = [(row["number"], row["status"]) for row in json.loads(trained.stdout)["cells"]]
    assert rows == [(0, "waiting"), (1, "done")]
    check(invoke(data_dir, tmp_path, "--cell=-1"), 2, "--cell -1: the sweep has 2 cells, 0 to 1.")


def test_ctrl_c_ends_the_command_with_130(data_dir, tmp_path, monkeypatch):
    noted = Noted("strat-ns", 10, interrupt)
    monkeypatch.setattr(progress, "SweepProgress", lambda _: noted)
    result = invoke(data_dir, tmp_path, "--quiet")
    assert (result.exit_code, result.stdout) == (130, "")
    said = f"The cells so far are in {tmp_path}. To resume this sweep, repeat"
    assert re.search(rf"{said}[^\n]*: ncfbench sweep .*{tmp_path}.*\nInterrupted.\n", result.stderr)
    assert {record.summary["status"] for record in records(tmp_path).values()} == {"interrupted"}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_shows_cells_and_messages(is_terminal):
    plain = {"width": 150, "markup": False, "highlight": False}
    plain["_environ"] = {"TERM": "xterm-256color"}
    screen = Console(file=io.StringIO(), force_terminal=is_terminal, **plain)
    shown = SweepProgress(screen)
    cells = [*map(Cell, cells_of()), *(Cell(config, status="done") for config in cells_of(["iid"]))]
    shown.begin(cells)
    of_cell = shown.follow(cells[0])
    of_cell.begin("not shown", 900, 0)
    of_cell.advance(17, 100.0)
    row = dict.fromkeys(("validation_recall_at_50", "test_recall_at_50"), 0.25)
    row |= {"epoch": 1.0, "probe_loss": 0.5, "train_seconds": 2.0, "iteration": 17}
    of_cell.record(row)
    if shown.bars is not None:
        shown.bars.refresh()
    cells[0].status, cells[0].message = "failed", "no memory"
    shown.finish(cells[0])
    shown.end()
    text = screen.file.getvalue()
    assert "4 cells: 1 done, 3 waiting." in text
    assert "tiny bow sg neg b=64 seed 0: failed: no memory" in text
    is_live = "17/900" in text and "loss 0.5000" in text
    line = "neg b=64 seed 0: epoch   1.00  iteration     17  probe loss 0.5000"
    assert (is_live, line in text) == (is_terminal, not is_terminal)
