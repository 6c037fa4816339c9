"""Trials of a tuned arm: their budget, and the folder of their runs."""

from __future__ import annotations

from dataclasses import dataclass

from ncfbench.config import TUNABLE
from ncfbench.errors import UsageError, nearest

FOLDER = "tuning"
"""Folder of the trials' runs, below the folder of the runs."""
MOST_TRIALS = 200


@dataclass(frozen=True)
class Budget:
    """Trials of each arm, epochs of each trial, and the settings that they search."""

    trials: int
    epochs: int
    settings: tuple[str, ...] = ("learning_rate",)

    def __post_init__(self) -> None:
        if self.trials < 2:
            raise UsageError(
                f"--tune {self.trials}: there is nothing to choose from. Use 2 or more trials."
            )
        if self.trials > MOST_TRIALS:
            raise UsageError(f"--tune {self.trials}: at most {MOST_TRIALS} trials.")
        if self.epochs < 1:
            raise UsageError(f"--tune-epochs {self.epochs}: a trial needs one epoch or more.")
        for name in self.settings:
            if name not in TUNABLE:
                raise UsageError(
                    f"--tune-over {name}{nearest(name, TUNABLE)} Valid: {', '.join(TUNABLE)}."
                )
        if not self.settings:
            raise UsageError(f"--tune-over names no setting. Valid: {', '.join(TUNABLE)}.")

    @property
    def label(self) -> str:
        """The form in ``config.json``: ``learning_rate:8x10`` for 8 trials of 10 epochs."""
        return f"{'+'.join(self.settings)}:{self.trials}x{self.epochs}"

    @classmethod
    def of(cls, label: str) -> Budget:
        """Parse a :attr:`label`, which a configuration has checked."""
        names, _, spent = label.partition(":")
        trials, _, epochs = spent.partition("x")
        return cls(int(trials), int(epochs), tuple(names.split("+")))
