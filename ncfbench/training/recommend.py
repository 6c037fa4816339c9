"""Each user's best items, as a table.

The candidates of the test are ranked, as for recall: all test items; or, where links are held out,
all items but those that the user has a training link with. Ties are broken by item id, the smaller
first. The users are those who have a link of any split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.catalog import ENCODERS, find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.errors import DivergedError, UsageError, either
from ncfbench.runs.quality import can_rank
from ncfbench.storage import tables
from ncfbench.storage.schemas import recommendations
from ncfbench.training.inference import Embedder, best_items
from ncfbench.training.state import Parameters

FILE = "recommendations.parquet"
Int32 = NDArray[np.int32]


def require_items(config: RunConfig, dataset: Dataset, count: int) -> None:
    """Refuse, by a UsageError, a model or a data set with nothing to rank, and a count below 1."""
    if count < 1:
        raise UsageError(f"--top {count}: it must be at least 1.")
    if not can_rank(config.encoder, dataset):
        others = [name for name in ENCODERS if find_encoder(name).scores_cold_items]
        raise UsageError(
            f"--top ranks held-out items, and {config.encoder} learns a vector for each item, so"
            f" that they have none. Train with --encoder {either(others)}."
        )
    if len(dataset.candidates("test")) == 0:
        raise UsageError(
            f"--top ranks test items, and {dataset.name} has none."
            f" {dataset.advise_hold_out('test')}"
        )


def write_recommendations(
    path: Path,
    dataset: Dataset,
    embedder: Embedder,
    parameters: Parameters,
    count: int,
    about: Mapping[str, str],
) -> None:
    """Write each user's ``count`` best candidates, or all where there are fewer, a block of users
    at a time.

    Args:
        about: metadata of the table.

    Raises:
        DataError: the table cannot be written.
        DivergedError: a score is not finite.
    """
    users = np.flatnonzero(np.bincount(dataset.users)).astype(np.int32)
    ids = named(users, dataset.user_ids)
    test_user, test_item = dataset.links("test")
    held_out = np.searchsorted(users, test_user).astype(np.int64) * dataset.n_items + test_item
    candidates = dataset.candidates("test")
    is_new = dataset.graph.item_degrees[candidates] == 0
    n_left = np.full(len(users), len(candidates))
    offsets, excluded, ranked = None, None, "all held-out test items"
    if dataset.ranks_known_items:
        excluded, row = dataset.graph.items_of(users)
        offsets = np.searchsorted(row, np.arange(len(users) + 1))
        n_left -= np.diff(offsets)
        ranked = "all items but the user's"
    count = min(count, int(n_left.max()))
    schema = recommendations(dataset.user_ids is not None, dataset.item_ids is not None)
    more = {
        "candidates": ranked,
        "users": "all with a link of any split",
        "items_of_a_user": str(count),
    }

    def parts() -> Iterator[pa.Table]:
        interaction = embedder.interaction(parameters)
        users_UxD = embedder.users(parameters).scored[users]
        items = embedder.candidates(parameters, candidates, is_new)
        done = 0
        for scores_UxM, index in best_items(
            interaction, users_UxD, items, count, offsets, excluded
        ):
            row, place = np.nonzero(np.arange(count) < n_left[done : done + len(index), None])
            scores, item = scores_UxM[row, place], candidates[index[row, place]]
            if not np.isfinite(scores).all():
                raise DivergedError(
                    "A score of a user and an item is not finite: there is nothing to recommend."
                )
            row += done
            columns = [
                ids.take(pa.array(row)),
                named(item, dataset.item_ids),
                pa.array(place.astype(np.int32) + 1),
                pa.array(scores),
                pa.array(np.isin(row * dataset.n_items + item, held_out)),
            ]
            yield pa.table(columns, schema=schema)
            done += len(index)

    tables.write_table(path, parts(), schema.with_metadata({**schema.metadata, **about, **more}))


def named(numbers: Int32, ids: pa.StringArray | None) -> pa.Array:
    """Return the source's ids of users or items; their numbers where it has none."""
    return pa.array(numbers) if ids is None else ids.take(pa.array(numbers))
