"""Vectors of a run, of a floor or of both, and each user's best items, as files for other programs.

Dot products of vectors are the scores that recall and recommendations rank by. Rows are in the
order of the data set's ids, parameters those of the reported epoch. Repeated, an export has the
same bytes, but for the seconds in ``meta.json``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ncfbench import __version__
from ncfbench.catalog import ENCODERS, find_encoder
from ncfbench.config import Folder, Locations, RunConfig, digest
from ncfbench.data import Dataset, open_dataset
from ncfbench.data.content import SPLITS
from ncfbench.data.features import Float32
from ncfbench.data.text import Int32
from ncfbench.errors import DataError, DivergedError, UsageError, either, refusal
from ncfbench.floors import kept
from ncfbench.floors.floor import lack
from ncfbench.floors.models import FLOORS
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import can_rank
from ncfbench.storage import tables
from ncfbench.storage.schemas import recommendations
from ncfbench.training import vectors
from ncfbench.training.blended import blend_run
from ncfbench.training.trained import open_data, read_trained
from ncfbench.training.vectors import Vectors, best_items, ranked_items

if TYPE_CHECKING:  # it imports JAX
    from ncfbench.training.state import Parameters

META, TOWERS, BEST = "meta.json", "towers.safetensors", "recommendations.parquet"
FILES = ("users.npy", "users.parquet", "items.npy", "items.parquet", TOWERS, META, BEST)
"""Files of an export."""
CANDIDATES = ("all", "test")
"""Which items are ranked for a user."""
PARQUET = tables.COMPACT | {"store_schema": True, "use_dictionary": ["split"]}
"""Arrow's schema is kept, which alone says that all vectors have one length."""
BLOCK_ROWS = 2**15
"""Rows of a group in a Parquet file of vectors."""
SPLIT_NAMES = ("training", *SPLITS[1:])


def export_vectors(
    source: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    floor: str | None = None,
    on_all_links: bool = False,
    top: int | None = None,
    candidates: str = "all",
    again: bool = False,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write vectors of users and items into a folder; return its ``meta.json``.

    The folder is there when all is written, or not at all.

    Args:
        source: folder of a run, or its name below ``runs_dir``; or, with ``floor``, a data set.
        folder: a new or empty folder.
        floor: a kept floor of the data, whose vectors are written, or beside a run those of both
            (:mod:`ncfbench.blending`).
        on_all_links: train and fit once more, on held-out links too; recall is not known then.
        top: write the best items of each user too, at most so many.
        candidates: of these ``all`` items but those of the user's training links, or those that the
            ``test`` ranks.
        again: replace the vectors that ``folder`` holds.

    Raises:
        DataError: the run or its final checkpoint is not there, the data set is not that of the
            run, or a file cannot be written.
        DivergedError: a vector is not finite.
        UsageError: the run diverged, the folder is in use, the floor is not kept or cannot be
            blended, or there is nothing to rank.
    """
    begin, progress = time.perf_counter(), progress or Progress()
    home, locations = Path(folder).resolve(), Locations.of(data_dir, runs_dir)
    record, dataset = _open(source, floor, locations, progress)
    _require_free(home, again=again)
    if top is not None:
        if on_all_links and candidates == "test":
            raise UsageError("--candidates test: on all links nothing is held out for a test.")
        require_items(None if record is None else record.config, dataset, top, candidates)
        ranked = dataset.n_items if candidates == "all" else len(dataset.candidates("test"))
        if top > ranked:
            progress.say(f"--top {top}: there are only {ranked} items to rank.")
    row, blended = None, None
    if floor is not None:
        row, blended = _find_floor(floor, record, dataset, locations, progress)
    meta: dict[str, Any] = {
        "version": __version__,
        "dataset": dataset.name,
        "data_fingerprint": dataset.fingerprint,
        "on_all_links": on_all_links,
    }
    if record is not None:
        parameters = "of the reported epoch"
        if record.reported_iteration is None:
            parameters = "of the last iteration, never evaluated"
        meta |= {
            "run": record.name,
            "run_digest": digest(record.config),
            "settings": record.config.to_dict(),
            "parameters": "of a run on all links" if on_all_links else parameters,
        }
    dataset = dataset.on_all_links() if on_all_links else dataset
    of_run = exported = None
    if record is not None:
        record = vectors.trained_on_all(record, dataset, progress) if on_all_links else record
        # That nothing was evaluated is no news on all links.
        of_run = vectors.of_run(record, dataset, Progress() if on_all_links else progress)
        exported = of_run
    if row is not None:
        of_floor = vectors.of_floor(row, dataset, progress)
        exported = of_floor
        if of_run is not None and blended is not None:
            exported = vectors.of_both(of_run, of_floor, blended, dataset)
            progress.say(_describe(blended, exported.facts))
    assert exported is not None, "there is a run or a floor"
    meta |= exported.facts
    with tables.atomic_folder(home) as new:
        meta |= _write_vectors(new, dataset, record, exported, progress)
        if exported.parameters is not None:
            _write_parameters(new / TOWERS, exported.parameters, meta)
        if top is not None:
            names = ("parameters", "epoch", "iteration", "floor", "weight_of_the_run")
            about = {
                name: f"{meta[name]:g}" if isinstance(meta[name], float) else str(meta[name])
                for name in names
                if name in meta
            }
            write_recommendations(new / BEST, dataset, exported, top, candidates, about)
        meta["seconds"] = round(time.perf_counter() - begin, 3)
        tables.write_json(new / META, meta)
    return meta


def _open(
    source: str | PathLike[str], floor: str | None, locations: Locations, progress: Progress
) -> tuple[RunRecord | None, Dataset]:
    """Open a run and its data set, or the data set alone whose floor is exported."""
    is_data = (locations.data_dir / str(source) / "manifest.json").exists()
    if is_data and floor is not None:
        return None, open_dataset(str(source), data_dir=locations.data_dir, say=progress.say)
    try:
        record = read_trained(source, locations.runs_dir)
    except DataError as error:
        if (race := Path(source) / "answer.json").exists():
            deploy = (tables.read_json(race).get("deploy") or {}).get("command", "nothing yet")
            raise UsageError(f"{source} is a race, whose answer exports: {deploy}") from error
        if is_data:
            raise UsageError(
                f"{source} is a data set. Name the floor whose vectors to write, such as --floor"
                " ridge."
            ) from error
        if floor is None:
            raise
        raise DataError(f"No data set {source} is in {locations.data_dir}, and: {error}") from error
    return record, open_data(record, locations.data_dir, progress.say)


def _find_floor(
    name: str, record: RunRecord | None, dataset: Dataset, locations: Locations, progress: Progress
) -> tuple[kept.Row, kept.Row | None]:
    """Return the row of a kept floor, and that of a run's blend with it, whose weight is chosen if
    it is not kept; None without a run.
    """
    row = kept.named(kept.read(locations.data_dir / dataset.name, dataset.fingerprint), name)
    if row is None:
        if name not in FLOORS:
            raise UsageError(refusal("There is no floor", name, FLOORS))
        if reason := lack(dataset, name):
            raise UsageError(f"No {name}: {reason}")
        raise UsageError(
            f"{dataset.name} keeps no floor {name!r}. Fit it with: ncfbench floor {dataset.name}"
            f" --floors {name}"
        )
    if record is None:
        return row, None
    blended = blend_run(record, dataset, [row], metric=None, say=progress.say)
    if blended is None:
        raise UsageError(
            f"{record.folder} cannot be blended with {name}: it ranked nothing, or no validation"
            " links can choose the weight."
        )
    return row, blended


def _describe(blended: kept.Row, facts: Mapping[str, Any]) -> str:
    """Return the parts of a blend and what its vectors reach beside its whole scores, or that
    training has no part in it.
    """
    floor, weight = blended["floor"], blended["weight"]
    if weight == 0:
        return f"Training has no part in the blend: export {floor} alone, without a run."
    whole, recall = blended["test_recall_at_50"], facts.get("test_recall_at_50")
    shares = f"Both: {weight:g} of the run and {1 - weight:g} of {floor}"
    if recall is None:
        return f"{shares}. Without the held-out links they had recall@50 {whole:.4f} of these."
    return (
        f"{shares}; their vectors have recall@50 {recall:.4f} of test links, their whole scores"
        f" {whole:.4f}."
    )


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


def _require_free(folder: Path, *, again: bool) -> None:
    with tables.storage_errors(folder):
        present = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    unknown = [name for name in present if name not in FILES]
    if unknown or folder.is_mount() or folder == Path.cwd():
        why = f"it holds {unknown[0]}" if unknown else "it cannot be replaced as a whole"
        raise UsageError(f"{folder} is in use: {why}. Name a new folder: {folder / 'vectors'}.")
    if present and not again:
        raise UsageError(f"{folder} holds vectors already. To replace them, use --again.")


def _write_vectors(
    folder: Path,
    dataset: Dataset,
    record: RunRecord | None,
    exported: Vectors,
    progress: Progress,
) -> dict[str, Any]:
    """Write both sides' vectors, and return what ``meta.json`` says of them."""
    n_users, is_new, items = dataset.n_users, dataset.graph.item_degrees == 0, exported.items
    n_left_out, n_new = dataset.n_items - len(items), int(is_new[items].sum())
    progress.say(f"Exporting the vectors of {n_users:,} users and {len(items):,} items.")
    if record is not None and n_left_out:
        progress.say(
            f"Left out: {n_left_out:,} items without training links, of which"
            f" {record.config.encoder} has no vector."
        )
    elif record is not None and n_new and not find_encoder(record.config.encoder).scores_cold_items:
        progress.say(
            f"{n_new:,} items without training links have the vectors that training began with:"
            f" {record.config.encoder} learns none of them."
        )
    ids = named(np.arange(n_users, dtype=np.int32), dataset.user_ids)
    _write_side(folder / "users", {"id": ids.cast(pa.string())}, exported.users_UxD)
    columns = {
        "id": named(items, dataset.item_ids).cast(pa.string()),
        "split": pa.array(SPLIT_NAMES).take(pa.array(dataset.split[items])),
    }
    _write_side(folder / "items", columns, exported.items_VxD)
    return {
        "users": n_users,
        "items": len(items),
        "dimension": exported.items_VxD.shape[1],
        "unit_length": bool(record and record.config.normalize and "floor" not in exported.facts),
        "users_without_training_links": int((~dataset.has_links).sum()),
        "items_without_training_links": n_new,
        "items_left_out": n_left_out,
    }


def _write_side(path: Path, columns: Mapping[str, pa.Array], vectors: Float32) -> None:
    """Write vectors as an array, and beside columns as a table."""
    if not np.isfinite(vectors).all():
        raise DivergedError("A vector is not finite: there is nothing to export.")
    vectors = np.ascontiguousarray(vectors, np.float32)
    tables.write_array(path.with_suffix(".npy"), vectors)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table({**columns, "vector": lists})
    starts = range(0, len(vectors), BLOCK_ROWS)
    blocks = (table.slice(start, BLOCK_ROWS) for start in starts)
    tables.write_table(path.with_suffix(".parquet"), blocks, table.schema, PARQUET)


def _write_parameters(path: Path, parameters: Parameters, about: Mapping[str, Any]) -> None:
    import jax
    from safetensors.numpy import save

    from ncfbench.models.tables import names_of

    arrays = {
        ".".join(names_of(key)): np.require(leaf, requirements="C")
        for key, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }
    # One text of metadata: the package writes several in an order that changes.
    content = save(arrays, {"ncfbench": json.dumps(about)})
    with tables.atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_recommendations(
    path: Path,
    dataset: Dataset,
    vectors: Vectors,
    count: int,
    candidates: str,
    about: Mapping[str, str],
) -> None:
    """Write the best candidates, or all where there are fewer, of each user with a link of any
    split, a block of users at a time.

    Args:
        candidates: a value of :data:`CANDIDATES`.
        about: metadata of the table.
    """
    users = np.flatnonzero(np.bincount(dataset.users)).astype(np.int32)
    place, left_out = ranked_items(dataset, vectors.items, of_test=candidates == "test")
    items, items_VxD = vectors.items[place], vectors.items_VxD[place]
    fewest = 0 if left_out is None else int(dataset.graph.user_degrees[users].min())
    count = min(count, len(items) - fewest)
    test_user, test_item = dataset.links("test")
    held_out = np.append(np.sort(test_user.astype(np.int64) * dataset.n_items + test_item), -1)
    schema = recommendations(dataset.user_ids is not None, dataset.item_ids is not None)
    more = {
        "candidates": "all held-out test items" if left_out is None else "all items but the user's",
        "users": "all with a link of any split",
        "items_of_a_user": str(count),
    }

    def parts() -> Iterator[pa.Table]:
        best = best_items(vectors.users_UxD, items_VxD, users, count, left_out)
        for block, scores_BxM, index_BxM in best:
            row, rank = np.nonzero(scores_BxM > -np.inf)
            user, item = block[row], items[index_BxM[row, rank]]
            pair = user.astype(np.int64) * dataset.n_items + item
            columns = [
                named(user, dataset.user_ids),
                named(item, dataset.item_ids),
                pa.array(rank.astype(np.int32) + 1),
                pa.array(scores_BxM[row, rank]),
                pa.array(held_out[np.searchsorted(held_out[:-1], pair)] == pair),
            ]
            yield pa.table(columns, schema=schema)

    tables.write_table(path, parts(), schema.with_metadata({**schema.metadata, **about, **more}))


def named(numbers: Int32, ids: pa.StringArray | None) -> pa.Array:
    """Return the source's ids of users or items; their numbers where it has none."""
    return pa.array(numbers) if ids is None else ids.take(pa.array(numbers))
