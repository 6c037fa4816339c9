"""Every command that the program prints is accepted, and asks for what it says."""

import re
import shlex

import pytest
import typer
from support.cli import invoke
from support.records import write_run

from ncfbench.advice.question import Question
from ncfbench.advice.summary import advise_command
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
