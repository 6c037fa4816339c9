"""The audit: is each sampler's gradient unbiased, and how noisy is it? Measured against the exact
gradient, with verdicts.

For each sampler and loss the gradients of many batches, in blocks, are held against the exact one
of :mod:`ncfbench.audit.anchors`. One batch of each sampler is also taken through the training
step's own gradient: both must agree.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.audit import conformance
from ncfbench.audit.anchors import AuditedTowers, Point
from ncfbench.audit.bias import Bias, consistency, estimate
from ncfbench.audit.block_gradients import blocks_of
from ncfbench.config import MAX_SEED, RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.towers import Content
from ncfbench.registry import find_loss, find_sampler
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.sampling import batch_stats, make_sampler
from ncfbench.timing import environment
from ncfbench.training.interleave import interleave, timed_loops

BLOCKS = 24
"""Independent means that a verdict rests on."""
FEWER = {"replacement": (1, BLOCKS), "shuffled": (2, BLOCKS // 2), "more": (2, BLOCKS // 2)}
"""How many times fewer batches a mode is looked at through, and in how many blocks: what is noisier
needs more.
"""
MORE_NEGATIVES = 4
"""How many times more negatives a listwise loss is looked at with, to see its bias fall."""
TIMING_ROUNDS, TIMING_BATCHES = 5, 16
AUDIT_SEED = MAX_SEED + 3


@dataclass(frozen=True)
class Options:
    """What to audit, besides the settings of a run."""

    samplers: tuple[str, ...]
    losses: tuple[str, ...]
    noises: tuple[str, ...]
    batches: int = 1536
    margin: float = 0.1
    warmup: int = 20

    def __post_init__(self) -> None:
        for name in ("samplers", "losses", "noises"):
            if not getattr(self, name):
                raise UsageError(f"No {name} are named: give some, separated by commas.")
        if self.batches and self.batches < 2 * BLOCKS:
            raise UsageError(
                f"batches = {self.batches}: the gradients need at least {2 * BLOCKS}, in {BLOCKS}"
                " blocks; with 0 only the conformance suite and the X-ray are made."
            )
        if not 0 < self.margin < 1:
            raise UsageError(
                f"margin = {self.margin}: it must lie between 0 and 1, for example 0.05 for 5 %."
            )
        if self.warmup < 1:
            raise UsageError(f"warmup = {self.warmup}: it must be at least 1 iteration.")


@dataclass(frozen=True)
class Record:
    """What an audit found, as rows of the tables of :mod:`ncfbench.storage.schemas`."""

    audit: list[dict[str, Any]]
    xray: list[dict[str, Any]]
    conformance: list[dict[str, Any]]

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """By their names in :data:`ncfbench.storage.schemas.AUDIT_TABLES`."""
        return {"conformance": self.conformance, "xray": self.xray, "audit": self.audit}

    @property
    def failures(self) -> list[str]:
        """What is wrong: biased gradients and properties that do not hold."""
        biased = [
            f"{row['sampler']}: the gradient is biased for {row['loss']} ({row['noise']},"
            f" {row['point']})"
            for row in self.audit
            if row["shown_by"] == "gradient"
        ]
        names = conformance.PROPERTIES
        failed = [
            f"{row['sampler']}: {names[row['property']]}: {row['detail']}"
            for row in self.conformance
            if row["result"] == "fail"
        ]
        return [*dict.fromkeys(failed), *biased]


def run(
    dataset: Dataset,
    settings: Mapping[str, Any],
    options: Options,
    progress: Progress | None = None,
) -> Record:
    """The conformance suite, the X-ray and the audit of some samplers.

    Args:
        settings: of a run, without sampler, loss and noise; impossible combinations of these three
            are left out.

    Raises:
        UsageError: no combination is possible, or the exact sum would take too long.
    """
    progress = progress or Progress()
    configs = configurations(settings, options)
    samplers = len({sampler for _, _, sampler in configs})
    progress.say(f"Conformance suite and X-ray of {samplers} sampler{'s' if samplers > 1 else ''}.")
    outcomes, wrong = _conformance(dataset.graph, configs, options)
    for sampler in sorted({row["sampler"] for row in outcomes if row["result"] == "fail"}):
        progress.say(f"{sampler} fails the conformance suite.")
    broken = {
        row["sampler"]
        for row in outcomes
        if row["result"] == "fail" and row["property"] in ("shapes", "ids", "weights")
    }
    audited = {key: config for key, config in configs.items() if key[2] not in broken}
    first = {(noise, sampler): config for (_, noise, sampler), config in reversed(audited.items())}
    xrays = [batch_stats.xray(dataset, config) for config in reversed(first.values())]
    rows = audit(dataset, audited, options, progress) if audited and options.batches else []
    for row in rows:
        # Right weights are what an unbiased or consistent gradient follows from, whatever the
        # parameters.
        kind = row["noise"], row["sampler"], find_loss(row["loss"]).family == "listwise"
        if kind in wrong and row["verdict"] != "biased":
            row |= {"verdict": "biased", "shown_by": "weights", "batches_needed": None}
    return Record(rows, xrays, outcomes)


def _conformance(
    graph: BipartiteGraph, configs: Mapping[tuple[str, str, str], RunConfig], options: Options
) -> tuple[list[dict[str, Any]], set[tuple[str, str, bool]]]:
    """Rows of the conformance suite; and (noise, sampler, listwise) where the expected loss is
    wrong.

    Every family of losses with the first noise distribution; with the others, weights differ only
    for listwise ones.
    """
    rows, wrong, seen = [], set(), set()
    for (_, noise, sampler), config in configs.items():
        listwise = config.family == "listwise"
        case = noise, sampler, config.family if noise == options.noises[0] else str(listwise)
        if case not in seen:
            seen.add(case)
            outcomes = conformance.conformance(graph, config)
            rows += conformance.rows(graph, config, outcomes)
            if any(
                outcome.name == "expectation" and outcome.result == "fail" for outcome in outcomes
            ):
                wrong.add((noise, sampler, listwise))
    return rows, wrong


def configurations(
    settings: Mapping[str, Any], options: Options
) -> dict[tuple[str, str, str], RunConfig]:
    """Complete settings by (loss, noise, sampler), for the possible combinations.

    Raises:
        UsageError: there is none.
    """
    strata = str(settings.get("strata", RunConfig.strata))
    local = settings.get("share") == "local"
    # Parts that share nothing within themselves are no other sampler than without parts.
    samplers = [name for name in options.samplers if find_sampler(name).shares_items or not local]
    configs = {}
    for noise in options.noises:
        for sampler in samplers:
            for loss in options.losses:
                if find_loss(loss).family in find_sampler(sampler).families_with(strata):
                    choice = {"noise": noise, "sampler": sampler, "loss": loss}
                    configs[loss, noise, sampler] = complete(dict(settings) | choice)
    if not configs:
        complete(dict(settings) | {"sampler": options.samplers[0], "loss": options.losses[0]})
    return configs


def audit(
    dataset: Dataset,
    configs: dict[tuple[str, str, str], RunConfig],
    options: Options,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One row of :data:`ncfbench.storage.schemas.AUDIT` for each loss, noise distribution, sampler
    and point.

    Args:
        configs: complete settings by (loss, noise, sampler), for the possible combinations.
    """
    progress = progress or Progress()
    verdicts = 2 * len(configs)
    content = Content.of(dataset)
    where = environment.describe()
    progress.say(
        f"{verdicts} verdicts, each from {options.batches:,} batches; timing one iteration of each"
        " sampler first."
    )
    seconds = iteration_seconds(dataset, content, configs)
    losses = {loss: config for (loss, _, _), config in reversed(configs.items())}
    towers = {
        loss: AuditedTowers.of(dataset, content, config, options.warmup)
        for loss, config in losses.items()
    }
    rows = []
    for noise in options.noises:
        own = {loss: config for (loss, name, _), config in configs.items() if name == noise}
        points = {loss: towers[loss].points(dataset.graph, config) for loss, config in own.items()}
        for sampler in options.samplers:
            served = {
                loss: configs[loss, noise, sampler]
                for loss in points
                if (loss, noise, sampler) in configs
            }
            if not served:
                continue
            begin = time.perf_counter()
            found = audit_sampler(
                dataset.graph, served, points, options, verdicts, check=noise == options.noises[0]
            )
            for row in found:
                row["full_iteration_seconds"] = seconds[sampler]
                row["variance_seconds"] = row["batch_variance"] * seconds[sampler]
            rows += found
            counts = Counter(row["verdict"] for row in found)
            summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            progress.say(f"{noise} {sampler}: {summary}  ({time.perf_counter() - begin:.1f} s)")
    common = {"data_fingerprint": dataset.fingerprint, "environment_key": where["key"]}
    return [row | common for row in rows]


def audit_sampler(
    graph: BipartiteGraph,
    configs: Mapping[str, RunConfig],
    points: Mapping[str, Sequence[Point]],
    options: Options,
    verdicts: int,
    *,
    check: bool = True,
) -> list[dict[str, Any]]:
    """The rows of one sampler and noise distribution, without its times.

    Args:
        configs: complete settings by loss.
        points: by loss.
        check: compare a batch's gradient with the training step's.
    """
    results: dict[tuple[str, str, str], Bias] = {}
    # Weights differ only between listwise and other losses: those of a kind share their batches.
    for listwise in (False, True):
        losses = [
            loss for loss, config in configs.items() if (config.family == "listwise") == listwise
        ]
        if not losses:
            continue
        config = configs[losses[0]]
        modes = {"replacement": config, "shuffled": config}
        if listwise and MORE_NEGATIVES * config.batch_size <= graph.n_links:
            modes["more"] = _with_more_negatives(config)
        for mode, settings in modes.items():
            sampler = make_sampler(
                graph, settings, Streams(AUDIT_SEED + settings.seed), replacement=mode != "shuffled"
            )
            fewer, blocks = FEWER[mode]
            size = max(options.batches // fewer // blocks, 1)
            targets = [(loss, point) for loss in losses for point in points[loss]]
            means: list[list[NDArray[np.float32]]] = [[] for _ in targets]
            for block in blocks_of(sampler, blocks, size):
                if check and mode == "replacement" and not means[0]:
                    points[losses[0]][-1].check_step(graph, config, block.batches[0])
                for vectors, (_, point) in zip(means, targets, strict=True):
                    vectors.append(point.mean(block))
            for vectors, (loss, point) in zip(means, targets, strict=True):
                results[mode, loss, point.name] = estimate(
                    np.stack(vectors), point.gradient, size * blocks, verdicts
                )
    sampler = make_sampler(graph, next(iter(configs.values())), Streams(0))
    return [
        _row(configs[loss], point, results, sampler.shuffled_bias(), options, verdicts)
        for loss in configs
        for point in points[loss]
    ]


def iteration_seconds(
    dataset: Dataset, content: Content, configs: dict[tuple[str, str, str], RunConfig]
) -> dict[str, float]:
    """Seconds of one training iteration of each sampler (full account), interleaved, with its first
    valid loss.

    On one device, also of batches in parts for several.
    """
    first = {sampler: config for (_, _, sampler), config in reversed(configs.items())}
    with timed_loops(dataset, content, first, on_one_device=True) as loops:
        interleave(list(loops.values()), TIMING_ROUNDS, lambda loop: TIMING_BATCHES)
        return {name: loop.seconds_per_iteration("full") for name, loop in loops.items()}


def _with_more_negatives(config: RunConfig) -> RunConfig:
    return dataclasses.replace(
        config,
        batch_size=MORE_NEGATIVES * config.batch_size,
        negatives=MORE_NEGATIVES * config.negatives,
        uniform_items=MORE_NEGATIVES * config.uniform_items,
    )


def _row(
    config: RunConfig,
    point: Point,
    results: Mapping[tuple[str, str, str], Bias],
    shuffled_bias: float | None,
    options: Options,
    verdicts: int,
) -> dict[str, Any]:
    found = results["replacement", config.loss, point.name]
    shuffled = results["shuffled", config.loss, point.name]
    more = results.get(("more", config.loss, point.name))
    verdict: str
    listwise = config.family == "listwise"
    if listwise:
        verdict = consistency(found, more, options.margin, FEWER["more"][1], verdicts)
    else:
        verdict = found.verdict(options.margin)
    effective = config.effective()
    return {
        **{
            name: effective[name]
            for name in ("dataset", "encoder", "loss", "noise", "sampler", "strata", "mask")
        },
        **{name: effective[name] for name in ("share", "devices")},
        **{
            name: effective[name]
            for name in ("batch_size", "negatives", "stratum_size", "uniform_items", "seed")
        },
        "point": point.name,
        "verdict": verdict,
        "batches": found.batches,
        "margin": options.margin,
        "verdicts": verdicts,
        "bias": found.estimate,
        "bias_low": found.lower,
        "bias_high": found.upper,
        "detectable_bias": found.detectable,
        "cosine": found.cosine,
        "shown_by": "gradient" if verdict == "biased" else None,
        "batches_needed": (
            found.batches_needed(options.margin)
            if verdict == "too few batches" and not listwise
            else None
        ),
        "bias_with_4x_negatives": more and more.estimate,
        "bias_with_4x_negatives_low": more and more.lower,
        "bias_with_4x_negatives_high": more and more.upper,
        "shuffled_bias": shuffled.estimate,
        "shuffled_bias_low": shuffled.lower,
        "shuffled_bias_high": shuffled.upper,
        "predicted_shuffled_bias": (
            None if shuffled_bias is None or listwise else shuffled_bias * point.negative_share
        ),
        "batch_variance": found.variance,
        "full_iteration_seconds": None,
        "variance_seconds": None,
        "exact_loss": point.exact.value,
        "probe_loss": point.probe,
    }
