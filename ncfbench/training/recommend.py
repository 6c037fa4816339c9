"""Each user's best items, as a table: ``recommendations.parquet`` in a run's folder.

The candidates of the test are ranked for every user who has a link of any split, as for recall: all
test items; or, where links are held out, all items but those that the user has a training link
with. Ties are broken by item id, the smaller first. The parameters are those of the epoch that the
run reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.catalog import ENCODERS, find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.errors import DivergedError, UsageError, either
from ncfbench.runs.quality import can_rank
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import tables
from ncfbench.storage.schemas import recommendations
from ncfbench.training.checkpoint import Best
from ncfbench.training.inference import Embedder, best_items

FILE = "recommendations.parquet"
Int32 = NDArray[np.int32]


def require_items(config: RunConfig, dataset: Dataset, count: int) -> None:
    """Refuse, before training, what could not be written in the end, by a UsageError."""
    if count < 1:
        raise UsageError(f"recommend = {count}: it must be at least 1.")
    if not can_rank(config.encoder, dataset):
        others = [name for name in ENCODERS if find_encoder(name).scores_cold_items]
        raise UsageError(
            f"--recommend ranks held-out items, and {config.encoder} learns a vector for each item,"
            f" so that they have none. Use --encoder {either(others)}."
        )
    if len(dataset.candidates("test")) == 0:
        raise UsageError(
            f"--recommend ranks test items, and {dataset.name} has none. Prepare it with a"
            " --test-fraction above 0."
        )


def write(
    folder: Path,
    dataset: Dataset,
    embedder: Embedder,
    count: int,
    reported: Best,
    schedule: Schedule,
) -> None:
    """Write :data:`FILE` into a folder: each user's ``count`` best candidates, or all where there
    are fewer, a block of users at a time.

    Raises:
        DataError: the table cannot be written.
        DivergedError: a score is not finite.
    """
    user_ids, item_ids, candidates = dataset.user_ids, dataset.item_ids, dataset.candidates("test")
    users = np.flatnonzero(np.bincount(dataset.users)).astype(np.int32)
    test_user, test_item = dataset.links("test")
    is_new = dataset.graph.item_degrees[candidates] == 0
    offsets, excluded, n_left = None, None, np.full(len(users), len(candidates))
    if dataset.ranks_known_items:
        excluded, position = dataset.graph.items_of(users)
        offsets = np.searchsorted(position, np.arange(len(users) + 1))
        n_left -= np.diff(offsets)
    held_out = test_user.astype(np.int64) * dataset.n_items + test_item
    schema = recommendations(user_ids is not None, item_ids is not None)
    count = min(count, int(n_left.max()))
    about = {
        "parameters": "of the reported epoch",
        "epoch": f"{schedule.epoch_of(reported.iteration):g}",
        "iteration": str(reported.iteration),
        "candidates": "all held-out test items" if excluded is None else "all items but the user's",
        "users": "all with a link of any split",
        "items_of_a_user": str(count),
    }

    def parts() -> Iterator[pa.Table]:
        blocks = best_items(
            embedder.interaction(reported.parameters),
            embedder.users(reported.parameters).scored[users],
            embedder.candidates(reported.parameters, candidates, is_new),
            count,
            offsets,
            excluded,
        )
        for row, index, place, scores in best_rows(blocks, n_left, count):
            user, item = users[row], candidates[index]
            columns = [
                named(user, user_ids),
                named(item, item_ids),
                pa.array(place),
                pa.array(scores),
                pa.array(np.isin(user.astype(np.int64) * dataset.n_items + item, held_out)),
            ]
            yield pa.table(columns, schema=schema)

    tables.write_table(folder / FILE, parts(), schema.with_metadata(schema.metadata | about))


def best_rows(
    blocks: Iterable[tuple[NDArray[np.float32], Int32]], n_left: NDArray[np.integer], count: int
) -> Iterator[tuple[NDArray[np.intp], Int32, Int32, NDArray[np.float32]]]:
    """Yield rows of a table of recommendations, a block of users at a time: the index of the user,
    that of the candidate, the rank from 1 and the score.

    Args:
        blocks: of :func:`ncfbench.training.inference.best_items`.
        n_left: int[users], candidates of each user.
        count: M, of ``blocks``.

    Raises:
        DivergedError: a score is not finite.
    """
    done = 0
    for scores_UxM, index in blocks:
        row, place = np.nonzero(np.arange(count) < n_left[done : done + len(index), None])
        scores = scores_UxM[row, place]
        if not np.isfinite(scores).all():
            raise DivergedError(
                "A score of a user and an item is not finite: there is nothing to recommend."
            )
        yield done + row, index[row, place], place.astype(np.int32) + 1, scores
        done += len(index)


def named(numbers: Int32, ids: pa.StringArray | None) -> pa.Array:
    """Return the source's ids of users or items; their numbers where it has none."""
    return pa.array(numbers) if ids is None else ids.take(pa.array(numbers))
