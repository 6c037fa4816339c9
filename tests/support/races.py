"""Questions, and cells of sweeps, on data that train in a second."""

import os
import signal
from unittest.mock import Mock

import jax
import numpy as np

from ncfbench.advice import pipeline
from ncfbench.advice.question import Question
from ncfbench.config import complete
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.sweeps.grid import Cell
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.sweeps.sweep import train_cells
from ncfbench.training.checkpoint import Checkpoints
from ncfbench.training.step import Trainer
from support.training import SMALL as RUN
from support.training import figures

FIXED = {"dataset": "tiny", "encoder": "bow", "epochs": 4, "dimension": 8}
OTHERS = {"user_tower": ("table",), "bare_bag": (False,), "gamma": (10.0,), "word_dropout": (0.5,)}
OTHERS |= {"weight_decay": (0.0,), "item_dropout": (0.1,), "feature_dropout": (0.0,)}
"""One value for each setting that would be tried by itself."""
ASKED = {
    "loss": ("sg",),
    "sampler": ("iid", "ns", "strat-ns"),
    "batch_size": (64,),
    "stratum_size": (4,),
    "negatives": (10,),
    "learning_rate": (0.01, 0.03),
    **OTHERS,
}
BUDGET = 1e5
"""Runs of four epochs are finished within the first rung, a sixtieth of it."""


def question_of(encoder="bow", metric="recall@10", **tried):
    return Question(FIXED | {"encoder": encoder}, metric, ASKED | tried)


def ask(data_dir, runs_dir, *, budget=BUDGET, encoder="bow", metric="recall@10", **tried):
    """Hold a race, and return its answer and what it said."""
    progress = Mock(Progress)
    outcome = pipeline.advise(
        **FIXED | {"encoder": encoder},
        budget_seconds=budget,
        metric=metric,
        tried=ASKED | tried,
        data_dir=data_dir,
        runs_dir=runs_dir,
        progress=progress,
    )
    return outcome, [call.args[0] for call in progress.say.call_args_list]


SMALL = RUN | {
    "encoder": "bow"  # compiled sooner than the others that have recall on cold items
}
ARMS = ("neg", "ns", "strat-ns")


def cells_of(samplers=ARMS, **more):
    return tuple(complete(SMALL | {"sampler": sampler} | more) for sampler in samplers)


def sweep(cells, tiny, locations, progress=None):
    cells = [Cell(config) for config in cells]
    train_cells(cells, {"tiny": tiny}, locations, progress or SweepProgress())
    return cells


def records(runs_dir):
    """Return all runs of a folder, by sampler and seed; there is one of each."""
    all_records, problems = runs.read_all(runs_dir)
    assert problems == []
    result = {(record.config.sampler, record.config.seed): record for record in all_records}
    assert len(result) == len(all_records)
    return result


def parameters(record, dataset):
    _, like = Trainer.create(record.config, dataset)
    state, *_ = Checkpoints(record.folder / "checkpoints").restore(like)
    assert int(state.iteration) == record.summary["planned_iterations"]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def assert_same(one, other, dataset):
    """Assert equal curves and parameters, bit for bit, and that every iteration is timed once."""
    assert one.summary["status"] == other.summary["status"] == "finished"
    assert figures(one) == figures(other)
    for a, b in zip(parameters(one, dataset), parameters(other, dataset), strict=True):
        np.testing.assert_array_equal(a, b)
    timed = sum(row["iterations"] for row in one.timing if row["kind"] == "full")
    assert timed == one.summary["planned_iterations"]


class Noted(SweepProgress):
    def __init__(self, sampler="", iteration=-1, action=lambda: None):
        super().__init__()
        self.sampler, self.iteration, self.action = sampler, iteration, action
        self.epochs, self.ends, self.texts, self.began_at = [], [], [], {}

    def follow(self, cell):
        return Reporter(self, cell.config)

    def finish(self, cell):
        self.ends.append((cell.config.sampler, cell.status))

    def say(self, text):
        self.texts.append(text)


class Reporter(Progress):
    def __init__(self, noted, config):
        self.noted, self.config = noted, config

    def begin(self, title, total, done):
        self.noted.began_at[self.config.sampler] = done

    def advance(self, iteration, item_slots):
        if (self.config.sampler, iteration) == (self.noted.sampler, self.noted.iteration):
            self.noted.action()

    def record(self, row):
        if row["iteration"] and row["epoch"] == int(row["epoch"]):
            self.noted.epochs.append((self.config.sampler, row["epoch"]))


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
