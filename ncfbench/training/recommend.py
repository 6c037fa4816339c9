"""Each user's best items, as a table: ``recommendations.parquet`` in a run's folder.

The candidates of the test are ranked, as for recall: all test items; or, where links are held out,
all items but those that the user has a training link with. Ties are broken by item id, the smaller
first. The parameters are those of the epoch that the run reports.

Users are those of the data set who have a link of any split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.catalog import ENCODERS, find_encoder
from ncfbench.config import Folder, RunConfig
from ncfbench.data.store import Dataset
from ncfbench.errors import DivergedError, UsageError, either
from ncfbench.runs.quality import can_rank
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import tables
from ncfbench.storage.schemas import recommendations
from ncfbench.training.inference import Embedder, best_items
from ncfbench.training.state import Parameters
from ncfbench.training.trained import (
    describe_parameters,
    open_data,
    read_trained,
    restore_trained,
)

FILE = "recommendations.parquet"
Int32 = NDArray[np.int32]


def recommend(
    run: str | PathLike[str],
    *,
    count: int = 50,
    output: Path | None = None,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the best items of each user as a table, and return its path.

    Args:
        run: folder of a run, or its name below ``runs_dir``.
        count: items of each user at most.
        output: a Parquet file; by default :data:`FILE` in the run's folder.
        say: receives messages, a line each.

    Raises:
        DataError: a file cannot be read or written, the data set is not that of the run, or the
            run has no checkpoint of its end any more.
        DivergedError: a score is not finite.
        UsageError: there is nothing to rank.
    """
    record = read_trained(run, runs_dir)
    config = record.config
    dataset = open_data(record, data_dir, say)
    require_items(config, dataset, count)
    n_candidates = len(dataset.candidates("test"))
    if count > n_candidates:
        what = "items" if dataset.ranks_known_items else "test items"
        say(f"--count {count}: there are only {n_candidates} {what}.")
    embedder, reported = restore_trained(record, dataset, say)
    users = known_users(dataset, embedder, reported.parameters)
    about = {
        "parameters": describe_parameters(record),
        "epoch": f"{Schedule.of(config, dataset.graph.n_links).epoch_of(reported.iteration):g}",
        "iteration": str(reported.iteration),
    }
    path = output or record.folder / FILE
    write(path, dataset, embedder, reported.parameters, users, count, about)
    say(f"{len(users.ids):,} users; {n_candidates:,} items ranked.")
    return path


def require_items(config: RunConfig, dataset: Dataset, count: int) -> None:
    """Refuse, by a UsageError, a model or a data set with nothing to rank, and a count below 1."""
    if count < 1:
        raise UsageError(f"--count {count}: it must be at least 1.")
    if not can_rank(config.encoder, dataset):
        others = [name for name in ENCODERS if find_encoder(name).scores_cold_items]
        raise UsageError(
            f"Held-out items are ranked, and {config.encoder} learns a vector for each item, so"
            f" that they have none. Train with --encoder {either(others)}."
        )
    if len(dataset.candidates("test")) == 0:
        raise UsageError(
            f"Test items are ranked, and {dataset.name} has none. {dataset.advise_hold_out('test')}"
        )


class Users(NamedTuple):
    """U users who get recommendations."""

    ids: pa.Array
    """Their ids in the source, or their numbers where it has none."""
    vectors: jax.Array
    """float32[U, D]."""
    offsets: NDArray[np.int64] | None
    excluded: Int32 | None
    """User u gets none of the candidates at ``excluded[offsets[u]:offsets[u + 1]]``; None: each
    user may get all.
    """
    held_out: NDArray[np.int64]
    """Test links as u * n_items + item."""


def known_users(dataset: Dataset, embedder: Embedder, parameters: Parameters) -> Users:
    """Return the users who have a link of any split."""
    users = np.flatnonzero(np.bincount(dataset.users)).astype(np.int32)
    offsets, excluded = None, None
    if dataset.ranks_known_items:
        excluded, row = dataset.graph.items_of(users)
        offsets = np.searchsorted(row, np.arange(len(users) + 1))
    test_user, test_item = dataset.links("test")
    held_out = np.searchsorted(users, test_user).astype(np.int64) * dataset.n_items + test_item
    vectors = embedder.users(parameters).scored[users]
    return Users(named(users, dataset.user_ids), vectors, offsets, excluded, held_out)


def write(
    path: Path,
    dataset: Dataset,
    embedder: Embedder,
    parameters: Parameters,
    users: Users,
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
    candidates = dataset.candidates("test")
    is_new = dataset.graph.item_degrees[candidates] == 0
    n_left = np.full(len(users.ids), len(candidates))
    if users.offsets is not None:
        n_left -= np.diff(users.offsets)
    count = min(count, int(n_left.max()))
    schema = recommendations(users.ids.type == pa.string(), dataset.item_ids is not None)
    ranked = "all items" if dataset.ranks_known_items else "all held-out test items"
    more = {
        "candidates": ranked if users.offsets is None else f"{ranked} but the user's",
        "users": "all with a link of any split",
        "items_of_a_user": str(count),
    }

    def parts() -> Iterator[pa.Table]:
        items = embedder.candidates(parameters, candidates, is_new)
        lists = best_items(users.vectors, items, count, users.offsets, users.excluded)
        done = 0
        for scores_UxM, index in lists:
            row, place = np.nonzero(np.arange(count) < n_left[done : done + len(index), None])
            scores, item = scores_UxM[row, place], candidates[index[row, place]]
            if not np.isfinite(scores).all():
                raise DivergedError(
                    "A score of a user and an item is not finite: there is nothing to recommend."
                )
            row += done
            columns = [
                users.ids.take(pa.array(row)),
                named(item, dataset.item_ids),
                pa.array(place.astype(np.int32) + 1),
                pa.array(scores),
                pa.array(np.isin(row * dataset.n_items + item, users.held_out)),
            ]
            yield pa.table(columns, schema=schema)
            done += len(index)

    tables.write_table(path, parts(), schema.with_metadata({**schema.metadata, **about, **more}))


def named(numbers: Int32, ids: pa.StringArray | None) -> pa.Array:
    """Return the source's ids of users or items; their numbers where it has none."""
    return pa.array(numbers) if ids is None else ids.take(pa.array(numbers))
