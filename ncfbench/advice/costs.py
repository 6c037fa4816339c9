"""Wall seconds that the parts of a race take, measured for each encoder."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean
from typing import Literal

from ncfbench.catalog import find_encoder
from ncfbench.racing.rungs import Pace

Part = Literal["opening", "evaluation", "saving", "turn", "training"]
UNKNOWN_OPENING = 10.0
"""Least seconds that an encoder is expected to open in, before one was measured: what a transformer
takes to compile on one core of a CPU, and
"""
COSTLY_OPENING = 3.0
"""times as long for a costly encoder."""


@dataclass
class Costs:
    """Wall seconds of the parts of runs, by encoder: those of one say nothing of another's.

    Attributes:
        guess: the pace before anything was measured.
        measured: seconds of each ``opening`` (with compilation), ``evaluation``, ``saving`` and
            ``turn`` of a run, and of the ``training`` in each turn, by part and encoder.
        forecasts: seconds of an evaluation by encoder, as expected before the first one.
    """

    guess: Pace = field(default_factory=Pace)
    measured: defaultdict[tuple[Part, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    forecasts: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, part: Part, encoder: str) -> Iterator[None]:
        """Measure a part of a run."""
        began = time.perf_counter()
        yield
        self.measured[part, encoder].append(time.perf_counter() - began)

    @property
    def is_begun(self) -> bool:
        """Whether some run has been opened."""
        return self._of_all("opening", 0.0) > 0

    def opening(self, encoder: str) -> float:
        """Return the seconds to open a run, compile it and train its first turn."""
        own = self.measured["opening", encoder]
        if own or not self.is_begun:
            return fmean(own) if own else self.guess.opening
        times = COSTLY_OPENING if find_encoder(encoder).is_costly else 1.0
        return max(self._of_all("opening", 0.0), times * UNKNOWN_OPENING)

    def evaluation(self, encoder: str) -> float:
        """Return the seconds of an evaluation."""
        own = self.measured["evaluation", encoder]
        return fmean(own) if own else self.forecasts.get(encoder, self._of_all("evaluation", 0.0))

    def saving(self, encoder: str) -> float:
        """Return the seconds to save a run."""
        own = self.measured["saving", encoder]
        return fmean(own) if own else self._of_all("saving", self.guess.saving)

    def pace(self, encoders: Collection[str]) -> Pace:
        """Return the mean pace of runs of some encoders, one at least."""
        return Pace(
            fmean(map(self.opening, encoders)),
            fmean(map(self._training, encoders)),
            fmean(self.saving(each) + self.evaluation(each) for each in encoders),
        )

    def _training(self, encoder: str) -> float:
        turns, training = (self.measured[part, encoder] for part in ("turn", "training"))
        return sum(turns) / sum(training) if turns else self.guess.training

    def _of_all(self, part: Part, guess: float) -> float:
        found = [values for (name, _), values in self.measured.items() if name == part]
        return fmean(chain.from_iterable(found)) if any(found) else guess
