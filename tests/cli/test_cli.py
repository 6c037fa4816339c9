"""The program as a user meets it: exit codes, streams, messages; never a traceback."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from invoked import check, invoke
from rich.console import Console
from typer.testing import CliRunner

from ncfbench.cli import app
from ncfbench.config import resolve
from ncfbench.data import store
from ncfbench.registry import SAMPLERS
from ncfbench.runs.progress import LiveProgress
from ncfbench.training.run import run

SMALL = [
    "--batch-size",
    "64",
    "--epochs",
    "2",
    "--set",
    "dimension=8",
    "--set",
    "filters=8",
    "--set",
    "word_dimension=8",
]


@pytest.fixture
def places(data_dir: Path, tmp_path: Path) -> list[str]:
    return ["--data-dir", str(data_dir), "--runs-dir", str(tmp_path / "runs")]


def test_prepare_run_report(tmp_path: Path) -> None:
    """The whole main job, and what each command prints."""
    data, runs = ["--data-dir", str(tmp_path / "d")], ["--runs-dir", str(tmp_path / "r")]
    sizes = [
        "--users",
        "120",
        "--items",
        "150",
        "--links",
        "1500",
        "--topics",
        "5",
        "--max-length",
        "12",
    ]
    check(
        invoke("prepare", "synthetic", *sizes, *data),
        0,
        "users",
        "120",
        "links",
        "1,500",
        "Fingerprint",
    )
    check(invoke("prepare", "synthetic", *sizes, *data), 0, "Already prepared")
    for sampler in ("iid", "strat-ns"):
        result = invoke("run", "--dataset", "synthetic", "--sampler", sampler, *SMALL, *data, *runs)
        check(result, 0, "smallest probe loss", "full iteration", "test recall@50", "Records:")
    check(
        invoke("report", *runs),
        0,
        "Speedup over IID, SG loss",
        "Strat. w. N.S.",
        "To fill the missing cells:",
        "ncfbench run",
    )
    printed = json.loads(invoke("report", "--json", *runs).stdout)
    by_sampler = {row["sampler"]: row for row in printed["speedup"]}
    assert by_sampler["iid"]["total_speedup"] == pytest.approx(1)
    assert by_sampler["ns"]["status"] == "missing"
    assert {path.name for path in (tmp_path / "r").iterdir() if path.is_file()} == {
        "speedup.parquet",
        "recall.parquet",
    }


def test_figures_are_drawn(finished: Path, tmp_path: Path) -> None:
    result = invoke("report", "--runs-dir", finished, "--figures", tmp_path / "f", "--json")
    assert result.exit_code == 0
    drawn = [Path(name) for name in json.loads(result.stdout)["figures"]]
    assert sorted(path.suffix for path in drawn) == [".png", ".png", ".svg", ".svg"]
    assert {path.name.partition("-")[0] for path in drawn} == {"convergence", "targets"}
    svg = next(path for path in drawn if path.suffix == ".svg").read_text()
    assert "</svg>" in svg
    assert all(path.stat().st_size > 10_000 for path in drawn)


def test_json_prints_one_object_on_standard_output(places: list[str]) -> None:
    result = invoke("run", "--dataset", "tiny", *SMALL, *places, "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert summary["status"] == "finished"
    assert summary["config"]["batch_size"] == 64
    assert "probe loss" in result.stderr
    assert Path(summary["folder"]).is_dir()


def test_quiet_prints_no_progress(places: list[str]) -> None:
    result = invoke("run", "--dataset", "tiny", *SMALL, *places, "--quiet")
    assert result.exit_code == 0
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "messages"),
    [
        (
            ["--sampler", "iid", "--loss", "hinge"],
            2,
            ["pairwise loss", "Use --sampler neg, ns, strat-ns or mixed-ns"],
        ),
        (["--batch-size", "30"], 2, ["not a multiple of stratum_size"]),
        (["--batch-size", "4"], 2, ["there are none. Use --batch-size 8"]),
        (["--sampler", "ns", "--batch-size", "1"], 2, ["there are none. Use --batch-size 2"]),
        (["--batch-size", "1000000"], 2, ["larger than the", "training links"]),
        (["--negatives", "0"], 2, ["negatives = 0"]),
        (["--learning-rate", "nan"], 2, ["learning_rate = nan"]),
        (["--learning-rate", "fast"], 2, ["--learning-rate"]),
        (["--sampler", "strat_ns"], 2, ["did you mean 'strat-ns'"]),
        (["--samplr", "ns"], 2, ["--sampler"]),
        (["--set", "epoch=3"], 2, ["did you mean 'epochs'"]),
        (["--config", "missing.toml"], 2, ["Cannot read the configuration"]),
        (["--dataset", "a" * 300], 2, ["not a data set's name"]),
        (
            ["--dataset", "nowhere"],
            3,
            ["is not prepared", "ncfbench prepare SOURCE --name nowhere"],
        ),
    ],
)
def test_bad_requests(places: list[str], words: list[str], code: int, messages: list[str]) -> None:
    result = invoke("run", "--dataset", "tiny", *places, *words)
    check(result, code)
    plain = " ".join(result.output.replace("│", " ").split())
    for message in messages:
        assert message in plain
    runs = Path(places[3])
    assert not runs.exists() or not list(runs.iterdir()), "a refused run leaves nothing behind"


def test_a_misspelt_key_in_a_configuration(places: list[str], tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('learning_rte = 0.1\nsampler = "ns"\n')
    check(
        invoke("run", "--config", file, *places),
        2,
        "Unknown setting 'learning_rte'; did you mean 'learning_rate'?",
    )


def test_a_configuration_file_with_hyphens(places: list[str], tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        'dataset = "tiny"\nbatch-size = 64\nepochs = 1\nsampler = "ns"\nlambda = 4\nfilters = 8\n'
    )
    result = invoke("run", "--config", file, *places, "--json", "--quiet", "--epochs", "2")
    config = json.loads(result.stdout)["config"]
    assert (config["epochs"], config["sampler"], config["lambda"]) == (2, "ns", 4.0)


def test_divergence_exits_with_5(places: list[str]) -> None:
    words = ["--dataset", "tiny", "--loss", "mse", "--learning-rate", "1e30"]
    check(
        invoke("run", *words, *SMALL, *places),
        5,
        "not finite at iteration",
        "What was recorded before is kept in",
    )


def test_nothing_to_report_exits_with_7(tmp_path: Path) -> None:
    check(invoke("report", "--runs-dir", tmp_path), 7, "No finished run", "ncfbench sweep smoke")


@pytest.mark.parametrize(
    "damage",
    ["summary.parquet", "curve.parquet", "timing.parquet", "environment.json", "config.json"],
)
@pytest.mark.parametrize("how", ["truncated", "missing", "other"])
def test_a_damaged_run_is_named_and_left_out(
    places: list[str], damage: str, how: str, finished: Path
) -> None:
    runs = Path(places[3])
    shutil.copytree(finished, runs)
    victim = min(path for path in runs.iterdir() if path.is_dir())
    if how == "missing":
        (victim / damage).unlink()
    elif how == "truncated":
        (victim / damage).write_bytes((victim / damage).read_bytes()[:-20])
    else:
        (victim / damage).write_bytes(b"{}")
    result = invoke("report", "--runs-dir", runs)
    check(result, 0, f"Skipped {victim.name}", damage, "Speedup over IID")


@pytest.fixture(scope="module")
def finished(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "runs"
    for sampler in ("iid", "ns"):
        words = [
            "--dataset",
            "tiny",
            "--sampler",
            sampler,
            "--data-dir",
            str(data_dir),
            "--runs-dir",
            str(folder),
        ]
        check(invoke("run", *words, *SMALL, "--quiet"), 0)
    return folder


def test_citeulike_exit_codes(tmp_path: Path) -> None:
    words = ["prepare", "citeulike", "--data-dir", tmp_path / "d"]
    check(invoke(*words, "--from", tmp_path / "none"), 3, "is not a folder", "users.dat")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("users.dat", "raw-data.csv"):
        (source / name).write_text("1 0\n")
    check(
        invoke(*words, "--from", source),
        4,
        "users.dat is not the published file",
        "expected git blob",
        "--allow-unverified",
    )
    (source / "raw-data.csv").write_text('"doc.id","raw.title"\n1,"a"\n')
    check(
        invoke(*words, "--from", source, "--allow-unverified"), 3, "lacks the column 'raw.abstract'"
    )
    check(invoke(*words, "--from", source, "--text", "titel"), 2, "did you mean 'title'")
    check(invoke(*words, "--from", source, "--test-fraction", "2"), 2, "test_fraction = 2.0")


def test_a_target_that_cannot_be_written_exits_with_3(tmp_path: Path, data_dir: Path) -> None:
    (tmp_path / "file").write_text("")
    check(
        invoke("prepare", "synthetic", "--data-dir", tmp_path / "file"),
        3,
        "Cannot write",
        "Choose another folder",
    )
    words = [
        "run",
        "--dataset",
        "tiny",
        "--data-dir",
        data_dir,
        "--runs-dir",
        tmp_path / "file",
        *SMALL,
    ]
    check(invoke(*words), 3, "Cannot write", "Choose another folder")


@pytest.mark.parametrize(
    "words",
    [
        "",
        "run",
        "describe",
        "report",
        "prepare",
        *(
            f"prepare {source}"
            for source in ("citeulike", "citeulike-t", "mind", "custom", "synthetic")
        ),
    ],
)
def test_every_command_teaches(words: str) -> None:
    result = CliRunner().invoke(
        app, [*words.split(), "--help"], env={"COLUMNS": "200"}, color=False
    )
    assert result.exit_code == 0
    if words == "run":
        for name in (*SAMPLERS, "Example:", "[default: (citeulike)]", "[default: (10; lstm 5)]"):
            assert name in result.output
    if not words:
        assert "130 interrupted" in result.output


def program(*words: str | Path, **variables: str) -> subprocess.Popen[str]:
    """The program in a process of its own, which Ctrl-C reaches even where these tests run as a
    background job.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "ncfbench", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
    finally:
        signal.signal(signal.SIGINT, before)


def test_interrupt_and_resume_from_the_command_line(places: list[str]) -> None:
    words: list[Any] = ["run", "--dataset", "tiny", *SMALL, "--epochs", "400", *places]
    process = program(*words)
    folder = Path(places[3])
    deadline = time.monotonic() + 60
    while not list(folder.glob("*/curve.parquet")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "--resume" in err
    assert out == ""
    result = invoke("report", "--runs-dir", folder)
    check(result, 7, "is interrupted at iteration")
    (run,) = folder.iterdir()
    begun = []

    def stop(session: Any) -> None:
        begun.append(session._loop.iteration)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncfbench.training.session.Session.advance_epoch", stop)
        assert "No run with these settings" not in invoke(*words, "--resume").output
    assert begun[0] > 0
    assert [path.name for path in folder.iterdir()] == [run.name]


def test_interrupt_of_prepare_leaves_the_previous_data_set(tmp_path: Path) -> None:
    """Ctrl-C at several moments: exit code 130, or 0 where it was too late; what is in use is
    whole, and nothing is left over.
    """
    sizes: list[Any] = [
        "--users",
        "4000",
        "--items",
        "40000",
        "--links",
        "2000000",
        "--data-dir",
        tmp_path,
    ]
    check(invoke("prepare", "synthetic", "--data-dir", tmp_path), 0)
    codes = []
    for delay in (0.6, 1.2, 2.0):
        process = program("prepare", "synthetic", *sizes, "--seed", str(round(delay * 10)))
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        codes.append(process.returncode)
        assert "Traceback" not in err, err
        assert store.load(tmp_path, "synthetic").n_users in (800, 4000)
        assert not list((tmp_path / "synthetic").glob(".new*"))
    assert 130 in codes
    assert set(codes) <= {0, 130}


def test_the_live_display_shows_what_it_should(
    places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal: epoch, iteration, loss, recall, items a second, time left."""
    out = io.StringIO()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Console(file=out, force_terminal=True, width=150, markup=False)
    live = LiveProgress(screen)
    config, where = resolve(
        {
            "dataset": "tiny",
            "batch_size": 64,
            "epochs": 2,
            "data_dir": places[1],
            "runs_dir": places[3],
        }
    )
    total = run(config, where, progress=live).summary["iterations"]
    for word in (
        f"{total}/{total}",
        "epoch 2.00",
        "loss ",
        "recall@50 ",
        "items/s",
        "0:00:00",
        "tiny cnn sg strat-ns",
    ):
        assert word in out.getvalue()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_target(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    check(invoke("prepare", "synthetic", "--data-dir", tmp_path / "d"), 3, "Permission denied")


def test_a_report_that_cannot_be_written_is_printed_all_the_same(
    finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "runs")
    (tmp_path / "runs" / "recall.parquet").unlink(missing_ok=True)
    (tmp_path / "runs" / "recall.parquet").mkdir()
    check(invoke("report", "--runs-dir", tmp_path / "runs"), 3, "Speedup over IID", "Cannot write")


def test_no_color_and_no_terminal_give_plain_text(places: list[str]) -> None:
    process = program("run", "--dataset", "tiny", *SMALL, *places, NO_COLOR="1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "\x1b" not in out + err
    assert "epoch   1.00" in err
    assert "Run tiny-cnn-sg" in out


def test_a_reader_that_leaves_early_is_no_error(finished: Path) -> None:
    command = f"{sys.executable} -m ncfbench report --runs-dir {finished} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Traceback" not in done.stderr
