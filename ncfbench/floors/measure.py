"""One floor, measured: its penalty chosen, fitted, and the held-out links ranked by it."""

from __future__ import annotations

import functools
import json
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import linalg

from ncfbench.data.features import Float32
from ncfbench.data.lsa import Ids
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.floors.kept import columns_of
from ncfbench.floors.models import FLOORS, Fitted, Floor, cost, profile
from ncfbench.floors.task import Features, HeldOut, Task, contents_of, tries_features
from ncfbench.runs.quality import COMPARED, Evaluation, Exposure
from ncfbench.runs.ranks import Scores
from ncfbench.storage.schemas import EVALUATED, FLOOR, OF_USERS
from ncfbench.timing.clock import format_duration

FITS = 4
"""Typical number of penalties that a choice tries."""
RANKING_SECONDS = 2e-8
"""To rank one score of a user among all."""
EFFICIENCY = 0.6
"""Speed of a Cholesky factor over that of a product."""
WIDTHS = (16384, 8192, 4096, 2048)
"""Columns of the content that a floor may be fitted to where it cannot be to all."""


@dataclass(frozen=True)
class Case:
    """A data set as floors see it: what they share is made once.

    Attributes:
        task: training links, and content if some floor reads it.
        splits: the held-out links of each split that has any.
        memory_bytes: that the matrices of a floor may take.
        content: its title.
        content_seconds: what the content took, with its choice and derived features.
        columns: how many of its columns are read, the heaviest; None where all are.
    """

    dataset: Dataset
    task: Task
    splits: Mapping[str, HeldOut]
    memory_bytes: float
    content: str | None
    content_seconds: float
    columns: int | None = None

    @classmethod
    def of(cls, dataset: Dataset, memory_bytes: float, *, needs_content: bool) -> Case:
        """Return a data set's links, and the content of its items if it is needed.

        Features stand beside texts where profiles then have more recall of validation links.
        """
        task = Task.of(dataset)
        splits = HeldOut.of(task, dataset)
        if not needs_content:
            return cls(dataset, task, splits, memory_bytes, None, 0.0)
        begin = time.perf_counter()
        contents, derived = contents_of(dataset)
        title = _chosen_content(task, contents, splits.get("validation"), memory_bytes)
        seconds = time.perf_counter() - begin + derived * ("features" in title)
        task = replace(task, content_IxF=contents[title])
        return cls(dataset, task, splits, memory_bytes, title, seconds)

    def within(self, name: str, penalty: float | None, budget_seconds: float) -> Case | None:
        """Return it with as much of its content as a floor has time and memory for; None where it
        has none.
        """
        if refusal(self, name, penalty, budget_seconds) is None:
            return self
        width = self.task.content.shape[1] if FLOORS[name].narrows else 0
        for columns in WIDTHS:
            if columns < width:
                narrow = replace(self, task=self.task.narrowed(columns), columns=columns)
                if refusal(narrow, name, penalty, budget_seconds) is None:
                    return narrow
        return None


@dataclass(frozen=True)
class Choice:
    """A penalty, and what chose it.

    Attributes:
        recalls: recall@50 by each penalty that was tried.
        validation: quality of validation links with it, where these chose it.
        fitted: its fit, where that saw all training links and memory holds two.
        fit_seconds: what that took.
    """

    penalty: float = 0.0
    by: str = ""
    recalls: Mapping[float, float] = field(default_factory=dict)
    validation: Evaluation | None = None
    fitted: Fitted | None = None
    fit_seconds: float = 0.0


def settings_text(
    floor: Floor, penalty: float | None, dataset: Dataset, columns: int | None = None
) -> str:
    """Return as JSON what decides a floor's scores beside the data."""
    asked: dict[str, Any] = {} if columns is None else {"columns": columns}
    if floor.needs_content and tries_features(dataset):
        asked["features"] = "tried"
    if floor.penalties:
        own = {"penalties": list(floor.penalties)} if penalty is None else {"penalty": penalty}
        asked |= own
    return json.dumps({**asked, **floor.settings}, sort_keys=True)


def lack(dataset: Dataset, name: str) -> str | None:
    """Return what a data set lacks for a floor, as the end of a sentence; None if nothing."""
    floor = FLOORS[name]
    if floor.needs_links and not dataset.ranks_known_items:
        return (
            f"the held-out items of {dataset.name} have no training links to rank them by, as they"
            " have where data are prepared with --hold-out links, last or time."
        )
    if floor.needs_content and not dataset.n_words and dataset.item_features is None:
        return f"the items of {dataset.name} have neither texts nor features."
    return None


def refusal(case: Case, name: str, penalty: float | None, budget_seconds: float) -> str | None:
    """Return why a floor that :func:`lack` lets pass is not fitted, as the end of a sentence; None
    if it is.
    """
    needed = _bytes(case, name)
    if needed > case.memory_bytes:
        return (
            f"it needs about {needed / 2**30:.2g} GiB of memory, and"
            f" {case.memory_bytes / 2**30:.2g} GiB are free."
        )
    is_chosen = bool(FLOORS[name].penalties) and penalty is None
    seconds = expected_seconds(case, name, is_chosen=is_chosen)
    if seconds > budget_seconds:
        fewer = "; with one --penalty ncfbench floor takes less" if is_chosen else ""
        return (
            f"it would take about {format_duration(seconds)} by the speed of this machine just now,"
            f" and has {format_duration(max(budget_seconds, 0.0))}. A larger --budget overrules"
            f" this{fewer}."
        )
    return None


def expected_seconds(case: Case, name: str, *, is_chosen: bool) -> float:
    """Return about how long a floor takes here, with the choice of its penalty or without."""
    seconds = {
        split: cost(name, case.task, len(links.candidates))[1] / _rate()
        + RANKING_SECONDS * links.n_scores
        for split, links in case.splits.items()
    }
    return seconds["test"] + is_chosen * FITS * seconds.get("validation", seconds["test"])


def measure(
    case: Case, name: str, penalty: float | None, show: Callable[[str], object]
) -> dict[str, Any]:
    """Fit a floor, rank the held-out links, and return its row of
    :data:`ncfbench.storage.schemas.FLOOR`.

    Args:
        penalty: None to choose it, by :func:`choose_penalty`.
        show: receives what is being done.

    Raises:
        UsageError: the penalty is too small for single precision.
    """
    floor, task, test = FLOORS[name], case.task, case.splits["test"]
    begin = time.perf_counter()
    choice = Choice() if penalty is None else Choice(penalty, "given")
    try:
        if floor.penalties and penalty is None:
            choice = choose_penalty(case, name, show)
        chosen = time.perf_counter()
        show(f"{name}: test links" + f", penalty {choice.penalty:g}" * bool(floor.penalties))
        fitted = choice.fitted or floor.fit(task, choice.penalty)
        scores = _finite(fitted(test.candidates))
        done = time.perf_counter()
        exposure = Exposure(task.item_degrees[test.candidates])
        evaluation = test.evaluate(scores, exposure)
        ranked = time.perf_counter()
        validation = choice.validation
        if validation is None and (links := case.splits.get("validation")):
            validation = links.evaluate(_finite(fitted(links.candidates)))
    except linalg.LinAlgError as error:
        raise UsageError(
            "its scores cannot be computed in single precision with so small a penalty: use a"
            " larger --penalty."
        ) from error
    row = dict.fromkeys(FLOOR.names) | {
        "dataset": case.dataset.name,
        "floor": name,
        "content": case.content if floor.needs_content else None,
        "settings": settings_text(floor, penalty, case.dataset, case.columns),
        "penalty": choice.penalty if floor.penalties else None,
        "chosen_by": choice.by if floor.penalties else None,
        "penalties": [*choice.recalls],
        "recalls": [*choice.recalls.values()],
        "content_seconds": case.content_seconds if floor.needs_content else 0.0,
        "choice_seconds": chosen - begin - choice.fit_seconds,
        "fit_seconds": done - chosen + choice.fit_seconds,
        "ranking_seconds": ranked - done,
        "data_fingerprint": case.dataset.fingerprint,
    }
    row |= {f"test_{name}": value for name, value in exposure.figures().items()}
    for split, quality in zip(EVALUATED, (validation, evaluation), strict=True):
        if quality is not None:
            row |= {f"{split}_{measure}": value for measure, value in quality.figures.items()}
            lists = quality.user_recalls.tolist(), quality.item_shares.tolist()
            row |= dict(zip(OF_USERS[split], lists, strict=True))
    return row


def refit(dataset: Dataset, row: Mapping[str, Any]) -> tuple[Task, Fitted]:
    """Fit a kept floor again to the training links of a data set, with its content and penalty."""
    contents = contents_of(dataset)[0] if row["content"] else {}
    task = Task.of(dataset, contents.get(row["content"]))
    if columns := columns_of(row):
        task = task.narrowed(columns)
    return task, FLOORS[row["floor"]].fit(task, row["penalty"] or 0.0)


def choose_penalty(case: Case, name: str, show: Callable[[str], object]) -> Choice:
    """Return the penalty of the best recall@50 of validation links; test links have no part in it.

    Without validation a tenth of the training items or links stands in for it, which the fits of
    the choice leave out.
    """
    floor, task = FLOORS[name], case.task
    by, held_out = "validation", case.splits.get("validation")
    if held_out is None:
        task, held_out = task.apart()
        by = f"a tenth of the training {'links' if task.leaves_out_known else 'items'}"
    is_reusable = by == "validation" and 2 * _bytes(case, name) <= case.memory_bytes
    qualities: dict[float, Evaluation] = {}
    best: dict[float, tuple[Fitted, float]] = {}

    def recall(penalty: float) -> float:
        show(f"{name}: choosing its penalty, {penalty:g}")
        begin = time.perf_counter()
        try:
            fitted = floor.fit(task, penalty)
            seconds = time.perf_counter() - begin
            quality = held_out.evaluate(_finite(fitted(held_out.candidates)))
        except linalg.LinAlgError:  # too small for single precision
            return -1.0
        if is_reusable and all(_recall(quality) > _recall(other) for other in qualities.values()):
            best.clear()
            best[penalty] = fitted, seconds
        qualities[penalty] = quality
        return _recall(quality)

    penalty, recalls = climb(floor.penalties, recall)
    if penalty not in qualities:
        raise linalg.LinAlgError("no penalty is large enough")
    recalls = {each: value for each, value in recalls.items() if each in qualities}
    validation = qualities[penalty] if by == "validation" else None
    return Choice(penalty, by, recalls, validation, *best.get(penalty, (None, 0.0)))


def _finite(scores: Scores) -> Scores:
    """Return the same scores, with a LinAlgError where one is not finite."""

    def checked(users: Ids) -> Float32:
        found = scores(users)
        if not np.isfinite(found).all():
            raise linalg.LinAlgError("scores are not finite")
        return found

    return checked


def climb(
    values: Sequence[float], height: Callable[[float], float]
) -> tuple[float, dict[float, float]]:
    """Return a value that none of its neighbours is higher than, and the heights that were asked
    for, from the middle upwards and then downwards.
    """
    heights: dict[float, float] = {}

    def at(index: int) -> float:
        if values[index] not in heights:
            heights[values[index]] = height(values[index])
        return heights[values[index]]

    best = len(values) // 2
    at(best)
    for step in (1, -1):
        while 0 <= best + step < len(values) and at(best + step) > at(best):
            best += step
    return values[best], heights


def _chosen_content(
    task: Task, contents: Mapping[str, Features], held_out: HeldOut | None, memory_bytes: float
) -> str:
    """Return the title of the content whose profiles have the most recall of validation links, or
    of links that are held apart; of the first one where memory does not hold profiles.
    """
    first, *others = contents
    if not others:
        return first
    given, ranked = (task, held_out) if held_out else task.apart()
    tasks = {title: replace(given, content_IxF=content) for title, content in contents.items()}
    candidates = ranked.candidates
    if cost("profile", given, len(candidates))[0] > memory_bytes:
        return first

    def recall(title: str) -> float:
        return _recall(ranked.evaluate(profile(tasks[title])(candidates)))

    return max(contents, key=recall)


def _recall(quality: Evaluation) -> float:
    return float(quality.figures[f"recall_at_{COMPARED}"] or 0.0)


def _bytes(case: Case, name: str) -> float:
    """Return the bytes of the matrices of a floor."""
    return max(cost(name, case.task, len(links.candidates))[0] for links in case.splits.values())


@functools.cache
def _rate() -> float:
    """Return the operations a second of a factor, by the fastest of some dense products."""
    square = np.random.default_rng(0).random((1024, 1024), np.float32)
    seconds = min(timeit.repeat(lambda: square @ square, repeat=5, number=1))
    return EFFICIENCY * 2.0 * len(square) ** 3 / seconds
