"""Vectors of a run's users and items, and its parameters, as files for other programs::

    DIR/
        users.npy, users.parquet    float32[users, D]; id, vector
        items.npy, items.parquet    float32[items, D]; id, split, vector
        towers.safetensors          the parameters by name, such as user_tower.vectors.embedding
        meta.json                   the run, its settings, what the vectors are
        recommendations.parquet     with ``top``: each user's best items, best first

Dot products of vectors are the scores that recall and recommendations rank by. Rows are in the
order of the data set's ids, parameters those of the reported epoch. Repeated, an export has the
same bytes, but for the seconds in ``meta.json``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from ncfbench import __version__
from ncfbench.catalog import find_encoder
from ncfbench.config import Folder, RunConfig, digest
from ncfbench.data import Dataset
from ncfbench.data.content import SPLITS
from ncfbench.errors import DivergedError, UsageError
from ncfbench.models.tables import names_of
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import can_rank
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import tables
from ncfbench.training.inference import Embedder
from ncfbench.training.recommend import FILE as RECOMMENDATIONS
from ncfbench.training.recommend import named, require_items, write_recommendations
from ncfbench.training.state import Parameters
from ncfbench.training.trained import (
    describe_parameters,
    open_data,
    read_trained,
    restore_trained,
)

META, TOWERS = "meta.json", "towers.safetensors"
FILES = ("users.npy", "users.parquet", "items.npy", "items.parquet", TOWERS, META)
"""Files of an export."""
BLOCK_ROWS = 2**15
"""Vectors in memory at a time, beside the users' own."""
PARQUET = tables.COMPACT | {"store_schema": True, "use_dictionary": ["split"]}
"""Arrow's schema is kept, which alone says that all vectors have one length."""
SPLIT_NAMES = ("training", *SPLITS[1:])


def export_vectors(
    run: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    top: int | None = None,
    again: bool = False,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a run's vectors of users and items into a folder; return its ``meta.json``.

    The folder is there when all is written, or not at all.

    Args:
        run: folder of a run, or its name below ``runs_dir``.
        folder: a new or empty folder.
        top: write the best items of each user too, at most so many; of those that the run's test
            ranks.
        again: replace the vectors that ``folder`` holds.

    Raises:
        DataError: the run is not there or has no checkpoint of its end any more, the data set is
            not that of the run, or a file cannot be written.
        DivergedError: a vector is not finite.
        UsageError: the run's score is no dot product, it diverged, the folder is in use, or there
            is nothing to rank.
    """
    begin, progress = time.perf_counter(), progress or Progress()
    home = Path(folder).resolve()
    record = read_trained(run, runs_dir)
    _require_free(home, again=again)
    dataset = open_data(record, data_dir, progress.say)
    if top is not None:
        require_items(record.config, dataset, top)
        if top > (n_candidates := len(dataset.candidates("test"))):
            progress.say(f"--top {top}: there are only {n_candidates} items to rank.")
    embedder, reported = restore_trained(record, dataset, progress.say)
    schedule = Schedule.of(record.config, dataset.graph.n_links)
    meta = {
        "version": __version__,
        "dataset": record.config.dataset,
        "data_fingerprint": record.data_fingerprint,
        "run": record.name,
        "run_digest": digest(record.config),
        "settings": record.config.to_dict(),
        "epoch": schedule.epoch_of(reported.iteration),
        "iteration": reported.iteration,
        "parameters": describe_parameters(record),
    }
    with tables.atomic_folder(home) as new:
        try:
            more = embedder, reported.parameters, progress
            meta |= _write_vectors(new, dataset, record.config, *more)
        finally:
            progress.end()
        _write_parameters(new / TOWERS, reported.parameters, meta)
        if top is not None:
            about = {
                "parameters": str(meta["parameters"]),
                "epoch": f"{meta['epoch']:g}",
                "iteration": f"{meta['iteration']}",
            }
            of_run = embedder, reported.parameters
            write_recommendations(new / RECOMMENDATIONS, dataset, *of_run, top, about)
        meta["seconds"] = round(time.perf_counter() - begin, 3)
        tables.write_json(new / META, meta)
    return meta


def _require_free(folder: Path, *, again: bool) -> None:
    with tables.storage_errors(folder):
        present = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    others = [name for name in present if name not in (*FILES, RECOMMENDATIONS)]
    if others or folder.is_mount() or folder == Path.cwd():
        why = f"it holds {others[0]}" if others else "it cannot be replaced as a whole"
        raise UsageError(f"{folder} is in use: {why}. Name a new folder: {folder / 'vectors'}.")
    if present and not again:
        raise UsageError(f"{folder} holds vectors already. To replace them, use --again.")


def _write_vectors(
    folder: Path,
    dataset: Dataset,
    config: RunConfig,
    embedder: Embedder,
    parameters: Parameters,
    progress: Progress,
) -> dict[str, Any]:
    """Write both sides' vectors, and return what ``meta.json`` says of them."""
    n_users, is_new = dataset.n_users, dataset.graph.item_degrees == 0
    items = np.flatnonzero(~is_new | can_rank(config.encoder, dataset)).astype(np.int32)
    n_left_out, n_new = dataset.n_items - len(items), int(is_new[items].sum())
    progress.say(f"Exporting the vectors of {n_users:,} users and {len(items):,} items.")
    if n_left_out:
        progress.say(
            f"Left out: {n_left_out:,} items without training links, of which {config.encoder} has"
            " no vector."
        )
    elif n_new and not find_encoder(config.encoder).scores_cold_items:
        progress.say(
            f"{n_new:,} items without training links have the vectors that training began with:"
            f" {config.encoder} learns none of them."
        )
    progress.start(n_users + len(items), 0, "vector")
    users_UxD = np.asarray(embedder.users(parameters).scored)

    def of_users() -> Iterator[ArrayLike]:
        for start in range(0, n_users, BLOCK_ROWS):
            yield users_UxD[start : start + BLOCK_ROWS]
            progress.move(min(start + BLOCK_ROWS, n_users), "users")

    def of_items() -> Iterator[ArrayLike]:
        done = n_users
        embedder.watch = lambda n, _: progress.move(done + n, "items")
        for start in range(0, len(items), BLOCK_ROWS):
            block = items[start : start + BLOCK_ROWS]
            yield embedder.candidates(parameters, block, is_new[block])
            done += len(block)
            progress.move(done, "items")

    ids = named(np.arange(n_users, dtype=np.int32), dataset.user_ids)
    _write_side(folder / "users", {"id": ids.cast(pa.string())}, of_users(), config.dimension)
    columns = {
        "id": named(items, dataset.item_ids).cast(pa.string()),
        "split": pa.array(SPLIT_NAMES).take(pa.array(dataset.split[items])),
    }
    _write_side(folder / "items", columns, of_items(), config.dimension)
    return {
        "users": n_users,
        "items": len(items),
        "dimension": config.dimension,
        "unit_length": config.normalize,
        "users_without_training_links": int((~dataset.has_links).sum()),
        "items_without_training_links": n_new,
        "items_left_out": n_left_out,
    }


def _write_side(
    path: Path, columns: Mapping[str, pa.Array], blocks: Iterable[ArrayLike], width: int
) -> None:
    """Write vectors that come in blocks of rows as an array, and beside columns as a table."""
    shape, kind = (len(columns["id"]), width), np.dtype(np.float32)
    types = {name: column.type for name, column in columns.items()}
    schema = pa.schema(types | {"vector": pa.list_(pa.float32(), width)})
    with tables.atomic_path(path.with_suffix(".npy")) as temporary, temporary.open("wb") as file:
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)

        def parts() -> Iterator[pa.Table]:
            done = 0
            for block in blocks:
                vectors = np.ascontiguousarray(block, kind)
                if not np.isfinite(vectors).all():
                    raise DivergedError("A vector is not finite: there is nothing to export.")
                file.write(vectors.data)
                beside = [column.slice(done, len(vectors)) for column in columns.values()]
                lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width)
                yield pa.table([*beside, lists], schema=schema)
                done += len(vectors)

        tables.write_table(path.with_suffix(".parquet"), parts(), schema, PARQUET)


def _write_parameters(path: Path, parameters: Parameters, about: Mapping[str, Any]) -> None:
    from safetensors.numpy import save

    arrays = {
        ".".join(names_of(key)): np.require(leaf, requirements="C")
        for key, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }
    # One text of metadata: the package writes several in an order that changes.
    content = save(arrays, {"ncfbench": json.dumps(about)})
    with tables.atomic_path(path) as temporary:
        temporary.write_bytes(content)
