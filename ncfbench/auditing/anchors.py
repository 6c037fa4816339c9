"""Anchors: the parameters at which gradients are compared, with the exact gradient there."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.blocks import Block
from ncfbench.auditing.exact import ExactObjective
from ncfbench.auditing.gradients import BatchGradients, Pullback, flat
from ncfbench.config import RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch
from ncfbench.training.inference import Embedder
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

STEP_TOLERANCE = 1e-3
"""Largest relative difference between a batch's gradient by the training step and by the audit:
float32's rounding.
"""
WARM_UP = 20
"""Training iterations before the parameters at which gradients are compared."""
WARM_UP_SAMPLER = "ns"
"""Serves every loss; it leads to the same anchor for all samplers that are audited there."""


@dataclass(frozen=True)
class AuditedTowers:
    """The towers of a loss after a warm-up, and the way back through the towers."""

    trainer: Trainer
    embedder: Embedder
    pullback: Pullback
    parameters: Parameters

    @classmethod
    def make(cls, dataset: Dataset, content: DeviceContent, config: RunConfig) -> AuditedTowers:
        """Return the parameters after the warm-up."""
        shared = {
            name: value
            for name, value in _audited(config).to_dict().items()
            if name not in config.sampler_settings
        }
        neutral = complete(shared | {"sampler": WARM_UP_SAMPLER})
        trainer, trained = Trainer.create(neutral, dataset)
        slots = plan_capacity(dataset.graph, neutral)
        batches = make_sampler(dataset.graph, neutral, Streams(config.seed)).batches(0, slots)
        for _ in range(WARM_UP):
            trained, loss = trainer.step(trained, next(batches), content)
            jax.block_until_ready(loss)
        embedder = trainer.embedder(content)
        pullback = Pullback(embedder, dataset.graph)
        return cls(trainer, embedder, pullback, trained.parameters)

    def anchor(self, graph: BipartiteGraph, config: RunConfig) -> Anchor:
        """Return the anchor for the noise and mask of ``config``."""
        exact = ExactObjective(graph, config, self.embedder)(self.parameters)
        return Anchor(
            towers=self,
            gradient=self.pullback(self.parameters, exact.gradient),
            batch_gradients=BatchGradients(graph, config, self.embedder, self.parameters),
        )


@dataclass(frozen=True)
class Anchor:
    """Parameters at which gradients are compared, for one loss and one noise distribution."""

    towers: AuditedTowers
    gradient: NDArray[np.float32]
    """float32[P]: the exact one."""
    batch_gradients: BatchGradients

    def mean(self, block: Block) -> NDArray[np.float32]:
        """Return float32[P]: the mean gradient of a block's batches."""
        return self.towers.pullback(self.towers.parameters, self.batch_gradients(block))

    def check_step(self, graph: BipartiteGraph, config: RunConfig, batch: Batch) -> None:
        """Compare one batch's gradient by the code that trains with the audit's own.

        Raises:
            CheckFailedError: they differ by more than rounding.
        """
        trainer = dataclasses.replace(self.towers.trainer, config=_audited(config))
        content = self.towers.embedder.content
        _, tree = jax.jit(trainer.gradient)(self.towers.parameters, batch, content, None)
        trained, audited = flat(tree), self.mean(Block(graph, config, [batch]))
        difference = float(np.linalg.norm(trained - audited) / np.linalg.norm(trained))
        if not difference <= STEP_TOLERANCE:
            raise CheckFailedError(
                f"The gradient of a {config.sampler} batch by the training step and by the audit"
                f" differ by {difference:.1e} of its length (--loss {config.loss}): the audit's"
                " verdicts would not be about what is trained."
            )


def _audited(config: RunConfig) -> RunConfig:
    """Return the settings of a run as an audit computes with them."""
    # The penalty of coupling depends on no sampler, and is left out.
    return dataclasses.replace(config.on_one_device(), coupling_weight=0.0)
