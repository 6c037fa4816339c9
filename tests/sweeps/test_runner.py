"""Training a sweep: which cell trains when, and what interruptions and failures leave behind."""

import os
import shutil
import signal
import subprocess
import sys

import jax
import pytest
from support.processes import KILLED, compiled_once
from support.races import ARMS, SMALL, Noted, assert_same, cells_of, interrupt, records, sweep
from support.records import make_run, write_run
from support.training import figures

from ncfbench.config import Locations
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.reporting import frames
from ncfbench.reporting.rows import recall_rows, speedup_rows
from ncfbench.runs import folder as runs
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import locks
from ncfbench.sweeps.grid import Cell
from ncfbench.sweeps.sweep import SweepRun, read_cells
from ncfbench.timing.ledger import Ledger
from ncfbench.training import run as training
from ncfbench.training.train import Run

LONG = pytest.mark.long


def exit_code(cells):
    """Return that of a sweep that trains some cells."""
    return SweepRun(None, None, {}, cells, cells, {}).exit_code


@pytest.fixture(scope="module")
def trained(tiny, data_dir, tmp_path_factory):
    """Train two groups, never interrupted: ``cells_of()``, and one cell of another seed."""
    folder, noted = tmp_path_factory.mktemp("whole"), Noted()
    cells = [*cells_of(), *cells_of(["ns"], seed=1, epochs=1)]
    assert exit_code(sweep(cells, tiny, Locations(data_dir, folder), noted)) == 0
    return folder, noted


@pytest.fixture(scope="module")
def whole(trained):
    """The runs of ``cells_of()`` by sampler, never interrupted."""
    return {sampler: run for (sampler, seed), run in records(trained[0]).items() if seed == 0}


def test_a_group_takes_turns_epoch_by_epoch(trained):
    _, noted = trained
    turns = [(sampler, epoch) for epoch in (1, 2, 3) for sampler in ARMS]
    assert noted.epochs == [*turns, ("ns", 1)]
    assert noted.ends == [*((sampler, "done") for sampler in ARMS), ("ns", "done")]


def test_a_cell_equals_its_run_alone(tiny, data_dir, tmp_path, whole):
    (config,) = cells_of(["strat-ns"])
    alone = training.run(RunPlan.of(config, Locations(data_dir, tmp_path)))
    assert_same(whole[config.sampler], alone, tiny)


def test_the_ledger_charges_a_runs_own_turns(whole):
    for record in whole.values():
        main = {row["line"]: row["seconds"] for row in record.ledger if row["thread"] == "main"}
        assert sum(main.values()) == pytest.approx(record.summary["wall_seconds"])
        assert main["other"] < 0.5 * sum(main.values()), "the others' turns are not its own"
        assert all(seconds >= 0 for seconds in main.values())


def test_ledgers_in_turn_split_the_time():
    now = [0.0]
    one, two = Ledger(lambda: now[0]), Ledger(lambda: now[0])
    for ledger, seconds in ((one, 1.0), (two, 10.0), (one, 2.0), (two, 20.0)):
        now[0] += 100
        with ledger.turn(), ledger.line("step"):
            now[0] += seconds
    now[0] += 100
    with one.turn():
        assert one.seconds() == pytest.approx(dict.fromkeys(one.seconds(), 0.0) | {"step": 3.0})
    with two.turn():
        assert sum(two.seconds().values()) == 30


def are_interleaved(runs_dir):
    (group,) = frames.group(list(records(runs_dir).values()))
    rows = {row["sampler"]: row["interleaved"] for row in speedup_rows(group)}
    return [rows[sampler] for sampler in ("iid", "ns", "strat-ns")]


@LONG
def test_only_runs_always_in_turn_are_marked(tiny, data_dir, tmp_path):
    alone, always, once = (Locations(data_dir, tmp_path / name) for name in "abc")
    arms = cells_of(["iid", "ns", "strat-ns"], loss="sg")
    for config in arms[:2]:
        training.run(RunPlan.of(config, alone))
    sweep(arms, tiny, alone)
    assert are_interleaved(alone.runs_dir) == [False] * 3
    for locations in (always, once):
        with pytest.raises(KeyboardInterrupt):
            sweep(arms, tiny, locations, Noted("ns", 20, interrupt))
    sweep(arms, tiny, always)
    assert are_interleaved(always.runs_dir) == [True] * 3
    training.run(RunPlan.of(arms[1], once))
    sweep(arms, tiny, once)
    assert are_interleaved(once.runs_dir) == [True, False, True]


@LONG
def test_catch_up_epochs_count_for_no_time(tiny, data_dir, tmp_path):
    locations = Locations(data_dir, tmp_path)
    second_end = -(-2 * tiny.graph.n_links // 64)
    with pytest.raises(KeyboardInterrupt):
        sweep(cells_of(["ns"], encoder="mf"), tiny, locations, Noted("ns", second_end, interrupt))
    sweep(cells_of(["ns", "strat-ns"], encoder="mf"), tiny, locations)
    marked = {
        sampler: [row["resumed"] for row in record.timing if row["kind"] == "full"]
        for (sampler, _), record in records(tmp_path).items()
    }
    assert marked == {"ns": [False] * 12, "strat-ns": [True] * 8 + [False] * 4}


# Interruptions and failures


@LONG
@pytest.mark.parametrize("iteration", [34, 51])
def test_ctrl_c_saves_all_cells_to_resume(tiny, data_dir, tmp_path, whole, iteration):
    """In the middle of the last cell; at its end there is nothing left to stop."""
    iteration = min(iteration, last := whole["ns"].summary["planned_iterations"])
    locations, cut = Locations(data_dir, tmp_path), Noted(ARMS[-1], iteration, interrupt)
    if iteration == last:
        assert exit_code(sweep(cells_of(), tiny, locations, cut)) == 0
    else:
        with pytest.raises(KeyboardInterrupt):
            sweep(cells_of(), tiny, locations, cut)
        stopped = records(tmp_path)
        assert stopped[ARMS[-1], 0].summary["iterations"] == iteration
        statuses = {record.summary["status"] for record in stopped.values()}
        assert statuses <= {"interrupted", "finished"}
    again = Noted()
    sweep(cells_of(), tiny, locations, again)
    resumed = records(tmp_path)
    assert {name for name, _ in resumed} == set(ARMS)
    for (name, _), record in resumed.items():
        assert_same(record, whole[name], tiny)
    done = {name for name, status in cut.ends if status == "done"}
    assert again.began_at.keys() == set(ARMS) - done, "finished cells are not opened again"


def test_a_finished_sweep_is_not_repeated(tiny, data_dir, trained):
    noted = Noted()
    assert exit_code(sweep(cells_of(), tiny, Locations(data_dir, trained[0]), noted)) == 0
    assert noted.began_at == {}


def test_a_diverged_cell_does_not_stop_others(tiny, data_dir, tmp_path):
    small = {"loss": "mse", "epochs": 1, "encoder": "mf"}
    cells = [*cells_of(["ns"], learning_rate=1e30, **small), *cells_of(["ns"], **small)]
    locations, noted = Locations(data_dir, tmp_path), Noted()
    first, second = done = sweep(cells, tiny, locations)
    assert exit_code(done) == DivergedError.exit_code == 5
    assert (first.status, second.status) == ("diverged", "done")
    assert "not finite" in first.message
    left = [Cell(config) for config in cells]
    read_cells(left, {"tiny": tiny}, locations)
    assert [cell.status for cell in left] == ["diverged", "done"]
    again = sweep(cells, tiny, locations, noted)
    assert (exit_code(again), noted.began_at) == (5, {}), "it would diverge again"


def test_a_diverged_seed_removes_its_arms_figures(tmp_path):
    for seed, status in enumerate(("diverged", "finished")):
        write_run(tmp_path, "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3], seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 20, [0.1, 0.3, 0.4], seed=seed)
        write_run(tmp_path, "strat-ns", [9, 4, 2], 10, [0.1, 0.3, 0.4], seed=seed, status=status)
    (group,) = frames.group(runs.read_all(tmp_path)[0])
    speedups = {row["sampler"]: row for row in speedup_rows(group)}
    statuses = {sampler: row["status"] for sampler, row in speedups.items()}
    assert statuses == {"iid": "baseline", "ns": "reached", "strat-ns": "diverged"}
    lost = speedups["strat-ns"]
    assert lost["per_iteration_speedup"] == pytest.approx(20)
    assert lost.get("total_speedup") is lost.get("iterations_speedup") is None
    recalls = {row["sampler"]: row for row in recall_rows(group)}
    assert recalls["strat-ns"].get("test_recall_at_50") is None
    assert recalls["strat-ns"]["reason"] == "1 of 2 seeds diverged"
    assert recalls["ns"]["test_recall_at_50"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\npages of it"), 1),
        pytest.param(MemoryError("out of memory"), 1, marks=LONG),
        pytest.param(DataError("Cannot write x: No space left on device."), 3, marks=LONG),
    ],
)
def test_a_failed_cell_does_not_stop_others(
    tiny, data_dir, tmp_path, whole, monkeypatch, error, code
):
    """Repeated, the sweep trains it to its end."""
    locations, noted = Locations(data_dir, tmp_path), Noted()
    train_to_probe = Run.train_to_probe

    def failing(run):
        if run.plan.config.sampler == "ns" and run.epochs == 1:
            raise error
        train_to_probe(run)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "train_to_probe", failing)
        done = sweep(cells_of(["ns", "neg"]), tiny, locations, noted)
    assert exit_code(done) == code
    assert str(error).splitlines()[0] in done[0].message
    assert noted.ends == [("ns", "failed"), ("neg", "done")]
    assert exit_code(sweep(cells_of(["ns", "neg"]), tiny, locations)) == 0
    assert len(records(tmp_path)) == 2
    for (name, _), record in records(tmp_path).items():
        assert_same(record, whole[name], tiny)


def test_a_damaged_record_fails_its_cell_and_is_named(tiny, data_dir, tmp_path, whole):
    """As does a batch that is larger than the data, which leaves nothing. Nothing of the run is
    deleted; without its folder it is trained again.
    """
    for sampler in ("ns", "strat-ns"):
        shutil.copytree(whole[sampler].folder, tmp_path / whole[sampler].folder.name)
    broken = records(tmp_path)["ns", 0].folder
    kept = sorted(broken.rglob("*.npz"))
    (broken / "curve.parquet").unlink()
    cells, locations = cells_of(["ns", "strat-ns"]), Locations(data_dir, tmp_path)
    done = sweep(cells, tiny, locations)
    assert [cell.status for cell in done] == ["failed", "done"]
    assert exit_code(done) == DataError.exit_code
    assert f"Cannot read {broken / 'curve.parquet'}: No such file" in done[0].message
    assert sorted(broken.rglob("*.npz")) == kept
    (large,) = sweep(cells_of(["ns"], batch_size=4096), tiny, locations)
    assert (exit_code([large]), "larger than" in large.message) == (2, True)
    assert len([*tmp_path.glob("*/config.json")]) == 2
    shutil.rmtree(broken)
    done = sweep(cells, tiny, locations)
    assert [cell.status for cell in done] == ["done", "done"]
    assert figures(runs.read(broken)) == figures(whole["ns"])


def test_folders_of_other_processes_are_left(tiny, data_dir, tmp_path):
    """A sweep is refused where another one is at work; a cell fails that another one trains."""
    locations = Locations(data_dir, tmp_path)
    (config,) = cells_of(["ns"], encoder="mf", epochs=1)
    with (
        locks.held(tmp_path, "testing"),
        pytest.raises(UsageError, match="Another process is running a sweep in"),
    ):
        sweep([config], tiny, locations)
    folder = make_run(tmp_path, config, tiny.fingerprint)
    with locks.held(folder, "writing"):
        (cell,) = sweep([config], tiny, locations)
    assert "Another process is writing" in cell.message
    assert exit_code(sweep([config], tiny, locations)) == 0
    assert next(iter(records(tmp_path).values())).folder == folder


SCRIPT = f"""{KILLED}
from pathlib import Path
from ncfbench.sweeps.grid import Cell
from ncfbench.sweeps.sweep import SweepRun, train_cells
from ncfbench.training import train
from ncfbench.config import Locations, complete
from ncfbench.data.store import load
from ncfbench.sweeps.progress import SweepProgress
train.CHECKPOINT_SECONDS = 0.0
data_dir, runs_dir = map(Path, sys.argv[1:3])
settings = {SMALL | {"epochs": 12}!r}
cells = [Cell(complete(settings | {{"sampler": sampler}})) for sampler in {ARMS!r}]
datasets, locations = {{"tiny": load(data_dir, "tiny")}}, Locations(data_dir, runs_dir)
train_cells(cells, datasets, locations, SweepProgress())
sys.exit(SweepRun(None, locations, datasets, cells, cells, {{}}).exit_code)
"""


@LONG
def test_a_killed_sweep_ends_the_same(tiny, data_dir, tmp_path):
    """SIGKILL before files of these numbers take their names; then what is left is trained, and
    equals what was never killed.
    """

    def train(folder, file=0):
        words = [sys.executable, "-c", SCRIPT, str(data_dir), str(folder), str(file)]
        return subprocess.run(words, env=os.environ | compiled_once(), check=False).returncode

    assert train(tmp_path / "whole") == 0
    expected, folder, files = records(tmp_path / "whole"), tmp_path / "cut", [7, 40, 150, 33, 101]
    assert [train(folder, file) for file in files] == [-signal.SIGKILL] * len(files)
    assert train(folder) == 0
    assert records(folder).keys() == expected.keys()
    for key, record in records(folder).items():
        assert_same(record, expected[key], tiny)
    assert not list(folder.glob("*/checkpoints/.*"))
