"""``ncfbench sweep`` from the command line, and what it shows meanwhile."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from swept import cells_of, records
from typer.testing import CliRunner, Result

from ncfbench.cli import app
from ncfbench.sweeps import forecast
from ncfbench.sweeps.grid import CellState
from ncfbench.sweeps.presets import preset_titles
from ncfbench.sweeps.progress import LiveSweepProgress, PlainSweepProgress

WORDS = [
    "smoke",
    "--dataset",
    "tiny",
    "--epochs",
    "2",
    "--set",
    "sampler=ns,strat-ns,iid",
    "--set",
    "loss=hinge",
    "--set",
    "batch_size=64",
    "--set",
    "dimension=8",
    "--set",
    "filters=8",
    "--set",
    "word_dimension=8",
]


def invoke(data_dir: Path, runs_dir: Path, *words: str) -> Result:
    result = CliRunner().invoke(
        app, ["sweep", *WORDS, "--data-dir", str(data_dir), "--runs-dir", str(runs_dir), *words]
    )
    assert "Traceback" not in result.output
    return result


def test_the_command_lists_trains_and_lists_again(data_dir: Path, tmp_path: Path) -> None:
    planned = invoke(data_dir, tmp_path, "--dry-run", "--json", "--seeds", "2")
    assert planned.exit_code == 0, planned.output
    plan = json.loads(planned.stdout)
    assert not list(tmp_path.iterdir()), "nothing was trained"
    assert [
        (cell["config"]["sampler"], cell["config"]["seed"], cell["status"])
        for cell in plan["cells"]
    ] == [
        ("ns", 0, "left"),
        ("strat-ns", 0, "left"),
        ("ns", 1, "left"),
        ("strat-ns", 1, "left"),
    ]
    assert all(
        cell["predicted_seconds"] > 0 and cell["predicted_from"] == "pilot"
        for cell in plan["cells"]
    )
    assert plan["left_out"][0]["combinations"] == 2
    assert "iid cannot train --loss hinge" in plan["left_out"][0]["reason"]
    trained = invoke(data_dir, tmp_path)
    assert trained.exit_code == 0, trained.output
    for word in ("tiny cnn hinge ns seed 0", "done", "2 of 2", "ncfbench report"):
        assert word in trained.stdout
    for word in (
        "Left out (1): --sampler iid",
        "2 cells: 2 left.",
        "epoch 1 of 2, probe loss",
        "ns seed 0: done",
    ):
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
    assert all(
        cell["test_recall_at_50"] is not None and Path(cell["folder"]).is_dir()
        for cell in again["cells"]
    )


def test_help_names_every_preset() -> None:
    result = CliRunner().invoke(app, ["sweep", "--help"], env={"COLUMNS": "200"}, color=False)
    assert result.exit_code == 0
    for name in (*preset_titles(), "--dry-run", "--budget", "Example:"):
        assert name in result.output


def test_a_budget_says_what_it_drops(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        forecast,
        "predict",
        lambda states, *_: dict.fromkeys(states, forecast.Prediction(600.0, "pilot", 2**20, 2**20)),
    )
    result = invoke(data_dir, tmp_path, "--dry-run", "--seeds", "3", "--budget", "1h")
    assert (result.exit_code, "Dropped" in result.stderr) == (0, False)
    result = invoke(data_dir, tmp_path, "--dry-run", "--seeds", "3", "--budget", "0.5h10m")
    assert "Dropped to fit the budget: seed 2 (2 cells)." in result.stderr
    assert "Predicted for all cells: 40 min" in result.stdout
    result = invoke(data_dir, tmp_path, "--budget", "10m")
    assert (result.exit_code, "first group of cells" in result.stderr) == (2, True)
    result = invoke(data_dir, tmp_path, "--dry-run", "--budget", "1 h 30 m")
    assert (result.exit_code, "Predicted for all cells: 20 min" in result.stdout) == (0, True)
    result = invoke(data_dir, tmp_path, "--budget", "soon")
    assert (result.exit_code, "not a time" in result.stderr) == (2, True)


def test_a_diverged_cell_gives_exit_code_5(data_dir: Path, tmp_path: Path) -> None:
    words = (
        "--set",
        "loss=mse",
        "--set",
        "sampler=ns",
        "--set",
        "learning_rate=1e30,0.001",
        "--json",
    )
    result = invoke(data_dir, tmp_path, *words)
    assert result.exit_code == 5
    assert [cell["status"] for cell in json.loads(result.stdout)["cells"]] == ["diverged", "done"]
    assert (
        "Diverged: tiny cnn mse ns learning_rate=1e+30 seed 0: The loss is not finite"
        in result.stderr
    )


def test_a_data_set_that_is_not_prepared_is_refused_at_once(data_dir: Path, tmp_path: Path) -> None:
    result = invoke(data_dir, tmp_path, "--dataset", "tiny,nowhere")
    assert (result.exit_code, "ncfbench prepare SOURCE --name nowhere" in result.stderr) == (
        3,
        True,
    )
    assert not list(tmp_path.iterdir())


def test_ctrl_c_from_the_command_line(data_dir: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ncfbench",
                "sweep",
                *WORDS,
                "--epochs",
                "400",
                "--data-dir",
                str(data_dir),
                "--runs-dir",
                str(tmp_path),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*/curve.parquet"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "To resume this sweep, repeat the command." in err
    assert out == ""
    assert {record.summary["status"] for record in records(tmp_path).values()} == {"interrupted"}


def test_the_live_progress_shows_what_it_should() -> None:
    out = io.StringIO()
    screen = Console(
        file=out,
        force_terminal=True,
        width=150,
        markup=False,
        highlight=False,
        _environ={"TERM": "xterm-256color"},
    )
    for made in (LiveSweepProgress(screen), PlainSweepProgress(Console(file=out, width=400))):
        out.seek(0)
        out.truncate()
        states = dict.fromkeys(cells_of(), CellState()) | dict.fromkeys(
            cells_of(["iid"]), CellState("done")
        )
        made.begin(states)
        config = cells_of()[0]
        made.start(config)
        progress = made.follow(config)
        progress.advance(17, 100.0)
        recalls = dict.fromkeys(("validation_recall_at_50", "test_recall_at_50"), 0.25)
        progress.record(
            {"epoch": 1.0, "probe_loss": 0.5, "train_seconds": 2.0, "iteration": 17} | recalls
        )
        progress.say("something")
        if isinstance(made, LiveSweepProgress):
            made._live.refresh()
        made.finish(config, "failed", "no memory")
        made.end()
        text = out.getvalue()
        for word in (
            "4 cells: 1 done, 3 left.",
            "tiny cnn sg neg seed 0",
            "probe loss 0.5000, validation recall@50 0.2500, 2.0 s",
            "neg seed 0: something",
            "neg seed 0: failed: no memory",
        ):
            assert word in text
        if isinstance(made, LiveSweepProgress):
            assert "1 done, 1 running, 2 left" in text


def test_devices_make_cells_of_their_own_and_their_times_are_marked(
    data_dir: Path, tmp_path: Path
) -> None:
    """One and two devices, and both ways of sharing on two: five runs, two comparisons; simulated
    ones say so wherever told.
    """
    more = [
        "--epochs",
        "1",
        "--set",
        "sampler=neg,ns",
        "--set",
        "encoder=mf",
        "--set",
        "devices=1,2",
        "--set",
        "share=global,local",
    ]
    trained = invoke(data_dir, tmp_path, *more)
    assert trained.exit_code == 0, trained.output
    assert "SIMULATED" in trained.stdout
    cells = json.loads(invoke(data_dir, tmp_path, *more, "--dry-run", "--json").stdout)["cells"]
    assert len({row["folder"] for row in cells}) == len(cells) == 5
    assert {row["status"] for row in cells} == {"done"}
    losses = {
        (row["config"]["devices"], row["config"]["share"]): row["smallest_probe_loss"]
        for row in cells
        if row["config"]["sampler"] == "ns"
    }
    assert losses[2, "global"] == pytest.approx(losses[1, "global"], rel=1e-4)
    assert losses[2, "local"] != pytest.approx(losses[1, "global"], rel=1e-4)
    places = ["--runs-dir", str(tmp_path)]
    report = json.loads(CliRunner().invoke(app, ["report", *places, "--format", "json"]).stdout)[
        "speedup"
    ]
    assert [
        (row["sampler"], row["settings"].count("devices=2"), row["variant"], row["simulated"])
        for row in report
    ] == [
        ("neg", 0, "", False),
        ("ns", 0, "", False),
        ("strat-ns", 0, "", False),
        ("neg", 1, "", True),
        ("ns", 1, "", True),
        ("ns", 1, "local", True),
        ("strat-ns", 1, "", False),
    ]
    assert "SIMULATED" in CliRunner().invoke(app, ["report", *places]).stdout
    assert (
        "SIMULATED"
        in CliRunner().invoke(app, ["report", *places, "--against", str(tmp_path)]).stdout
    )
    CliRunner().invoke(app, ["report", *places, "--figures", str(tmp_path / "figures")])
    drawn = [path.read_text() for path in (tmp_path / "figures").glob("convergence-*.svg")]
    assert sorted("2 devices, SIMULATED" in text for text in drawn) == [False, True]
    verified = CliRunner().invoke(app, ["report", *places, "--verify"])
    assert verified.exit_code == 0, verified.output
