"""Figures, verdicts and the table of advice beside full sweeps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cell_files import environment_notes
from scipy.stats import spearmanr

from ncfbench.advice.rule import Curve
from ncfbench.reporting import table
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Column, Table, text_column

REGRET = 1.15
"""Largest regret of a good recommendation."""
WORST = 1.5
"""Largest regret that any recommendation may have."""
MISSES = 0.1
"""Share of the cells whose regret may lie between the two."""
CORRELATION = 0.8
"""Least rank correlation."""
SHARE = 0.1
"""Largest share of the sweep's wall time."""
LEAST_ARMS = 3
"""Fewer arms have no rank correlation."""

Found: TypeAlias = Mapping[str, Any]
"""A measured cell: ``cell``, ``regret``, ``correlation``, ``share``, ``recommended``, ``best``,
``arms`` (rows), ``environment_key``, ``code``, ``time``.
"""


@dataclass(frozen=True)
class Arm:
    """An arm of a sweep.

    Attributes:
        learned_at: training clock at which it was first better than chance; None if it never was.
    """

    name: str
    curve: Curve
    is_baseline: bool
    learned_at: float | None


# --- figures


def target_level(arms: Sequence[Arm], horizon: float) -> float | None:
    """Return the level to which arms are timed: the lowest that any baseline arm reaches in the
    first two thirds (1 / :data:`WORST`) of the horizon.

    The baseline's lowest level is what speedups are measured at. Two thirds, because then the best
    arm is there by two thirds of the horizon at the latest, so that every regret of up to
    :data:`WORST` can be measured: an arm that does not reach the level has a larger one. Where no
    baseline arm is better than chance by then, the level is the median of the arms that are; None
    where none is.
    """
    until = horizon / WORST
    able = [arm for arm in arms if arm.learned_at is not None and arm.learned_at <= until]
    levels = [arm.curve.at(until) for arm in able]
    of_baselines = [level for arm, level in zip(able, levels, strict=True) if arm.is_baseline]
    if of_baselines:
        return min(of_baselines)
    return statistics.median(levels) if levels else None


def seconds_to(arms: Sequence[Arm], level: float) -> dict[str, float]:
    """Return the training clock at which each arm reaches a level; infinity where it does not."""
    times = {arm.name: arm.curve.time_to(level) for arm in arms}
    return {name: math.inf if time is None else time for name, time in times.items()}


def regret(seconds: Mapping[str, float], recommended: str | None) -> float:
    """Return the time to the target of the recommended arm over that of the best one.

    Infinity where nothing was recommended, or what was recommended does not reach the target.
    """
    best = min(seconds.values(), default=math.inf)
    own = seconds.get(recommended or "", math.inf)
    if own == best < math.inf:
        return 1.0
    return own / best if 0 < best < math.inf else math.inf


def sweep_order(arms: Sequence[Arm], seconds: Mapping[str, float]) -> list[str]:
    """Return the names of a sweep's arms, the best first: by their time to the target, and those
    that do not reach it by their lowest level.
    """
    ordered = sorted(arms, key=lambda arm: (seconds[arm.name], arm.curve.level))
    return [arm.name for arm in ordered]


def advice_order(entrants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the entrants that raced in the order of the answer: the recommended one,
    those that are tied with it, and the others by how many times slower they are expected to be.

    Args:
        entrants: rows of the answer's JSON.
    """
    return [row["entrant"] for row in entrants if row["clock_seconds"] is not None]


def rank_correlation(order: Sequence[str], other: Sequence[str]) -> float | None:
    """Return Spearman's rank correlation of two orders, over the names that both have.

    None for fewer than :data:`LEAST_ARMS` names.
    """
    common = [name for name in order if name in other]
    if len(common) < LEAST_ARMS:
        return None
    return float(spearmanr(range(len(common)), list(map(other.index, common))).statistic)


def compare(arms: Sequence[Arm], horizon: float, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a cell; those that are infinite or do not exist are None.

    Args:
        arms: of the sweep.
        answer: the JSON of ``ncfbench advise``.
    """
    level = target_level(arms, horizon)
    seconds = {} if level is None else seconds_to(arms, level)
    order = sweep_order(arms, seconds) if seconds else []
    found = regret(seconds, answer["recommended"])
    return {
        "level": level,
        "recommended": answer["recommended"],
        "best": order[0] if order else None,
        "regret": None if math.isinf(found) else found,
        "correlation": rank_correlation(advice_order(answer["entrants"]), order),
        "arms": [_row(arm, seconds, answer) for arm in arms],
    }


def _row(arm: Arm, seconds: Mapping[str, float], answer: Mapping[str, Any]) -> dict[str, Any]:
    rows = {row["entrant"]: row for row in answer["entrants"]}
    raced = rows.get(arm.name, {})
    time = seconds.get(arm.name, math.inf)
    return {
        "arm": arm.name,
        "seconds": None if math.isinf(time) else time,
        "level": arm.curve.level,
        "learned_seconds": arm.learned_at,
        "advice": raced.get("status", "did not race"),
        "times_slower": raced.get("times_slower"),
    }


# --- verdicts


def shortcomings(found: Found) -> list[str]:
    """Return the figures of a cell that are not as they should be, in words."""
    short = []
    if found["regret"] is None:
        short.append("never there" if found["recommended"] else "no choice")
    elif found["regret"] > REGRET:
        short.append("regret")
    correlation = found["correlation"]
    # Four arms of which two neighbours change places have 0.8, but for rounding.
    if correlation is None or round(correlation, 9) < CORRELATION:
        short.append("rank")
    if found["share"] > SHARE:
        short.append("time")
    return short


def complaints(cells: Sequence[Found]) -> list[str]:
    """Return what keeps the cells together from the verdict, a sentence each; none if it is met.

    Met: a regret of at most :data:`REGRET` in nine of ten cells and of at most :data:`WORST` in
    all, and in every cell a rank correlation of at least :data:`CORRELATION` and at most a tenth of
    the sweep's time.
    """
    regrets = [math.inf if each["regret"] is None else each["regret"] for each in cells]
    above, far = (sum(regret > limit for regret in regrets) for limit in (REGRET, WORST))
    allowed = int(MISSES * len(cells))
    short = [shortcomings(each) for each in cells]
    found = []
    if above > allowed:
        found.append(f"Regret above {REGRET:g} in {above} of {len(cells)}; {allowed} may be.")
    if far:
        found.append(f"Regret above {WORST:g} in {far} of {len(cells)}; none may be.")
    for name, what in (
        ("rank", f"Rank correlation below {CORRELATION:g}"),
        ("time", f"More than {100 * SHARE:g} % of the sweep's time"),
    ):
        if count := sum(name in each for each in short):
            found.append(f"{what} in {count} of {len(cells)}; none may be.")
    return found


def show(cells: Sequence[Found], environments: Mapping[str, Any]) -> None:
    """Print the table of cells with their verdicts.

    Args:
        environments: descriptions by key.
    """
    if cells:
        print_table(make_console(), cell_table(cells, list(_notes(cells, environments))))


def cell_table(cells: Sequence[Found], notes: Sequence[str]) -> Table:
    """Return the table of at most 80 columns, a row for each cell."""
    rows: list[list[table.Cell | str]] = []
    for each in cells:
        short = shortcomings(each)
        rows.append(
            [
                each["cell"],
                str(len(each["arms"])),
                "-" if each["regret"] is None else f"{each['regret']:.2f}",
                "-" if each["correlation"] is None else f"{each['correlation']:.2f}",
                f"{100 * each['share']:.1f}",
                table.Cell(f"missed: {', '.join(short)}", "bad")
                if short
                else table.Cell("met", "good"),
            ]
        )
    header: list[Column | str] = ["cell", "arms", "regret", "rank", "time %"]
    return Table("Advice beside full sweeps", [*header, text_column("verdict")], rows, notes)


def _notes(cells: Sequence[Found], environments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the verdict of all cells, the recommendations that missed, and where it was."""
    found = complaints(cells)
    yield " ".join(found) or "The verdict is met."
    for each in cells:
        if each["recommended"] and (each["regret"] is None or each["regret"] > REGRET):
            yield f"{each['cell']}: {each['recommended']}; best: {each['best']}."
    yield from environment_notes(cells, environments)
