"""Vectors of users and items whose dot products rank: a run's, a floor's, or those of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ncfbench.blending.blend import LeftOut, scale
from ncfbench.blending.vectors import factorise
from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.data.features import Float32
from ncfbench.data.lsa import Ids
from ncfbench.data.text import Int32
from ncfbench.floors.floor import refit
from ncfbench.floors.kept import Row
from ncfbench.floors.models import Fitted
from ncfbench.floors.task import HeldOut, Task
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import COMPARED, can_rank
from ncfbench.runs.ranks import by_user
from ncfbench.runs.schedule import Schedule
from ncfbench.training.run import run
from ncfbench.training.trained import restore_trained

if TYPE_CHECKING:  # it imports JAX
    from ncfbench.training.state import Parameters

RANKS = (128, 256, 512, 1024)
"""Ranks of a floor's vectors that are tried, the smallest first."""
LOST_RECALL = 0.003
"""Recall@50 of validation links that the vectors of a floor may lose."""
MOST_SCALED = 20_000
"""Items by whose scores a user's scale is known well: a floor's take memory for each."""
ALL_LINKS = "on-all-links"
"""Folder within a run of the same run trained on all links."""


@dataclass(frozen=True)
class Vectors:
    """Vectors of all users and of some items.

    Attributes:
        items: int32[V], the items' ids, ascending.
        facts: what ``meta.json`` says of them.
        parameters: of the run, if there is one.
    """

    users_UxD: Float32
    items_VxD: Float32
    items: Int32
    facts: Mapping[str, Any] = field(default_factory=dict)
    parameters: Parameters | None = None


def of_run(record: RunRecord, dataset: Dataset, progress: Progress) -> Vectors:
    """Return the vectors of what a run reports; of an encoder that learns a vector for each item
    those of items with training links alone, where items are held out.
    """
    embedder, reported = restore_trained(record, dataset, progress.say)
    parameters, is_new = reported.parameters, dataset.graph.item_degrees == 0
    items = np.flatnonzero(~is_new | can_rank(record.config.encoder, dataset)).astype(np.int32)
    progress.start(len(items), 0, "item")
    embedder.watch = lambda done, total: progress.move(done, "items")
    items_VxD = np.asarray(embedder.candidates(parameters, items, is_new[items]))
    progress.end()
    users_UxD = np.asarray(embedder.users(parameters).scored)
    schedule = Schedule.of(record.config, dataset.graph.n_links)
    facts = {"epoch": schedule.epoch_of(reported.iteration), "iteration": reported.iteration}
    return Vectors(users_UxD, items_VxD, items, facts, parameters)


def of_floor(row: Row, dataset: Dataset, progress: Progress) -> Vectors:
    """Return vectors of a kept floor, fitted again: the scores of each user on his own scale, at
    the smallest of :data:`RANKS` that keeps the recall of validation links, else at the largest.
    """
    progress.say(f"Fitting {row['floor']} again, and finding its vectors.")
    task, fitted = refit(dataset, row)
    items = np.arange(dataset.n_items, dtype=np.int32)
    deviations = _deviations(fitted, items, dataset)
    users_UxD, items_VxD = factorise(
        lambda basis_IxR: fitted.product(basis_IxR) / deviations,
        lambda left_UxR: fitted.transposed_product(left_UxR / deviations),
        dataset.n_users,
        dataset.n_items,
        RANKS[-1],
    )
    rank, facts = items_VxD.shape[1], {"floor": row["floor"], "penalty": row["penalty"]}
    held_out = HeldOut.of(task, dataset).get("validation")
    if held_out is not None:
        column, ranked = f"recall_at_{COMPARED}", held_out.candidates
        whole = held_out.evaluate(fitted(ranked)).figures[column] or 0.0
        for rank in sorted({min(tried, rank) for tried in RANKS}):
            approximate = Fitted(users_UxD[:, :rank], items_VxD[:, :rank])
            recall = held_out.evaluate(approximate(ranked)).figures[column] or 0.0
            if recall >= whole - LOST_RECALL:
                break
        facts |= {f"validation_{column}": recall, f"validation_{column}_of_all_ranks": whole}
        progress.say(
            f"{row['floor']}: vectors of {rank} numbers have recall@{COMPARED} {recall:.4f} of"
            f" validation links, its whole scores {whole:.4f}."
        )
    return Vectors(users_UxD[:, :rank], items_VxD[:, :rank], items, facts | {"rank": rank})


def of_both(run: Vectors, floor: Vectors, blended: Row, dataset: Dataset) -> Vectors:
    """Return the vectors of a blend: both side by side, each weighted and on a user's own scale."""
    weight = blended["weight"]
    deviations = _deviations(Fitted(run.users_UxD, run.items_VxD), run.items, dataset)
    shares, width = (np.float32(weight), np.float32(1 - weight)), run.users_UxD.shape[1]
    users_UxD = np.empty((dataset.n_users, width + floor.users_UxD.shape[1]), np.float32)
    users_UxD[:, :width] = shares[0] * run.users_UxD / deviations
    np.multiply(shares[1], floor.users_UxD, out=users_UxD[:, width:])
    items_VxD = np.concatenate([run.items_VxD, floor.items_VxD[run.items]], axis=1)
    fitted, column = Fitted(users_UxD, items_VxD), f"recall_at_{COMPARED}"
    recalls = {}
    for split, held_out in HeldOut.of(Task.of(dataset), dataset).items():
        places, name = np.searchsorted(run.items, held_out.candidates), f"{split}_{column}"
        recalls[name] = held_out.evaluate(fitted(places)).figures[column]
        recalls[f"{name}_of_all_ranks"] = blended[name]
    of_floor = {
        name.replace("validation", "floor_validation"): fact for name, fact in floor.facts.items()
    }
    facts = {**run.facts, **of_floor, **recalls, "weight_of_the_run": weight}
    return replace(run, users_UxD=users_UxD, items_VxD=items_VxD, facts=facts)


def trained_on_all(record: RunRecord, dataset: Dataset, progress: Progress) -> RunRecord:
    """Return a run of the same settings on all links, of as many whole epochs as it reports; it is
    trained, or continued, in a folder within the run's.

    Args:
        dataset: that of :meth:`ncfbench.data.store.Dataset.on_all_links`.
    """
    epochs = max(round(record.summary["reported_epoch"] or record.summary["epochs"]), 1)
    config = replace(record.config.on_one_device(), epochs=epochs)
    there = Locations(record.folder.parent, record.folder / ALL_LINKS)
    plan = RunPlan.of(config, there, dataset=dataset)
    progress.say(f"Training on all {dataset.graph.n_links:,} links: {epochs} epochs.")
    is_lost = not (plan.folder / "checkpoints").exists()
    trained = run(plan, again=is_lost, progress=progress, on_all_links=True)
    assert trained is not None, "one process trains"
    return trained


def ranked_items(dataset: Dataset, items: Ids, *, of_test: bool) -> tuple[Ids, LeftOut | None]:
    """Return the indices of the items that are ranked, and what is left out of them for a user:
    those that the test ranks, where items are held out; else all but those of training links.

    Args:
        items: ids that have vectors, ascending.
    """
    if of_test and not dataset.ranks_known_items:
        return np.searchsorted(items, dataset.candidates("test")), None
    known_of = by_user(dataset.graph.user_offsets, dataset.graph.link_item)
    return np.arange(len(items)), lambda user: np.searchsorted(items, known_of(user))


def best_items(
    users_UxD: Float32,
    items_VxD: Float32,
    users: Int32,
    count: int,
    left_out: LeftOut | None = None,
) -> Iterator[tuple[Int32, Float32, Int32]]:
    """Yield the items of the highest scores of some users at a time.

    Equal scores are ordered by index, the smaller first; those of items that are left out are -inf.

    Args:
        count: M, the best items of each user.
        left_out: returns the indices that are no candidates of a user.

    Yields:
        Users int32[n], scores float32[n, M] and the indices of the items int32[n, M], the best
        first.
    """
    import jax
    import jax.numpy as jnp

    from ncfbench.training.evaluation import BLOCK_SCORES, scores_of

    size = int(np.clip(BLOCK_SCORES // len(items_VxD), 1, len(users)))
    scores = scores_of(jnp.asarray(users_UxD), jnp.asarray(items_VxD), size)
    for start in range(0, len(users), size):
        block = users[start : start + size]
        scores_BxV = scores(block) + np.float32(0)  # 0 and -0, which are equal, differ for top_k
        if left_out is not None:
            for row, user in enumerate(block):
                scores_BxV[row, left_out(user)] = -np.inf
        best, index = jax.lax.top_k(scores_BxV, count)
        yield block, np.asarray(best), np.asarray(index)


def _deviations(scores_at: Fitted, items: Ids, dataset: Dataset) -> Float32:
    """Return the deviation of each user's scores over the items that his test ranks, or all, or
    every n-th of these where they are many, float32[U, 1].

    Args:
        scores_at: returns the scores of the items at some indices.
    """
    is_tested = len(dataset.links("test")[0]) > 0
    places, left_out = ranked_items(dataset, items, of_test=is_tested)
    step, of_all = max(math.ceil(len(places) / MOST_SCALED), 1), left_out
    if step > 1 and of_all is not None:
        left_out = lambda user: (left := of_all(user))[left % step == 0] // step  # noqa: E731
    scores = scores_at(places[::step])
    blocks = np.array_split(np.arange(dataset.n_users), max(dataset.n_users // 256, 1))
    return np.concatenate([scale(scores(users), users, left_out)[1] for users in blocks])
