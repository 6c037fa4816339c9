"""The schedule of a run: iterations of its probes, its epochs' ends, and its own end."""

from __future__ import annotations

from dataclasses import dataclass

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig

PROBES = 4
"""Probes in an epoch by default."""
STEP_BATCHES = 16
"""Batches that the *step* account repeats at an epoch's end."""
COSTLY_STEP_BATCHES = 4
"""The same where an item is costly."""
MOST_EPOCHS, BLIND_EPOCHS = 30, 5
"""Epochs of a run that stops where validation does, at most; and without validation."""


@dataclass(frozen=True)
class Schedule:
    """The iterations at which a run stops to probe and to evaluate.

    Args:
        probe_every: iterations between probes; 0 for ``probes`` in an epoch.
        probes: of equal distance, the last at the epoch's end.
        stops_at_epochs: False for a run that stops at its probes alone.
        step_batches: batches that the *step* account repeats at an epoch's end.
    """

    n_links: int
    batch_size: int
    epochs: int
    probe_every: int
    probes: int = PROBES
    step_batches: int = STEP_BATCHES
    stops_at_epochs: bool = True

    @classmethod
    def of(cls, config: RunConfig, n_links: int, *, has_validation: bool = True) -> Schedule:
        """Return the schedule of a run.

        Where an item is costly, a user waits for probes and the *step* account: there are fewer.
        """
        is_costly = find_encoder(config.encoder).is_costly
        rest = (1, COSTLY_STEP_BATCHES) if is_costly else (PROBES, STEP_BATCHES)
        epochs = config.epochs or (MOST_EPOCHS if has_validation else BLIND_EPOCHS)
        return cls(n_links, config.batch_size, epochs, config.probe_every, *rest)

    @property
    def last(self) -> int:
        """The run's last iteration."""
        return self.epoch_end(self.epochs)

    def epoch_end(self, epoch: int) -> int:
        """Return the iteration that completes the first ``epoch`` passes over the links."""
        return -(-epoch * self.n_links // self.batch_size)

    def epoch_begin(self, iteration: int) -> int:
        """Return the last end of an epoch up to ``iteration``."""
        return self.epoch_end(iteration * self.batch_size // self.n_links)

    def epoch_of(self, iteration: int) -> float:
        """Return the passes over the links after ``iteration``; whole at an epoch's end."""
        links, is_whole = iteration * self.batch_size, self.epoch_begin(iteration) == iteration
        return float(links // self.n_links) if is_whole else links / self.n_links

    def next_stop(self, iteration: int) -> int:
        """Return the first probe or epoch's end after ``iteration``."""
        every, stops = self.probe_every, [self.last]
        if every:
            stops.append(iteration - iteration % every + every)
        if not every or self.stops_at_epochs:
            # Part q ends with the iteration that completes q parts of a pass.
            parts = 1 if every else self.probes
            part = parts * iteration * self.batch_size // self.n_links + 1
            stops.append(-(-part * self.n_links // (parts * self.batch_size)))
        return min(stops)

    def ends_epoch(self, iteration: int) -> bool:
        """Return whether ``iteration`` completes a pass."""
        return 0 < iteration == self.epoch_begin(iteration)
