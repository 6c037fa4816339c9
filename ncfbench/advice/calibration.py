"""Calibration: a few shapes are timed, and the others predicted from their counts.

The shapes to time lie as far apart as possible in their counts of items and interactions. The
prediction is a cost for each count and a constant, fitted to the smallest relative errors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ncfbench.advice.candidates import Shape, Work
from ncfbench.advice.rungs import Pace
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling.cost_model import AXES, Costs, Counts
from ncfbench.runs.schedule import Schedule
from ncfbench.training.evaluation import EvaluationCost, measure_evaluation_cost
from ncfbench.training.loop import timed_loops

MOST_SHAPES = 8
LEAST_SHAPES = 2
BLOCK_SECONDS = 0.5
BLOCK_ITERATIONS = (3, 100)
SAVING_SECONDS = 0.3
"""A first guess; the race measures it."""


@dataclass(frozen=True)
class Calibration:
    """Seconds of an iteration of every shape, and of the other parts of a race."""

    seconds: Mapping[Shape, float]
    probe_seconds: float
    evaluation_seconds: float
    opening_seconds: float

    def pace(self, config: RunConfig, shape: Shape, n_links: int, block_seconds: float) -> Pace:
        """Return the pace of a run: its training with probes and evaluations.

        Args:
            block_seconds: training between two probes, beside those at the ends of epochs.
        """
        own = self.seconds[shape]
        epoch = n_links / shape.batch_size * own
        probes = 1 + epoch / block_seconds
        again = Schedule.of(config, n_links).step_batches
        beside = probes * self.probe_seconds + self.evaluation_seconds + again * own
        return Pace(self.opening_seconds, 1 + beside / epoch, SAVING_SECONDS)


def calibrate(
    dataset: Dataset,
    content: DeviceContent,
    shapes: Mapping[Shape, RunConfig],
    work: Mapping[Shape, Work],
    limit_seconds: float,
    interrupted: Callable[[], bool] = lambda: False,
) -> Calibration:
    """Time some shapes, and predict the others.

    Args:
        shapes: settings of a run of each shape.
        limit_seconds: no further shape is begun after this time, but for :data:`LEAST_SHAPES` and
            one of each kind of interaction, whose costs cannot be predicted from another's.

    Raises:
        KeyboardInterrupt: ``interrupted()`` was true.
    """
    began = time.perf_counter()
    order = farthest_first({shape: each.counts for shape, each in work.items()})[:MOST_SHAPES]
    measured: dict[Shape, float] = {}
    openings: list[float] = []
    cost = EvaluationCost(0.0, 0.0, 0.0)
    fewest_shapes = max(LEAST_SHAPES, len({each.counts.kind for each in work.values()}))
    for shape in order:
        if interrupted():
            raise KeyboardInterrupt
        if len(measured) >= fewest_shapes and time.perf_counter() - began > limit_seconds:
            break
        opened = time.perf_counter()
        with timed_loops(dataset, content, {"": shapes[shape]}) as loops:
            loop = loops[""]
            loop.full_block(1)
            first = loop.samples[-1].seconds
            opening = time.perf_counter() - opened
            if not openings:
                parameters = loop.trainer.layout.to_one_device(loop.state.parameters)
                cost = measure_evaluation_cost(loop.trainer, dataset, loop.content, parameters)
                opening += cost.start_seconds
            openings.append(opening)
            fewest, most = BLOCK_ITERATIONS
            loop.full_block(min(max(int(BLOCK_SECONDS / first), fewest), most))
            sample = loop.samples[-1]
            measured[shape] = sample.seconds / sample.iterations
    steps = [work[shape].counts for shape in measured]
    costs = Costs.fit(steps, list(measured.values()), lines=AXES)
    seconds = {
        shape: measured.get(shape) or sum(costs.parts(work[shape].counts).values())
        for shape in shapes
    }
    # The first opening compiled what the others share.
    return Calibration(
        seconds,
        cost.probe_seconds,
        cost.evaluation_seconds,
        float(np.median(openings)) + cost.probe_seconds,
    )


def farthest_first(counts: Mapping[Shape, Counts]) -> list[Shape]:
    """Return the shapes in an order in which each is the farthest from those before it.

    Distances are between logarithms of items and of interactions; a list and a matrix of
    interactions lie far apart. The first one has the most items, and the first ones are of all
    kinds of interactions.
    """
    points = {
        shape: np.array(
            [
                math.log(each.items),
                math.log(each.interactions) * (1 if each.kind == "matrix" else -1) / 4,
            ]
        )
        for shape, each in counts.items()
    }
    order = [max(points, key=lambda shape: counts[shape].items)]
    nearest = dict.fromkeys(points, math.inf)
    while len(order) < len(points):
        nearest = {
            shape: min(nearest[shape], float(np.linalg.norm(point - points[order[-1]])))
            for shape, point in points.items()
            if shape not in order
        }
        kinds = {counts[shape].kind for shape in order}
        order.append(max(nearest, key=lambda one: (counts[one].kind not in kinds, nearest[one])))
    return order
