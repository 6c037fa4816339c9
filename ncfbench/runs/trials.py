"""Trials of a tuned arm: their budget, and the folder of their runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncfbench.config import TUNABLE
from ncfbench.settings import Setting

FOLDER = "tuning"
"""Folder of the trials' runs, below the folder of the runs."""
MOST_TRIALS = 200
_SETTINGS = (
    Setting("trials", None, "Trials of each arm", type="int", at_least=2, at_most=MOST_TRIALS),
    Setting("epochs", None, "Epochs of a trial", type="int", at_least=1),
    Setting("settings", ("learning_rate",), "Settings that trials search", choices=TUNABLE),
)


@dataclass(frozen=True)
class Budget:
    """Trials of each arm, epochs of each trial, and the settings that they search.

    Raises:
        UsageError: a value of a wrong type or outside its range.
    """

    trials: int
    epochs: int
    settings: tuple[str, ...] = ("learning_rate",)

    def __post_init__(self) -> None:
        for setting in _SETTINGS:
            value: Any = setting.convert(getattr(self, setting.name))
            setting.check(value)
            object.__setattr__(self, setting.name, value)

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
