"""Each user's best items, as a table.

All items are ranked but those that the user has a training link with; or the candidates of the
test, as for recall: where items are held out, the test items. Ties are broken by item id, the
smaller first. The users are those who have a link of any split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import jax.numpy as jnp
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
from ncfbench.training.inference import best_items
from ncfbench.training.vectors import Vectors

FILE = "recommendations.parquet"
CANDIDATES = ("all", "test")
"""Which items are ranked for a user."""
Int32 = NDArray[np.int32]


def require_items(
    config: RunConfig | None, dataset: Dataset, count: int, candidates: str = "all"
) -> None:
    """Refuse, by a UsageError, a model or a data set with nothing to rank, and a count below 1."""
    if count < 1:
        raise UsageError(f"--top {count}: it must be at least 1.")
    if candidates not in CANDIDATES:
        raise UsageError(f"--candidates {candidates!r}: it is one of {', '.join(CANDIDATES)}.")
    if candidates == "all":
        return
    if config is not None and not can_rank(config.encoder, dataset):
        others = [name for name in ENCODERS if find_encoder(name).scores_cold_items]
        raise UsageError(
            f"--candidates test ranks held-out items, and {config.encoder} learns a vector for each"
            f" item, so that they have none. Train with --encoder {either(others)}."
        )
    if len(dataset.candidates("test")) == 0:
        raise UsageError(
            f"--candidates test ranks test items, and {dataset.name} has none."
            f" {dataset.advise_hold_out('test')}"
        )


def write_recommendations(
    path: Path,
    dataset: Dataset,
    found: Vectors,
    count: int,
    candidates: str,
    about: Mapping[str, str],
) -> None:
    """Write each user's ``count`` best candidates, or all where there are fewer, a block of users
    at a time.

    Args:
        candidates: a value of :data:`CANDIDATES`.
        about: metadata of the table.

    Raises:
        DataError: the table cannot be written.
        DivergedError: a score is not finite.
    """
    users = np.flatnonzero(np.bincount(dataset.users)).astype(np.int32)
    ids = named(users, dataset.user_ids)
    test_user, test_item = dataset.links("test")
    held_out = np.searchsorted(users, test_user).astype(np.int64) * dataset.n_items + test_item
    place = np.arange(len(found.items))
    offsets, excluded, ranked = None, None, "all held-out test items"
    if candidates == "test" and not dataset.ranks_known_items:
        place = np.searchsorted(found.items, dataset.candidates("test"))
    else:
        known, row = dataset.graph.items_of(users)
        excluded = np.searchsorted(found.items, known).astype(np.int32)
        offsets = np.searchsorted(row, np.arange(len(users) + 1))
        ranked = "all items but the user's"
    items, items_VxD = found.items[place], found.items_VxD[place]
    n_left = np.full(len(users), len(items)) - (0 if offsets is None else np.diff(offsets))
    count = min(count, int(n_left.max()))
    schema = recommendations(dataset.user_ids is not None, dataset.item_ids is not None)
    more = {
        "candidates": ranked,
        "users": "all with a link of any split",
        "items_of_a_user": str(count),
    }

    def parts() -> Iterator[pa.Table]:
        done, users_UxD = 0, jnp.asarray(found.users_UxD[users])
        for scores_UxM, index in best_items(
            users_UxD, jnp.asarray(items_VxD), count, offsets, excluded
        ):
            row, place = np.nonzero(np.arange(count) < n_left[done : done + len(index), None])
            scores, item = scores_UxM[row, place], items[index[row, place]]
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
