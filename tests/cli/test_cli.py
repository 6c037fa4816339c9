"""The command line: exit codes, streams and messages, and never a traceback."""

import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import typer
from rich.console import Console
from support.cli import check, invoke
from typer.testing import CliRunner

from ncfbench import __main__ as entry
from ncfbench.advice.arms import ArmProgress
from ncfbench.catalog import SAMPLERS
from ncfbench.catalog.presets import PRESETS
from ncfbench.cli import app
from ncfbench.config import complete, digest, merge
from ncfbench.data.sources import SOURCES
from ncfbench.floors import floor as floors
from ncfbench.floors import kept as kept_floors
from ncfbench.runs.progress import Progress
from ncfbench.storage import schemas, tables
from ncfbench.sweeps.presets import preset_titles
from ncfbench.training import run as training

SMALL = [
    *("--encoder", "bow", "--batch-size", "64", "--epochs", "2"),
    *("--set", "dimension=8", "--set", "word_dimension=8"),
]


@pytest.fixture
def locations(data_dir, tmp_path):
    return ["--data-dir", str(data_dir), "--runs-dir", str(tmp_path / "runs")]


def test_prepare_run_report(tmp_path):
    """The whole main job, and what each command prints."""
    data, runs = ["--data-dir", tmp_path / "d"], ["--runs-dir", tmp_path / "r"]
    sizes = ["--users", "120", "--items", "150", "--links", "1500"]
    prepare = ["prepare", "synthetic", *sizes, *data]
    check(invoke(*prepare), 0, "users 120", "links 1,500", "Fingerprint")
    check(invoke(*prepare), 0, "Already prepared")
    words = ["run", "--dataset", "synthetic", *SMALL, *data, *runs]
    done = invoke(*words, "--sampler", "iid")
    check(done, 0, "smallest probe loss", "full iteration", "test recall@50", "Records:")
    assert "epoch   1.00" in done.stderr
    quiet = invoke(*words, "--sampler", "strat-ns", "--quiet", "--json")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    summary = json.loads(quiet.stdout)
    assert (summary["status"], summary["config"]["batch_size"]) == ("finished", 64)
    assert Path(summary["folder"]).is_dir()
    check(invoke("report", *runs), 0, "Speedup over iid, SG loss", "strat-ns")
    rows = json.loads(invoke("report", "--json", *runs).stdout)["speedup"]
    speedups = {row["sampler"]: row["per_iteration_speedup"] for row in rows}
    assert speedups.keys() == {"iid", "strat-ns"}
    assert speedups["iid"] == pytest.approx(1)
    files = {path.name for path in (tmp_path / "r").iterdir() if path.is_file()}
    assert files == {"speedup.parquet", "recall.parquet"}


def test_a_configuration_file(locations, tmp_path):
    """Keys may have hyphens; flags go before the file."""
    lines = 'dataset = "tiny"', "batch-size = 64", 'sampler = "ns"', 'encoder = "mf"', "lambda = 4"
    (file := tmp_path / "c.toml").write_text("\n".join([*lines, "learning_rate = 1"]))
    words = ["--config", file, *locations, "--learning-rate", "1e30", "--loss", "mse"]
    result = invoke("run", *words)
    check(result, 5, "not finite at iteration", "What was recorded before is kept in")
    (written,) = Path(locations[3]).glob("*/config.json")
    config = json.loads(written.read_text())["config"]
    assert (config["learning_rate"], config["sampler"], config["lambda"]) == (1e30, "ns", 4.0)


def test_a_printed_configuration_reads_back(tmp_path):
    """The same identity and devices; nothing is opened, and nothing is written."""
    given = {"dataset": "none", "sampler": "iid", "loss": "mse", "devices": 2, "encoder": "lstm"}
    asked = complete(given | {"lambda": 3, "seed": 7, "stratum_size": 16})
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    words += ["--seed", "7", "--set", "lambda=3", "--set", "stratum_size=16"]
    text = invoke("run", *words, "--runs-dir", tmp_path / "r", "--print-config").stdout
    document = tomllib.loads(text)
    assert document["lstm_units"] == 50
    assert not {"stratum_size", "gamma", "filters"} & set(document)
    (file := tmp_path / "c.toml").write_text(text)
    config = complete(merge(file=file)[0])
    assert (digest(config), config.devices) == (digest(asked), asked.devices)
    assert invoke("run", "--config", file, "--print-config").stdout == text
    assert list(tmp_path.iterdir()) == [file]


def test_a_preset_lies_below_flags_and_files(tmp_path, monkeypatch):
    """Settings of it that the encoder lacks are left out; programs name presets, too."""
    (file := tmp_path / "own.toml").write_text("dimension = 40\n")
    good = PRESETS["good"]

    def printed(*words):
        return tomllib.loads(invoke("run", *words, "--print-config").stdout)

    known = printed("--preset", "good", "--loss", "log", "--config", file)
    assert known.items() >= (good | {"loss": "log", "dimension": 40}).items()
    answer = invoke("run", "--preset", "good", "--encoder", "mf", "--print-config")
    check(answer, 0, 'encoder = "mf"')
    assert "changes nothing" not in answer.stderr
    assert printed("--preset", "paper") == printed()
    for preset in PRESETS.values():
        config = complete(preset)
        assert all(config.reads(config.settings[setting]) for setting in preset)
    monkeypatch.setattr(training, "run_and_blend", run := Mock())
    training.train(dataset="tiny", preset="good", dimension=40)
    assert run.call_args.args[0] == complete(good | {"dataset": "tiny", "dimension": 40})
    assert run.call_args.kwargs["fits_floors"]


def test_a_run_ends_beside_the_floors(data_dir, tmp_path):
    """Those of its data alone, in words and in JSON; without any, how to get some."""
    data = tmp_path / "data"
    without = shutil.ignore_patterns(kept_floors.FILE)  # other tests may have fitted some
    shutil.copytree(data_dir / "tiny", data / "tiny", ignore=without)
    words = ["run", "--dataset", "tiny", *SMALL, "--quiet", "--data-dir", data]
    words += ["--runs-dir", tmp_path]
    advice = "To see what is reached without training: "
    check(invoke(*words), 0, advice)
    (row,) = floors.floor("tiny", floors=["profile"], data_dir=data, say=lambda text: None).rows
    kept, recall = data / "tiny" / kept_floors.FILE, row["test_recall_at_50"]
    another = row | {"floor": "ridge", "data_fingerprint": "another"}
    tables.write_rows(kept, [row, another], schemas.FLOOR)
    answer = json.loads(invoke(*words, "--json").stdout)
    (floor,) = answer["floors"]
    assert (floor["floor"], floor["test_recall_at_50"]) == ("profile", recall)
    gap, error = floor["above_by"], floor["above_by_error"]
    assert gap == pytest.approx(answer["test_recall_at_50"] - recall)
    word = "level" if abs(gap) <= 2 * error else "passes" if gap > 0 else "below"
    assert floor["this_run"] == word
    assert answer["blend"] is None, "recall of so few validation items is 1, and chooses no weight"
    done = invoke(*words)
    check(done, 0, f"Without training: profile {recall:.3f} (", "This run's recall@50, ")
    assert f"profile ({gap:+.3f} ± {error:.3f})." in done.stdout
    kept.write_bytes(b"damaged")
    check(invoke(*words), 0, "Skipped floors.parquet: ", advice)
    check(invoke(*words, "--preset", "good", "--again"), 0, "Without training: ", "ridge 0.")


def test_settings_that_a_run_does_not_use_are_named(locations, tmp_path, monkeypatch):
    """By a flag, by --set and in a file; a run that uses them says nothing. None is trained."""
    monkeypatch.setattr("ncfbench.training.run.run", lambda *_, **__: None)
    (file := tmp_path / "c.toml").write_text("uniform_items = 3\n")
    words = ["run", "--dataset", "tiny", "--encoder", "mf", "--batch-size", "64", *locations]
    words += ["--set", "stratum_size=4"]
    unused = invoke(*words, "--sampler", "iid", "--set", "filters=9", "--config", file)
    said = {"stratum_size": "strat or strat-ns", "uniform_items": "mixed-ns", "filters": "cnn"}
    for name, users in said.items():
        kind = "encoder mf" if name == "filters" else "sampler iid"
        check(unused, 0, f"{name} changes nothing with {kind}; it is used by {users}.")
    used = invoke(*words, "--sampler", "strat")
    check(used, 0)
    assert "changes nothing" not in used.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", ["130 interrupted"]),
        ("run", ["Example:", "(citeulike)", "--set", *SAMPLERS]),
        ("sweep", ["Example:", "--dry-run", "--cell", *preset_titles()]),
        ("describe", ["Example:"]),
        ("floor", ["Examples:", "--penalty", "--budget", "docs/advise.md"]),
        ("report", ["Example:"]),
        ("settings", ["Example:", "--set NAME=VALUE"]),
        *((f"prepare {source}", ["--data-dir"]) for source in SOURCES),
    ],
)
def test_every_command_teaches(words, said):
    done = CliRunner().invoke(app, [*words.split(), "--help"], env={"COLUMNS": "200"}, color=False)
    assert done.exit_code == 0
    assert [text for text in said if text not in done.output] == []


def test_interrupt_and_resume(locations, monkeypatch):
    """By Ctrl-C on a program of its own; its output is plain, as on no terminal."""
    quick = "--dataset tiny --encoder mf --batch-size 64 --set dimension=8 --epochs 2000"
    words = ["run", *quick.split(), *locations]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = [sys.executable, "-m", "ncfbench", *words]
    process = subprocess.Popen(program, env={**os.environ, "NO_COLOR": "1"}, **pipes)
    said = next(line for line in process.stderr if re.match(r"epoch +[1-9]", line))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert ("Traceback" in err, "\x1b" in said + err) == (False, False)
    (run,) = Path(locations[3]).iterdir()
    command = shlex.join(["ncfbench", *words])
    assert f"The run so far is in {run}. To continue it: {command}" in err
    result = invoke("report", "--runs-dir", run.parent)
    check(result, 7, "is interrupted at iteration", "Continue one of those above.")
    assert re.search(r"To continue it: ncfbench run .* --epochs 2000 ", result.output)
    begun = []

    def stop(run):
        begun.append(run.iteration)
        raise KeyboardInterrupt

    monkeypatch.setattr("ncfbench.training.train.Run.train_to_probe", stop)
    check(invoke(*words), 130, "To continue from the last checkpoint", command)
    assert begun[0] > 0
    assert [*run.parent.iterdir()] == [run]


def test_interrupt_of_a_start_has_its_exit_code(monkeypatch, capsys):
    """Ctrl-C while the command is still imported ends it as later, not by the signal itself."""

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("ncfbench.__main__.start", interrupted)
    with pytest.raises(SystemExit, match="130"):
        entry.main()
    assert capsys.readouterr().err == "Interrupted.\n"


def terminal(width):
    plain = {"markup": False, "highlight": False, "_environ": {"TERM": "xterm-256color"}}
    return Console(file=io.StringIO(), force_terminal=True, width=width, **plain)


def shown_by(console):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


@pytest.mark.parametrize("width", [80, 150])
def test_the_live_display(width):
    """On a terminal: a line for each epoch, above a bar whose time left is never cut."""
    live = Progress(screen := terminal(width))
    live.begin("tiny cnn sg strat-ns", 120_000, 0)
    for iteration, epoch, recall in ((0, 0.0, None), (30_000, 7.5, None), (40_000, 10.0, 0.25)):
        live.advance(iteration, 987.0)
        row = {"iteration": iteration, "epoch": epoch, "train_seconds": 9.0, "probe_loss": 5.25}
        live.record(row | {"validation_recall_at_50": None, "test_recall_at_50": recall})
        live.bars.refresh()
    live.embedded(640, 1965)
    live.bars.refresh()
    live.end()
    text = shown_by(screen)
    assert "tiny cnn sg strat-ns: 120,000 iterations" in text
    assert "epoch  10.00  iteration  40000  probe loss 5.2500  test recall@50 0.2500" in text
    assert "epoch   7.50" not in text
    bars = [line for line in re.split(r"[\r\n]", text) if "/120000" in line]
    for words in (r"epoch 7\.50 .* 30000/120000 [-:0-9]+ left, loss 5.25", r"^item 640 of 1,965 "):
        assert any(re.search(words, bar) for bar in bars)
    assert all(re.search(r"/120000 [-:0-9]+ left", bar) and len(bar) <= width for bar in bars)


def test_iterations_hardly_draw(monkeypatch):
    """The clock of training has the moves of the bar: no thread draws, and each move waits."""
    hundredths, drawn = itertools.count(), []
    monkeypatch.setattr("time.perf_counter", lambda: next(hundredths) / 100)
    live = Progress(terminal(80))
    live.begin("tiny cnn sg strat-ns", 1000, 0)
    monkeypatch.setattr(live.bars, "refresh", lambda: drawn.append(None))
    for iteration in range(1000):
        live.advance(iteration, 9.0)
    assert len(drawn) <= 10 / 2.0
    assert not live.bars.live.auto_refresh
    live.end()


def test_a_race_shows_one_bar(monkeypatch):
    """The seconds spent of its budget, and the arm that trains with its iteration and measure."""
    monkeypatch.setattr("ncfbench.runs.progress.SHOWN_SECONDS", 0.0)
    race = Progress(screen := terminal(110))
    race.start(600, 0, "second")
    arm = ArmProgress(SimpleNamespace(progress=race, clock=SimpleNamespace(spent=130.4)), "iid")
    arm.begin("tiny mf sg iid", 900, 0)
    recalls = {"validation_recall_at_50": 0.25, "test_recall_at_50": None}
    arm.record({"probe_loss": 5.25} | recalls)
    arm.advance(1200, 9.0)
    race.bars.refresh()
    race.end()
    arm.end()
    measure = "iteration 1,200, validation recall@50 0.2500"
    assert re.search(rf"iid \S+ 130/600 [-:0-9]+ left, {measure}", shown_by(screen))


def test_plain_progress_breaks_a_long_silence(monkeypatch):
    plain = Progress(screen := Console(file=io.StringIO()))
    plain.begin("tiny", 100, 0)
    plain.advance(10, 9.0)
    monkeypatch.setattr("ncfbench.runs.progress.SILENCE_SECONDS", 0.0)
    plain.advance(20, 9.0)
    plain.embedded(640, 1965)
    lines = ["tiny: 100 iterations", "iteration 20 of 100", "embedded item 640 of 1,965"]
    assert shown_by(screen).splitlines() == lines


MOST_OPTIONS = 178
"""Options of all commands, without ``--help``. A command that loses some lowers this number."""


def count_options(command):
    """Return the options of a command and of those below it."""
    options = [one for one in command.params if one.param_type_name == "option"]
    below = [command.resolve_command(None, [name])[1] for name in getattr(command, "commands", {})]
    return len(options) + sum(map(count_options, below))


def test_the_commands_have_few_options():
    assert count_options(typer.main.get_command(app)) == MOST_OPTIONS
