"""Ridge regression: the choice of its penalty, and its accuracy, beside one exact fit.

The exact fit is a Cholesky factor of the Gram matrix, as `ncfbench floor` had for each penalty.
Seconds are of the processor, so that other work on the machine changes them little.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from ncfbench.data import open_dataset
from ncfbench.floors import linear
from ncfbench.floors.case import Case, recall_of
from ncfbench.floors.floor import choose_penalty
from ncfbench.floors.models import ridge

CHOICE_TARGET = 1.5
"""A choice has three to five fits. More than 1.5 exact ones would be no gain over fitting two."""
FIT_TARGET = 0.5
RECALL_TARGET = 0.0005


def rows(datasets: Iterable[str]) -> Iterator[tuple[str, float, float]]:
    """Yield what was measured, its figure and the target."""
    for dataset in datasets:
        yield from of_dataset(dataset)


def of_dataset(dataset: str) -> Iterator[tuple[str, float, float]]:
    """Yield the rows of a data set."""
    case = Case.of(open_dataset(dataset), float("inf"), needs_content=True)
    held_out = case.splits["validation"]

    def fit(direct: float, penalty: float) -> tuple[float, float]:
        """Return seconds and recall of a fit; an infinite size is always factorised."""
        usual, linear.DIRECT = linear.DIRECT, direct  # type: ignore[assignment]
        begin = time.process_time()
        scores = ridge(case.task, penalty)(held_out.candidates)
        seconds, linear.DIRECT = time.process_time() - begin, usual
        return seconds, recall_of(held_out.evaluate(scores))

    begin = time.process_time()
    _, recalls, _ = choose_penalty(case, "ridge", print)
    choice = time.process_time() - begin
    best = max(recalls, key=lambda penalty: recalls[penalty])
    exact, exact_recall = fit(float("inf"), best)
    quick, recall = fit(linear.DIRECT, best)
    name = f"{dataset}, ridge regression"
    yield f"{name}: choice of the penalty over one exact fit", choice / exact, CHOICE_TARGET
    yield f"{name}: conjugate gradients over an exact fit", quick / exact, FIT_TARGET
    yield f"{name}: difference in recall@50", abs(recall - exact_recall), RECALL_TARGET
