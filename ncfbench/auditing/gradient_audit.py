"""Each sampler's mean gradient against the exact one: bias, variance, verdict.

The gradients of many batches, in blocks, are compared with the exact gradient at an anchor
(:mod:`ncfbench.auditing.anchors`). One batch of each sampler also goes through the training step's
own gradient: both must agree.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.anchors import Anchor, AuditedTowers
from ncfbench.auditing.bias import Bias, estimate
from ncfbench.auditing.blocks import blocks_of
from ncfbench.auditing.verdict import (
    AUDIT_SEED,
    BLOCKS,
    MARGIN,
    Weighing,
    batches_needed,
    verdict,
    weighing,
    worded,
)
from ncfbench.catalog import find_loss
from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.frames import grouped
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.sampling import make_sampler

SETTINGS = ("dataset", "encoder", "loss", "noise", "sampler", "strata", "mask")
SIZES = ("batch_size", "negatives", "stratum_size", "uniform_items", "seed")


@dataclass(frozen=True)
class GradientAudit:
    """The mean gradient of each sampler beside the exact one.

    Args:
        configs: complete settings of each loss, noise distribution and sampler.
        batches: batches of each combination.
        wrong: where the conformance suite finds the weights wrong.
    """

    dataset: Dataset
    configs: Sequence[RunConfig]
    _: KW_ONLY
    batches: int
    wrong: Collection[Weighing]
    progress: Progress

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of :data:`ncfbench.storage.schemas.AUDIT` for each verdict."""
        dataset, configs, say = self.dataset, self.configs, self.progress.say
        content = DeviceContent.of(dataset, configs)
        say(f"{len(configs)} verdicts, each from {self.batches:,} batches.")
        towers = {
            loss: AuditedTowers.make(dataset, content, first)
            for loss, (first, *_) in grouped(configs, attrgetter("loss")).items()
        }
        rows: list[dict[str, Any]] = []
        for noise, of_noise in grouped(configs, attrgetter("noise")).items():
            anchors = {
                loss: towers[loss].anchor(dataset.graph, last)
                for loss, (*_, last) in grouped(of_noise, attrgetter("loss")).items()
            }
            for sampler, served in grouped(of_noise, attrgetter("sampler")).items():
                begin = time.perf_counter()
                verdicts = self._rows_of(served, anchors, check=noise == configs[0].noise)
                rows += verdicts
                words = Counter(map(worded, verdicts))
                summary = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
                say(f"{noise} {sampler}: {summary}  ({time.perf_counter() - begin:.1f} s)")
        return [row | {"data_fingerprint": dataset.fingerprint} for row in rows]

    def _rows_of(
        self,
        configs: Sequence[RunConfig],
        anchors: Mapping[str, Anchor],
        *,
        check: bool,
    ) -> list[dict[str, Any]]:
        """Return the rows of one sampler and noise distribution.

        Args:
            configs: complete settings, one of each loss.
            anchors: by loss.
            check: compare a batch's gradient with the training step's.
        """
        biases: dict[str, Bias] = {}
        # Weights differ only between families, and by the positive link's own item: losses of a
        # kind share their batches.
        kinds = grouped(configs, lambda c: (c.family, find_loss(c.loss).includes_positive))
        for alike in kinds.values():
            targets = [(config, anchors[config.loss]) for config in alike]
            self._measure(targets, biases, check=check)
        return [self._row(config, biases[config.loss]) for config in configs]

    def _measure(
        self, targets: Sequence[tuple[RunConfig, Anchor]], biases: dict[str, Bias], *, check: bool
    ) -> None:
        """Add the biases at some anchors whose losses share their batches, by loss."""
        config, graph = targets[0][0], self.dataset.graph
        streams = Streams(AUDIT_SEED + config.seed)
        sampler = make_sampler(graph, config, streams, replacement=True)
        size = self.batches // BLOCKS
        means: list[list[NDArray[np.float32]]] = []
        for block in blocks_of(sampler, BLOCKS, size):
            if check and not means:
                last, warm = targets[-1]
                warm.check_step(graph, last, block.batches[0])
            means.append([anchor.mean(block) for _, anchor in targets])
        for (target, anchor), vectors in zip(targets, zip(*means, strict=True), strict=True):
            exact, count = anchor.gradient, size * BLOCKS
            biases[target.loss] = estimate(np.stack(vectors), exact, count, len(self.configs))

    def _row(self, config: RunConfig, bias: Bias) -> dict[str, Any]:
        claims = make_sampler(self.dataset.graph, config, Streams(0)).claims()
        word, shown_by = verdict(
            bias,
            MARGIN,
            is_listwise=config.family == "listwise",
            is_declared=bool(claims.bias),
            has_wrong_weights=weighing(config) in self.wrong,
        )
        is_open = word == "too few batches"
        effective = identity_of(config)
        return {
            **{name: effective[name] for name in (*SETTINGS, *SIZES)},
            "verdict": word,
            "batches": bias.batches,
            "margin": MARGIN,
            "verdicts": len(self.configs),
            "bias": bias.estimate,
            "bias_low": bias.lower,
            "bias_high": bias.upper,
            "detectable_bias": bias.detectable,
            "cosine": bias.cosine,
            "shown_by": shown_by,
            "batches_needed": batches_needed(bias, MARGIN) if is_open else None,
            "batch_variance": bias.variance,
        }
