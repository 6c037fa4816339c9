"""The probe and the evaluators of a run."""

from __future__ import annotations

import jax

from ncfbench.catalog import find_encoder
from ncfbench.data.store import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.quality import COMPARED, Evaluation, can_rank
from ncfbench.storage.schemas import EVALUATED
from ncfbench.training.probe import Probe
from ncfbench.training.recall import RecallEvaluator
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer


class Evaluators:
    """The probe, and one evaluator for each split in which some user has an item.

    One embedder serves all.
    """

    def __init__(self, trainer: Trainer, dataset: Dataset, content: DeviceContent) -> None:
        self.embedder = trainer.embedder(content)
        self.probe = Probe(dataset.graph, trainer.config, self.embedder)
        encoder = trainer.config.encoder
        self._learns_items = not find_encoder(encoder).scores_cold_items
        self.recall_reason = describe_unranked(encoder, dataset)
        """The reason that there is no recall on test items; None where there is."""
        scores = can_rank(encoder, dataset)
        self.splits = {
            split: RecallEvaluator(dataset, split, self.embedder)
            for split in EVALUATED
            if scores and len(dataset.links(split)[0])
        }
        self._ranks_known_items = dataset.ranks_known_items

    def evaluate(self, parameters: Parameters) -> dict[str, Evaluation]:
        """Return the quality of each split."""
        users_UxD = self.embedder.users(parameters).scored if self.splits else None
        items_VxD: jax.Array | None = None
        evaluations: dict[str, Evaluation] = {}
        for split, evaluator in self.splits.items():
            if items_VxD is None or not self._ranks_known_items:
                items_VxD = evaluator.embed(parameters)
            evaluations[split] = evaluator(parameters, items_VxD, users_UxD)
        return evaluations

    def forecast(self, parameters: Parameters) -> float:
        """Return about how many seconds costly items of a probe and an evaluation take."""
        items = [evaluator.items for evaluator in self.splits.values()]
        # Splits that rank the same items embed them once.
        embedded = items[:1] if self._ranks_known_items else items
        return sum(
            self.embedder.forecast(parameters, each) for each in (self.probe.links.nodes, *embedded)
        )

    def notes(self) -> list[str]:
        """Return what a user should know in advance: chance levels, users without training links,
        few items to rank, and items without a trained vector.
        """
        chances = [
            f"{evaluator.ranking.chances[f'recall_at_{COMPARED}_chance']:.4f} on {split} links"
            for split, evaluator in self.splits.items()
        ]
        notes = [f"By chance recall@{COMPARED} is {' and '.join(chances)}."] if chances else []
        for split, evaluator in self.splits.items():
            if users := evaluator.ranking.cold_users:
                notes.append(
                    f"{users:,} users with {split} links have no training link: their recall stands"
                    " apart."
                )
            if evaluator.most_ranked <= COMPARED:
                what = f"{split} items" if not self._ranks_known_items else "items to rank"
                whose = "their" if not self._ranks_known_items else f"the {split} links'"
                notes.append(
                    f"There are {evaluator.most_ranked} {what}: {whose} recall@{COMPARED} is 1 by"
                    " construction."
                )
            if self._learns_items and (share := evaluator.share_of_new):
                notes.append(
                    f"{100 * share:.1f} % of the {split} links are to new items, for which the"
                    " encoder has no trained vector: recall of these stands by itself too."
                )
        return notes


def describe_unranked(encoder: str, dataset: Dataset) -> str | None:
    """Return why an encoder has no recall on a data set's test items; None where it has."""
    if not can_rank(encoder, dataset):
        return f"{encoder} learns a vector for each item, and held-out items have none"
    if len(dataset.links("test")[0]):
        return None
    return f"no user has a held-out test {'link' if dataset.ranks_known_items else 'item'}"
