"""The probe and the evaluators of a run, and the seconds that they take."""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_encoder
from ncfbench.data.store import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.quality import COMPARED, Evaluation, can_rank
from ncfbench.runs.schedule import Schedule
from ncfbench.storage.schemas import EVALUATED
from ncfbench.timing.clock import format_duration
from ncfbench.training.probe import Probe
from ncfbench.training.recall import RecallEvaluator
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

NOTABLE_SECONDS = 5.0
"""A probe and an evaluation that take longer together are announced."""


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

    def forecast(self, parameters: Parameters) -> tuple[float, float]:
        """Return about how many seconds costly items of a probe and of an evaluation take."""
        seconds = [
            self.embedder.forecast(parameters, items)
            for items in (self.probe.links.nodes, *self._embedded_items)
        ]
        return seconds[0], sum(seconds[1:])

    @property
    def _embedded_items(self) -> list[NDArray[np.int32]]:
        """The items that an evaluation embeds, of all splits once where these have the same."""
        items = [evaluator.items for evaluator in self.splits.values()]
        return items[:1] if self._ranks_known_items else items

    def notes(self, parameters: Parameters, schedule: Schedule, epochs_done: float) -> list[str]:
        """Return what a user should know in advance: chance levels, users without training links,
        few items to rank, items without a trained vector, and long waits.
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
        if self.embedder.by_length and epochs_done < schedule.epochs:
            items = len(self.probe.links.nodes), sum(map(len, self._embedded_items))
            waits = describe_waits(self.forecast(parameters), items, schedule, epochs_done)
            notes += [] if waits is None else [waits]
        return notes


def describe_unranked(encoder: str, dataset: Dataset) -> str | None:
    """Return why an encoder has no recall on a data set's test items; None where it has."""
    if not can_rank(encoder, dataset):
        return f"{encoder} learns a vector for each item, and held-out items have none"
    if len(dataset.links("test")[0]):
        return None
    return f"no user has a held-out test {'link' if dataset.ranks_known_items else 'item'}"


@dataclass(frozen=True)
class EvaluationCost:
    """Seconds of a probe and of an evaluation, and of their compilation."""

    start_seconds: float
    probe_seconds: float
    evaluation_seconds: float


def measure_evaluation_cost(
    trainer: Trainer, dataset: Dataset, content: DeviceContent, parameters: Parameters
) -> EvaluationCost:
    """Return what a probe and an evaluation of some parameters take.

    Both are made twice, or forecast from a block of items where an item is costly.
    """
    times = [time.perf_counter()]
    evaluators = Evaluators(trainer, dataset, content)
    if evaluators.embedder.by_length:
        seconds = evaluators.forecast(parameters)
        return EvaluationCost(time.perf_counter() - times[0], *seconds)
    for _ in range(2):  # the first time compiles both
        evaluators.probe(parameters)
        times.append(time.perf_counter())
        evaluators.evaluate(parameters)
        times.append(time.perf_counter())
    return EvaluationCost(times[2] - times[0], times[3] - times[2], times[4] - times[3])


def describe_waits(
    seconds: tuple[float, float], items: tuple[int, int], schedule: Schedule, epochs_done: float
) -> str | None:
    """Return a message that says what a user will wait for; None where that is short.

    Args:
        seconds, items: of a probe and of an evaluation.
    """
    if sum(seconds) < NOTABLE_SECONDS:
        return None
    (probe, evaluation), epochs = map(format_duration, seconds), schedule.epochs - epochs_done
    probes = schedule.probes_an_epoch
    total = (epochs * probes + (epochs_done == 0)) * seconds[0] + epochs * seconds[1]
    often = "once an epoch" if probes == 1 else f"{probes:.3g} times an epoch"
    at_end = f" An evaluation at the end of an epoch: {items[1]:,} ranked items, {evaluation}."
    return (
        f"A probe embeds {items[0]:,} items, which takes about {probe}, {often} (--set"
        f" probe_every=N: every N iterations).{at_end if items[1] else ''} In this run both take"
        f" about {format_duration(total)}, off the training clock. The step is compiled before the"
        " first iteration, which can take a minute."
    )
