"""A finished run blended with a floor of its data, kept in the run's folder.

JAX is imported when a blend is to be made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ncfbench.blending import blend
from ncfbench.data import Dataset
from ncfbench.data.content import Split
from ncfbench.floors import kept
from ncfbench.floors.floor import refit
from ncfbench.floors.task import HeldOut, columns_of_split
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.ranks import Scores
from ncfbench.storage.schemas import BLEND
from ncfbench.training.trained import restore_trained

Scored: TypeAlias = dict[tuple[str, str], tuple[HeldOut, Scores]]
METRIC = "recall_at_50"
LONG_FIT = 120.0
"""Seconds of a fit that is repeated without being asked for, whatever the training took."""


def failures() -> tuple[type[BaseException], ...]:
    """Return the failures of a blend that leave its run whole."""
    from ncfbench.training.turns import FAILURES

    return (*FAILURES, np.linalg.LinAlgError)


def blend_run(
    record: RunRecord,
    dataset: Dataset,
    *,
    floor: str | None = None,
    metric: str | None = METRIC,
    scored: Scored | None = None,
    replaces: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any] | None:
    """Blend a run with a kept floor of its data, and keep the row of
    :data:`ncfbench.storage.schemas.BLEND` in its folder.

    Args:
        dataset: that of the run, in its folder.
        floor: by default that with the most recall of validation links, of those whose fit takes
            no longer than the training, or than two minutes.
        metric: of validation links, which chooses the weight; None takes a kept blend by any
            metric, and else chooses by :data:`METRIC`.
        scored: held-out links and the floor's scores of their candidates, by floor and split, from
            other runs of the data; what is computed here is added.
        replaces: False to leave a kept blend with another floor in the run's folder.

    Returns:
        None where the run ranked nothing, no such floor is kept, or there are no validation links.

    Raises:
        DataError: the run has no checkpoint any more.
        UsageError: the run diverged.
    """
    assert dataset.folder is not None, "floors are kept beside it"
    if record.reported_iteration is None or record.summary["recall_reason"]:
        return None
    rows = kept.read(dataset.folder.parent, dataset.fingerprint)
    most = math.inf if floor else max(LONG_FIT, record.summary["train_seconds"])
    best, row = kept.best(rows, floor), kept.best(rows, floor, most)
    asked = {"iteration": record.reported_iteration} | (
        {} if metric is None else {"metric": metric}
    )

    def wanted(floor: kept.Row) -> dict[str, Any]:
        return {name: floor[name] for name in ("floor", "penalty")} | asked

    present = record.blend
    if present and any(part and wanted(part).items() <= present.items() for part in (best, row)):
        return dict(present)
    if best and best != row:
        say(
            f"No blend with {best['floor']}: to fit it again would take longer than the training."
            f" To wait for it: ncfbench export {record.name} vectors --floor {best['floor']}"
        )
    if row is None or not len(dataset.links("validation")[0]):
        return None
    from ncfbench.training.evaluation import scores_of

    begin, metric = time.perf_counter(), metric or METRIC
    embedder, reported = restore_trained(record, dataset, say)
    parameters, is_new = reported.parameters, dataset.graph.item_degrees == 0
    users_UxD = embedder.users(parameters).scored
    scored = {} if scored is None else scored
    if (row["floor"], "test") not in scored:
        task, of_floor = refit(dataset, row)
        for split, held_out in HeldOut.of(task, dataset).items():
            scored[row["floor"], split] = held_out, of_floor(held_out.candidates)

    def blend_of(split: Split) -> blend.Blend:
        held_out, by_floor = scored[row["floor"], split]
        items = dataset.candidates(split)
        items_VxD = embedder.candidates(parameters, items, is_new[items])
        return blend.Blend(by_floor, scores_of(users_UxD, items_VxD), held_out)

    weight, heights, quality = blend_of("validation").choose(metric)
    blended = dict.fromkeys(BLEND.names) | {
        **wanted(row),
        "metric": metric,
        "weight": weight,
        "weights": [*heights],
        "heights": [*heights.values()],
        **columns_of_split("validation", quality),
        **columns_of_split("test", blend_of("test").evaluate([weight])[0]),
        "seconds": time.perf_counter() - begin,
    }
    if replaces or present is None:
        blend.write(record.folder, blended)
    return blended
