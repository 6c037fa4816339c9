"""The schedule of a run: iterations of its probes, its epochs' ends, and its own end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The iterations at which a run stops to probe and to evaluate.

    Args:
        probe_every: iterations between probes; 0 for four in an epoch.
    """

    n_links: int
    batch_size: int
    epochs: int
    probe_every: int

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
        quarters = 4 * iteration * self.batch_size // self.n_links
        if self.probe_every:
            probe, parts = (
                iteration - iteration % self.probe_every + self.probe_every,
                range(quarters // 4 * 4, quarters + 9, 4),
            )
        else:
            probe, parts = self.last, range(quarters, quarters + 3)
        # Part q ends with the iteration that completes q quarters of a pass.
        ends = (-(-part * self.n_links // (4 * self.batch_size)) for part in parts)
        return min([probe, *(end for end in ends if end > iteration), self.last])

    def ends_epoch(self, iteration: int) -> bool:
        """Return whether ``iteration`` completes a pass."""
        return iteration > 0 and self.epoch_of(iteration) == int(self.epoch_of(iteration))
