"""The best items of users whom training does not know, from their histories alone.

Their vectors are made from their items as those of known users are, and nothing is trained. The
candidates are those of the run's test, without the items of the user's history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
from flax import nnx

from ncfbench.catalog.models import USER_TOWERS
from ncfbench.config import Folder
from ncfbench.data.history_file import NewUsers, read_new_users
from ncfbench.errors import UsageError, either
from ncfbench.models.histories import Histories
from ncfbench.models.precision import full
from ncfbench.storage import tables
from ncfbench.storage.schemas import recommendations
from ncfbench.training.inference import best_items
from ncfbench.training.recommend import best_rows, named, require_items
from ncfbench.training.trained import open_data, read_trained, restore_trained

FILE = "recommendations-new-users.parquet"


def recommend(
    run: str | PathLike[str],
    *,
    history: Path,
    count: int = 50,
    output: Path | None = None,
    user_column: str | None = None,
    item_column: str | None = None,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the best items of new users as a table, and return its path.

    Args:
        run: folder of a run whose user tower reads histories, or its name below
            ``runs_dir``.
        history: file of a row for each new user and item, with the ids of the prepared items.
        count: items of each user at most.
        output: a Parquet file; by default :data:`FILE` in the run's folder.
        user_column, item_column: columns of ``history``; by default those of a usual name.
        say: receives messages, a line each.

    Raises:
        DataError: a file cannot be read or written, the data set is not that of the run, or the
            run has no checkpoint of its end any more.
        DivergedError: a score is not finite.
        UsageError: the user tower reads no histories, or there is nothing to rank.
    """
    record = read_trained(run, runs_dir)
    config = record.config
    if not config.reads_histories:
        able = [name for name, info in USER_TOWERS.items() if "history" in info.content]
        raise UsageError(
            f"{record.folder} has a vector for each user that it was trained on (--user-tower"
            f" {config.user_tower}), and none for others. Train with --user-tower {either(able)}."
        )
    dataset = open_data(record, data_dir, say)
    require_items(config, dataset, count)
    degrees = dataset.graph.item_degrees
    reads_ids = getattr(config, "history_of", "ids") != "content"
    new = read_new_users(
        history,
        dataset,
        degrees > 0 if reads_ids else np.ones(dataset.n_items, bool),
        say,
        user_column=user_column,
        item_column=item_column,
    )
    if dataset.user_ids is not None and (known := _count_known(new, dataset.user_ids)):
        say(f"Users of {history.name} whom training knows too: {known:,}. The file's rows count.")
    embedder, reported = restore_trained(record, dataset, say)
    features = dataset.item_features if config.reads_history_features else None
    histories = Histories.of_lists(new.items, new.offsets, features)
    content = embedder.content._replace(histories=histories)
    towers = nnx.merge(embedder.towers, reported.parameters)
    users = jax.jit(full(towers.new_users))(content)
    candidates = dataset.candidates("test")
    index = np.searchsorted(candidates, new.items).clip(max=len(candidates) - 1)
    is_candidate = candidates[index] == new.items
    owner = np.repeat(np.arange(len(new.names)), np.diff(new.offsets))[is_candidate]
    offsets = np.searchsorted(owner, np.arange(len(new.names) + 1))
    n_left = len(candidates) - np.diff(offsets)
    count = min(count, int(n_left.max()))
    schema = recommendations(True, dataset.item_ids is not None)
    schema = schema.remove(schema.get_field_index("hit"))

    def parts() -> Iterator[pa.Table]:
        items = embedder.candidates(reported.parameters, candidates, degrees[candidates] == 0)
        excluded = index[is_candidate].astype(np.int32)
        blocks = best_items(towers.interaction, users, items, count, offsets, excluded)
        for row, place, rank, scores in best_rows(blocks, n_left, count):
            columns = [
                new.names.take(pa.array(row)),
                named(candidates[place], dataset.item_ids),
                pa.array(rank),
                pa.array(scores),
            ]
            yield pa.table(columns, schema=schema)

    path = output or record.folder / FILE
    about = {"users": "new ones, by their histories", "items_of_a_user": str(count)}
    tables.write_table(path, parts(), schema.with_metadata(schema.metadata | about))
    say(
        f"{len(new.names):,} users with {len(new.items):,} items in their histories;"
        f" {len(candidates):,} items ranked."
    )
    return path


def _count_known(new: NewUsers, user_ids: pa.StringArray) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.is_in(new.names, value_set=user_ids)).as_py() or 0)
