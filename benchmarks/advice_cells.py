"""The questions on which advice is compared with full sweeps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ncfbench.advice.question import Question
from ncfbench.advice.summary import advise_command

EPOCHS = 100_000
"""More than any run has time for, in the sweep and in the race: the clock ends them."""


@dataclass(frozen=True)
class Cell:
    """One question, and how long a sweep trains each of its candidates.

    Attributes:
        horizon_seconds: training clock of each candidate in the sweep.
        samplers: all that serve the loss where empty.
        least_budget_seconds: budget of the race where a tenth of the sweep's time is less.
    """

    dataset: str
    encoder: str
    loss: str
    horizon_seconds: float
    samplers: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = (512,)
    stratum_sizes: tuple[int, ...] = (4,)
    negatives: tuple[int, ...] = (5,)
    learning_rates: tuple[float, ...] = (0.01, 0.03)
    least_budget_seconds: float = 0.0

    @property
    def question(self) -> Question:
        """The question, for the sweep."""
        return Question(
            {"dataset": self.dataset, "encoder": self.encoder, "epochs": EPOCHS},
            losses=(self.loss,),
            samplers=self.samplers,
            batch_sizes=self.batch_sizes,
            stratum_sizes=self.stratum_sizes,
            negatives=self.negatives,
            learning_rates=self.learning_rates,
        )

    @property
    def words(self) -> list[str]:
        """The same question as words of a command line, from ``advise`` on, without a budget."""
        words = shlex.split(advise_command(self.question, 0, {}))
        return words[1 : words.index("--budget")]


TWO_BATCHES = (512, 256)
CELLS = {
    "sparse/cnn-sg": Cell("advice-sparse", "cnn", "sg", 50),
    "sparse/mf-hinge": Cell("advice-sparse", "mf", "hinge", 20, batch_sizes=TWO_BATCHES),
    "dense/cnn-sg": Cell("advice-dense", "cnn", "sg", 50),
    "dense/lstm-hinge": Cell("advice-dense", "lstm", "hinge", 100),
    "dense/mf-sg": Cell("advice-dense", "mf", "sg", 60),
    "long/cnn-sg": Cell("advice-long", "cnn", "sg", 60),
    "long/cnn-hinge": Cell("advice-long", "cnn", "hinge", 60),
    "citeulike/cnn-sg": Cell("citeulike", "cnn", "sg", 60),
    "citeulike/bow-hinge": Cell("citeulike", "bow", "hinge", 60),
    "movielens/cnn-sg": Cell("movielens", "cnn", "sg", 100),
}
"""The grid: three shapes of synthetic data, CiteULike, and MovieLens with plots."""
QUICK = {
    "tiny/mf-sg": Cell(
        "advice-tiny",
        "mf",
        "sg",
        1.0,
        samplers=("iid", "ns", "strat-ns"),
        batch_sizes=(64,),
        learning_rates=(0.01,),
        least_budget_seconds=24,
    ),
    "tiny/cnn-hinge": Cell(
        "advice-tiny",
        "cnn",
        "hinge",
        1.0,
        samplers=("neg", "ns", "strat-ns"),
        batch_sizes=(64,),
        learning_rates=(0.01,),
        least_budget_seconds=40,
    ),
}
"""Cells of a minute, which show that the benchmark works; races so short decide nothing."""
SYNTHETIC: Mapping[str, Mapping[str, Any]] = {
    "advice-sparse": {"users": 4000, "items": 8000, "links": 60_000},
    "advice-dense": {"users": 1500, "items": 1000, "links": 120_000},
    "advice-long": {
        "users": 1500,
        "items": 3000,
        "links": 40_000,
        "min_words": 90,
        "max_length": 300,
        "vocabulary_size": 5000,
    },
    "advice-tiny": {
        "users": 120,
        "items": 400,
        "links": 1500,
        "topics": 5,
        "vocabulary_size": 200,
        "min_words": 3,
        "max_length": 12,
    },
}
"""Options of the data sets that the benchmark prepares by itself, by name."""
