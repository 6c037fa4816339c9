"""Each user's best held-out items, as a table: ``recommendations.parquet`` in a run's folder.

Exact, like :mod:`ncfbench.training.recall`: all test items are ranked for every user who has a link
of any split, ties by item id, the smaller first, so that recall@M of the table is the run's
recall@M. The parameters are those of the epoch that the run reports, which the table's metadata
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.catalog import ENCODERS, find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, DivergedError, UsageError, either
from ncfbench.models.interaction import Interaction
from ncfbench.models.precision import full
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import tables
from ncfbench.storage.schemas import recommendations
from ncfbench.training.checkpoint import Best, Checkpoints
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

FILE = "recommendations.parquet"
ITEM_BLOCK = 4096
BLOCK_SCORES = 2**22
"""Scores in memory at a time: 16 MB."""

Int32 = NDArray[np.int32]


def require_items(config: RunConfig, dataset: Dataset, count: int) -> None:
    """Refuse, before training, what could not be written in the end.

    Raises:
        UsageError: fewer than one item, an encoder without vectors for held-out items, or data
            without test items.
    """
    if count < 1:
        raise UsageError(f"recommend = {count}: it must be at least 1.")
    if not find_encoder(config.encoder).scores_cold_items:
        others = [name for name in ENCODERS if find_encoder(name).scores_cold_items]
        raise UsageError(
            f"--recommend ranks held-out items, and {config.encoder} learns a vector for each item,"
            f" so that they have none. Use --encoder {either(others)}."
        )
    if len(dataset.items_of("test")) == 0:
        raise UsageError(
            f"--recommend ranks test items, and {dataset.name} has none. Prepare it with a"
            " --test-fraction above 0."
        )


class Recommender:
    """The best test items of every user with a link.

    Args:
        count: M, items of each user; fewer where there are fewer test items.
    """

    def __init__(self, dataset: Dataset, embedder: Embedder, count: int) -> None:
        self.dataset, self.embedder = dataset, embedder
        self.items = dataset.items_of("test")
        self.count = min(count, len(self.items))
        self.item_block = min(ITEM_BLOCK, len(self.items))
        self.users = np.flatnonzero(np.bincount(dataset.users)).astype(np.int32)
        self.user_block = int(np.clip(BLOCK_SCORES // self.item_block, 1, max(len(self.users), 1)))
        users, items = dataset.links("test")
        self._held_out = np.sort(self._pairs(users, items))
        self._merge = jax.jit(full(merge), donate_argnums=(1, 2))

    def blocks(
        self, parameters: Parameters
    ) -> Iterator[tuple[Int32, Int32, NDArray[np.float32], NDArray[np.bool_]]]:
        """Yield some users at a time, ascending, with their best items, the best first.

        User ids int32[n], item ids int32[n, M], scores float32[n, M], and whether user and item are
        a held-out link, bool[n, M].

        Raises:
            DivergedError: a score is not finite.
        """
        users_UxD = self.embedder.users(parameters).scored
        interaction = self.embedder.interaction(parameters)
        starts = range(0, len(self.items), self.item_block)
        missing = len(starts) * self.item_block - len(self.items)
        items_VxD = self.embedder.cold_items(parameters, self.items)
        items_VxD = jnp.pad(items_VxD, ((0, missing), (0, 0)))
        for rows in row_blocks(len(self.users), self.user_block):
            rows_BxD = users_UxD[self.users[rows]]
            best = jnp.full((self.user_block, self.count), -jnp.inf)
            index = jnp.zeros((self.user_block, self.count), jnp.int32)
            finite = jnp.bool_(True)
            for first in starts:
                block_VxD = items_VxD[first : first + self.item_block]
                best, index, good = self._merge(
                    interaction, best, index, rows_BxD, block_VxD, first, len(self.items)
                )
                finite &= good
            if not finite:
                raise DivergedError(
                    "A score of a user and an item is not finite: there is nothing to recommend."
                )
            users = self.users[rows[0] : rows[-1] + 1]
            items = self.items[np.asarray(index)[: len(users)]]
            pairs = self._pairs(np.repeat(users, self.count), items.reshape(-1))
            yield (
                users,
                items,
                np.asarray(best)[: len(users)],
                self._is_held_out(pairs).reshape(items.shape),
            )

    def write(self, folder: Path, reported: Best, schedule: Schedule) -> Path:
        """Write :data:`FILE` into a folder, a block of users at a time.

        Args:
            reported: the parameters of the epoch that the run reports.

        Raises:
            DataError: the table cannot be written.
            DivergedError: a score is not finite.
        """
        user_ids, item_ids = self.dataset.user_ids, self.dataset.item_ids
        schema = recommendations(user_ids is not None, item_ids is not None)
        about = {
            "parameters": "of the reported epoch",
            "epoch": f"{schedule.epoch_of(reported.iteration):g}",
            "iteration": str(reported.iteration),
            "candidates": "all held-out test items",
            "users": "all with a link of any split",
            "items_of_a_user": str(self.count),
        }
        ranks = np.arange(1, self.count + 1, dtype=np.int32)

        def parts() -> Iterator[pa.Table]:
            for users, items, scores, hits in self.blocks(reported.parameters):
                columns = [
                    _named(np.repeat(users, self.count), user_ids),
                    _named(items.reshape(-1), item_ids),
                    *map(
                        pa.array, (np.tile(ranks, len(users)), scores.reshape(-1), hits.reshape(-1))
                    ),
                ]
                yield pa.table(columns, schema=schema)

        tables.write_table(folder / FILE, parts(), schema.with_metadata(schema.metadata | about))
        return folder / FILE

    def _pairs(self, users: NDArray[np.integer], items: NDArray[np.integer]) -> NDArray[np.int64]:
        return users.astype(np.int64) * self.dataset.n_items + items

    def _is_held_out(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        if len(self._held_out) == 0:
            return np.zeros(len(pairs), bool)
        index = np.minimum(np.searchsorted(self._held_out, pairs), len(self._held_out) - 1)
        found: NDArray[np.bool_] = self._held_out[index] == pairs
        return found


def merge(
    interaction: Interaction,
    best_BxM: jax.Array,
    index_BxM: jax.Array,
    users_BxD: jax.Array,
    items_VxD: jax.Array,
    first: jax.Array,
    n_items: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Merge the M best items so far with those of a block: ``first``, ``first + 1``, ...

    Items come in ascending blocks. Of equal scores the first stays first, which is the one of
    smaller index; 0 and -0 become one for that. Slots from ``n_items`` on are padding.

    Returns:
        Scores float32[B, M], indices int32[B, M], and whether all scores are finite.
    """
    scores_BxV = interaction.matrix(users_BxD, items_VxD)
    scores_BxV = jnp.where(scores_BxV == 0, 0.0, scores_BxV)
    index_V = first + jnp.arange(items_VxD.shape[0], dtype=jnp.int32)
    is_real = (index_V < n_items)[None, :]
    finite = jnp.all(jnp.isfinite(scores_BxV) | ~is_real)
    scores = jnp.concatenate([best_BxM, jnp.where(is_real, scores_BxV, -jnp.inf)], axis=1)
    index = jnp.concatenate(
        [index_BxM, jnp.broadcast_to(index_V[None, :], scores_BxV.shape)], axis=1
    )
    best, chosen = jax.lax.top_k(scores, best_BxM.shape[1])
    return best, jnp.take_along_axis(index, chosen, axis=1), finite


def is_written(record: RunRecord, dataset: Dataset, count: int) -> bool:
    """Return whether a run has the table of its reported epoch for this many items of each user."""
    iteration = record.reported_iteration or record.summary["iterations"]
    schema = recommendations(dataset.user_ids is not None, dataset.item_ids is not None)
    try:
        found = tables.read_metadata(record.folder / FILE, schema)
    except DataError:
        return False
    wanted = {"items_of_a_user": min(count, len(dataset.items_of("test"))), "iteration": iteration}
    return all(found.get(name) == str(value) for name, value in wanted.items())


def write_finished(
    record: RunRecord, dataset: Dataset, count: int, say: Callable[[str], None]
) -> None:
    """Write the table of a finished run from its last checkpoint, unless it is there.

    Raises:
        DataError: the checkpoint is gone or damaged, or the table cannot be written.
    """
    if is_written(record, dataset, count):
        return
    one_device = record.config.on_one_device()  # a checkpoint knows nothing of devices
    trainer, _ = Trainer.create(one_device, dataset)
    found = Checkpoints(record.folder / "checkpoints", say).restore(trainer.shapes)
    iteration = record.summary["iterations"]
    if found is None or int(found.state.iteration) != iteration:
        raise DataError(
            f"{record.folder} has no checkpoint of its end (iteration {iteration:,}) any more, so"
            " that nothing can be recommended from it. Train it again with --again."
        )
    schedule = Schedule.of(record.config, dataset.graph.n_links)
    embedder = trainer.embedder(DeviceContent.of(dataset))
    chosen = found.reported(record.reported_iteration)
    Recommender(dataset, embedder, count).write(record.folder, chosen, schedule)


def _named(numbers: Int32, ids: pa.StringArray | None) -> pa.Array:
    return pa.array(numbers) if ids is None else ids.take(pa.array(numbers))
