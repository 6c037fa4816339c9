"""Sweeps: which cells a grid has, who trains when, and that nothing stops or changes what is recorded."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from folders import write_run
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import compiled_once
from rich.console import Console
from typer.testing import CliRunner, Result

from ncfbench import forecast, runs, sweeping, sweeps, tables, training
from ncfbench.checkpoint import Checkpoints
from ncfbench.cli import app
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.datasets.store import Dataset
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.ledger import Ledger
from ncfbench.overview import LiveOverview, Overview, PlainOverview
from ncfbench.progress import Progress
from ncfbench.report import comparison
from ncfbench.runs import RunRecord
from ncfbench.step import Trainer
from ncfbench.survey import State, survey

SMALL: dict[str, Any] = {"dataset": "tiny", "batch_size": 64, "epochs": 3, "dimension": 8, "word_dimension": 8, "filters": 8}
ARMS = ("neg", "ns", "strat-ns")


def cells_of(samplers: Sequence[str] = ARMS, **more: Any) -> tuple[RunConfig, ...]:
    return tuple(complete(SMALL | {"sampler": sampler} | more) for sampler in samplers)


def sweep(cells: Sequence[RunConfig], tiny: Dataset, places: Locations, overview: Overview | None = None) -> sweeping.Outcome:
    return sweeping.run(cells, {"tiny": tiny}, places, overview)


def figures(record: RunRecord) -> list[dict[str, Any]]:
    """The curve without its times."""
    return [{key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve]


def records(runs_dir: Path) -> dict[tuple[str, int], RunRecord]:
    """All runs of a folder, by sampler and seed; there is one of each."""
    found, problems = runs.read_all(runs_dir)
    assert problems == []
    result = {(record.config.sampler, record.config.seed): record for record in found}
    assert len(result) == len(found)
    return result


def parameters(record: RunRecord, dataset: Dataset) -> list[Any]:
    """Everything that the last checkpoint holds."""
    _, like = Trainer.create(record.config, dataset)
    found = Checkpoints(record.folder / "checkpoints").restore(like)
    assert found is not None
    assert int(found[0].iteration) == record.summary["planned_iterations"]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found[0])]


def assert_same(one: dict[Any, RunRecord], other: dict[Any, RunRecord], dataset: Dataset) -> None:
    """Equal curves and parameters, bit for bit; and every iteration timed once."""
    assert one.keys() == other.keys()
    for key in one:
        assert one[key].summary["status"] == other[key].summary["status"] == "finished"
        assert figures(one[key]) == figures(other[key])
        for a, b in zip(parameters(one[key], dataset), parameters(other[key], dataset), strict=True):
            np.testing.assert_array_equal(a, b)
        timed = sum(row["iterations"] for row in one[key].timing if row["kind"] == "full")
        assert timed == one[key].summary["planned_iterations"]


@pytest.fixture(scope="module")
def whole(tiny: Dataset, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of ``cells_of()``, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert sweep(cells_of(), tiny, Locations(data_dir, folder)).exit_code == 0
    return folder


# Grids


@given(
    samplers=st.lists(st.sampled_from(["iid", "neg", "strat", "ns", "strat-ns"]), min_size=1, max_size=5, unique=True),
    losses=st.lists(st.sampled_from(["sg", "mse", "log", "hinge"]), min_size=1, max_size=4, unique=True),
    strata=st.lists(st.sampled_from([1, 3, 4]), min_size=1, max_size=3, unique=True),
    negatives=st.lists(st.sampled_from([0, 1, 10]), min_size=1, max_size=3, unique=True),
    seeds=st.lists(st.sampled_from([0, 1, 7]), min_size=1, max_size=3, unique=True),
)
@settings(deadline=None, max_examples=60)
def test_a_grid_has_every_possible_combination_once(
    samplers: list[str], losses: list[str], strata: list[int], negatives: list[int], seeds: list[int]
) -> None:
    expected, refused = set(), 0
    for seed, sampler, loss, s, k in itertools.product(seeds, samplers, losses, strata, negatives):
        stratified, listed = sampler in ("strat", "strat-ns"), sampler in ("iid", "neg", "strat")
        wrong_family = sampler in ("iid", "strat") and loss in ("log", "hinge")
        if wrong_family or k == 0 or (stratified and 512 % s):
            refused += 1
        else:
            expected.add((sampler, loss, s if stratified else None, k if listed else None, seed))
    axes = {"loss": losses, "stratum_size": strata, "sampler": samplers, "seed": seeds, "negatives": negatives}
    if not expected:
        with pytest.raises(UsageError, match="No combination of the sweep can work"):
            sweeps.expand(axes)
        return
    grid = sweeps.expand(axes)
    found = [
        (each.sampler, each.loss, each.effective()["stratum_size"], each.effective()["negatives"], each.seed)
        for each in grid.cells
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert sum(each.combinations for each in grid.left_out) == refused
    order = [seeds.index(seed) for *_, seed in found]
    assert order == sorted(order), "the first seed comes first"
    assert len(set(sweeps.labels(grid.cells).values())) == len(grid.cells)


def test_groups_are_the_cells_of_one_comparison_and_one_seed() -> None:
    axes = {"sampler": ["neg", "ns", "strat-ns"], "loss": ["sg", "log"], "stratum_size": [2, 4], "seed": [0, 1]}
    cells = sweeps.expand(axes).cells
    found = sweeps.groups(cells)
    assert [config for group in found for config in group.cells] == sorted(
        cells, key=lambda each: (each.seed, each.loss != "sg")
    )
    assert [(group.seed, group.cells[0].loss, len(group.cells)) for group in found] == [
        (0, "sg", 4), (0, "log", 4), (1, "sg", 4), (1, "log", 4),
    ]  # fmt: skip


@pytest.mark.parametrize("name", sweeps.preset_names())
def test_presets_expand(name: str) -> None:
    wanted = sweeps.read(name)
    assert wanted.name == name
    assert wanted.title
    assert sweeps.expand(wanted.axes).cells


def test_presets_are_the_papers_grids() -> None:
    def axes(name: str, column: str) -> set[Any]:
        return {config.effective()[column] for config in sweeps.expand(sweeps.read(name).axes).cells}

    paper = {"iid", "neg", "strat", "ns", "strat-ns"}
    assert set(sweeps.preset_names()) == {
        "smoke", "paper-speedup", "paper-recall", "paper-strata", "paper-negatives", "paper-encoders",
    }  # fmt: skip
    for name in ("smoke", "paper-speedup", "paper-recall", "paper-encoders", "paper-negatives"):
        assert axes(name, "sampler") == paper
    assert axes("paper-strata", "stratum_size") == {1, 2, 4, 8, 16}
    assert axes("paper-negatives", "negatives") == {1, 2, 5, 10, 20, None}
    assert axes("paper-recall", "loss") == {"sg", "mse", "hinge", "log"}
    assert axes("paper-encoders", "encoder") == {"mf", "cnn", "lstm"}
    assert axes("smoke", "dataset") == {"synthetic"}
    assert len(sweeps.expand(sweeps.read("smoke").axes).cells) == 8


def test_a_file_with_overrides(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('title = "Mine"\nbatch-size = 64\nsampler = ["iid", "ns"]\nseed = 3\nnoise = [1.0, "unigram", 0.75]\n')
    wanted = sweeps.read(str(file), assignments=["epochs=2,4", "lambda=8"], flags={"dataset": "a,b", "epochs": 5}, seeds=2)
    assert wanted.axes == {
        "batch_size": (64,), "sampler": ("iid", "ns"), "seed": (3, 4), "noise": ("1.0", "unigram", "0.75"),
        "epochs": (5,), "lambda": (8.0,), "dataset": ("a", "b"),
    }  # fmt: skip
    assert (wanted.name, wanted.title) == ("mine", "Mine")
    grid = sweeps.expand(wanted.axes)
    assert len(grid.cells) == 2 * 2 * 2 * 2, "noise 1.0 and unigram are one"
    assert "noise=0.75" in " ".join(sweeps.labels(grid.cells).values())
    assert "lambda" not in " ".join(sweeps.labels(grid.cells).values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sampler = [", "is not valid TOML"),
        ('samplr = "ns"', "Unknown setting 'samplr'; did you mean 'sampler'?"),
        ('epochs = [3, "many"]', "epochs = 'many' is not a whole number"),
        ('sampler = ["ns", "strat_ns"]', "did you mean 'strat-ns'"),
        ("sampler = []", "sampler has no value"),
        ("[sampler]\na = 1", "sampler = "),
        ("seed = [[1, 2]]", "seed = [1, 2] is not a whole number"),
        ('runs_dir = "x"', "given by --data-dir and --runs-dir"),
        ("title = 3", "title = 3: it must be a text"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        sweeps.read(str(file))
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"source": "smok"}, "did you mean 'smoke'"),
        ({"source": "none.toml"}, "Cannot read the sweep none.toml: No such file"),
        ({"source": "smoke", "assignments": ["sampler"]}, "not of the form key=value"),
        ({"source": "smoke", "assignments": ["samplr=ns"]}, "--set: Unknown setting 'samplr'"),
        ({"source": "smoke", "assignments": ["data_dir=x"]}, "given by --data-dir"),
        ({"source": "smoke", "seeds": 0}, "--seeds 0"),
        ({"source": "smoke", "seeds": 2**32 + 1}, "would be above"),
        ({"source": "smoke", "flags": {"dataset": ","}}, "--dataset: dataset has no value"),
    ],
)
def test_bad_requests_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        sweeps.read(**words)
    assert message in str(caught.value)


def test_a_budget_drops_the_last_seeds_then_the_last_groups() -> None:
    cells = sweeps.expand({"sampler": ["ns", "strat-ns"], "loss": ["sg", "mse"], "seed": [4, 0, 9]}).cells
    seconds = dict.fromkeys(cells, 10.0)
    assert sweeps.within(cells, seconds, 120) == (cells, ())
    assert sweeps.within(cells, seconds, 119.9) == (cells[:8], ("seed 9",))
    assert sweeps.within(cells, seconds, 40)[1] == ("seed 0", "seed 9")
    kept, dropped = sweeps.within(cells, seconds, 39.9)
    assert [(config.sampler, config.seed) for config in kept] == [("ns", 4), ("strat-ns", 4)]
    assert len({config.loss for config in kept}) == 1, "a group stays whole"
    assert dropped == ("seed 0", "seed 9", f"citeulike cnn {({'sg', 'mse'} - {kept[0].loss}).pop()}")
    with pytest.raises(UsageError, match="that belong together are predicted to take 20 s"):
        sweeps.within(cells, seconds, 19)


@given(
    axes=st.fixed_dictionaries(
        {"sampler": st.just(["iid", "ns", "strat-ns"]), "loss": st.just(["sg", "hinge"]), "encoder": st.just(["cnn", "mf"])},
        optional={
            "batch_size": st.just([256, 512]), "learning_rate": st.just([0.01, 0.1]), "stratum_size": st.just([2, 4]),
            "negatives": st.just([1, 10]), "noise": st.just(["unigram", "uniform"]), "epochs": st.just([1, 30]),
            "mask": st.just([True, False]), "seed": st.just([0, 3]),
        },
    )
)  # fmt: skip
@settings(deadline=None, max_examples=30)
def test_no_two_cells_have_one_label(axes: dict[str, list[Any]]) -> None:
    grid = sweeps.expand(axes)
    assert len(set(sweeps.labels(grid.cells).values())) == len(grid.cells)


# Training in turn


class Noted(Overview):
    """Keeps what it is told, and does something at an iteration of a sampler."""

    def __init__(self, sampler: str = "", iteration: int = -1, action: Callable[[], None] = lambda: None) -> None:
        self.sampler, self.iteration, self.action = sampler, iteration, action
        self.epochs: list[tuple[str, float]] = []
        self.ends: list[tuple[str, str]] = []
        self.began_at: dict[str, int] = {}
        self.texts: list[str] = []

    def of(self, config: RunConfig) -> Progress:
        return Reporter(self, config)

    def over(self, config: RunConfig, status: str, message: str = "") -> None:
        self.ends.append((config.sampler, status))

    def say(self, text: str) -> None:
        self.texts.append(text)


class Reporter(Progress):
    def __init__(self, noted: Noted, config: RunConfig) -> None:
        self.noted, self.config = noted, config

    def begin(self, title: str, total: int, done: int) -> None:
        self.noted.began_at[self.config.sampler] = done

    def advance(self, iteration: int, item_slots: float) -> None:
        if (self.config.sampler, iteration) == (self.noted.sampler, self.noted.iteration):
            self.noted.action()

    def record(self, row: Any) -> None:
        if row["iteration"] and row["epoch"] == int(row["epoch"]):
            self.noted.epochs.append((self.config.sampler, row["epoch"]))


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_cells_of_a_group_take_turns_epoch_by_epoch(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    noted = Noted()
    sweep([*cells_of(), *cells_of(["ns"], seed=1)], tiny, Locations(data_dir, tmp_path), noted)
    assert noted.epochs == [
        *((sampler, epoch) for epoch in (1, 2, 3) for sampler in ARMS), ("ns", 1), ("ns", 2), ("ns", 3),
    ]  # fmt: skip
    assert noted.ends == [*((sampler, "done") for sampler in ARMS), ("ns", "done")]


def test_a_cell_is_what_its_run_by_itself_is(tiny: Dataset, data_dir: Path, tmp_path: Path, whole: Path) -> None:
    alone = {(each.sampler, 0): training.run(each, Locations(data_dir, tmp_path)) for each in cells_of()}
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
    return {row["sampler"]: row for row in comparison.speedup_rows(group, allow_mixed=False, places={})}


def test_only_runs_that_took_turns_throughout_are_marked(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    places = Locations(data_dir, tmp_path)
    arms = cells_of(["iid", "ns", "strat-ns"], loss="sg")
    for each in arms[:2]:
        training.run(each, places)
    sweep(arms, tiny, places)
    alone = rows_of(tmp_path)
    assert [alone[sampler]["interleaved"] for sampler in ("iid", "ns", "strat-ns", "neg")] == [False] * 4
    with pytest.raises(KeyboardInterrupt):
        sweep(
            cells_of(["iid", "ns", "strat-ns"], seed=1), tiny, Locations(data_dir, tmp_path / "b"), Noted("ns", 20, interrupt)
        )
    sweep(cells_of(["iid", "ns", "strat-ns"], seed=1), tiny, Locations(data_dir, tmp_path / "b"))
    together = rows_of(tmp_path / "b")
    assert [together[sampler]["interleaved"] for sampler in ("iid", "ns", "strat-ns", "neg")] == [True, True, True, False]
    with pytest.raises(KeyboardInterrupt):
        sweep(cells_of(["iid", "ns", "strat-ns"]), tiny, Locations(data_dir, tmp_path / "c"), Noted("ns", 20, interrupt))
    training.run(arms[1], Locations(data_dir, tmp_path / "c"), resume=True)
    sweep(cells_of(["iid", "ns", "strat-ns"]), tiny, Locations(data_dir, tmp_path / "c"))
    apart = rows_of(tmp_path / "c")
    assert [apart[sampler]["interleaved"] for sampler in ("iid", "ns", "strat-ns")] == [True, False, True]


def test_epochs_that_a_cell_catches_up_alone_count_for_no_time(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("sampler", "iteration"), [("neg", 1), ("ns", 20), ("strat-ns", 34), ("strat-ns", 51)])
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
        assert {record.summary["status"] for record in stopped.values()} <= {"interrupted", "finished"}
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


def test_a_diverged_cell_is_kept_and_the_others_go_on(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    cells = [*cells_of(["ns"], loss="mse", learning_rate=1e30), *cells_of(["ns"], loss="mse")]
    places = Locations(data_dir, tmp_path)
    outcome = sweep(cells, tiny, places)
    assert outcome.exit_code == DivergedError.exit_code == 5
    assert outcome.failed == {}
    assert "not finite" in outcome.diverged[cells[0]]
    found = survey(tmp_path, cells, {"tiny": tiny.fingerprint})
    assert [found.states[config].status for config in cells] == ["diverged", "done"]
    noted = Noted()
    again = sweep(cells, tiny, places, noted)
    assert (again.exit_code, noted.began_at) == (5, {}), "it would diverge again"
    (group,) = [each for each in comparison.group(runs.read_all(tmp_path)[0]) if each.config.learning_rate == 1e30]
    rows = {row["sampler"]: row for row in comparison.recall_rows(group, places={})}
    assert (rows["ns"]["status"], rows["ns"]["reason"]) == ("diverged", "1 of 1 seeds diverged")
    assert "test_recall_at_50" not in rows["ns"]


def test_one_diverged_seed_takes_an_arms_figures_away(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3], seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 20, [0.1, 0.3, 0.4], seed=seed)
        write_run(tmp_path, "strat-ns", [9, 4, 2], 10, [0.1, 0.3, 0.4], seed=seed, status="finished" if seed else "diverged")
    (group,) = comparison.group(runs.read_all(tmp_path)[0])
    found = {row["sampler"]: row for row in comparison.speedup_rows(group, allow_mixed=False, places={})}
    assert {name: found[name]["status"] for name in ("iid", "ns", "strat-ns")} == {
        "iid": "baseline", "ns": "reached", "strat-ns": "diverged",
    }  # fmt: skip
    assert found["strat-ns"]["per_iteration_speedup"] == pytest.approx(20)
    assert found["strat-ns"].get("total_speedup") is found["strat-ns"].get("iterations_speedup") is None
    recalls = {row["sampler"]: row for row in comparison.recall_rows(group, places={})}
    assert recalls["strat-ns"].get("test_recall_at_50") is None
    assert recalls["strat-ns"]["reason"] == "1 of 2 seeds diverged"
    assert recalls["ns"]["test_recall_at_50"] == pytest.approx(0.4)


def test_a_cell_whose_summary_is_gone_is_trained_again(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    places = Locations(data_dir, tmp_path)
    sweep(cells_of(["ns"]), tiny, places)
    broken = records(tmp_path)["ns", 0].folder
    (broken / "summary.parquet").unlink()
    noted = Noted()
    assert sweep(cells_of(["ns"]), tiny, places, noted).exit_code == 0
    assert (noted.began_at, f"Skipped {broken.name}" in " ".join(noted.texts)) == ({"ns": 0}, True)
    found = survey(tmp_path, cells_of(["ns"]), {"tiny": tiny.fingerprint})
    assert [state.status for state in found.states.values()] == ["done"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError("out of memory"), 1),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\npages of it"), 1),
        (DataError("Cannot write x: No space left on device."), 3),
    ],
)
def test_a_cell_that_fails_is_named_and_the_others_go_on(
    tiny: Dataset, data_dir: Path, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    places, noted = Locations(data_dir, tmp_path), Noted()
    train_block = training._Run._train_block

    def failing(run: Any) -> None:
        if run.config.sampler == "ns" and run.epoch == 1:
            raise error
        train_block(run)

    with monkeypatch.context() as patch:
        patch.setattr(training._Run, "_train_block", failing)
        outcome = sweep(cells_of(), tiny, places, noted)
    assert outcome.exit_code == code
    assert [config.sampler for config in outcome.failed] == ["ns"]
    assert str(error).splitlines()[0] in next(iter(outcome.failed.values()))
    assert noted.ends == [("ns", "failed"), ("neg", "done"), ("strat-ns", "done")]
    assert sweep(cells_of(), tiny, places).exit_code == 0
    assert_same(records(tmp_path), records(whole), tiny)


def test_a_batch_that_does_not_fit_the_data_leaves_no_folder(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    cells = [*cells_of(["ns"], batch_size=4096), *cells_of(["ns"], epochs=1)]
    outcome = sweep(cells, tiny, Locations(data_dir, tmp_path))
    assert outcome.exit_code == 2
    assert "larger than" in outcome.failed[cells[0]]
    assert len(records(tmp_path)) == 1


def test_damaged_folders_are_named_and_trained_again(tiny: Dataset, data_dir: Path, tmp_path: Path, whole: Path) -> None:
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
    found = survey(tmp_path, cells_of(["ns"]), {"tiny": tiny.fingerprint})
    (state,) = found.states.values()
    assert state.folder is not None
    assert state.folder != broken
    assert figures(runs.read(state.folder)) == figures(records(whole)["ns", 0])


def test_two_sweeps_on_one_folder_exclude_each_other(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    with tables.lock(tmp_path, "testing"), pytest.raises(UsageError, match="Another process is running a sweep in"):
        sweep(cells_of(), tiny, Locations(data_dir, tmp_path))


def test_a_run_that_another_process_trains_is_left_to_it(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    (config,) = cells_of(["ns"])
    folder = runs.create(tmp_path, config, tiny.fingerprint)
    with tables.lock(folder, "writing"):
        outcome = sweep([config], tiny, Locations(data_dir, tmp_path))
    assert "Another process is writing" in outcome.failed[config]
    assert sweep([config], tiny, Locations(data_dir, tmp_path)).exit_code == 0
    assert next(iter(records(tmp_path).values())).folder == folder


KILLED_EPOCHS = 12
SCRIPT = """
import sys
from pathlib import Path
from ncfbench import records, sweeping, training
from ncfbench.config import Locations, complete
from ncfbench.datasets.store import load
from ncfbench.overview import Overview
training.CHECKPOINT_SECONDS = records.TABLES_SECONDS = 0.0
class Announced(Overview):
    def begin(self, states):
        print("begun", flush=True)
data_dir, runs_dir = map(Path, sys.argv[1:3])
cells = [complete({settings!r} | {{"sampler": sampler}}) for sampler in {arms!r}]
sys.exit(sweeping.run(cells, {{"tiny": load(data_dir, "tiny")}}, Locations(data_dir, runs_dir), Announced()).exit_code)
"""


def tables_of(folder: Path) -> list[dict[str, Any]]:
    """What the tables say of a folder's runs, all but times and the folders' own names."""
    timed = ("seconds", "per_iteration", "total_speedup", "runs", "command", "interleaved")
    found = []
    for each in comparison.group(list(records(folder).values())):
        rows = comparison.speedup_rows(each, allow_mixed=False, places={}) + comparison.recall_rows(each, places={})
        found += [{key: value for key, value in row.items() if not any(word in key for word in timed)} for row in rows]
    return found


def killed_sweep(tiny: Dataset, data_dir: Path, tmp_path: Path, kills: int) -> None:
    """SIGKILL at random moments after the beginning; then what is left is trained, and equals what was never killed."""
    script = SCRIPT.format(settings=SMALL | {"epochs": KILLED_EPOCHS}, arms=ARMS)

    def begin(folder: Path) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", script, str(data_dir), str(folder)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | compiled_once())
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


def test_a_killed_sweep_ends_with_the_same_tables(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    killed_sweep(tiny, data_dir, tmp_path, 1)


@pytest.mark.long
def test_a_sweep_killed_20_times_ends_with_the_same_tables(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    killed_sweep(tiny, data_dir, tmp_path, 20)


# The command


WORDS = [
    "smoke", "--dataset", "tiny", "--epochs", "2", "--set", "sampler=ns,strat-ns,iid", "--set", "loss=hinge",
    "--set", "batch_size=64", "--set", "dimension=8", "--set", "filters=8", "--set", "word_dimension=8",
]  # fmt: skip


def invoke(data_dir: Path, runs_dir: Path, *words: str) -> Result:
    result = CliRunner().invoke(app, ["sweep", *WORDS, "--data-dir", str(data_dir), "--runs-dir", str(runs_dir), *words])
    assert "Traceback" not in result.output
    return result


def test_the_command_lists_trains_and_lists_again(data_dir: Path, tmp_path: Path) -> None:
    planned = invoke(data_dir, tmp_path, "--dry-run", "--json", "--seeds", "2")
    assert planned.exit_code == 0, planned.output
    plan = json.loads(planned.stdout)
    assert not list(tmp_path.iterdir()), "nothing was trained"
    assert [(cell["config"]["sampler"], cell["config"]["seed"], cell["status"]) for cell in plan["cells"]] == [
        ("ns", 0, "left"), ("strat-ns", 0, "left"), ("ns", 1, "left"), ("strat-ns", 1, "left"),
    ]  # fmt: skip
    assert all(cell["predicted_seconds"] > 0 and cell["predicted_from"] == "pilot" for cell in plan["cells"])
    assert plan["left_out"][0]["combinations"] == 2
    assert "iid cannot train --loss hinge" in plan["left_out"][0]["reason"]
    trained = invoke(data_dir, tmp_path)
    assert trained.exit_code == 0, trained.output
    for word in ("tiny cnn hinge ns seed 0", "done", "2 of 2", "ncfbench report"):
        assert word in trained.stdout
    for word in ("Left out (1): --sampler iid", "2 cells: 2 left.", "epoch 1 of 2, probe loss", "ns seed 0: done"):
        assert word in trained.stderr
    listed = invoke(data_dir, tmp_path, "--dry-run", "--quiet", "--seeds", "2")
    assert listed.stderr == ""
    lines = [line for line in listed.stdout.splitlines() if "tiny cnn" in line]
    assert [("done" in line, "pilot" in line) for line in lines] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]
    again = json.loads(invoke(data_dir, tmp_path, "--json", "--quiet").stdout)
    assert [cell["status"] for cell in again["cells"]] == ["done", "done"]
    assert all(cell["test_recall_at_50"] is not None and Path(cell["folder"]).is_dir() for cell in again["cells"])


def test_help_names_every_preset() -> None:
    result = CliRunner().invoke(app, ["sweep", "--help"], env={"COLUMNS": "200"}, color=False)
    assert result.exit_code == 0
    for name in (*sweeps.preset_names(), "--dry-run", "--budget", "Example:"):
        assert name in result.output


def test_a_budget_says_what_it_drops(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        forecast, "predict", lambda states, *_: dict.fromkeys(states, forecast.Prediction(600.0, "pilot", 2**20, 2**20))
    )
    result = invoke(data_dir, tmp_path, "--dry-run", "--seeds", "3", "--budget", "1h")
    assert (result.exit_code, "Dropped" in result.stderr) == (0, False)
    result = invoke(data_dir, tmp_path, "--dry-run", "--seeds", "3", "--budget", "0.5h10m")
    assert "Dropped to fit 0.5h10m: seed 2 (2 cells)." in result.stderr
    assert "Predicted for all: 40 min" in result.stdout
    result = invoke(data_dir, tmp_path, "--budget", "10m")
    assert (result.exit_code, "that belong together" in result.stderr) == (2, True)
    result = invoke(data_dir, tmp_path, "--dry-run", "--budget", "1 h 30 m")
    assert (result.exit_code, "Predicted for all: 20 min" in result.stdout) == (0, True)
    result = invoke(data_dir, tmp_path, "--budget", "soon")
    assert (result.exit_code, "not a time" in result.stderr) == (2, True)


def test_a_diverged_cell_gives_exit_code_5(data_dir: Path, tmp_path: Path) -> None:
    words = ("--set", "loss=mse", "--set", "sampler=ns", "--set", "learning_rate=1e30,0.001", "--json")
    result = invoke(data_dir, tmp_path, *words)
    assert result.exit_code == 5
    assert [cell["status"] for cell in json.loads(result.stdout)["cells"]] == ["diverged", "done"]
    assert "Diverged: tiny cnn mse ns learning_rate=1e+30 seed 0: The loss is not finite" in result.stderr


def test_a_data_set_that_is_not_prepared_is_refused_at_once(data_dir: Path, tmp_path: Path) -> None:
    result = invoke(data_dir, tmp_path, "--dataset", "tiny,nowhere")
    assert (result.exit_code, "ncfbench prepare nowhere" in result.stderr) == (3, True)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_from_the_command_line(data_dir: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "ncfbench", "sweep", *WORDS, "--epochs", "400", "--data-dir", str(data_dir), "--runs-dir", str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*/curve.parquet"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "To go on with this sweep: repeat the command." in err
    assert out == ""
    assert {record.summary["status"] for record in records(tmp_path).values()} == {"interrupted"}


def test_the_live_overview_shows_what_it_should() -> None:
    out = io.StringIO()
    screen = Console(
        file=out, force_terminal=True, width=150, markup=False, highlight=False, _environ={"TERM": "xterm-256color"}
    )
    for made in (LiveOverview(screen), PlainOverview(Console(file=out, width=400))):
        out.seek(0)
        out.truncate()
        states = dict.fromkeys(cells_of(), State()) | dict.fromkeys(cells_of(["iid"]), State("done"))
        made.begin(states)
        config = cells_of()[0]
        made.at_work(config)
        progress = made.of(config)
        progress.advance(17, 100.0)
        recalls = dict.fromkeys(("validation_recall_at_50", "test_recall_at_50"), 0.25)
        progress.record({"epoch": 1.0, "probe_loss": 0.5, "train_seconds": 2.0, "iteration": 17} | recalls)
        progress.say("something")
        if isinstance(made, LiveOverview):
            made._live.refresh()
        made.over(config, "failed", "no memory")
        made.end()
        text = out.getvalue()
        for word in (
            "4 cells: 1 done, 3 left.", "tiny cnn sg neg seed 0", "probe loss 0.5000, validation recall@50 0.2500, 2.0 s",
            "neg seed 0: something", "neg seed 0: failed: no memory",
        ):  # fmt: skip
            assert word in text
        if isinstance(made, LiveOverview):
            assert "1 done, 1 running, 2 left" in text
