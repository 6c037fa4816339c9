"""Evaluation of a run: its probe, and the ranks of each user's held-out items.

Where items are held out, the candidates are all items of the split, which training never saw. Where
links are, they are all items but those that the user has a training link with.
:mod:`ncfbench.runs.quality` makes recall@M (KDD 2017, section 5.2), NDCG@M and MRR of the ranks.
"""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_encoder
from ncfbench.data.store import Dataset
from ncfbench.floors.task import HeldOut, Task
from ncfbench.models.scores import score_matrix
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.quality import CERTAIN, COMPARED, Evaluation, can_rank, describe_unranked
from ncfbench.runs.ranks import Scores
from ncfbench.storage.schemas import EVALUATED
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

BLOCK_SCORES = 2**22
"""Scores of users and items in memory at a time, of one user at least: 16 MB."""
BLOCK_USERS = 256
"""Most users of a block: with few items, its scores fit the caches."""


class Evaluators:
    """The probe, and the held-out links of each split in which some user has an item.

    One embedder serves all.
    """

    def __init__(self, trainer: Trainer, dataset: Dataset, content: DeviceContent) -> None:
        self.embedder: Embedder = trainer.embedder(content)
        self.probe = Probe(dataset.graph, trainer.config, self.embedder)
        self._dataset, self._encoder = dataset, trainer.config.encoder
        self._is_new = dataset.graph.item_degrees == 0
        self.recall_reason = describe_unranked(self._encoder, dataset)
        """The reason that there is no recall on test items; None where there is."""
        ranks = can_rank(self._encoder, dataset)
        held_out = HeldOut.of(Task.of(dataset), dataset) if ranks else {}
        self.splits = {split: held_out[split] for split in EVALUATED if split in held_out}

    def evaluate(self, parameters: Parameters) -> dict[str, Evaluation]:
        """Return the quality of each split.

        Equal items have equal scores, to the last bit: one product scores all items of a user.
        """
        if not self.splits:
            return {}
        evaluations: dict[str, Evaluation] = {}
        items_VxD: jax.Array | None = None
        users_UxD = self.embedder.users(parameters).scored
        for split, held_out in self.splits.items():
            items = self._dataset.candidates(split)
            if items_VxD is None or not self._dataset.ranks_known_items:
                items_VxD = self.embedder.candidates(parameters, items, self._is_new[items])
            most = min(BLOCK_USERS, held_out.n_users)
            size = int(np.clip(BLOCK_SCORES // len(items), 1, most))
            scores = scores_of(users_UxD, items_VxD, size)
            evaluations[split] = held_out.evaluate(scores, block_users=size)
        return evaluations

    def forecast(self, parameters: Parameters) -> float:
        """Return about how many seconds costly items of a probe and an evaluation take."""
        ranked = [self._dataset.candidates(split) for split in self.splits]
        # Splits that rank the same items embed them once.
        ranked = ranked[:1] if self._dataset.ranks_known_items else ranked
        parts = (self.probe.links.nodes, *ranked)
        return sum(self.embedder.forecast(parameters, items) for items in parts)

    def notes(self) -> list[str]:
        """Return what a user should know in advance: chance levels, users without training links,
        few items to rank, and items without a trained vector.
        """
        learns_items = not find_encoder(self._encoder).scores_cold_items
        chances, notes = [], []
        for split, held_out in self.splits.items():
            chance = held_out.ranking.chances[f"recall_at_{COMPARED}_chance"]
            chances.append(f"{chance:.4f} on {split} links")
            if users := held_out.ranking.cold_users:
                notes.append(
                    f"{users:,} users with {split} links have no training link: their recall is"
                    " measured separately."
                )
            if chance >= 1:
                notes.append(f"On {split} links {CERTAIN}")
            share = float(np.mean(self._is_new[self._dataset.links(split)[1]]))
            if share and learns_items:
                notes.append(
                    f"{100 * share:.1f} % of the {split} links are to new items, for which the"
                    " encoder has no trained vector: their recall is measured separately too."
                )
        by_chance = f"By chance recall@{COMPARED} is {' and '.join(chances)}."
        return [by_chance, *notes] if chances else []


def scores_of(users_UxD: jax.Array, items_VxD: jax.Array, size: int = BLOCK_USERS) -> Scores:
    """Return the scores of all items for some users, ``size`` users at a time."""

    def scores(users: NDArray[np.integer]) -> NDArray[np.float32]:
        blocks = (users[start : start + size] for start in range(0, len(users), size))
        return np.concatenate(
            [
                # Of one size, so that one program serves.
                np.asarray(_scores(users_UxD, items_VxD, np.resize(block, size)))[: len(block)]
                for block in blocks
            ]
        )

    return scores


@jax.jit
def _scores(users_UxD: jax.Array, items_VxD: jax.Array, users: jax.Array) -> jax.Array:
    """Return the scores of some users and all items."""
    return score_matrix(users_UxD[users], items_VxD)
