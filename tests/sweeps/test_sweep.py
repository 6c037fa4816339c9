"""Grids and their files, the command and its progress: which cells a sweep has and how they end."""

import io
import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support import cli as invoked
from support.cli import check
from support.races import Noted, cells_of, interrupt, records

from ncfbench.config import identity_of
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import locks
from ncfbench.sweeps import grid as sweeps
from ncfbench.sweeps import progress
from ncfbench.sweeps.grid import Cell, read_sweep
from ncfbench.sweeps.presets import preset_titles
from ncfbench.sweeps.progress import SweepProgress

VARIED = {
    "learning_rate": [0.01, 0.1],
    "noise": ["unigram", "uniform"],
    "epochs": [1, 30],
    "mask": [True, False],
    "encoder": ["cnn", "mf"],
    "batch_size": [512, 1024],
}


def some(*values):
    return st.lists(st.sampled_from(values), min_size=1, max_size=len(values), unique=True)


@given(
    samplers=some("iid", "neg", "strat", "ns", "strat-ns"),
    losses=some("sg", "mse", "log", "hinge"),
    strata=some(1, 3, 4),
    negatives=some(0, 1, 10),
    seeds=some(0, 1, 7),
    varied=st.sets(st.sampled_from(sorted(VARIED)), max_size=3),
)
@settings(max_examples=20)
def test_a_grid_has_each_possible_combination_once(
    samplers, losses, strata, negatives, seeds, varied
):
    """No two cells have one label, whatever else varies."""
    expected, refused = set(), 0
    for seed, sampler, loss, s, k in itertools.product(seeds, samplers, losses, strata, negatives):
        stratified, listed = sampler in ("strat", "strat-ns"), sampler in ("iid", "neg", "strat")
        wrong_family = sampler in ("iid", "strat") and loss in ("log", "hinge")
        if wrong_family or k == 0 or (stratified and 512 % s):
            refused += 1
        else:
            expected.add((sampler, loss, s if stratified else None, k if listed else None, seed))
    axes = {"loss": losses, "stratum_size": strata, "sampler": samplers}
    axes |= {"seed": seeds, "negatives": negatives}
    if not expected:
        with pytest.raises(UsageError, match="No combination of the sweep can work"):
            sweeps.expand(axes)
        return
    cells, left_out = sweeps.expand(axes)
    combinations = []
    for config in (cell.config for cell in cells):
        sizes = [identity_of(config)[name] for name in ("stratum_size", "negatives")]
        combinations.append((config.sampler, config.loss, *sizes, config.seed))
    assert len(combinations) == len(set(combinations))
    assert set(combinations) == expected
    assert left_out.total() == refused
    order = [seeds.index(seed) for *_, seed in combinations]
    assert order == sorted(order), "the first seed comes first"
    cells, _ = sweeps.expand(axes | {"seed": [0], **{name: VARIED[name] for name in varied}})
    assert len(set(sweeps.label_cells(cells).values())) == len(cells)


def test_a_group_has_one_comparison_one_seed_and_one_number_of_devices():
    """Numbers of several devices are equal, their times are not."""
    axes = {"sampler": ["neg", "ns", "strat-ns"], "loss": ["sg", "log"], "stratum_size": [2, 4]}
    cells, _ = sweeps.expand(axes | {"seed": [0, 1]})
    groups = sweeps.group_cells(cells)
    assert [cell for group in groups for cell in group] == sorted(
        cells, key=lambda cell: (cell.config.seed, cell.config.loss != "sg")
    )
    shapes = [(group[0].config.seed, group[0].config.loss, len(group)) for group in groups]
    assert shapes == [(0, "sg", 4), (0, "log", 4), (1, "sg", 4), (1, "log", 4)]
    cells, _ = sweeps.expand({"sampler": ["ns"], "devices": [1, 4]})
    assert [cell.config.devices for cell in cells] == [1, 4]
    assert len(set(sweeps.label_cells(cells).values())) == 2
    assert list(map(len, sweeps.group_cells(cells))) == [1, 1]


PAPER = {"iid", "neg", "strat", "ns", "strat-ns"}
PRESETS = {
    ("smoke", "dataset"): {"synthetic"},
    ("paper-speedup", "sampler"): PAPER,
    ("paper-recall", "loss"): {"sg", "mse", "hinge", "log"},
    ("paper-strata", "stratum_size"): {1, 2, 4, 8, 16},
    ("paper-negatives", "negatives"): {1, 2, 5, 10, 20, None},
    ("paper-encoders", "encoder"): {"mf", "bow", "cnn", "lstm", "gru", "transformer"},
    ("paper-coupling", "coupling"): {"direct", "regularised"},
    ("paper-plain", "convolution"): {"plain"},
    ("model-content-mse", "loss"): {"mse"},
    ("model-ask-the-gru", "encoder"): {"gru"},
    ("model-text-cnn", "loss"): {"log"},
    ("rivals", "loss"): {"sg", "softmax", "softmax-logq"},
    ("board", "learning_rate"): {0.001, 0.003, 0.01, 0.03},
}
"""Values of a setting in each preset."""


def test_presets_are_the_papers_grids():
    cells = {}
    for (name, column), values in PRESETS.items():
        wanted = read_sweep(name, seeds=1)
        cells[name], left_out = sweeps.expand(wanted.axes, wanted.cells)
        assert {identity_of(cell.config)[column] for cell in cells[name]} == values, name
        assert not (name == "board" and left_out)
        if name in ("smoke", "paper-recall", "paper-encoders", "paper-negatives", "paper-plain"):
            assert {cell.config.sampler for cell in cells[name]} == PAPER
    assert cells.keys() == preset_titles().keys()
    sizes = [len(cells[name]) for name in ("paper-coupling", "rivals", "smoke")]
    assert sizes == [1 + 5, 4 + 3 + 2, 8]


# --- files, and flags that replace what they say


def test_a_file_with_overrides(tmp_path):
    settings = 'title = "Mine"\nbatch-size = 64\nsampler = ["iid", "ns"]\nseed = 3\n'
    (file := tmp_path / "mine.toml").write_text(settings + 'noise = [1.0, "unigram", 0.75]\n')
    more = {"assignments": ["epochs=2,4", "lambda=8"], "flags": {"dataset": "a,b", "epochs": 5}}
    wanted = read_sweep(str(file), seeds=2, **more)
    assert wanted.axes == {
        "batch_size": (64,),
        "sampler": ("iid", "ns"),
        "seed": (3, 4),
        "noise": ("1.0", "unigram", "0.75"),
        "epochs": (5,),
        "lambda": (8.0,),
        "dataset": ("a", "b"),
    }
    assert (wanted.name, wanted.title) == ("mine", "Mine")
    cells, _ = sweeps.expand(wanted.axes)
    assert len(cells) == 2 * 2 * 2 * 2, "noise 1.0 and unigram are one"
    labels = " ".join(sweeps.label_cells(cells).values())
    assert "noise=0.75" in labels
    assert "lambda" not in labels


SMOKE = {"source": "smoke"}
REFUSED = [
    ('epochs = [3, "many"]', "epochs = 'many' is not a whole number"),
    ('sampler = ["ns", "strat_ns"]', "did you mean 'strat-ns'"),
    ("sampler = []", "sampler has no value"),
    ("[sampler]\na = 1", "sampler = "),
    ("seed = [[1, 2]]", "seed = [1, 2] is not a whole number"),
    ('runs_dir = "x"', "given by --data-dir and --runs-dir"),
    ("cells = 3", "write [[cells]] above each"),
    ('[[cells]]\nsampler = ["ns"]', "a cell has one value for a setting"),
    ("seed = 1\n[[cells]]\nseed = 2", "seed = 2: a cell has one value"),
    ('[[cells]]\nsamplr = "ns"', "[[cells]]: Unknown setting 'samplr'"),
    ("title = 3", "title = 3: it must be a text"),
    (SMOKE | {"assignments": ["sampler"]}, "not of the form key=value"),
    (SMOKE | {"assignments": ["data_dir=x"]}, "given by --data-dir"),
    (SMOKE | {"seeds": 2**32 + 1}, "would be above"),
    (SMOKE | {"flags": {"dataset": ","}}, "--dataset: dataset has no value"),
]
"""Contents of a file, which the message names, or what is asked for."""


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_bad_files_and_requests_are_refused(tmp_path, given, message):
    file = tmp_path / "bad.toml"
    if isinstance(given, str):
        file.write_text(given)
    with pytest.raises(UsageError) as caught:
        read_sweep(**(given if isinstance(given, dict) else {"source": str(file)}))
    assert message in str(caught.value)
    assert (str(file) in str(caught.value)) == isinstance(given, str)


# --- the command, and its progress

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
