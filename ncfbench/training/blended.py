"""A finished run blended with floors of its data, kept in the run's folder.

JAX is imported when a blend is to be made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ncfbench.blending import blend
from ncfbench.data import Dataset
from ncfbench.floors import kept
from ncfbench.floors.floor import refit
from ncfbench.floors.task import HeldOut, columns_of_split
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.ranks import Scores
from ncfbench.storage.schemas import BLEND, EVALUATED
from ncfbench.training.trained import restore_trained

Scored: TypeAlias = dict[tuple[str, str], tuple[HeldOut, Scores]]
METRIC = "recall_at_50"
LONG_FIT = 120.0
"""Seconds of a fit that is repeated without being asked for, whatever the training took."""
MOST_FLOORS = 2
"""Floors that a run is blended with, unless one is asked for."""


def failures() -> tuple[type[BaseException], ...]:
    """Return the failures of a blend that leave its run whole."""
    from ncfbench.training.turns import FAILURES

    return (*FAILURES, np.linalg.LinAlgError)


def quick_floors(
    record: RunRecord, dataset: Dataset, say: Callable[[str], None] = lambda text: None
) -> list[kept.Row]:
    """Return the kept floors with the most recall of validation links, of those whose fit takes no
    longer than the training of a run, or than two minutes; ``say`` how to blend with a better one.
    """
    assert dataset.folder is not None, "floors are kept beside it"
    if not _is_ranked(record):
        return []
    rows = kept.read(dataset.folder.parent, dataset.fingerprint)
    floors = kept.ranked(rows, max(LONG_FIT, record.summary["train_seconds"]))[:MOST_FLOORS]
    best = next(iter(kept.ranked(rows)), None)
    if best and best not in floors and _key(best) not in map(_key, record.blends):
        say(
            f"No blend with {best['floor']}: to fit it again would take longer than the training."
            f" To wait for it: ncfbench export {record.name} vectors --floor {best['floor']}"
        )
    return floors


def blend_run(
    record: RunRecord,
    dataset: Dataset,
    floors: Sequence[kept.Row],
    *,
    metric: str | None = METRIC,
    scored: Scored | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any] | None:
    """Blend a run with each of some kept floors of its data, keep the rows of
    :data:`ncfbench.storage.schemas.BLEND` in its folder, and return that with the most recall of
    validation links.

    Args:
        dataset: that of the run, in its folder.
        metric: of validation links, which chooses the weight; None takes a kept blend by any
            metric, and else chooses by :data:`METRIC`.
        scored: held-out links and the floors' scores of their candidates, by floor and split, from
            other runs of the data; what is computed here is added.

    Returns:
        None where the run ranked nothing, there is no floor, or there are no validation links.

    Raises:
        DataError: the run has no checkpoint any more.
        UsageError: the run diverged.
    """
    if not _is_ranked(record):
        return None
    asked = {"iteration": record.reported_iteration} | (
        {} if metric is None else {"metric": metric}
    )
    rows = {_key(row): dict(row) for row in record.blends if asked.items() <= row.items()}
    missing = [floor for floor in floors if _key(floor) not in rows]
    if missing and len(dataset.links("validation")[0]):
        from ncfbench.training.evaluation import scores_of

        embedder, reported = restore_trained(record, dataset, say)
        parameters, is_new = reported.parameters, dataset.graph.item_degrees == 0
        users_UxD, of_run = embedder.users(parameters).scored, dict[str, Scores]()
        for split in EVALUATED:
            items = dataset.candidates(split)
            items_VxD = embedder.candidates(parameters, items, is_new[items])
            of_run[split] = scores_of(users_UxD, items_VxD)
        for floor in missing:
            begin, of_floors = time.perf_counter(), {} if scored is None else scored
            if (floor["floor"], "test") not in of_floors:
                task, of_floor = refit(dataset, floor)
                for name, held_out in HeldOut.of(task, dataset).items():
                    of_floors[floor["floor"], name] = held_out, of_floor(held_out.candidates)
            blends = {}
            for name, by_run in of_run.items():
                held_out, by_floor = of_floors[floor["floor"], name]
                blends[name] = blend.Blend(by_floor, by_run, held_out)
            weight, heights, quality = blends["validation"].choose(metric or METRIC)
            rows[_key(floor)] = dict.fromkeys(BLEND.names) | {
                "floor": floor["floor"],
                "penalty": floor["penalty"],
                "iteration": record.reported_iteration,
                "metric": metric or METRIC,
                "weight": weight,
                "weights": [*heights],
                "heights": [*heights.values()],
                **columns_of_split("validation", quality),
                **columns_of_split("test", blends["test"].evaluate([weight])[0]),
                "seconds": time.perf_counter() - begin,
            }
            blend.write(record.folder, [*rows.values()])
    blended = (rows[key] for floor in floors if (key := _key(floor)) in rows)
    return max(blended, key=kept.recall, default=None)


def _is_ranked(record: RunRecord) -> bool:
    return record.reported_iteration is not None and not record.summary["recall_reason"]


def _key(row: kept.Row) -> tuple[str, float | None]:
    """Return what names a floor in its row, and in that of a blend with it."""
    return row["floor"], row["penalty"]
