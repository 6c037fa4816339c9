"""Each user's best items, as a table.

All items are ranked but those that the user has a training link with; or the candidates of the
test, as for recall: where items are held out, the test items. Ties are broken by item id, the
smaller first. The users are those who have a link of any split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.blending.blend import LeftOut
from ncfbench.catalog import ENCODERS, find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.features import Float32
from ncfbench.data.store import Dataset
from ncfbench.data.text import Int32
from ncfbench.errors import DivergedError, UsageError, either
from ncfbench.runs.quality import can_rank
from ncfbench.storage import tables
from ncfbench.storage.schemas import recommendations
from ncfbench.training.evaluation import BLOCK_SCORES, scores_of
from ncfbench.training.vectors import Vectors, ranked_items

FILE = "recommendations.parquet"
CANDIDATES = ("all", "test")
"""Which items are ranked for a user."""
Best: TypeAlias = tuple[Int32, Float32, Int32]


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
        able = [name for name in ENCODERS if find_encoder(name).scores_cold_items]
        raise UsageError(
            f"--candidates test ranks held-out items, and {config.encoder} learns a vector for each"
            f" item, so that they have none. Train with --encoder {either(able)}."
        )
    if len(dataset.candidates("test")) == 0:
        raise UsageError(
            f"--candidates test ranks test items, and {dataset.name} has none."
            f" {dataset.advise_hold_out('test')}"
        )


def write_recommendations(
    path: Path,
    dataset: Dataset,
    vectors: Vectors,
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
    place, left_out = ranked_items(dataset, vectors.items, of_test=candidates == "test")
    items, items_VxD = vectors.items[place], jnp.asarray(vectors.items_VxD[place])
    fewest = 0 if left_out is None else int(dataset.graph.user_degrees[users].min())
    count = min(count, len(items) - fewest)
    test_user, test_item = dataset.links("test")
    held_out = test_user.astype(np.int64) * dataset.n_items + test_item
    schema = recommendations(dataset.user_ids is not None, dataset.item_ids is not None)
    more = {
        "candidates": "all held-out test items" if left_out is None else "all items but the user's",
        "users": "all with a link of any split",
        "items_of_a_user": str(count),
    }

    def parts() -> Iterator[pa.Table]:
        users_UxD = jnp.asarray(vectors.users_UxD)
        for block, scores_BxM, index_BxM in best_items(
            users_UxD, items_VxD, users, count, left_out
        ):
            row, rank = np.nonzero(scores_BxM > -np.inf)
            user, item, scores = block[row], items[index_BxM[row, rank]], scores_BxM[row, rank]
            if not np.isfinite(scores).all():
                raise DivergedError(
                    "A score of a user and an item is not finite: there is nothing to recommend."
                )
            columns = [
                named(user, dataset.user_ids),
                named(item, dataset.item_ids),
                pa.array(rank.astype(np.int32) + 1),
                pa.array(scores),
                pa.array(np.isin(user.astype(np.int64) * dataset.n_items + item, held_out)),
            ]
            yield pa.table(columns, schema=schema)

    tables.write_table(path, parts(), schema.with_metadata({**schema.metadata, **about, **more}))


def best_items(
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    users: Int32,
    count: int,
    left_out: LeftOut | None = None,
) -> Iterator[Best]:
    """Yield the items of the highest scores of some users at a time.

    Equal scores are ordered by index, the smaller first. A score that is not finite counts as
    infinite, so that it shows; that of an item that is left out is -inf.

    Args:
        count: M, the best items of each user.
        left_out: returns the indices that are no candidates of a user.

    Yields:
        Users int32[n], scores float32[n, M] and the indices of the items int32[n, M], the best
        first.
    """
    size = int(np.clip(BLOCK_SCORES // len(items_VxD), 1, len(users)))
    scores = scores_of(users_UxD, items_VxD, size)
    for start in range(0, len(users), size):
        block = users[start : start + size]
        scores_BxV = scores(block) + np.float32(0)  # 0 and -0, which are equal, differ for top_k
        scores_BxV[~np.isfinite(scores_BxV)] = np.inf
        if left_out is not None:
            for row, user in enumerate(block):
                scores_BxV[row, left_out(user)] = -np.inf
        best, index = jax.lax.top_k(scores_BxV, count)
        yield block, np.asarray(best), np.asarray(index)


def named(numbers: NDArray[np.int32], ids: pa.StringArray | None) -> pa.Array:
    """Return the source's ids of users or items; their numbers where it has none."""
    return pa.array(numbers) if ids is None else ids.take(pa.array(numbers))
