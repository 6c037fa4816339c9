"""Runs of a small model on the data set ``tiny``, and the numbers that they must repeat."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stopping import StopAt

from ncfbench.config import Locations, complete
from ncfbench.data.store import Dataset
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.timing.ledger import Ledger
from ncfbench.training import run as training
from ncfbench.training.export import RECOMMENDATIONS, export_vectors

SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 64,
    "epochs": 3,
    "encoder": "bow",
    "dimension": 8,
    "word_dimension": 8,
}


class Said(StopAt):
    """Keeps the messages, and the iteration at which training began."""

    def __init__(self, iteration: int = -1) -> None:
        super().__init__(iteration)
        self.texts: list[str] = []
        self.began_at = -1

    def begin(self, title: str, total: int, done: int) -> None:
        self.began_at = done

    def say(self, text: str) -> None:
        self.texts.append(text)


def train(
    data_dir: Path,
    runs_dir: Path,
    *,
    resume: bool = False,
    again: bool = False,
    progress: Progress | None = None,
    **more: Any,
) -> RunRecord:
    return training.run(
        complete(SMALL | more),
        Locations(data_dir, runs_dir),
        resume=resume,
        again=again,
        progress=progress,
    )


BEST = f"vectors/{RECOMMENDATIONS}"
"""Where :func:`recommend` writes, below a run's folder."""


def recommend(folder: Path, *, data_dir: Path, count: int = 50, said: Said | None = None) -> None:
    """Export a run's vectors into its folder, with each user's best items."""
    more = {"top": count, "again": True, "data_dir": data_dir}
    export_vectors(folder, folder / "vectors", progress=said, **more)


def skippable_clock(patch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the clocks of runs on by some seconds, without a wait."""
    skipped, real = [0.0], time.perf_counter

    def now() -> float:
        return real() + sum(skipped)

    patch.setattr(time, "perf_counter", now)
    patch.setattr(time, "perf_counter_ns", lambda: int(now() * 1e9))
    patch.setattr(Ledger.__init__, "__defaults__", (now,))
    return skipped.append


def figures(record: RunRecord) -> list[dict[str, Any]]:
    """Return the curve without its times."""
    return [
        {key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve
    ]


def ends_of(dataset: Dataset, epochs: int = 3) -> list[int]:
    """Return the iterations that end an epoch."""
    return [-(-epoch * dataset.graph.n_links // 64) for epoch in range(1, epochs + 1)]
