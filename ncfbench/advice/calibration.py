"""Calibration: what a candidate takes, by a few iterations of it before the race."""

from __future__ import annotations

from dataclasses import dataclass

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.racing.rungs import Pace
from ncfbench.training.pilot import run_pilot


@dataclass(frozen=True)
class Calibration:
    """Seconds of an iteration, and of the other parts of a race."""

    iteration_seconds: float
    probe_seconds: float
    evaluation_seconds: float
    opening_seconds: float

    def pace(self, block_seconds: float, evaluated_every: float) -> Pace:
        """Return the pace of a run that is probed after each block of training.

        Args:
            evaluated_every: seconds of training between two evaluations.
        """
        others = self.probe_seconds / block_seconds + self.evaluation_seconds / evaluated_every
        return Pace(self.opening_seconds, 1 + others)


def calibrate(dataset: Dataset, content: DeviceContent, config: RunConfig) -> Calibration:
    """Time a few iterations, a probe and an evaluation of some settings."""
    pilot = run_pilot(config, dataset, content, evaluates=True)
    cost = pilot.evaluation
    assert cost is not None, "the pilot was asked for it"
    opening = pilot.start_seconds + cost.start_seconds + cost.probe_seconds
    return Calibration(
        pilot.iteration_seconds, cost.probe_seconds, cost.evaluation_seconds, opening
    )
