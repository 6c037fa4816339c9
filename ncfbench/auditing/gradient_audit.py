"""Each sampler's mean gradient against the exact one: bias, variance, verdict.

The gradients of many batches, in blocks, are compared with the exact gradient at each anchor
(:mod:`ncfbench.auditing.anchors`). One batch of each sampler also goes through the training step's
own gradient: both must agree.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.anchors import Anchor, AuditedTowers
from ncfbench.auditing.bias import Bias, consistency, estimate
from ncfbench.auditing.blocks import blocks_of
from ncfbench.auditing.variance import PARTS, measure_parts
from ncfbench.catalog import find_loss
from ncfbench.config import MAX_SEED, RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.sampling import make_sampler
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.timing import environment
from ncfbench.training.loop import timed_loops

BLOCKS = 24
"""Independent means that a verdict rests on."""
MODES = {"replacement": (1, BLOCKS), "shuffled": (2, BLOCKS // 2), "more": (2, BLOCKS // 2)}
"""Ways of sampling: how many times fewer batches each gets, and in how many blocks.

``replacement`` draws links with replacement, ``shuffled`` as training does, ``more`` with
:data:`MORE_NEGATIVES` times the negatives.
"""
MORE_NEGATIVES = 4
"""Times more negatives with which a listwise loss is measured again, to see its bias fall."""
TIMING_ROUNDS, TIMING_BATCHES = 5, 16
AUDIT_SEED = MAX_SEED + 3
SETTINGS = ("dataset", "encoder", "loss", "noise", "sampler", "strata", "mask", "share", "devices")
SIZES = ("batch_size", "negatives", "stratum_size", "uniform_items", "seed")

Configs = Mapping[tuple[str, str, str], RunConfig]
"""Complete settings by (loss, noise, sampler), for the possible combinations."""


def audit(
    dataset: Dataset,
    configs: Configs,
    *,
    batches: int,
    margin: float,
    warmup: int,
    variance_parts: bool = False,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return a row of :data:`ncfbench.storage.schemas.AUDIT` for each combination and anchor.

    Args:
        batches: batches of each combination.
        margin: share of the exact gradient below which a bias counts as none.
        warmup: training iterations before the second anchor.
        variance_parts: measure the parts of the variance too, for pointwise losses.
    """
    progress = progress or Progress()
    verdicts = 2 * len(configs)
    content = DeviceContent.of(dataset)
    where = environment.describe()
    progress.say(
        f"{verdicts} verdicts, each from {batches:,} batches; timing one iteration of each sampler"
        " first."
    )
    seconds = iteration_seconds(dataset, content, configs)
    # Mined items are oldest just before the next mining.
    ages = [config.mine_every - 1 for config in configs.values() if config.mines]
    age = min(max(ages, default=0), warmup)
    towers = {
        loss: AuditedTowers.make(dataset, content, config, warmup, age)
        for (loss, _, _), config in _first(configs, 0).items()
    }
    rows = []
    noises, samplers = (list(dict.fromkeys(key[part] for key in configs)) for part in (1, 2))
    # A verdict takes about as long as the sampler's iterations do.
    work, done = sum(seconds[sampler] for _, _, sampler in configs), 0.0
    began = time.perf_counter()
    for noise in noises:
        own = {loss: config for (loss, name, _), config in configs.items() if name == noise}
        anchors = {
            loss: towers[loss].anchors(dataset.graph, config) for loss, config in own.items()
        }
        for sampler in samplers:
            served = {
                loss: configs[loss, noise, sampler]
                for loss in anchors
                if (loss, noise, sampler) in configs
            }
            if not served:
                continue
            begin = time.perf_counter()
            found = audit_sampler(
                dataset.graph, served, anchors, batches, margin, verdicts, check=noise == noises[0]
            )
            if variance_parts:
                _add_variance_parts(dataset.graph, served, anchors, batches, found)
            for row in found:
                row["full_iteration_seconds"] = seconds[sampler]
                row["variance_seconds"] = row["batch_variance"] * seconds[sampler]
            rows += found
            counts = Counter(row["verdict"] for row in found)
            summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            done += seconds[sampler] * len(served)
            now = time.perf_counter()
            left = (now - began) * (work - done) / done
            progress.say(
                f"{noise} {sampler}: {summary}  ({now - begin:.1f} s"
                + (f", about {left:,.0f} s left)" if done < 0.999 * work else ")")
            )
    common = {"data_fingerprint": dataset.fingerprint, "environment_key": where["key"]}
    return [row | common for row in rows]


def audit_sampler(
    graph: BipartiteGraph,
    configs: Mapping[str, RunConfig],
    anchors: Mapping[str, Sequence[Anchor]],
    batches: int,
    margin: float,
    verdicts: int,
    *,
    check: bool = True,
) -> list[dict[str, Any]]:
    """Return the rows of one sampler and noise distribution, without its times.

    Args:
        configs: complete settings by loss.
        anchors: by loss.
        verdicts: how many verdicts the audit's bounds must hold for together.
        check: compare a batch's gradient with the training step's.
    """
    anchors = {
        loss: [anchor.with_mined_items(graph, config) for anchor in anchors[loss]]
        for loss, config in configs.items()
    }
    results: dict[tuple[str, str, str], Bias] = {}
    # Weights differ only between listwise and other losses, and by the positive link's own item:
    # losses of a kind share their batches.
    kinds: dict[tuple[bool, bool], list[str]] = {}
    for loss, config in configs.items():
        kind = config.family == "listwise", find_loss(loss).includes_positive
        kinds.setdefault(kind, []).append(loss)
    for (listwise, _), losses in kinds.items():
        config = configs[losses[0]]
        modes = {"replacement": config, "shuffled": config}
        if listwise and MORE_NEGATIVES * config.batch_size <= graph.n_links:
            more = _with_more_negatives(config)
            if _is_possible(graph, more):
                modes["more"] = more
        own = [(loss, anchor) for loss in losses for anchor in anchors[loss]]
        # Batches of mined items are those of one anchor.
        groups = [[one] for one in own] if config.mines else [own]
        for (mode, settings), targets in itertools.product(modes.items(), groups):
            sampler = make_sampler(
                graph, settings, Streams(AUDIT_SEED + settings.seed), replacement=mode != "shuffled"
            )
            if isinstance(sampler, NegativeSampler):
                sampler.hard_items = targets[0][1].hard_items
            fewer, blocks = MODES[mode]
            size = max(batches // fewer // blocks, 1)
            means: list[list[NDArray[np.float32]]] = [[] for _ in targets]
            for block in blocks_of(sampler, blocks, size):
                if check and mode == "replacement" and not means[0]:
                    anchors[losses[0]][-1].check_step(graph, config, block.batches[0])
                for vectors, (_, anchor) in zip(means, targets, strict=True):
                    vectors.append(anchor.mean(block))
            for vectors, (loss, anchor) in zip(means, targets, strict=True):
                results[mode, loss, anchor.name] = estimate(
                    np.stack(vectors), anchor.gradient, size * blocks, verdicts
                )
    sampler = make_sampler(graph, next(iter(configs.values())), Streams(0))
    rows = [
        _row(configs[loss], anchor, results, sampler.claims().shuffled_bias, margin, verdicts)
        for loss in configs
        for anchor in anchors[loss]
    ]
    for row in rows:
        sampler = make_sampler(graph, configs[row["loss"]], Streams(0))
        # A bias that falls is consistent only where its limit is the right one.
        if sampler.claims().bias and row["verdict"] in ("biased", "consistent"):
            row |= {"verdict": "biased", "shown_by": "declared"}
    return rows


def _add_variance_parts(
    graph: BipartiteGraph,
    configs: Mapping[str, RunConfig],
    anchors: Mapping[str, Sequence[Anchor]],
    batches: int,
    rows: Sequence[dict[str, Any]],
) -> None:
    """Add the parts of the variance to a sampler's rows; pairwise and listwise losses have none."""
    for loss, config in configs.items():
        # The parts are those of an estimate of L.
        if config.family != "pointwise" or config.objective_settings:
            continue
        seed, size = AUDIT_SEED + config.seed, max(batches // BLOCKS, 1)
        own = [row for row in rows if row["loss"] == loss]
        cached = [anchor.with_mined_items(graph, config) for anchor in anchors[loss]]
        found = measure_parts(graph, config, cached, seed, BLOCKS, size)
        for row, parts in zip(own, found, strict=True):
            row |= {f"variance_over_{part}": value for part, value in parts._asdict().items()}


def iteration_seconds(
    dataset: Dataset, content: DeviceContent, configs: Configs
) -> dict[str, float]:
    """Time one training iteration of each sampler (full account), with its first valid loss.

    Interleaved, and on one device, also for batches in shards for several.
    """
    first = {sampler: config for (_, _, sampler), config in _first(configs, 2).items()}
    with timed_loops(dataset, content, first, on_one_device=True) as loops:
        for loop in loops.values():
            loop.full_block(TIMING_BATCHES)  # compiles
            loop.take_samples()
        seconds: dict[str, list[float]] = {name: [] for name in loops}
        for _ in range(TIMING_ROUNDS):
            for name, loop in loops.items():
                loop.full_block(TIMING_BATCHES)
                seconds[name].append(loop.samples[-1].seconds / TIMING_BATCHES)
        return {name: float(np.median(values)) for name, values in seconds.items()}


def _first(configs: Configs, part: int) -> Configs:
    """Return the first settings of each loss, noise or sampler: ``part`` 0, 1 or 2 of the keys."""
    first: dict[str, tuple[str, str, str]] = {}
    for key in configs:
        first.setdefault(key[part], key)
    return {key: configs[key] for key in first.values()}


def _is_possible(graph: BipartiteGraph, config: RunConfig) -> bool:
    try:
        make_sampler(graph, config, Streams(0))
    except UsageError:
        return False
    return True


def _with_more_negatives(config: RunConfig) -> RunConfig:
    return dataclasses.replace(
        config,
        batch_size=MORE_NEGATIVES * config.batch_size,
        negatives=MORE_NEGATIVES * config.negatives,
        uniform_items=MORE_NEGATIVES * config.uniform_items,
    )


def _row(
    config: RunConfig,
    anchor: Anchor,
    results: Mapping[tuple[str, str, str], Bias],
    shuffled_bias: float | None,
    margin: float,
    verdicts: int,
) -> dict[str, Any]:
    found = results["replacement", config.loss, anchor.name]
    shuffled = results["shuffled", config.loss, anchor.name]
    more = results.get(("more", config.loss, anchor.name))
    is_listwise = config.family == "listwise"
    verdict: str = found.verdict(margin)
    if is_listwise:
        verdict = consistency(found, more, margin, MODES["more"][1], verdicts)
    needed = None
    if verdict == "too few batches" and not is_listwise:
        needed = found.batches_needed(margin)
    predicted = None
    if shuffled_bias is not None and not is_listwise:
        predicted = shuffled_bias * anchor.negative_share
    effective = identity_of(config)
    return {
        **{name: effective[name] for name in (*SETTINGS, *SIZES)},
        "point": anchor.name,
        "negative_items": "mined" if config.mines else None,
        "cache_age": anchor.age if config.mines else None,
        "verdict": verdict,
        "batches": found.batches,
        "margin": margin,
        "verdicts": verdicts,
        "bias": found.estimate,
        "bias_low": found.lower,
        "bias_high": found.upper,
        "detectable_bias": found.detectable,
        "cosine": found.cosine,
        "shown_by": "gradient" if verdict == "biased" else None,
        "batches_needed": needed,
        "bias_with_4x_negatives": more and more.estimate,
        "bias_with_4x_negatives_low": more and more.lower,
        "bias_with_4x_negatives_high": more and more.upper,
        "shuffled_bias": shuffled.estimate,
        "shuffled_bias_low": shuffled.lower,
        "shuffled_bias_high": shuffled.upper,
        "predicted_shuffled_bias": predicted,
        "batch_variance": found.variance,
        "full_iteration_seconds": None,
        "variance_seconds": None,
        **dict.fromkeys(f"variance_over_{part}" for part in PARTS),
        "exact_loss": anchor.exact_loss,
        "probe_loss": anchor.probe_loss,
    }
