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
from support.records import make_run
from support.training import figures

from ncfbench.config import Locations
from ncfbench.errors import DataError, DivergedError
from ncfbench.reporting import frames
from ncfbench.reporting.rows import speedup_rows
from ncfbench.runs import folder as runs
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import locks
from ncfbench.sweeps.sweep import SweepRun
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
    again = sweep(cells, tiny, locations, noted)
    assert [cell.status for cell in again] == ["diverged", "done"]
    assert (exit_code(again), noted.began_at) == (5, {}), "it would diverge again"


OUT_OF_MEMORY = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\npages of it")
FULL = DataError("Cannot write x: No space left on device.")


@pytest.mark.parametrize(("error", "code"), [(OUT_OF_MEMORY, 1), pytest.param(FULL, 3, marks=LONG)])
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
    """Nothing of the run is deleted; without its folder it is trained again."""
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
    shutil.rmtree(broken)
    done = sweep(cells, tiny, locations)
    assert [cell.status for cell in done] == ["done", "done"]
    assert figures(runs.read(broken)) == figures(whole["ns"])


def test_a_cell_that_another_process_trains_fails(tiny, data_dir, tmp_path):
    (config,) = cells_of(["ns"])
    with locks.held(make_run(tmp_path, config, tiny.fingerprint), "writing"):
        (cell,) = sweep([config], tiny, Locations(data_dir, tmp_path))
    assert cell.status == "failed"
    assert "Another process is writing" in cell.message


SCRIPT = f"""{KILLED}
from ncfbench.sweeps.sweep import sweep
from ncfbench.training import train
train.CHECKPOINT_SECONDS = 0.0
settings = {SMALL | {"loss": "sg", "epochs": 12, "sampler": [*ARMS]}!r}
sys.exit(sweep("smoke", data_dir=sys.argv[1], runs_dir=sys.argv[2], **settings).exit_code)
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
