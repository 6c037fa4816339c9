"""A data set as floors read it: its links, its content, and whether they have time and memory."""

from __future__ import annotations

import functools
import time
import timeit
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ncfbench.data.store import Dataset
from ncfbench.floors.models import FLOORS, cost, profile
from ncfbench.floors.task import Features, HeldOut, Task, contents_of
from ncfbench.runs.quality import COMPARED, Evaluation
from ncfbench.timing.clock import format_duration

FITS = 4
"""Typical number of penalties that a choice tries."""
RANKING_SECONDS = 2e-8
"""To rank one score of a user among all."""
EFFICIENCY = 0.6
"""Speed of a Cholesky factor over that of a product."""


@dataclass(frozen=True)
class Case:
    """A data set as floors read it, shared by all of them.

    Attributes:
        task: training links, and content if some floor reads it.
        splits: the held-out links of each split that has any.
        memory_bytes: that the matrices of a floor may take.
        content: its title.
        content_seconds: what the content took, with its choice and derived features.
    """

    dataset: Dataset
    task: Task
    splits: Mapping[str, HeldOut]
    memory_bytes: float
    content: str | None = None
    content_seconds: float = 0.0

    @classmethod
    def of(cls, dataset: Dataset, memory_bytes: float, *, needs_content: bool) -> Case:
        """Return a data set's links, and the content of its items if it is needed.

        Features stand beside texts where profiles then have more recall of validation links.
        """
        task = Task.of(dataset)
        splits = HeldOut.of(task, dataset)
        if not needs_content:
            return cls(dataset, task, splits, memory_bytes)
        begin = time.perf_counter()
        contents, derived = contents_of(dataset)
        title = _chosen_content(task, contents, splits.get("validation"), memory_bytes)
        seconds = time.perf_counter() - begin + derived * ("features" in title)
        task = replace(task, content_IxF=contents[title])
        return cls(dataset, task, splits, memory_bytes, title, seconds)

    def refusal(self, name: str, penalty: float | None, budget_seconds: float) -> str | None:
        """Return why a floor that :func:`lack` lets pass is not fitted; None if it is."""
        is_chosen = bool(FLOORS[name].penalties) and penalty is None
        needed = self.bytes_of(name) * (1 + is_chosen / 2)  # a choice keeps its best fit
        if needed > self.memory_bytes:
            return (
                f"it needs about {needed / 2**30:.2g} GiB of memory, and"
                f" {self.memory_bytes / 2**30:.2g} GiB are free."
            )
        seconds = expected_seconds(self, name, is_chosen=is_chosen)
        if seconds > budget_seconds:
            return (
                f"it would take about {format_duration(seconds)} by the speed of this machine just"
                f" now, and has {format_duration(max(budget_seconds, 0.0))}. A larger --budget"
                " overrules this."
            )
        return None

    def bytes_of(self, name: str) -> float:
        """Return the bytes of the matrices of a floor."""
        sizes = (len(links.candidates) for links in self.splits.values())
        return max(cost(name, self.task, size)[0] for size in sizes)


def expected_seconds(case: Case, name: str, *, is_chosen: bool) -> float:
    """Return about how long a floor takes here, with the choice of its penalty or without."""
    seconds = {
        split: cost(name, case.task, len(links.candidates))[1] / _rate()
        + RANKING_SECONDS * links.n_users * len(links.candidates)
        for split, links in case.splits.items()
    }
    ranked = seconds.get("validation", seconds["test"] * is_chosen)
    return seconds["test"] + ranked * (FITS if is_chosen else 1)


@functools.cache
def _rate() -> float:
    """Return the operations a second of a factor, by the fastest of some dense products."""
    square = np.random.default_rng(0).random((1024, 1024), np.float32)
    seconds = min(timeit.repeat(lambda: square @ square, repeat=5, number=1))
    return EFFICIENCY * 2.0 * len(square) ** 3 / seconds


def _chosen_content(
    task: Task, contents: Mapping[str, Features], held_out: HeldOut | None, memory_bytes: float
) -> str:
    """Return the title of the content whose profiles have the most recall of validation links, or
    of links that are held apart; of the first one where memory does not hold profiles.
    """
    first = next(iter(contents))
    if len(contents) == 1:
        return first
    given, ranked = (task, held_out) if held_out else task.apart()
    candidates = ranked.candidates
    if cost("profile", given, len(candidates))[0] > memory_bytes:
        return first

    def recall(title: str) -> float:
        scores = profile(replace(given, content_IxF=contents[title]))(candidates)
        return recall_of(ranked.evaluate(scores))

    return max(contents, key=recall)


def recall_of(quality: Evaluation) -> float:
    """Return the recall@50 by which floors are chosen; 0 where there is none."""
    return float(quality.figures[f"recall_at_{COMPARED}"] or 0.0)
