"""Ridge regression: the choice of its penalty, and its accuracy, beside one exact fit.

    python benchmarks/bench_floors.py [DATASET] [--data-dir DIR]

The exact fit is a Cholesky factor of the Gram matrix, as `ncfbench floor` had for each penalty.
Seconds are of the processor, so that other work on the machine changes them little.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ncfbench.data import open_dataset
from ncfbench.floors import linear
from ncfbench.floors.case import Case, recall_of
from ncfbench.floors.floor import choose_penalty
from ncfbench.floors.models import ridge

CHOICE_TARGET = 1.5
"""A choice has three to five fits. More than 1.5 exact ones would be no gain over fitting two."""
FIT_TARGET = 0.5
RECALL_TARGET = 0.0005


def measure(
    dataset: str = "citeulike", data_dir: str | None = None
) -> list[tuple[str, float, Any]]:
    """Return rows of what was measured, its figure, and the largest that meets the target."""
    case = Case.of(open_dataset(dataset, data_dir=data_dir), float("inf"), needs_content=True)
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
    return [
        ("choice of the penalty / one exact fit, seconds", choice / exact, CHOICE_TARGET),
        ("conjugate gradients / exact fit, seconds", quick / exact, FIT_TARGET),
        ("recall@50, difference from the exact fit", abs(recall - exact_recall), RECALL_TARGET),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", nargs="?", default="citeulike")
    parser.add_argument("--data-dir")
    for what, figure, target in measure(**vars(parser.parse_args())):
        print(f"{what}: {figure:.4f} (target: at most {target:g})")
