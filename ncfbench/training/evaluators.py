"""Which splits of a run's data can be ranked, and why not."""

from __future__ import annotations

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.models.interaction import make_interaction
from ncfbench.registry import find_encoder
from ncfbench.training.inference import Embedder
from ncfbench.training.recall import RecallEvaluator


def evaluators(
    config: RunConfig, dataset: Dataset, embedder: Embedder
) -> tuple[dict[str, RecallEvaluator], str | None]:
    """Those of the splits in which some user has an item; and why there is no recall on the test
    items.
    """
    if not find_encoder(config.encoder).scores_cold_items:
        return {}, f"{config.encoder} learns a vector for each item, and held-out items have none"
    interaction = make_interaction(config)
    made = {
        split: RecallEvaluator(dataset, split, embedder, interaction)
        for split in ("validation", "test")
    }
    reason = "no user has a held-out test item" if made["test"].empty else None
    return {split: evaluator for split, evaluator in made.items() if not evaluator.empty}, reason
