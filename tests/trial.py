"""A trainer on a data set, and what its first batches need."""

from functools import cached_property
from itertools import islice
from typing import Any

import jax
import numpy as np
import pytest

from ncfbench.auditing.blocks import Block
from ncfbench.auditing.gradients import BatchGradients, Pullback, flat
from ncfbench.config import RunConfig, complete
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.sampling import batches, make_sampler
from ncfbench.training.evaluation import Evaluators
from ncfbench.training.step import Trainer

AUDITED: dict[str, Any] = {
    "dimension": 6,
    "word_dimension": 6,
    "filters": 6,
    "batch_size": 64,
    "user_l2": 0.01,
}
"""Settings of a small model whose audit takes a moment."""


class Trial:
    """Settings on a data set, or a configuration; nothing is trained yet."""

    def __init__(self, dataset, settings):
        self.config = settings if isinstance(settings, RunConfig) else complete(settings)
        self.dataset, self.graph = dataset, dataset.graph
        self.trainer, self.state = Trainer.create(self.config, dataset)
        self.content = DeviceContent.of(dataset, [self.config])
        self.parameters: Any = self.state.parameters

    def add_noise(self, scale):
        """Move the parameters away from zero; the state keeps its own."""
        rng = np.random.default_rng(0)
        self.parameters = jax.tree.map(
            lambda leaf: jax.device_put(leaf + rng.normal(0, scale, leaf.shape).astype(np.float32)),
            jax.device_get(self.parameters),
        )

    @cached_property
    def embedder(self):
        return self.trainer.embedder(self.content)

    @cached_property
    def evaluators(self):
        return Evaluators(self.trainer, self.dataset, self.content)

    def ranks(self, split):
        """Ranks of a split's held-out links, in the order of its users and items."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.evaluators.splits[split], "ranking", lambda ranks: ranks)
            return self.evaluators.evaluate(self.parameters)[split]

    @cached_property
    def sampler(self):
        return make_sampler(self.graph, self.config, Streams(0))

    def batch(self, number, slots=0):
        """A batch by its number."""
        return self.sampler.assemble(self.sampler.draw(number, 1)[0], slots)

    def batches(self, seed=0):
        """Batches with the slots of training."""
        return batches(self.graph, self.config, Streams(seed))

    @cached_property
    def compiled(self):
        """The gradient, compiled as a whole: operation by operation takes ten times as long."""
        return jax.jit(self.trainer.gradient)

    def gradient(self, batch, dropout=None):
        value, gradient = self.compiled(self.parameters, batch, self.content, dropout)
        return float(value), gradient

    def check_audit(self, config=None):
        """The audit's mean gradient of two batches is that of the step that trains.

        Args:
            config: of another sampler, for the same model and loss.
        """
        embedder, parameters, config = self.embedder, self.parameters, config or self.config
        some = list(islice(batches(self.graph, config, Streams(1)), 2))
        means = BatchGradients(self.graph, config, embedder, parameters)
        block = Block(self.graph, config, some)
        audited = Pullback(embedder, self.graph)(parameters, means(block))
        trained = np.mean([flat(self.gradient(batch)[1]) for batch in some], axis=0)
        assert np.linalg.norm(audited - trained) < 1e-4 * np.linalg.norm(trained)
