"""Each sampler's mean gradient against the exact one: bias, variance, verdict.

The gradients of many batches, in blocks, are compared with the exact gradient at each anchor
(:mod:`ncfbench.auditing.anchors`). One batch of each sampler also goes through the training step's
own gradient: both must agree.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.anchors import Anchor, AuditedTowers
from ncfbench.auditing.bias import Bias, columns, estimate
from ncfbench.auditing.blocks import blocks_of
from ncfbench.auditing.verdict import (
    AUDIT_SEED,
    MORE_NEGATIVES,
    Evidence,
    batches_needed,
    blocks_and_size,
    verdict,
    worded,
)
from ncfbench.catalog import find_loss
from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.frames import grouped
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.sampling import make_sampler
from ncfbench.timing import environment
from ncfbench.training.loop import timed_loops

TIMING_ROUNDS, TIMING_BATCHES = 5, 16
SETTINGS = ("dataset", "encoder", "loss", "noise", "sampler", "strata", "mask", "share", "devices")
SIZES = ("batch_size", "negatives", "stratum_size", "uniform_items", "seed")

Weighing: TypeAlias = tuple[str, str, str]
"""Choices that weights depend on: noise distribution, sampler, and the loss's family."""
Objective: TypeAlias = tuple[str, bool]
"""Loss, and whether negatives are drawn from explicit ones."""
Biases: TypeAlias = dict[tuple[str, str], dict[str, Bias]]
"""By loss and name of the parameters, then by :data:`ncfbench.auditing.verdict.MODES`."""


def weighing(config: RunConfig) -> Weighing:
    """Return what the weights of batches depend on."""
    return config.noise, config.sampler, config.family


def objective_of(config: RunConfig) -> Objective:
    """Return what the exact gradient of a noise distribution depends on."""
    return config.loss, config.draws_explicit


@dataclass(frozen=True)
class GradientAudit:
    """The mean gradient of each sampler beside the exact one, at each anchor.

    Args:
        configs: complete settings of each loss, noise distribution and sampler.
        batches: batches of each combination.
        margin: share of the exact gradient below which a bias counts as none.
        warmup: training iterations before the second anchor.
        wrong: where the conformance suite finds the weights wrong.
        brief: leave out the initial parameters, and the streams as training shuffles them.
    """

    dataset: Dataset
    configs: Sequence[RunConfig]
    _: KW_ONLY
    batches: int
    margin: float
    warmup: int
    wrong: Collection[Weighing]
    brief: bool
    progress: Progress

    @property
    def verdicts(self) -> int:
        """How many verdicts the audit's bounds must hold for together."""
        return (2 - self.brief) * len(self.configs)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of :data:`ncfbench.storage.schemas.AUDIT` for each verdict."""
        dataset, configs, say = self.dataset, self.configs, self.progress.say
        content, environment_key = DeviceContent.of(dataset, configs), environment.describe()["key"]
        say(
            f"{self.verdicts} verdicts, each from {self.batches:,} batches; timing one iteration of"
            " each sampler first."
        )
        seconds = iteration_seconds(dataset, content, configs)
        towers = {
            loss: AuditedTowers.make(dataset, content, first, self.warmup, initial=not self.brief)
            for loss, (first, *_) in grouped(configs, attrgetter("loss")).items()
        }
        rows: list[dict[str, Any]] = []
        # A verdict takes about as long as the sampler's iterations do.
        work, done = sum(seconds[config.sampler] for config in configs), 0.0
        began = time.perf_counter()
        for noise, of_noise in grouped(configs, attrgetter("noise")).items():
            anchors = {
                objective: towers[last.loss].anchors(dataset.graph, last)
                for objective, (*_, last) in grouped(of_noise, objective_of).items()
            }
            for sampler, served in grouped(of_noise, attrgetter("sampler")).items():
                begin = time.perf_counter()
                found = self._rows_of(served, anchors, check=noise == configs[0].noise)
                for row in found:
                    row["full_iteration_seconds"] = seconds[sampler]
                    row["variance_seconds"] = row["batch_variance"] * seconds[sampler]
                rows += found
                words = Counter(map(worded, found))
                summary = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
                done += seconds[sampler] * len(served)
                now = time.perf_counter()
                left = (now - began) * (work - done) / done
                say(
                    f"{noise} {sampler}: {summary}  ({now - begin:.1f} s"
                    + (f", about {left:,.0f} s left)" if done < 0.999 * work else ")")
                )
        common = {"data_fingerprint": dataset.fingerprint, "environment_key": environment_key}
        return [row | common for row in rows]

    def _rows_of(
        self,
        configs: Sequence[RunConfig],
        anchors: Mapping[Objective, Sequence[Anchor]],
        *,
        check: bool,
    ) -> list[dict[str, Any]]:
        """Return the rows of one sampler and noise distribution, without its times.

        Args:
            configs: complete settings, one of each loss.
            anchors: by objective.
            check: compare a batch's gradient with the training step's.
        """
        biases: Biases = {}
        # Weights differ only between families, and by the positive link's own item: losses of a
        # kind share their batches.
        kinds = grouped(configs, lambda c: (c.family, find_loss(c.loss).includes_positive))
        for alike in kinds.values():
            targets = [
                (config, anchor) for config in alike for anchor in anchors[objective_of(config)]
            ]
            self._measure(targets, biases, check=check)
        rows = []
        for config in configs:
            at = anchors[objective_of(config)]
            own = [
                self._row(config, anchor, biases[config.loss, anchor.point.name]) for anchor in at
            ]
            rows += own
        return rows

    def _measure(
        self, targets: Sequence[tuple[RunConfig, Anchor]], biases: Biases, *, check: bool
    ) -> None:
        """Add the biases at some anchors whose losses share their batches, in each mode."""
        config, graph = targets[0][0], self.dataset.graph
        modes = {"replacement": config} | ({} if self.brief else {"shuffled": config})
        if config.family == "listwise" and (more := _with_more_negatives(graph, config)):
            modes["more"] = more
        for mode, settings in modes.items():
            streams = Streams(AUDIT_SEED + settings.seed)
            sampler = make_sampler(graph, settings, streams, replacement=mode != "shuffled")
            blocks, size = blocks_and_size(mode, self.batches)
            means: list[list[NDArray[np.float32]]] = []
            for block in blocks_of(sampler, blocks, size):
                if check and mode == "replacement" and not means:
                    last, warm = targets[-1]
                    warm.check_step(graph, last, block.batches[0])
                means.append([anchor.mean(block) for _, anchor in targets])
            for (own, anchor), vectors in zip(targets, zip(*means, strict=True), strict=True):
                bias = estimate(np.stack(vectors), anchor.gradient, size * blocks, self.verdicts)
                biases.setdefault((own.loss, anchor.point.name), {})[mode] = bias

    def _row(self, config: RunConfig, anchor: Anchor, biases: Mapping[str, Bias]) -> dict[str, Any]:
        bias, shuffled, more = biases["replacement"], biases.get("shuffled"), biases.get("more")
        claims = make_sampler(self.dataset.graph, config, Streams(0)).claims()
        is_listwise = config.family == "listwise"
        evidence = Evidence(
            bias,
            is_listwise=is_listwise,
            more=more,
            is_declared=bool(claims.bias),
            has_wrong_weights=weighing(config) in self.wrong,
        )
        word, shown_by = verdict(evidence, self.margin)
        needed = predicted = None
        if word == "too few batches":
            needed = batches_needed(evidence, self.margin)
        if shuffled and claims.shuffled_bias is not None and not is_listwise:
            predicted = claims.shuffled_bias * anchor.negative_share
        effective = identity_of(config)
        return {
            **{name: effective[name] for name in (*SETTINGS, *SIZES)},
            "point": anchor.point.name,
            "negative_items": _negative_items(config),
            "verdict": word,
            "batches": bias.batches,
            "margin": self.margin,
            "verdicts": self.verdicts,
            **columns("bias", bias),
            "detectable_bias": bias.detectable,
            "cosine": bias.cosine,
            "shown_by": shown_by,
            "batches_needed": needed,
            **columns("bias_with_4x_negatives", more),
            **columns("shuffled_bias", shuffled),
            "predicted_shuffled_bias": predicted,
            "batch_variance": bias.variance,
            "full_iteration_seconds": None,
            "variance_seconds": None,
            "exact_loss": anchor.exact_loss,
            # The probe has one P_n for all users.
            "probe_loss": None if config.draws_explicit else anchor.probe_loss,
        }


def iteration_seconds(
    dataset: Dataset, content: DeviceContent, configs: Sequence[RunConfig]
) -> dict[str, float]:
    """Time one training iteration of each sampler (full account), with its first valid loss.

    Interleaved, and on one device, also for batches in shards for several.
    """
    first = {name: own[0] for name, own in grouped(configs, attrgetter("sampler")).items()}
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


def _negative_items(config: RunConfig) -> str | None:
    """Return the items that negatives are drawn from, where it is not P_n that draws them."""
    return "explicit" if config.draws_explicit else None


def _with_more_negatives(graph: BipartiteGraph, config: RunConfig) -> RunConfig | None:
    """Return settings with more negatives; None where the data has too few links for them."""
    if MORE_NEGATIVES * config.batch_size > graph.n_links:
        return None
    names = ("batch_size", "negatives", "uniform_items")
    more = {name: MORE_NEGATIVES * getattr(config, name) for name in names}
    config = dataclasses.replace(config, **more)
    try:
        make_sampler(graph, config, Streams(0))
    except UsageError:
        return None
    return config
