"""Interrupted and killed runs: resumed, they end with the curve of a run that was left alone."""

import gc
import itertools
import os
import signal
import subprocess
import sys
from functools import partial

import jax
import numpy as np
import pytest
from support.processes import KILLED, compiled_once
from support.training import SMALL, Said, ends_of, figures, interrupt, train

from ncfbench.runs import folder as runs
from ncfbench.training import checkpoint, loop
from ncfbench.training import train as loops
from ncfbench.training.checkpoint import Checkpoints
from ncfbench.training.trained import open_data, restore_trained

ROWS = {"sampler": "neg", "loss": "hinge", "negatives": 2, "epochs": 1}
ROWS |= {"optimizer": "row-adam", "weight_decay": 0.1}
RIVALS = {"sampler": "ns", "loss": "softmax-logq", "batch_size": 24}
RIVALS |= {"item_block": 8, "epochs": 1, "coupling": "regularised"}


@pytest.mark.long
@pytest.mark.usefixtures("by_row")
@pytest.mark.parametrize(
    ("more", "stops", "tables"),
    [
        ({"sampler": "iid"}, (17,), 0),
        ({"sampler": "strat-ns"}, (20, 36, 47), 0),
        (ROWS, (6, 12), 2),
        (RIVALS, (5,), 0),
    ],
)
def test_an_interrupted_run_ends_with_the_same_curve(data_dir, tmp_path, more, stops, tables):
    """Inside a block, at a probe, at an epoch's end; rows at rest; free item vectors."""
    whole = train(data_dir, tmp_path / "whole", **more)
    assert len(whole.environment["updated_by_row"]) == tables
    assert whole.curve[-1]["probe_loss"] < whole.curve[0]["probe_loss"]
    runs_dir = tmp_path / "runs [old] *{x}"
    for began_at, stop in itertools.pairwise((0, *stops)):
        said = Said(stop)
        summary = runs.read(interrupt(data_dir, runs_dir, stop, progress=said, **more)).summary
        assert said.began_at == began_at
        assert (summary["status"], summary["iterations"]) == ("interrupted", stop)
    resumed = train(data_dir, runs_dir, **more)
    assert len(list(runs_dir.iterdir())) == 1
    assert figures(resumed) == figures(whole)
    full = [row for row in resumed.timing if row["kind"] == "full"]
    assert sum(row["iterations"] for row in full) == whole.summary["iterations"]
    assert {row["session"] for row in resumed.ledger} == set(range(1, len(stops) + 2))
    wall = sum(row["seconds"] for row in resumed.ledger if row["thread"] == "main")
    assert wall == pytest.approx(resumed.summary["wall_seconds"])


@pytest.mark.usefixtures("by_row")
def test_parameters_of_a_run_that_was_cut_are_up_to_date(data_dir, tmp_path):
    """Inside a block, rows updated one by one wait for momentum and decay, but not whole tables."""
    both = []
    for name in ("adam", "row-adam"):
        more = {"optimizer": name, "weight_decay": 0.1, "batch_size": 16, "sampler": "ns"}
        record = runs.read(interrupt(data_dir, tmp_path / name, 7, **more))
        assert record.curve[-1]["iteration"] < record.summary["iterations"] == 7
        _, best = restore_trained(record, open_data(record, data_dir, print), print)
        both.append(best.parameters)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-5), *both)


@pytest.mark.parametrize("file", [40, pytest.param(21, marks=pytest.mark.long)])
def test_a_killed_run_ends_with_the_same_curve(data_dir, tmp_path, file):
    """SIGKILL before a file takes its name; then it is left to finish."""
    more, cut = {"encoder": "mf", "epochs": 8}, tmp_path / "cut"
    script = (
        f"{KILLED}from ncfbench.training import run, train; train.CHECKPOINT_SECONDS = 0.0;"
        f"run.train(data_dir=sys.argv[1], runs_dir=sys.argv[2], **{SMALL | more!r})"
    )
    words = [sys.executable, "-c", script, str(data_dir), str(cut), str(file)]
    done = subprocess.run(words, env=os.environ | compiled_once(), check=False)
    assert done.returncode == -signal.SIGKILL
    last = max(int(path.stem) for path in cut.glob("*/checkpoints/*.npz"))
    assert list(cut.glob("**/.*.tmp"))
    said = Said()
    record = train(data_dir, cut, progress=said, **more)
    assert said.began_at == last
    whole = train(data_dir, tmp_path / "whole", **more)
    assert figures(record) == figures(whole)
    timed = sum(row["iterations"] for row in record.timing if row["kind"] == "full")
    assert timed == whole.summary["planned_iterations"]
    assert not list(record.folder.glob("checkpoints/.*"))


def test_a_long_block_has_checkpoints_too(data_dir, tmp_path, tiny, monkeypatch):
    """They change no number; a run that is killed behind one continues from there."""
    more = {"probe_every": 1000, "optimizer": "row-adam", "weight_decay": 0.1}
    expected = train(data_dir, tmp_path / "whole", **more)
    monkeypatch.setattr(loops, "LONG_BLOCK_SECONDS", 0.0)
    saves = Checkpoints.save

    def save(self, state, *rest):
        saves(self, state, *rest)
        if int(state.iteration) == 20:
            raise KeyboardInterrupt  # nothing more is written, as by a kill

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Checkpoints, "save", save)
        train(data_dir, tmp_path / "cut", **more)
    said = Said()
    resumed = train(data_dir, tmp_path / "cut", progress=said, **more)
    assert said.began_at == 20
    assert ends_of(tiny)[0] < 20 < ends_of(tiny)[1]
    assert figures(resumed) == figures(expected)
    saved = train(data_dir, tmp_path / "saved", **more)
    assert figures(saved) == figures(expected)
    assert not any(row["resumed"] for row in saved.timing)


def test_a_resumed_run_holds_one_state(data_dir, tmp_path, monkeypatch):
    """While the checkpoint is read, device memory has no initial state beside the one restored."""
    more = {"encoder": "mf", "dimension": 512}
    interrupt(data_dir, tmp_path, 30, **more)
    read, live = checkpoint._array, []

    def held():
        return sum(array.nbytes for array in jax.live_arrays())

    def watched(*args):
        live.append(held())
        return read(*args)

    gc.collect()
    before = held()
    monkeypatch.setattr(checkpoint, "_array", watched)
    record = train(data_dir, tmp_path, **more)
    saved = Checkpoints(record.folder / "checkpoints").path(record.summary["iterations"])
    assert max(live) - before < 1.1 * saved.stat().st_size


def test_a_state_that_has_no_room_twice_is_trained(data_dir, tmp_path, whole, monkeypatch):
    """Nothing copies it, the step account is left out with a word, and no number changes."""
    monkeypatch.setattr(loop, "free_bytes", lambda: 0)
    monkeypatch.setattr(loop, "copy_state", None)
    said = Said()
    record = train(data_dir, tmp_path, progress=said)
    assert figures(record) == figures(whole)
    assert record.summary["step_iteration_seconds"] is None
    assert record.summary["full_iteration_seconds"] > 0
    assert sum(text.startswith("Steps are not timed") for text in said.texts) == 1


def test_a_damaged_checkpoint_costs_no_number(data_dir, tmp_path, tiny, whole, monkeypatch):
    """Nor does another interruption before the damaged one."""
    monkeypatch.setattr(loops, "CHECKPOINT_SECONDS", 0.0)
    folder = interrupt(data_dir, tmp_path, 42)
    probe = ends_of(tiny)[1] + 4  # checkpoints are written at probes within an epoch too
    checkpoints = folder / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {f"{probe}.npz", "42.npz"}
    (checkpoints / "42.npz").write_bytes(b"damaged")
    said = Said(41)
    interrupt(data_dir, tmp_path, 41, progress=said)
    assert any("Checkpoint 42 is damaged, and is skipped" in text for text in said.texts)
    assert said.began_at == probe
    assert runs.read(folder).summary["iterations"] == 41
    assert {path.name for path in checkpoints.iterdir()} == {f"{probe}.npz", "41.npz"}
    assert figures(train(data_dir, tmp_path)) == figures(whole)
