"""Staleness of remembered item vectors: how far they are from those of the present parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.memory import MISSING
from ncfbench.storage.schemas import STALENESS
from ncfbench.training.inference import Embedder
from ncfbench.training.step import TrainState


class Staleness(NamedTuple):
    """Mean distance of remembered vectors from the present ones, over the length of these.

    A remembered vector has the dropout of its iteration, a present one none: what age adds is the
    difference of both figures.
    """

    newest: float
    """Those of the last batch's links, by the parameters before the last update."""
    oldest: float
    """Those of as many of the oldest links."""
    age: int
    """Updates since the oldest were made."""

    def row(self) -> dict[str, Any]:
        """Return the columns of the curve."""
        return dict(zip(STALENESS, self, strict=True))

    def text(self) -> str:
        """Return a sentence."""
        return (
            f"Remembered item vectors: those of the last batch are {100 * self.newest:.1f} % of"
            f" their length from the present ones (one update, and dropout), those {self.age}"
            f" updates old {100 * self.oldest:.1f} %."
        )


def measure(
    state: TrainState, graph: BipartiteGraph, config: RunConfig, embedder: Embedder
) -> Staleness | None:
    """Return the staleness of a run's memory; None before there is any."""
    # A sampler of its own, since the loop's may be at work: the next batch names the items.
    sampler, b = make_sampler(graph, config, Streams(config.seed)), config.batch_size
    ids = sampler.draw(int(state.iteration), 1)[0].items[0]
    known = ids != MISSING
    if not known.any():
        return None
    vectors = np.asarray(state.kept)[known]
    present = np.asarray(embedder.items(state.parameters, ids[known]))
    away = np.linalg.norm(vectors - present, axis=1)
    share: NDArray[np.floating] = away / np.maximum(np.linalg.norm(present, axis=1), 1e-12)
    return Staleness(float(share[-b:].mean()), float(share[:b].mean()), -(-len(share) // b))
