"""Sweeps as they are trained: who trains when, and that nothing stops or changes what is
recorded.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pytest
from folders import write_run
from processes import compiled_once
from swept import ARMS, SMALL, Noted, assert_same, cells_of, figures, interrupt, records, sweep

from ncfbench.config import Locations
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.report import comparison
from ncfbench.runs import folder as runs
from ncfbench.storage import locks
from ncfbench.sweeps.grid import read_status
from ncfbench.timing.ledger import Ledger
from ncfbench.training import run as training
from ncfbench.training.session import OpenRun


@pytest.fixture(scope="module")
def whole(tiny: Dataset, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of ``cells_of()``, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert sweep(cells_of(), tiny, Locations(data_dir, folder)).exit_code == 0
    return folder


def test_cells_of_a_group_take_turns_epoch_by_epoch(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    noted = Noted()
    sweep([*cells_of(), *cells_of(["ns"], seed=1)], tiny, Locations(data_dir, tmp_path), noted)
    assert noted.epochs == [
        *((sampler, epoch) for epoch in (1, 2, 3) for sampler in ARMS),
        ("ns", 1),
        ("ns", 2),
        ("ns", 3),
    ]
    assert noted.ends == [*((sampler, "done") for sampler in ARMS), ("ns", "done")]


def test_a_cell_is_what_its_run_by_itself_is(
    tiny: Dataset, data_dir: Path, tmp_path: Path, whole: Path
) -> None:
    alone = {
        (each.sampler, 0): training.run(each, Locations(data_dir, tmp_path)) for each in cells_of()
    }
    assert_same(records(whole), alone, tiny)


def test_the_ledger_counts_a_runs_own_turns(whole: Path) -> None:
    for record in records(whole).values():
        main = {row["line"]: row["seconds"] for row in record.ledger if row["thread"] == "main"}
        assert sum(main.values()) == pytest.approx(record.summary["wall_seconds"])
        assert main["other"] < 0.5 * sum(main.values()), "the others' turns are not its own"
        assert all(seconds >= 0 for seconds in main.values())


def test_ledgers_in_turn_split_the_time() -> None:
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


def rows_of(runs_dir: Path) -> dict[str, dict[str, Any]]:
    (group,) = comparison.group(list(records(runs_dir).values()))
    return {
        row["sampler"]: row for row in comparison.speedup_rows(group, allow_mixed=False, places={})
    }


@pytest.mark.long
def test_only_runs_that_took_turns_throughout_are_marked(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    places = Locations(data_dir, tmp_path)
    arms = cells_of(["iid", "ns", "strat-ns"], loss="sg")
    for each in arms[:2]:
        training.run(each, places)
    sweep(arms, tiny, places)
    alone = rows_of(tmp_path)
    assert [alone[sampler]["interleaved"] for sampler in ("iid", "ns", "strat-ns", "neg")] == [
        False
    ] * 4
    with pytest.raises(KeyboardInterrupt):
        sweep(
            cells_of(["iid", "ns", "strat-ns"], seed=1),
            tiny,
            Locations(data_dir, tmp_path / "b"),
            Noted("ns", 20, interrupt),
        )
    sweep(cells_of(["iid", "ns", "strat-ns"], seed=1), tiny, Locations(data_dir, tmp_path / "b"))
    together = rows_of(tmp_path / "b")
    assert [together[sampler]["interleaved"] for sampler in ("iid", "ns", "strat-ns", "neg")] == [
        True,
        True,
        True,
        False,
    ]
    with pytest.raises(KeyboardInterrupt):
        sweep(
            cells_of(["iid", "ns", "strat-ns"]),
            tiny,
            Locations(data_dir, tmp_path / "c"),
            Noted("ns", 20, interrupt),
        )
    training.run(arms[1], Locations(data_dir, tmp_path / "c"), resume=True)
    sweep(cells_of(["iid", "ns", "strat-ns"]), tiny, Locations(data_dir, tmp_path / "c"))
    apart = rows_of(tmp_path / "c")
    assert [apart[sampler]["interleaved"] for sampler in ("iid", "ns", "strat-ns")] == [
        True,
        False,
        True,
    ]


def test_epochs_that_a_cell_catches_up_alone_count_for_no_time(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    places = Locations(data_dir, tmp_path)
    second_end = -(-2 * tiny.graph.n_links // 64)
    with pytest.raises(KeyboardInterrupt):
        sweep(cells_of(["ns"]), tiny, places, Noted("ns", second_end, interrupt))
    sweep(cells_of(["ns", "strat-ns"]), tiny, places)
    marked = {
        sampler: [row["resumed"] for row in record.timing if row["kind"] == "full"]
        for (sampler, _), record in records(tmp_path).items()
    }
    assert marked == {"ns": [False] * 12, "strat-ns": [True] * 8 + [False] * 4}


# Interruptions and failures


@pytest.mark.long_cases(r"strat-ns-34")
@pytest.mark.parametrize(
    ("sampler", "iteration"),
    [
        ("ns", 20),
        pytest.param("neg", 1, marks=pytest.mark.long),
        ("strat-ns", 34),
        pytest.param("strat-ns", 51, marks=pytest.mark.long),
    ],
)
def test_ctrl_c_saves_all_cells_and_the_same_call_goes_on(
    tiny: Dataset, data_dir: Path, tmp_path: Path, whole: Path, sampler: str, iteration: int
) -> None:
    last = records(whole)["ns", 0].summary["planned_iterations"]
    iteration = min(iteration, last)
    places = Locations(data_dir, tmp_path)
    cut = Noted(sampler, iteration, interrupt)
    if (sampler, iteration) == (ARMS[-1], last):
        assert sweep(cells_of(), tiny, places, cut).exit_code == 0, "there was nothing left to stop"
    else:
        with pytest.raises(KeyboardInterrupt):
            sweep(cells_of(), tiny, places, cut)
        stopped = records(tmp_path)
        assert stopped[sampler, 0].summary["iterations"] == iteration
        assert {record.summary["status"] for record in stopped.values()} <= {
            "interrupted",
            "finished",
        }
    again = Noted()
    sweep(cells_of(), tiny, places, again)
    assert_same(records(tmp_path), records(whole), tiny)
    done = {name for name, status in cut.ends if status == "done"}
    assert again.began_at.keys() == set(ARMS) - done, "what was finished is not opened again"


def test_a_finished_sweep_is_not_repeated(
    tiny: Dataset, data_dir: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "opened", lambda *_, **__: pytest.fail("trained again"))
    assert sweep(cells_of(), tiny, Locations(data_dir, whole)).exit_code == 0


def test_a_diverged_cell_is_kept_and_the_others_go_on(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    cells = [*cells_of(["ns"], loss="mse", learning_rate=1e30), *cells_of(["ns"], loss="mse")]
    places = Locations(data_dir, tmp_path)
    outcome = sweep(cells, tiny, places)
    assert outcome.exit_code == DivergedError.exit_code == 5
    assert outcome.failed == {}
    assert "not finite" in outcome.diverged[cells[0]]
    found = read_status(tmp_path, cells, {"tiny": tiny.fingerprint})
    assert [found.states[config].status for config in cells] == ["diverged", "done"]
    noted = Noted()
    again = sweep(cells, tiny, places, noted)
    assert (again.exit_code, noted.began_at) == (5, {}), "it would diverge again"
    (group,) = [
        each
        for each in comparison.group(runs.read_all(tmp_path)[0])
        if each.config.learning_rate == 1e30
    ]
    rows = {row["sampler"]: row for row in comparison.recall_rows(group, places={})}
    assert (rows["ns"]["status"], rows["ns"]["reason"]) == ("diverged", "1 of 1 seeds diverged")
    assert "test_recall_at_50" not in rows["ns"]


def test_one_diverged_seed_takes_an_arms_figures_away(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3], seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 20, [0.1, 0.3, 0.4], seed=seed)
        write_run(
            tmp_path,
            "strat-ns",
            [9, 4, 2],
            10,
            [0.1, 0.3, 0.4],
            seed=seed,
            status="finished" if seed else "diverged",
        )
    (group,) = comparison.group(runs.read_all(tmp_path)[0])
    found = {
        row["sampler"]: row for row in comparison.speedup_rows(group, allow_mixed=False, places={})
    }
    assert {name: found[name]["status"] for name in ("iid", "ns", "strat-ns")} == {
        "iid": "baseline",
        "ns": "reached",
        "strat-ns": "diverged",
    }
    assert found["strat-ns"]["per_iteration_speedup"] == pytest.approx(20)
    assert (
        found["strat-ns"].get("total_speedup")
        is found["strat-ns"].get("iterations_speedup")
        is None
    )
    recalls = {row["sampler"]: row for row in comparison.recall_rows(group, places={})}
    assert recalls["strat-ns"].get("test_recall_at_50") is None
    assert recalls["strat-ns"]["reason"] == "1 of 2 seeds diverged"
    assert recalls["ns"]["test_recall_at_50"] == pytest.approx(0.4)


@pytest.mark.long
def test_a_cell_whose_summary_is_gone_is_trained_again(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    places = Locations(data_dir, tmp_path)
    sweep(cells_of(["ns"]), tiny, places)
    broken = records(tmp_path)["ns", 0].folder
    (broken / "summary.parquet").unlink()
    noted = Noted()
    assert sweep(cells_of(["ns"]), tiny, places, noted).exit_code == 0
    assert (noted.began_at, f"Skipped {broken.name}" in " ".join(noted.texts)) == ({"ns": 0}, True)
    found = read_status(tmp_path, cells_of(["ns"]), {"tiny": tiny.fingerprint})
    assert [state.status for state in found.states.values()] == ["done"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(MemoryError("out of memory"), 1, marks=pytest.mark.long),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\npages of it"), 1),
        pytest.param(
            DataError("Cannot write x: No space left on device."), 3, marks=pytest.mark.long
        ),
    ],
)
def test_a_cell_that_fails_is_named_and_the_others_go_on(
    tiny: Dataset,
    data_dir: Path,
    tmp_path: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
) -> None:
    places, noted = Locations(data_dir, tmp_path), Noted()
    train_block = OpenRun._train_block

    def failing(run: Any) -> None:
        if run.config.sampler == "ns" and run.epoch == 1:
            raise error
        train_block(run)

    with monkeypatch.context() as patch:
        patch.setattr(OpenRun, "_train_block", failing)
        outcome = sweep(cells_of(), tiny, places, noted)
    assert outcome.exit_code == code
    assert [config.sampler for config in outcome.failed] == ["ns"]
    assert str(error).splitlines()[0] in next(iter(outcome.failed.values()))
    assert noted.ends == [("ns", "failed"), ("neg", "done"), ("strat-ns", "done")]
    assert sweep(cells_of(), tiny, places).exit_code == 0
    assert_same(records(tmp_path), records(whole), tiny)


def test_a_batch_that_does_not_fit_the_data_leaves_no_folder(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    cells = [*cells_of(["ns"], batch_size=4096), *cells_of(["ns"], epochs=1)]
    outcome = sweep(cells, tiny, Locations(data_dir, tmp_path))
    assert outcome.exit_code == 2
    assert "larger than" in outcome.failed[cells[0]]
    assert len(records(tmp_path)) == 1


def test_damaged_folders_are_named_and_trained_again(
    tiny: Dataset, data_dir: Path, tmp_path: Path, whole: Path
) -> None:
    places = Locations(data_dir, tmp_path)
    sweep(cells_of(["ns", "strat-ns"]), tiny, places)
    broken = records(tmp_path)["ns", 0].folder
    (broken / "curve.parquet").write_bytes(b"damaged")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{")
    noted = Noted()
    assert sweep(cells_of(["ns", "strat-ns"]), tiny, places, noted).exit_code == 0
    assert noted.began_at == {"ns": 0}
    said = " ".join(noted.texts)
    assert f"Skipped {broken.name}" in said
    assert "curve.parquet" in said
    assert "Skipped other" in said
    found = read_status(tmp_path, cells_of(["ns"]), {"tiny": tiny.fingerprint})
    (state,) = found.states.values()
    assert state.folder is not None
    assert state.folder != broken
    assert figures(runs.read(state.folder)) == figures(records(whole)["ns", 0])


def test_two_sweeps_on_one_folder_exclude_each_other(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    with (
        locks.held(tmp_path, "testing"),
        pytest.raises(UsageError, match="Another process is running a sweep in"),
    ):
        sweep(cells_of(), tiny, Locations(data_dir, tmp_path))


def test_a_run_that_another_process_trains_is_left_to_it(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    (config,) = cells_of(["ns"])
    folder = runs.create(tmp_path, config, tiny.fingerprint)
    with locks.held(folder, "writing"):
        outcome = sweep([config], tiny, Locations(data_dir, tmp_path))
    assert "Another process is writing" in outcome.failed[config]
    assert sweep([config], tiny, Locations(data_dir, tmp_path)).exit_code == 0
    assert next(iter(records(tmp_path).values())).folder == folder


KILLED_EPOCHS = 12
SCRIPT = """
import sys
from pathlib import Path
from ncfbench.runs import recorder
from ncfbench.sweeps import runner
from ncfbench.training import session
from ncfbench.config import Locations, complete
from ncfbench.data.store import load
from ncfbench.sweeps.progress import SweepProgress
session.CHECKPOINT_SECONDS = recorder.TABLES_SECONDS = 0.0
class Announced(SweepProgress):
    def begin(self, states):
        print("begun", flush=True)
data_dir, runs_dir = map(Path, sys.argv[1:3])
cells = [complete({settings!r} | {{"sampler": sampler}}) for sampler in {arms!r}]
sys.exit(runner.run(cells, {{"tiny": load(data_dir, "tiny")}}, Locations(data_dir, runs_dir), Announced()).exit_code)
"""


def tables_of(folder: Path) -> list[dict[str, Any]]:
    """What the tables say of a folder's runs, all but times and the folders' own names."""
    timed = ("seconds", "per_iteration", "total_speedup", "runs", "command", "interleaved")
    found = []
    for each in comparison.group(list(records(folder).values())):
        rows = comparison.speedup_rows(each, allow_mixed=False, places={}) + comparison.recall_rows(
            each, places={}
        )
        found += [
            {key: value for key, value in row.items() if not any(word in key for word in timed)}
            for row in rows
        ]
    return found


def killed_sweep(tiny: Dataset, data_dir: Path, tmp_path: Path, kills: int) -> None:
    """SIGKILL at random moments after the beginning; then what is left is trained, and equals what
    was never killed.
    """
    script = SCRIPT.format(settings=SMALL | {"epochs": KILLED_EPOCHS}, arms=ARMS)

    def begin(folder: Path) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", script, str(data_dir), str(folder)]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=os.environ | compiled_once()
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        return process

    def end(process: subprocess.Popen[str]) -> int:
        process.communicate()
        return process.returncode

    never_killed = begin(tmp_path / "whole")
    started = time.monotonic()
    assert end(never_killed) == 0
    longest = time.monotonic() - started
    expected = records(tmp_path / "whole")
    moments = random.Random(kills)
    rounds = 0
    while kills:
        folder = tmp_path / f"cut{rounds}"
        rounds += 1
        while kills:
            process = begin(folder)
            time.sleep(moments.uniform(0.0, 0.8 * longest))
            process.kill()
            if end(process) == 0:
                break  # it was over before it was killed: the next round begins anew
            assert process.returncode == -signal.SIGKILL
            kills -= 1
        assert end(begin(folder)) == 0
        assert_same(records(folder), expected, tiny)
        assert tables_of(folder) == tables_of(tmp_path / "whole")
        assert not list(folder.glob("*/checkpoints/.*"))


@pytest.mark.long
def test_a_killed_sweep_ends_with_the_same_tables(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    killed_sweep(tiny, data_dir, tmp_path, 1)


@pytest.mark.long
def test_a_sweep_killed_20_times_ends_with_the_same_tables(
    tiny: Dataset, data_dir: Path, tmp_path: Path
) -> None:
    killed_sweep(tiny, data_dir, tmp_path, 20)
