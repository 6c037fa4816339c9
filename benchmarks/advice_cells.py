"""The cells of the benchmark of advice: their questions, what is kept of each, and the verdict."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import TINY, Found, environment_notes
from scipy.stats import spearmanr

from ncfbench.advice.question import Question
from ncfbench.advice.summary import advise_command
from ncfbench.racing.rule import Curve
from ncfbench.reporting.table import Cell as Text
from ncfbench.reporting.table import Col, Table

EPOCHS = 100_000
"""More than any run has time for, in the sweep and in the race: the clock ends them."""
REGRET, WORST, MISSES = 1.15, 1.5, 0.1
"""Largest regret of a good recommendation and of any, and the share of cells between the two."""
CORRELATION = 0.8
"""Least rank correlation."""
SHARE = 0.1
"""Largest share of the sweep's wall time."""
LEAST_ARMS = 3
"""Fewer arms have no rank correlation."""


@dataclass(frozen=True)
class Cell:
    """One question, and how long a sweep trains each of its candidates.

    Attributes:
        horizon_seconds: training clock of each candidate in the sweep.
        samplers: all that serve the loss where empty.
    """

    dataset: str
    encoder: str
    loss: str
    horizon_seconds: float
    samplers: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = (512,)
    learning_rates: tuple[float, ...] = (0.01, 0.03)

    @property
    def question(self) -> Question:
        """The question, for the sweep."""
        return Question(
            {"dataset": self.dataset, "encoder": self.encoder, "epochs": EPOCHS},
            "loss",
            losses=(self.loss,),
            samplers=self.samplers,
            batch_sizes=self.batch_sizes,
            stratum_sizes=(4,),
            negatives=(5,),
            learning_rates=self.learning_rates,
        )

    @property
    def words(self) -> list[str]:
        """The same question as words of a command line, from ``advise`` on, without a budget."""
        words = shlex.split(advise_command(self.question, 0, {}))
        return words[1 : words.index("--budget")]


TWO_BATCHES = (512, 256)
CELLS = {
    "sparse/cnn-sg": Cell("advice-sparse", "cnn", "sg", 50),
    "sparse/mf-hinge": Cell("advice-sparse", "mf", "hinge", 20, batch_sizes=TWO_BATCHES),
    "dense/cnn-sg": Cell("advice-dense", "cnn", "sg", 50),
    "dense/lstm-hinge": Cell("advice-dense", "lstm", "hinge", 100),
    "dense/mf-sg": Cell("advice-dense", "mf", "sg", 60),
    "long/cnn-sg": Cell("advice-long", "cnn", "sg", 60),
    "long/cnn-hinge": Cell("advice-long", "cnn", "hinge", 60),
    "citeulike/cnn-sg": Cell("citeulike", "cnn", "sg", 60),
    "citeulike/bow-hinge": Cell("citeulike", "bow", "hinge", 60),
    "movielens/cnn-sg": Cell("movielens", "cnn", "sg", 100),
}
"""The grid: three shapes of synthetic data, CiteULike, and MovieLens with plots."""
QUICK = {"tiny/mf-sg": Cell(TINY, "mf", "sg", 1.0, ("iid", "ns", "strat-ns"), (64,), (0.01,))}
"""A cell of a minute, which shows that the benchmark works; a race so short decides nothing."""


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

    So the best arm is there by two thirds of the horizon, and every regret of up to :data:`WORST`
    can be measured. Where no baseline arm is better than chance by then, the level is the median of
    the arms that are; None where none is.
    """
    until = horizon / WORST
    able = [arm for arm in arms if arm.learned_at is not None and arm.learned_at <= until]
    baselines = [arm.curve.at(until) for arm in able if arm.is_baseline]
    if baselines:
        return min(baselines)
    return statistics.median([arm.curve.at(until) for arm in able]) if able else None


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


def rank_correlation(order: Sequence[str], other: Sequence[str]) -> float | None:
    """Return Spearman's rank correlation of two orders, over the names that both have.

    None for fewer than :data:`LEAST_ARMS` names.
    """
    common = [name for name in order if name in other]
    if len(common) < LEAST_ARMS:
        return None
    return float(spearmanr(range(len(common)), list(map(other.index, common))).statistic)


def compare(arms: Sequence[Arm], horizon: float, answer: Mapping[str, Any]) -> Found:
    """Return the figures of a cell; those that are infinite or do not exist are None.

    Args:
        arms: of the sweep.
        answer: the JSON of ``ncfbench advise``, whose entrants stand in the answer's order; those
            without a clock did not race.
    """
    level = target_level(arms, horizon)
    seconds = {} if level is None else seconds_to(arms, level)
    # Those that do not reach the target follow by their lowest level.
    ordered = sorted(arms, key=lambda arm: (seconds[arm.name], arm.curve.level)) if seconds else []
    order = [arm.name for arm in ordered]
    rows = {row["entrant"]: row for row in answer["entrants"]}
    raced = [name for name, row in rows.items() if row["clock_seconds"] is not None]
    return {
        "level": level,
        "recommended": answer["recommended"],
        "best": order[0] if order else None,
        "regret": _finite(regret(seconds, answer["recommended"])),
        "correlation": rank_correlation(raced, order),
        "arms": [
            {
                "arm": arm.name,
                "seconds": _finite(seconds.get(arm.name, math.inf)),
                "level": arm.curve.level,
                "learned_seconds": arm.learned_at,
                "advice": rows.get(arm.name, {}).get("status", "did not race"),
                "times_slower": rows.get(arm.name, {}).get("times_slower"),
            }
            for arm in arms
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --- verdicts


def shortcomings(cell: Found) -> list[str]:
    """Return the figures of a cell that are not as they should be, in words."""
    short = []
    if cell["regret"] is None:
        short.append("never there" if cell["recommended"] else "no choice")
    elif cell["regret"] > REGRET:
        short.append("regret")
    # Four arms of which two neighbours change places have 0.8, but for rounding.
    if cell["correlation"] is None or round(cell["correlation"], 9) < CORRELATION:
        short.append("rank")
    if cell["share"] > SHARE:
        short.append("time")
    return short


def complaints(cells: Sequence[Found]) -> list[str]:
    """Return what keeps the cells together from the verdict, a sentence each; none if it is met."""
    regrets = [math.inf if cell["regret"] is None else cell["regret"] for cell in cells]
    short = [shortcomings(cell) for cell in cells]
    bounds = [
        (f"Regret above {REGRET:g}", sum(r > REGRET for r in regrets), int(MISSES * len(cells))),
        (f"Regret above {WORST:g}", sum(r > WORST for r in regrets), 0),
        (f"Rank correlation below {CORRELATION:g}", sum("rank" in words for words in short), 0),
        (f"More than {100 * SHARE:g} % of the sweep's time", sum("time" in w for w in short), 0),
    ]
    return [
        f"{what} in {count} of {len(cells)}; {allowed or 'none'} may be."
        for what, count, allowed in bounds
        if count > allowed
    ]


def cell_table(cells: Sequence[Found], environments: Mapping[str, Any]) -> Table:
    """Return the table of at most 80 columns, a row for each cell."""
    notes = [" ".join(complaints(cells)) or "The verdict is met."]
    notes += [
        f"{cell['cell']}: {cell['recommended']}; best: {cell['best']}."
        for cell in cells
        if cell["recommended"] and (cell["regret"] is None or cell["regret"] > REGRET)
    ]
    notes += environment_notes(cells, environments)
    return Table.of("Advice beside full sweeps", COLUMNS, cells, notes)


def _verdict(cell: Found) -> Text:
    short = shortcomings(cell)
    return Text(f"missed: {', '.join(short)}", "bad") if short else Text("met", "good")


COLUMNS = [
    Col("cell", "cell"),
    Col("arms", lambda cell: len(cell["arms"])),
    Col("regret", "regret", ".2f"),
    Col("rank", "correlation", ".2f"),
    Col("time %", "share", ".1f", 100),
    Col("verdict", _verdict, wraps=True),
]
