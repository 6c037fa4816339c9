"""Calibration: a few shapes are timed, and the others predicted from their counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from ncfbench.advice.candidates import Candidate, Shape, Work
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling.cost_model import AXES, Costs, Counts
from ncfbench.racing.rungs import Pace
from ncfbench.runs.schedule import Schedule
from ncfbench.training.pilot import Pilot, run_pilot

MOST_SHAPES = 8
LEAST_SHAPES = 2


@dataclass(frozen=True)
class Calibration:
    """Seconds of an iteration of every shape, and of the other parts of a race."""

    seconds: Mapping[Shape, float]
    probe_seconds: float
    evaluation_seconds: float
    opening_seconds: float

    def pace(
        self,
        candidate: Candidate,
        n_links: int,
        block_seconds: float,
        evaluated_every: float | None = None,
    ) -> Pace:
        """Return the pace of a run that is probed after each block of training, and each epoch.

        Args:
            evaluated_every: seconds of training between two evaluations of a run that does not stop
                at its epochs.
        """
        config, seconds = candidate.config, candidate.iteration_seconds
        epoch = n_links / config.batch_size * seconds
        probes = 1 + epoch / block_seconds
        again = Schedule.of(config, n_links).step_batches * seconds
        others = (probes * self.probe_seconds + self.evaluation_seconds + again) / epoch
        if evaluated_every:
            others = self.probe_seconds / block_seconds + self.evaluation_seconds / evaluated_every
        return Pace(self.opening_seconds, 1 + others)


def calibrate(
    dataset: Dataset,
    content: DeviceContent,
    shapes: Mapping[Shape, RunConfig],
    work: Mapping[Shape, Work],
    limit_seconds: float,
    interrupted: Callable[[], bool] = lambda: False,
) -> Calibration:
    """Time some shapes, and predict the others: a cost for each count and a constant.

    Args:
        shapes: settings of a run of each shape.
        limit_seconds: no further shape is begun after this time, but for :data:`LEAST_SHAPES` and
            one of each kind of interaction, whose costs cannot be predicted from another's.

    Raises:
        KeyboardInterrupt: ``interrupted()`` was true.
    """
    began = time.perf_counter()
    counts = {shape: each.counts for shape, each in work.items()}
    fewest = max(LEAST_SHAPES, len({each.kind for each in counts.values()}))
    pilots: dict[Shape, Pilot] = {}
    for shape in farthest_first(counts)[:MOST_SHAPES]:
        if interrupted():
            raise KeyboardInterrupt
        if len(pilots) >= fewest and time.perf_counter() - began > limit_seconds:
            break
        pilots[shape] = run_pilot(shapes[shape], dataset, content, evaluates=not pilots)
    cost = next(iter(pilots.values())).evaluation
    assert cost is not None, "the first one was asked for it"
    measured = {shape: pilot.iteration_seconds for shape, pilot in pilots.items()}
    costs = Costs.fit([counts[shape] for shape in measured], [*measured.values()], lines=AXES)
    predicted = {shape: sum(costs.parts(counts[shape]).values()) for shape in shapes}
    # The first one also compiled what the others share: the probe and the evaluation.
    starts = [pilot.start_seconds for pilot in pilots.values()]
    starts[0] += cost.start_seconds
    opening = median(starts) + cost.probe_seconds
    return Calibration(predicted | measured, cost.probe_seconds, cost.evaluation_seconds, opening)


def farthest_first(counts: Mapping[Shape, Counts]) -> list[Shape]:
    """Return the shapes so that each is the farthest from those before it, by logarithms of items
    and of interactions. The first one has the most items; all kinds of interactions come early.
    """
    points = {
        shape: np.log([each.items, each.interactions])
        * [1, (1 if each.kind == "matrix" else -1) / 4]
        for shape, each in counts.items()
    }
    order = [max(points, key=lambda shape: counts[shape].items)]

    def novelty(shape: Shape) -> tuple[bool, float]:
        is_new = all(counts[shape].kind != counts[before].kind for before in order)
        return is_new, min(math.dist(points[shape], points[before]) for before in order)

    while len(order) < len(points):
        order.append(max((shape for shape in points if shape not in order), key=novelty))
    return order
