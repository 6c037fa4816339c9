"""What the program prints: commands that are accepted and ask for what they say, output that cannot
be written, and terminals of unknown size.
"""

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from support.cli import invoke
from support.records import write_run
from typer.testing import CliRunner

from ncfbench.advice.question import Question
from ncfbench.advice.summary import advise_command
from ncfbench.cli import app
from ncfbench.cli.failures import report_system_error
from ncfbench.config import complete, digest
from ncfbench.runs.labels import run_command

SETTINGS = [
    {},
    {"loss": "hinge", "gamma": 0.2, "sampler": "neg"},
    {"lambda": 3.0, "item_dropout": 0.0, "noise": "0.75", "mask": False},
    {"encoder": "lstm", "negatives": 7, "learning_rate": 1e-5, "user_l2": 1e-7},
    {"sampler": "strat", "strata": "user", "stratum_size": 2, "seed": 3},
    {"sampler": "mixed-ns", "uniform_items": 99, "loss": "mse", "batch_size": 100},
    {"coupling": "regularised", "coupling_weight": 0.3, "dimension": 20},
    {"item_block": 64, "patience": 3, "probe_every": 7},
    {"encoder": "mf", "epochs": 3, "optimizer": "adam"},
    {"learning_rate": 0.0123456789},
]


class Asked:
    """Records what commands ask for, in place of doing it."""

    def __init__(self, monkeypatch):
        self.runs, self.questions = [], []
        monkeypatch.setattr("ncfbench.runs.plan.RunPlan.of", self._plan)
        monkeypatch.setattr("ncfbench.advice.pipeline.Question", self._advise)

    def _plan(self, settings, *_, **__):
        self.runs.append(settings)
        raise typer.Exit

    def _advise(self, *parts):
        self.questions.append(Question(*parts))
        raise typer.Exit

    def __call__(self, command):
        program, *words = shlex.split(command)
        assert program == "ncfbench"
        done = invoke(*words)
        assert done.exit_code == 0, f"{command}: {done.output}"


@pytest.fixture
def asked(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Asked(monkeypatch)


def commands_in(text):
    return re.findall(r"(?:^ +|: )(ncfbench .*?)(?:\.?$)", text, re.MULTILINE)


@pytest.mark.long_cases(".*(gamma|lambda|lstm|uniform|item_block|BF16|0.012)")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_commands_of_a_report_run(tmp_path, asked, settings):
    """A folder with a space, one arm alone, an interrupted run."""
    folder = tmp_path / "my runs"
    asked_for = {"sampler": "strat-ns"} | settings
    write_run(folder, losses=[9, 5, 3], ms=10, **asked_for)
    write_run(folder, losses=[9, 5], ms=10, **asked_for | {"seed": 5}, status="running")
    done = invoke("report", folder)
    assert done.exit_code == 0, done.output
    commands = commands_in(done.output)
    assert commands
    for command in commands:
        asked(command)
    assert digest(complete(asked_for | {"seed": 5})) in map(digest, asked.runs)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_command_of_a_run_is_that_run(asked, settings):
    config = complete({"sampler": "strat-ns"} | settings)
    asked(run_command(config, {"--runs-dir": "a b"}))
    assert [*map(digest, asked.runs)] == [digest(config)]


@pytest.mark.parametrize(
    ("fixed", "more"),
    [
        ({}, {}),
        ({}, {"metric": "ndcg@20", "tried": {"encoder": ("bow", "mlp"), "gamma": (5.0, 10.0)}}),
        ({"lambda": 3.0, "mask": False}, {"tried": {"learning_rate": (0.0123456789, 1e-5)}}),
        ({"gamma": 0.2}, {"tried": {"loss": ("hinge",), "sampler": ("neg", "ns")}}),
        ({"encoder": "lstm"}, {"tried": {"negatives": (3, 5), "batch_size": (64,)}}),
        ({"optimizer": "adam"}, {"tried": {"loss": ("sg", "mse"), "stratum_size": (2,)}}),
    ],
    ids=str,
)
def test_a_question_is_asked_again(asked, fixed, more):
    question = Question({"dataset": "citeulike"} | fixed, **more)
    asked(advise_command(question, 600.0, {"--data-dir": "a b"}))
    assert [again.name for again in asked.questions] == [question.name]


# --- output that cannot be written

COMMANDS = {
    "by Rich": ["describe", "tiny"],
    "by Typer": ["report", "--help"],
    "by Click": ["--version"],
    "as JSON": ["describe", "tiny", "--json"],
}


def shell(data_dir, words, redirected):
    """Run the program in a shell, which redirects its output."""
    located = [*words, "--data-dir", str(data_dir)] if "tiny" in words else words
    command = ["bash", "-c", f'set -o pipefail; "$@" {redirected}', "bash", sys.executable]
    # Without Python's buffers what remains of a cut write is lost, and no error says so.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    more = {"capture_output": True, "text": True, "check": False, "timeout": 300, "env": env}
    return subprocess.run([*command, "-m", "ncfbench", *located], **more)


@pytest.mark.long_cases("by Typer|by Click")
@pytest.mark.parametrize("how", COMMANDS)
def test_output_to_a_full_disk_gets_a_sentence(data_dir, how):
    done = shell(data_dir, COMMANDS[how], "> /dev/full")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Error: Cannot write the output: No space left on device.\n"


@pytest.mark.long_cases("by Typer|as JSON|by Click")
@pytest.mark.parametrize("reader", ["2>&1 | exec true", "| exec true"])
@pytest.mark.parametrize("how", COMMANDS)
def test_a_closed_pipe_ends_in_silence(data_dir, how, reader):
    done = shell(data_dir, COMMANDS[how], reader)
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


@pytest.mark.long_cases("json|csv")
@pytest.mark.parametrize(
    ("flags", "reader"),
    [
        ("--full", "head -c 99 > /dev/null"),
        ("--json", "head -c 99 > /dev/null"),
        ("--full --format csv -o /dev/stdout", "true"),
    ],
)
def test_a_table_that_is_longer_than_a_pipe(tmp_path, flags, reader):
    """The program meets the closed pipe while it writes, in Rich's text, in JSON and in a file."""
    for number in range(40):
        write_run(tmp_path, "ns", [9, 5, 3], 10, [0, 0.2, 0.3], seed=number, dimension=number + 1)
    done = shell(tmp_path, ["report", str(tmp_path), *flags.split()], f"| exec {reader}")
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


def test_a_pipe_that_is_not_the_output_gets_a_sentence(capsys):
    """Such as that of a process which the program feeds: the output itself has its reader."""
    code = report_system_error(BrokenPipeError(32, "Broken pipe"))
    assert code == 3
    assert "Cannot write the output: Broken pipe." in capsys.readouterr().err


@pytest.mark.long_cases("2>&-")
@pytest.mark.parametrize("redirected", ["2>&-", "<&- 2> /dev/full"])
def test_results_need_no_standard_error(data_dir, redirected):
    done = shell(data_dir, COMMANDS["as JSON"], redirected)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{")


def test_an_error_ends_without_standard_error(tmp_path):
    done = shell(tmp_path, COMMANDS["as JSON"], "2> /dev/full >&-")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_size_that_is_none_is_unknown(data_dir):
    described = ["describe", "tiny", "--data-dir", str(data_dir)]
    for words in (described, ["report", "--help"], ["report", "--table"]):
        unknown = CliRunner().invoke(app, words, env={"COLUMNS": None, "LINES": None}).output
        assert unknown
        for size in ("0", "00", "-1", "wide", "²", "", "9" * 20):
            sizes = {"COLUMNS": size, "LINES": size}
            assert CliRunner().invoke(app, words, env=sizes).output == unknown, size
