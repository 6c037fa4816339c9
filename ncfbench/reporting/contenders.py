"""Contenders: the arms of an answer, over batch sizes and learning rates too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean as mean
from typing import Any

from ncfbench.catalog import find_sampler
from ncfbench.config import RunConfig
from ncfbench.reporting.comparison import unusual_settings
from ncfbench.reporting.retimed import RetimedRun
from ncfbench.runs.arms import ARM_SETTINGS, Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import statistics as analysis
from ncfbench.timing.seed_statistics import Estimate

NAMED = {"batch_size", "learning_rate", "item_block"}
"""Settings with words of their own in the name of an arm."""


@dataclass(frozen=True)
class Contender:
    """A sampler with its settings, batch size and learning rate, and its runs by seed.

    Attributes:
        is_baseline: True if speedups are measured against its sampler.
    """

    name: str
    config: RunConfig
    runs: Mapping[int, RunRecord]
    is_baseline: bool = False

    @property
    def has_diverged(self) -> bool:
        """True if any of its seeds diverged."""
        return any(run.summary["status"] == "diverged" for run in self.runs.values())

    @property
    def is_timed(self) -> bool:
        """True if all its runs have times."""
        return all(run.summary["full_iteration_seconds"] for run in self.runs.values())

    @property
    def seconds(self) -> float:
        """Median seconds of an iteration, on average over seeds, if it :attr:`is_timed`."""
        return mean(run.summary["full_iteration_seconds"] for run in self.runs.values())

    @property
    def retimed(self) -> RetimedRun | None:
        """One of its runs if a profile says how long their iterations are; else None."""
        found = next(iter(self.runs.values()))
        return found if isinstance(found, RetimedRun) else None

    @property
    def length(self) -> Estimate:
        """A profile's interval for the ratio of its iteration's length to the baseline's, beside
        the ratio itself; 1 without an interval's width where the runs' own times count.
        """
        if self.retimed is None:
            return Estimate(1, 1, 1, len(self.runs))
        ratio = self.retimed.per_iteration
        lower, upper = ratio.lower or ratio.value, ratio.upper or ratio.value
        return Estimate(1, lower / ratio.value, upper / ratio.value, self.retimed.rounds)

    def points(self, column: str) -> list[tuple[float, list[float]]]:
        """Return a column of the curve against seconds of training (full account): the value of
        each seed, at the evaluations that all have; none if it has no times.
        """
        if not self.is_timed:
            return []
        curves = [
            {row["iteration"]: row[column] for row in run.curve if row[column] is not None}
            for run in self.runs.values()
        ]
        common = sorted(set.intersection(*(set(curve) for curve in curves)))
        return [(each * self.seconds, [curve[each] for curve in curves]) for each in common]

    def means(self, column: str) -> list[tuple[float, float]]:
        """Return :meth:`points` with the mean over seeds."""
        return [(seconds, mean(values)) for seconds, values in self.points(column)]

    @property
    def spread(self) -> float:
        """Largest spread of the times of a run's blocks."""
        return max(
            (analysis.spread(run.timing, "full") or 0.0 for run in self.runs.values()), default=0.0
        )

    @property
    def items(self) -> float | None:
        """Items embedded for a batch."""
        known = [run.summary["item_slots"] for run in self.runs.values()]
        return None if None in known else mean(known)


def contenders_of(runs: Sequence[RunRecord], baseline: str) -> tuple[list[Contender], int]:
    """Return the arms with their runs, and the number of runs that a longer one of their arm and
    seed replaces.

    Runs of one arm agree in all settings but the seed and the epochs.

    Args:
        baseline: the sampler that speedups are measured against.
    """
    arms: dict[tuple[Variant, tuple[tuple[str, Any], ...]], dict[int, RunRecord]] = {}
    for run in runs:
        config = run.config
        own = arms.setdefault((Variant.of(config), tuple(_common(config).items())), {})
        if config.seed not in own or config.epochs > own[config.seed].config.epochs:
            own[config.seed] = run
    values: dict[str, set[Any]] = {}
    for _, common in arms:
        for name, value in common:
            values.setdefault(name, set()).add(value)
    different = {name for name, found in values.items() if len(found) > 1}
    found = []
    for (variant, _), own in arms.items():
        config = next(iter(own.values())).config
        unusual = unusual_settings(config).items()
        parts = [
            find_sampler(variant.sampler).title,
            f"b={config.batch_size}" if "batch_size" in different else "",
            variant.note(config.encoder),
            f"rate={config.learning_rate:g}" if "learning_rate" in different else "",
            f"blocks of {config.item_block}" if config.item_block else "",
            *(f"{name}={value}" for name, value in unusual if name in different - NAMED),
        ]
        name = " ".join(filter(None, parts))
        found.append(Contender(name, config, own, variant.sampler == baseline))
    return found, len(runs) - sum(map(len, arms.values()))


def _common(config: RunConfig) -> dict[str, Any]:
    """Return the settings that the runs of an arm share, but for those of its variant."""
    left_out = {*ARM_SETTINGS, *config.sampler_settings, "epochs"}
    return {name: value for name, value in config.to_dict().items() if name not in left_out}
