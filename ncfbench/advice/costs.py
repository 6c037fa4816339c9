"""Wall seconds that the parts of a race take, measured for each encoder."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean
from typing import Literal

from ncfbench.catalog import find_encoder
from ncfbench.racing.rungs import Pace

Statistic = Callable[[Sequence[float]], float]
Part = Literal["opening", "evaluation", "saving", "turn", "training"]
UNKNOWN_OPENING = (10.0, 2.0)
"""Least seconds in which an encoder is expected to open before one was measured, and least times
the openings of others, which a busy machine makes longer: about what a transformer takes to compile
on one core.
"""
COSTLY_OPENING = 4.0
"""Times that for a costly encoder."""
FORECAST = 1.5
"""Times that an evaluation may take of what is forecast, which has no ranking and compilation."""
LATEST = 3
"""Number of measurements of which the longest counts where it is asked whether there is time."""


def latest_most(seconds: Sequence[float]) -> float:
    """Return the most of the latest values."""
    return max(seconds[-LATEST:])


@dataclass
class Costs:
    """Wall seconds of the parts of runs, by encoder: those of one say nothing of another's. Before
    anything was measured they are those of :class:`Pace`.

    Attributes:
        measured: seconds of each ``opening`` (with compilation), ``evaluation``, ``saving`` and
            ``turn`` of a run, and of the ``training`` in each turn, by part and encoder.
        forecasts: seconds of an evaluation by encoder, as expected before the first one.
    """

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

    def opening(self, encoder: str, of: Statistic = max) -> float:
        """Return the seconds to open a run, compile it and train its first turn.

        Args:
            of: what was measured: by default a cautious value, which tells whether there is time.
                Runs that share a program open soon, and the next one may have to compile.
        """
        seconds, usual = self.measured["opening", encoder], self._of_all("opening", 0.0)
        if seconds or not usual:  # no run has been opened yet
            return of(seconds) if seconds else Pace.opening
        times = COSTLY_OPENING if find_encoder(encoder).is_costly else 1.0
        least, factor = UNKNOWN_OPENING
        return times * max(least, factor * usual)

    def evaluation(self, encoder: str, of: Statistic = latest_most) -> float:
        """Return the seconds of an evaluation; for ``of`` see :meth:`opening`."""
        seconds = self.measured["evaluation", encoder]
        return (
            of(seconds) if seconds else self.forecasts.get(encoder, self._of_all("evaluation", 0.0))
        )

    def saving(self, encoder: str, of: Statistic = latest_most) -> float:
        """Return the seconds to save a run; for ``of`` see :meth:`opening`."""
        seconds = self.measured["saving", encoder]
        return of(seconds) if seconds else self._of_all("saving", Pace.saving)

    def pace(self, encoders: Collection[str]) -> Pace:
        """Return the mean pace of runs of some encoders, one at least."""
        return Pace(
            fmean(self.opening(name, fmean) for name in encoders),
            fmean(map(self._training, encoders)),
            fmean(self.saving(name, fmean) + self.evaluation(name, fmean) for name in encoders),
        )

    def _training(self, encoder: str) -> float:
        turns, training = (self.measured[part, encoder] for part in ("turn", "training"))
        return sum(turns) / sum(training) if turns else Pace.training

    def _of_all(self, part: Part, guess: float) -> float:
        seconds = [values for (name, _), values in self.measured.items() if name == part]
        return fmean(chain.from_iterable(seconds)) if any(seconds) else guess
