"""Points: parameters at which gradients are compared, each with the exact gradient there and the
way to a batch's.

At fixed parameters and without dropout the towers are fixed functions, so a batch's gradient is a
linear image of its gradient with respect to embeddings. Many batches are cheap: only the mean of a
block goes back through the encoder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.audit.block_gradients import BatchGradients, Block
from ncfbench.audit.exact import Exact, ExactObjective, Pullback, flat
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import CheckFailedError
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch
from ncfbench.training.inference import Embedder
from ncfbench.training.probe import Probe
from ncfbench.training.step import Parameters, Trainer, copy_state

STEP_TOLERANCE = 1e-3
"""Largest relative difference between a batch's gradient by the training step and by the audit:
float32's rounding.
"""
WARM_UP_SAMPLER = "ns"
"""Serves every loss; the point it leads to is the same for all samplers that are audited there."""


@dataclass(frozen=True)
class Point:
    """Parameters at which gradients are compared, for one loss and one noise distribution."""

    name: str
    parameters: Parameters
    exact: Exact
    gradient: NDArray[np.float32]
    """float32[P]: the exact one."""
    negative_share: float
    """Length of the negative term's gradient over the whole one's."""
    probe: float
    batch_gradients: BatchGradients
    pullback: Pullback
    trainer: Trainer

    def mean(self, block: Block) -> NDArray[np.float32]:
        """float32[P]: the mean gradient of a block's batches."""
        return self.pullback(self.parameters, self.batch_gradients(block))

    def check_step(self, graph: BipartiteGraph, config: RunConfig, batch: Batch) -> None:
        """Compare one batch's gradient by the code that trains with the audit's own.

        Raises:
            CheckFailedError: they differ by more than rounding.
        """
        _, tree = self.trainer.gradient(
            self.parameters, batch, self.pullback.embedder.content, None
        )
        trained, audited = flat(tree), self.mean(Block(graph, [batch]))
        difference = float(np.linalg.norm(trained - audited) / np.linalg.norm(trained))
        if not difference <= STEP_TOLERANCE:
            raise CheckFailedError(
                f"The gradient of a {config.sampler} batch by the training step and by the audit"
                f" differ by {difference:.1e} of its length (--loss {config.loss}): the audit's"
                " verdicts would not speak of what is trained."
            )


@dataclass(frozen=True)
class AuditedTowers:
    """What is fixed for a loss: two sets of parameters, and the way back through the towers."""

    trainer: Trainer
    embedder: Embedder
    pullback: Pullback
    parameters: Mapping[str, Parameters]

    @classmethod
    def of(
        cls, dataset: Dataset, content: Content, config: RunConfig, warmup: int
    ) -> AuditedTowers:
        """The initial parameters and those after ``warmup`` iterations."""
        # An audit compares gradients to a few millionths: whatever the run's precision, in full
        # float32.
        neutral = dataclasses.replace(
            config.on_one_device(), sampler=WARM_UP_SAMPLER, precision="float32"
        )
        trainer, state = Trainer.create(neutral, dataset)
        trained = copy_state(state)
        slots = plan_capacity(dataset.graph, neutral)
        batches = make_sampler(dataset.graph, neutral, Streams(config.seed)).batches(0, slots)
        for _ in range(warmup):
            trained, loss = trainer.step(trained, next(batches), content)
            jax.block_until_ready(loss)
        embedder = Embedder(trainer.towers, content)
        parameters = {"initial": state.parameters, "warm": trained.parameters}
        return cls(
            trainer,
            embedder,
            Pullback(trainer.towers, embedder, dataset.graph.items_in_use),
            parameters,
        )

    def points(self, graph: BipartiteGraph, config: RunConfig) -> list[Point]:
        """The exact gradient at each of the parameters, for the noise distribution and mask of
        ``config``.
        """
        objective, probe = (
            ExactObjective(graph, config, self.embedder),
            Probe(graph, config, self.embedder),
        )
        points = []
        for name, parameters in self.parameters.items():
            exact = objective(parameters)
            gradient = self.pullback(parameters, exact.positive + exact.negative)
            negative = self.pullback(parameters, exact.negative)
            users = self.embedder.users(parameters)
            items = self.embedder.items(parameters, self.pullback.nodes)
            points.append(
                Point(
                    name=name,
                    parameters=parameters,
                    exact=exact,
                    gradient=gradient,
                    negative_share=float(np.linalg.norm(negative) / np.linalg.norm(gradient)),
                    probe=probe(parameters),
                    batch_gradients=BatchGradients(config, users, items),
                    pullback=self.pullback,
                    trainer=self.trainer,
                )
            )
        return points
