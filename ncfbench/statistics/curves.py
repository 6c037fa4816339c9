"""Evaluations of one run on its training clock, and where they are expected to go: no file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

FALLING = 0.5
"""The leader's gain in a doubling of the clock over that in the doubling before, at worst."""


@dataclass(frozen=True)
class Curve:
    """Evaluations of one run: a measure that falls (recall has its sign changed), against the
    seconds of its training clock, which ascend from 0.
    """

    iterations: Sequence[float]
    losses: Sequence[float]
    full_iteration_seconds: float = 1.0

    @cached_property
    def seconds(self) -> Sequence[float]:
        """Training clock of each evaluation."""
        return [iteration * self.full_iteration_seconds for iteration in self.iterations]

    @property
    def clock(self) -> float:
        """Seconds at the last evaluation."""
        return self.seconds[-1]

    @property
    def level(self) -> float:
        """The lowest value so far."""
        return min(self.losses)

    @property
    def noise(self) -> float:
        """Mean height of the later half of the curve above the lowest value so far."""
        lowest = np.minimum.accumulate(self.losses)
        half = len(lowest) // 2
        return float(np.mean(np.asarray(self.losses)[half:] - lowest[half:]))

    def at(self, seconds: float) -> float:
        """Return the lowest value up to a time."""
        return float(np.interp(seconds, self.seconds, np.minimum.accumulate(self.losses)))

    def time_to(self, level: float) -> float | None:
        """Return the seconds at which the curve first comes down to a level; None if never."""
        return iterations_to(level, self.seconds, self.losses)

    def gain(self, doublings_ago: int = 0) -> float:
        """Return the fall over one doubling of the clock, the last one by default."""
        end = self.clock / 2**doublings_ago
        return self.at(end / 2) - self.at(end)

    def worst(self, horizon: float) -> float:
        """Return the highest plausible value at the horizon: gains fall by :data:`FALLING`, or as
        they did last, if that is faster.
        """
        gain, before = self.gain(), self.gain(1)
        ratio = min(FALLING, gain / before) if before > 0 else FALLING
        gains = ratio * (1 - ratio ** _doublings(self.clock, horizon)) / (1 - ratio)
        return float(self.level - gain * gains)

    def best(self, horizon: float) -> float:
        """Return the lowest plausible value at the horizon: gains do not fall."""
        gain = max(self.gain(), self.gain(1))
        return self.level - gain * _doublings(self.clock, horizon) - self.noise


def iterations_to(
    reference: float, iterations: Sequence[float], losses: Sequence[float]
) -> float | None:
    """Return the iteration at which a curve first reaches ``reference`` from above, interpolated
    linearly between probes; None if it never does.
    """
    for index, loss in enumerate(losses):
        if loss <= reference:
            if index == 0 or losses[index - 1] == loss:
                return float(iterations[index])
            before, after = iterations[index - 1], iterations[index]
            share = (losses[index - 1] - reference) / (losses[index - 1] - loss)
            return float(before + share * (after - before))
    return None


def _doublings(clock: float, horizon: float) -> float:
    return max(math.log2(horizon / clock), 0.0) if clock > 0 else 0.0
