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
        epoch = iteration * self.batch_size // self.n_links
        return (
            float(epoch)
            if self.epoch_end(epoch) == iteration
            else iteration * self.batch_size / self.n_links
        )

    def next_stop(self, iteration: int) -> int:
        """Return the first probe or epoch's end after ``iteration``."""
        if self.probe_every:
            each, probe = 1, iteration - iteration % self.probe_every + self.probe_every
        else:
            each, probe = self.probes, self.last
        if not self.stops_at_epochs and self.probe_every:
            return min(probe, self.last)
        # Part q ends with the iteration that completes q parts of a pass.
        part = each * iteration * self.batch_size // self.n_links
        ends = (-(-q * self.n_links // (each * self.batch_size)) for q in range(part, part + 3))
        return min([probe, *(end for end in ends if end > iteration), self.last])

    def ends_epoch(self, iteration: int) -> bool:
        """Return whether ``iteration`` completes a pass."""
        return iteration > 0 and self.epoch_of(iteration) == int(self.epoch_of(iteration))
