"""Questions on data that train in a second."""

from typing import Any
from unittest.mock import Mock

from ncfbench.advice import pipeline
from ncfbench.advice.question import Question
from ncfbench.config import Locations
from ncfbench.runs.progress import Progress

FIXED: dict[str, Any] = {"dataset": "tiny", "encoder": "bow", "epochs": 4, "dimension": 8}
OTHERS: dict[str, tuple[Any, ...]] = {
    "user_tower": ("table",),
    "gamma": (10.0,),
    "weight_decay": (0.0,),
    "word_dropout": (0.5,),
    "item_dropout": (0.1,),
    "feature_dropout": (0.0,),
}
"""One value for each setting that would be tried by itself."""
ASKED: dict[str, Any] = {
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


def ask(data_dir, runs_dir, *, budget=BUDGET, encoder="bow", metric="recall@10", **tried):
    question = Question(FIXED | {"encoder": encoder}, metric, ASKED | tried)
    locations = Locations(data_dir, runs_dir)
    progress = Mock(Progress)
    found = pipeline.answer_question(question, locations, budget, progress=progress)
    return found, [call.args[0] for call in progress.say.call_args_list]
