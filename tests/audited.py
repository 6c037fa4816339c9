"""A small model on which audits are tested, and its mean gradient beside the step's."""

from __future__ import annotations

from itertools import islice
from typing import Any

import jax
import numpy as np

from ncfbench.auditing.blocks import Block
from ncfbench.auditing.gradients import BatchGradients, Pullback, flat
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.store import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.training.step import Trainer

SMALL: dict[str, Any] = {
    "memory": 128,
    "dimension": 6,
    "word_dimension": 6,
    "filters": 6,
    "batch_size": 64,
    "user_l2": 0.01,
}


class Warm:
    """A trainer, its content, and parameters that are no longer near zero."""

    def __init__(self, dataset: Dataset, config: RunConfig, scale: float = 0.2) -> None:
        self.trainer, state = Trainer.create(config, dataset)
        rng = np.random.default_rng(0)
        self.parameters = jax.tree.map(
            lambda leaf: jax.device_put(leaf + rng.normal(0, scale, leaf.shape).astype(np.float32)),
            jax.device_get(state.parameters),
        )
        self.content = DeviceContent.of(dataset, [config])
        self.embedder = self.trainer.embedder(self.content)


def assert_gradient_of_step(made: Any, graph: BipartiteGraph, config: RunConfig) -> None:
    """The audit's mean gradient, by slots and by the table of scores, is the step's.

    Args:
        made: has a trainer, an embedder and parameters, as :class:`Warm` has.
    """
    embedder, parameters = made.embedder, made.parameters
    some = list(islice(batches(graph, config, Streams(1)), 2))
    means = BatchGradients(graph, config, embedder, parameters)
    block = Block(graph, config, some)
    assert means.is_small
    if not block.remembers:  # the table of scores does not know which items are constants
        for one, other in zip(means.by_slot(block), means.by_score(block), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5 * np.linalg.norm(one))
    audited = Pullback(embedder, graph)(parameters, means(block))
    step, content = made.trainer.gradient, embedder.content
    gradient = jax.jit(lambda batch: step(parameters, batch, content, None)[1])
    trained = np.mean([flat(gradient(batch)) for batch in some], axis=0)
    assert np.linalg.norm(audited - trained) < 1e-4 * np.linalg.norm(trained)
