"""Calibration: the training step itself on constructed batches, one count changed at a time.

From a base (b users, the fewest item slots of the samplers, k listed negatives) users, item slots
and listed interactions grow alone. A matrix of interactions has b rows, so it grows with the item
slots, whose cost is known by then; and so does the sum over all users, where a sampler has it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import TypeAlias

import jax

from ncfbench.config import RunConfig
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling.cost_model import Counts
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.training.loop import InFlight
from ncfbench.training.state import TrainState
from ncfbench.training.step import Trainer

SPACING = 4.0
"""No size is more than this many times the one before it."""
BATCHES = 4
"""Batches of a size, which take turns."""
WARM_UP = 4
"""A block of this many dispatches begins with one more, off the clock, as other programs ran before
it. It would cost a shorter block too much.
"""

Points: TypeAlias = dict[str, list[Counts]]
"""Counts of the steps on each of :data:`ncfbench.profiling.cost_model.AXES`, ascending. The base is
on the first three; the last is there if a sampler has such batches.
"""


def spaced_sizes(counts: Collection[int], multiple: int = 1) -> list[int]:
    """Return the counts in ascending order, with others between them where they lie far apart.

    Args:
        multiple: all sizes are rounded up to multiples of it.
    """
    smallest, *larger = sorted(set(counts))
    found = [float(smallest)]
    for size in larger:
        before = found[-1]
        pieces = math.ceil(math.log(size / before) / math.log(SPACING))
        found += [before * (size / before) ** (piece / pieces) for piece in range(1, pieces + 1)]
    return sorted({rounded_up(round(size), multiple) for size in found})


def calibration_points(samplers: Collection[Counts], config: RunConfig) -> Points:
    """Return the steps to measure, so that each count reaches from the samplers' fewest to most.

    Args:
        samplers: the counts of the samplers' batches.
    """
    b, k, n = config.batch_size, config.negatives, config.devices
    parts = n if config.shares_locally else 1

    def halved(counts: Collection[int]) -> set[int]:
        return {*counts, max(min(counts) // 2, 1)}

    users = {b, *(each.users for each in samplers)}
    users = users if len(users) > 1 else halved(users)
    slots = {each.items for each in samplers}
    columns = {each.items for each in samplers if each.kind == "matrix"} or {min(slots)}
    base = Counts(b, rounded_up(min(slots), n), b * (1 + k), "vectors")
    matrix = [
        Counts(b, size, b * (1 + size // parts), "matrix")
        for size in spaced_sizes(halved(columns), n)
    ]
    points = {
        "users": [replace(base, users=size) for size in spaced_sizes(users, n)],
        "items": [replace(base, items=size) for size in spaced_sizes(halved(slots), n)],
        "vectors": [
            replace(base, interactions=b * (1 + size))
            for size in sorted({max(k // 4, 1), k, 2 * k})
        ],
        "matrix": matrix,
    }
    meeting = [each for each in samplers if each.kind == "all_users"]
    if meeting:
        met = (meeting[0].interactions - b) // meeting[0].items
        points["all_users"] = [
            Counts(meeting[0].users, size, b + met * size, "all_users")
            for size in spaced_sizes(halved({each.items for each in meeting}), n)
        ]
    return points


def labels(points: Points) -> dict[Counts, tuple[str, int]]:
    """Return the part and the size that name each step in the raw samples."""
    found: dict[Counts, tuple[str, int]] = {}
    for axis in ("items", "users", "vectors", "matrix", "all_users"):
        for counts in points.get(axis, ()):
            found.setdefault(counts, (f"step by {axis}", counts.on(axis)))
    return found


@dataclass
class StepTimer:
    """Times training steps on given batches.

    One state goes from call to call, as in training: a step takes over the state's memory.

    Args:
        content: the texts, on all devices.
    """

    state: TrainState
    content: DeviceContent

    def block(self, trainer: Trainer, batches: Sequence[Batch], dispatches: int) -> float:
        """Return the seconds of some dispatches, which cycle through batches on the devices.

        Args:
            trainer: any one whose states have the same shapes, but for a memory.
        """
        self.state = self.state._replace(carry=trainer.carry.initial())
        in_flight, source, count = InFlight(trainer), cycle(batches), trainer.per_dispatch

        def dispatch(times: int) -> None:
            for _ in range(times):
                part = tuple(islice(source, count)) if count > 1 else next(source)
                self.state, loss = trainer.step(self.state, part, self.content)
                in_flight.add(loss)
            jax.block_until_ready(self.state)

        if dispatches >= WARM_UP:
            dispatch(1)
        begin = time.perf_counter()
        dispatch(dispatches)
        return time.perf_counter() - begin
