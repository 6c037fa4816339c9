"""Checks of the answers over losses and encoders: what ranks best soonest, by the curves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ncfbench.catalog import BUILT_IN
from ncfbench.reporting.verify import standings
from ncfbench.reporting.verify.answers import floor_checks
from ncfbench.reporting.verify.check import Check
from ncfbench.reporting.verify.rows import Values
from ncfbench.reporting.verify.runs import Run, falls_to
from ncfbench.reporting.verify.standings import Arm
from ncfbench.reporting.verify.statistics import Floats, mean

Row = Mapping[str, Any]
Points = tuple[Floats, Floats]
"""Iterations and quality."""
UNTRIED = {
    *("dataset", "seed", "epochs", "patience", "probe_every", "probe_links"),
    "word_dimension",
}


class Ranked:
    """An arm with its curves; ``quality`` and ``iterations`` are of the seeds that decide."""

    def __init__(self, runs: Arm, column: str, chance: float) -> None:
        timed = {seed: run for seed, run in runs.items() if not math.isnan(run.full)}
        self.runs: Arm = timed or runs
        self.first = next(iter(self.runs.values()))
        self.config = self.first.config
        self.points = {
            seed: _points(run, column, chance)
            for seed, run in timed.items()
            if not run.has_diverged
        }
        self.features = mean(run.feature_seconds for run in self.runs.values())
        has_diverged = any(run.has_diverged for run in runs.values())
        self.status = "diverged" if has_diverged else "tied"
        self.learned = _learned(self.first, column, chance)
        self.is_able = self.learned is not None and bool(self.points) and not has_diverged
        self.decide_by([])
        self.is_able &= math.isfinite(self.quality)

    def decide_by(self, seeds: Sequence[int]) -> None:
        """Take the mean over some seeds, or the first one."""
        self.seeds = [*seeds] or [*self.points][:1]
        self.quality, self.iterations = math.nan, np.zeros(0)
        if self.points:
            curves = [self.points[seed] for seed in self.seeds]
            self.iterations = curves[0][0]
            clocks = [self.runs[seed].clock(self.iterations) for seed in self.seeds]
            self.clock = np.mean(clocks, axis=0)
            self.values = np.mean([values for _, values in curves], axis=0)
            self.quality = float(self.values.max())

    def reach(self, level: float) -> float:
        """Return the iterations of the mean curve to a level; NaN if it does not come there."""
        return falls_to(-level, self.iterations, -self.values) if self.points else math.nan

    def seconds_to(self, level: float) -> float:
        """Return the seconds of the mean curve to a level, features included; NaN if it does not
        come there.
        """
        if not self.points:
            return math.nan
        return self.features + falls_to(-level, self.clock, -self.values)

    def times_to(self, level: float) -> dict[int, float]:
        """Return the seconds of each seed to a level."""
        return {
            seed: self.features + falls_to(-level, self.runs[seed].clock(at), -values)
            for seed, (at, values) in self.points.items()
        }

    @property
    def noise(self) -> float:
        """Standard error of the logarithm of its times: a median of blocks, per run."""
        parts = [
            run.spread / math.sqrt(max(sum(row["kind"] == "full" for row in run.record.timing), 1))
            for run in self.runs.values()
        ]
        return 1.25 / 1.349 * mean(parts)


@dataclass(frozen=True)
class Ranking:
    """The arms of a data set that are compared, and the best one.

    Attributes:
        arms: in any order.
        metric: what decides, such as ``recall@50``.
        split: the links that decide.
        level: where times are compared; NaN where nothing was learned.
    """

    arms: Sequence[Ranked]
    metric: str
    split: str
    level: float
    best: Ranked | None

    @property
    def column(self) -> str:
        """The column of a curve, or of a floor's row, that decides."""
        return f"{self.split}_{self.metric.replace('@', '_at_')}"


def overall_checks(
    written: Sequence[Row], arms: Sequence[Arm], floors: Sequence[Row]
) -> Iterator[Check]:
    """Yield the checks of each answer, of its arms, floors and choices.

    Args:
        written: answers as ``report --json`` prints them.
        arms: those of the answers on each loss and encoder.
    """
    for answer in written:
        digest, cell = answer["data_fingerprint"], f"overall/{answer['dataset']}"
        own = [arm for arm in arms if _first(arm).record.data_fingerprint == digest]
        fitted = [row for row in floors if row["data_fingerprint"] == digest]
        yield from _checks(answer, cell, own, fitted)


def rank(arms: Sequence[Arm]) -> Ranking | None:
    """Return the ranking of a data set's arms: those of the newest run's environment that were
    evaluated; None without any.
    """
    arms = [arm for arm in arms if not _first(arm).record.is_simulated]
    arms = [arm for arm in arms if _evaluated(_first(arm), "test_recall_at_50")]
    runs = [run for arm in arms for run in arm.values()]
    if not runs:
        return None
    last = max(runs, key=lambda run: str(run.environment.get("time"))).environment["key"]
    arms = [arm for arm in arms if all(run.environment["key"] == last for run in arm.values())]
    known = all(_evaluated(_first(arm), "validation_recall_at_50") for arm in arms)
    split = "validation" if known else "test"
    column = f"{split}_recall_at_50"
    chance = _chance(runs, column)
    ranked = [Ranked(dict(sorted(arm.items())), column, chance) for arm in arms]
    return Ranking(ranked, "recall@50", split, *_decide(ranked))


def _checks(answer: Row, cell: str, arms: Sequence[Arm], floors: Sequence[Row]) -> Iterator[Check]:
    ranking = rank(arms)
    if ranking is None:
        yield Check("overall", cell, answer, {}, ["its data set has no run that can be ranked"])
        return
    ranked, level, best = ranking.arms, ranking.level, ranking.best
    written = {frozenset(row["runs"]): row for row in answer["arms"]}
    expected: dict[int, tuple[float, float]] = {}
    for arm in ranked:
        values, order = against(arm, best, level)
        expected[id(arm)] = order
        row = written.pop(frozenset(run.name for run in arm.runs.values()), None)
        if row is None:
            yield Check("overall", cell, answer, {}, [f"no arm has the run {arm.first.name}"])
        else:
            yield Check("overall", f"{cell}/{row['arm']}", row, values)
    for row in written.values():
        yield Check("overall", f"{cell}/{row['arm']}", row, {}, ["no arm has just its runs"])
    values = {"metric": ranking.metric, "split": ranking.split}
    values |= {"level": -level, "recommended": None}
    names = {row["runs"][0]: row["arm"] for row in answer["arms"]}
    if best is not None:
        values["recommended"] = names.get(best.first.name)
        others = [arm for arm in ranked if math.isfinite(arm.quality) and arm is not best]
        rows = _worth(best, others, expected)
        own = {f"{choice}={value}": names.get(name) for choice, value, name in rows}
        listed = {f"{row['choice']}={row['value']}": row["entrant"] for row in answer["worth"]}
        yield Check("overall", f"{cell}/worth", dict.fromkeys(own) | listed, own)
        shown = {seed: best.runs[seed] for seed in best.seeds}
        yield from floor_checks(answer, cell, shown, floors)
    yield Check("overall", cell, answer, values)


def _decide(ranked: Sequence[Ranked]) -> tuple[float, Ranked | None]:
    """Return the level, 0.95 of the best quality, and the arm that is there soonest of those with
    0.985 of it. The seeds that all have decide, if all of an arm's were evaluated alike.
    """
    able = [arm for arm in ranked if arm.is_able]
    if not able:
        return math.nan, None
    seeds = sorted(set.intersection(*(set(arm.points) for arm in able)))
    iterations = [{tuple(arm.points[seed][0]) for seed in seeds} for arm in able]
    for arm in able:
        arm.decide_by(seeds if all(len(own) == 1 for own in iterations) else [])
    most = max(arm.quality for arm in able)
    near = [arm for arm in able if arm.quality >= 0.985 * most]
    level = 0.95 * most

    def order(arm: Ranked) -> tuple[float, float]:
        seconds = arm.seconds_to(level)
        return math.inf if math.isnan(seconds) else seconds, -arm.quality

    return level, min(near, key=order)


def against(arm: Ranked, best: Ranked | None, level: float) -> tuple[Values, tuple[float, float]]:
    """Return the values of an arm, and its key in the order of the choices."""
    iterations = arm.reach(level)
    runs = arm.runs.values() if arm.points else ()
    reported = [arm.runs[seed].chosen for seed in arm.seeds]
    epochs = [row.get("epoch") for row in reported if row.get("test_recall_at_50") is not None]
    values: Values = {
        "status": arm.status,
        "seeds": len(arm.points),
        "full_iteration_seconds": mean(run.full for run in runs) if runs else math.nan,
        "clock_seconds": arm.clock[-1] if arm.points else math.nan,
        "learned_seconds": math.nan if arm.learned is None else arm.learned,
        "level": -arm.quality if math.isfinite(arm.quality) else math.nan,
        "iterations_to_level": iterations,
        "seconds_to_level": arm.seconds_to(level),
        **dict.fromkeys(("times_slower", "times_slower_lower", "times_slower_upper"), math.nan),
        **dict.fromkeys(("reported_epoch", "test_recall_at_50_error"), math.nan),
        "test_recall_at_50": math.nan,
    }
    if reported and len(epochs) == len(reported):
        values |= {
            "reported_epoch": mean(epochs),
            "test_recall_at_50": mean(row["test_recall_at_50"] for row in reported),
            "test_recall_at_50_error": standings.error_of(reported),
        }
    if best is None or arm is best:
        values["status"] = "recommended" if best else arm.status.replace("tied", "undecided")
        return values, (1.0, -arm.quality)
    if arm.is_able:
        names = ("times_slower", "times_slower_lower", "times_slower_upper")
        values |= dict(zip(names, times_slower(best, arm, level), strict=True))
    if arm.status == "tied" and not values["times_slower_lower"] <= 1:
        values["status"] = "slower"
    elif arm.status == "tied" and values["times_slower_upper"] < 1:
        values["status"] = "lower"
    later = values["times_slower"]
    return values, (math.inf if math.isnan(later) else later, -arm.quality)


def times_slower(best: Ranked, arm: Ranked, level: float) -> tuple[float, float, float]:
    """Return how many times as long an arm takes to a level as another one, and the ends of its
    interval; NaN where no seed of both comes there.
    """
    own, theirs = best.times_to(level), arm.times_to(level)
    pairs = [(own[seed], theirs[seed]) for seed in sorted(own.keys() & theirs.keys())]
    if not pairs:
        known = [[at for at in of.values() if not math.isnan(at)] for of in (own, theirs)]
        pairs = [(mean(known[0]), mean(known[1]))] if all(known) else []
    logs = [
        math.log(late / soon) if soon else 0.0
        for soon, late in pairs
        if not math.isnan(soon + late) and bool(soon) == bool(late)
    ]
    if not logs:
        return math.nan, math.nan, math.nan
    centre, n = math.fsum(logs) / len(logs), len(logs)
    # Assumed of seeds: a deviation of 0.25, known to four degrees.
    variance = (4 * 2 * 0.25**2 + sum((log - centre) ** 2 for log in logs)) / (3 + n)
    error = math.sqrt(variance / n + best.noise**2 + arm.noise**2)
    half = float(stdtrit(3 + n, 0.975)) * error
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def _worth(
    best: Ranked, others: Sequence[Ranked], order: Mapping[int, tuple[float, float]]
) -> Iterator[tuple[str, str, str]]:
    """Yield each choice, another value, and the first run of the best arm that has it."""
    for name, own in best.config.to_dict().items():
        if name in UNTRIED or not _reads(best, name):
            continue
        found: dict[Any, Ranked] = {}
        for arm in sorted(others, key=lambda arm: (*order[id(arm)], arm.first.name)):
            value = arm.config.to_dict().get(name, own)
            if value != own and _reads(arm, name):
                found.setdefault(value, arm)
        many = None if name in BUILT_IN else 1
        for value, arm in itertools.islice(found.items(), many):
            yield name, str(value), arm.first.name


def _reads(arm: Ranked, name: str) -> bool:
    config = arm.config
    setting = config.settings.get(name)
    return bool(setting and config.reads(setting))


def _first(arm: Arm) -> Run:
    return arm[min(arm)]


def _evaluated(run: Run, column: str) -> list[Row]:
    return [row for row in run.record.curve if row[column] is not None]


def _chance(runs: Sequence[Run], column: str) -> float:
    """Return the chance of a column that some run kept; NaN where none did."""
    rows = (row for run in runs for row in run.record.curve)
    kept = (row[f"{column}_chance"] for row in rows if row.get(f"{column}_chance") is not None)
    return next(kept, math.nan)


def _points(run: Run, column: str, chance: float) -> Points:
    """Return the iterations and qualities of a run's evaluations, with chance before training."""
    points = [(row["iteration"], row[column]) for row in _evaluated(run, column)]
    if points and points[0][0] and not math.isnan(chance):
        points.insert(0, (0, chance))
    points = points or [(0, -math.inf)]  # nothing was evaluated
    return np.array([at for at, _ in points], float), np.array([of for _, of in points], float)


def _learned(run: Run, recall: str, chance: float) -> float | None:
    """Return the seconds at the first recall that is clearly above chance."""
    chance = float(np.nan_to_num(chance))
    if chance >= 1 or run.record.summary["recall_reason"] is not None:
        return 0.0
    for row in _evaluated(run, recall):
        parts = (row[f"{recall}{of}_error"] or 0.0 for of in ("", "_item"))
        least = max(min(chance, 1 - chance) / 4, 2 * math.hypot(*parts))
        if row[recall] - chance > least:
            return float(np.nan_to_num(run.clock(np.array([row["iteration"]], float)))[0])
    return None
