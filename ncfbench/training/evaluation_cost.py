"""Seconds of a probe and of an evaluation: what a run spends looking at its model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ncfbench.data.store import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.runs.schedule import Schedule
from ncfbench.timing.clock import format_duration
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe
from ncfbench.training.recall import RecallEvaluator, make_evaluators
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

NOTABLE_SECONDS = 5.0
"""A probe and an evaluation that take longer together are announced."""


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
    begin = time.perf_counter()
    embedder = trainer.embedder(content)
    probe = Probe(dataset.graph, trainer.config, embedder)
    evaluators, _ = make_evaluators(trainer.config, dataset, embedder)
    if embedder.by_length:
        seconds = forecast_evaluation(embedder, probe, evaluators, parameters)
        return EvaluationCost(time.perf_counter() - begin, *seconds)

    def evaluate() -> None:
        for evaluator in evaluators.values():
            evaluator(parameters)

    probe(parameters)
    evaluate()
    times = [time.perf_counter()]  # both are compiled
    probe(parameters)
    times.append(time.perf_counter())
    evaluate()
    times.append(time.perf_counter())
    return EvaluationCost(times[0] - begin, times[1] - times[0], times[2] - times[1])


def forecast_evaluation(
    embedder: Embedder,
    probe: Probe,
    evaluators: Mapping[str, RecallEvaluator],
    parameters: Parameters,
) -> tuple[float, float]:
    """Return about how many seconds costly items of a probe and of an evaluation take."""
    of_probe = embedder.forecast(parameters, probe.links.nodes)
    each = (embedder.forecast(parameters, evaluator.items) for evaluator in evaluators.values())
    return of_probe, sum(each)


def describe_waits(
    seconds: tuple[float, float], items: tuple[int, int], schedule: Schedule, epochs_done: float
) -> str | None:
    """Return a message that says what a user will wait for; None where that is short.

    Args:
        seconds: of a probe and of an evaluation.
        items: that are embedded in each.
    """
    if sum(seconds) < NOTABLE_SECONDS:
        return None
    (probe, evaluation), epochs = map(format_duration, seconds), schedule.epochs - epochs_done
    probes = schedule.probes_an_epoch
    total = (epochs * probes + (epochs_done == 0)) * seconds[0] + epochs * seconds[1]
    often = "once an epoch" if probes == 1 else f"{probes:.3g} times an epoch"
    held_out = f" An evaluation at the end of an epoch: {items[1]:,} held-out items, {evaluation}."
    return (
        f"A probe embeds {items[0]:,} items, which takes about {probe}, {often} (--probe-every N:"
        f" every N iterations).{held_out if items[1] else ''} In this run both take about"
        f" {format_duration(total)}, off the training clock. The step is compiled before the first"
        " iteration, which can take a minute."
    )
