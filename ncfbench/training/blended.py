"""A finished run blended with a floor of its data, kept in the run's folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ncfbench.blending import blend
from ncfbench.config import Folder, Locations
from ncfbench.data import Dataset
from ncfbench.data.lsa import Ids
from ncfbench.floors import kept
from ncfbench.floors.measure import refit
from ncfbench.floors.models import Fitted
from ncfbench.floors.task import HeldOut, Task
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.ranks import Scores
from ncfbench.storage.schemas import BLEND
from ncfbench.training.recall import scores_of
from ncfbench.training.trained import open_data, restore_trained

METRIC = "recall_at_50"
LONG_FIT = 60.0
"""Seconds of a fit that is repeated without being asked for, whatever the training took."""


@dataclass(frozen=True)
class Parts:
    """A floor and a run over the same items.

    Attributes:
        row: of the floor, as it is kept.
        splits: the held-out links of each split that has any.
        of_floor, of_run: return the scores of some items, by their ids.
    """

    row: kept.Row
    task: Task
    splits: dict[str, HeldOut]
    of_floor: Fitted
    of_run: Fitted

    def standardised(self, split: str) -> tuple[Scores, Scores]:
        """Return the scores of both on a split's candidates, on one scale."""
        held_out = self.splits[split]
        parts = (of(held_out.candidates) for of in (self.of_floor, self.of_run))
        floor, own = (blend.standardised(scores, held_out) for scores in parts)
        return floor, own


def parts_of(
    record: RunRecord, dataset: Dataset, row: kept.Row, say: Callable[[str], None]
) -> Parts:
    """Fit a kept floor again, and restore what the run reports.

    Raises:
        DataError: the run has no checkpoint of its end any more.
    """
    task, fitted = refit(dataset, row)
    embedder, reported = restore_trained(record, dataset, say)
    users_UxD = embedder.users(reported.parameters).scored
    is_new = dataset.graph.item_degrees == 0

    def of_run(items: Ids) -> Scores:
        chosen = np.asarray(items, np.int32)
        vectors = embedder.candidates(reported.parameters, chosen, is_new[chosen])
        return scores_of(users_UxD, jax.block_until_ready(vectors))

    return Parts(row, task, HeldOut.of(task, dataset), fitted, of_run)


def blend_run(
    record: RunRecord,
    *,
    floor: str | None = None,
    metric: str = METRIC,
    data_dir: Folder = None,
    again: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any] | None:
    """Blend a run with a kept floor of its data, and keep the row of
    :data:`ncfbench.storage.schemas.BLEND` in its folder.

    Args:
        floor: by default that with the most recall of validation links.
        metric: of validation links, which chooses the weight.
        again: blend again where the same blend is kept.

    Returns:
        None where the run ranked nothing, no such floor is kept, its fit took longer than the
        training and than a minute, or there are no validation links.

    Raises:
        DataError: the data set is not that of the run, or the run has no checkpoint any more.
        UsageError: the run diverged.
    """
    folder = Locations.of(data_dir).data_dir / record.config.dataset
    row = kept.best(kept.read(folder, record.data_fingerprint), floor)
    if row is None or record.reported_iteration is None or record.summary["recall_reason"]:
        return None
    present = blend.read(record.folder)
    wanted = {"floor": row["floor"], "penalty": row["penalty"], "metric": metric}
    if present is not None and wanted.items() <= present.items() and not again:
        return dict(present)
    fit_seconds = row["content_seconds"] + row["fit_seconds"]
    if floor is None and fit_seconds > max(LONG_FIT, record.summary["train_seconds"]):
        return None
    dataset = open_data(record, data_dir, say)
    if not len(dataset.links("validation")[0]):
        return None
    begin = time.perf_counter()
    parts = parts_of(record, dataset, row, say)
    choice = blend.choose(*parts.standardised("validation"), parts.splits["validation"], metric)
    test = parts.splits["test"].evaluate(blend.mixed(*parts.standardised("test"), choice.weight))
    found = dict.fromkeys(BLEND.names) | {
        **wanted,
        "weight": choice.weight,
        "weights": [*choice.heights],
        "heights": [*choice.heights.values()],
        **blend.columns("validation", choice.validation),
        **blend.columns("test", test),
        "seconds": time.perf_counter() - begin,
    }
    blend.write(record.folder, found)
    return found
