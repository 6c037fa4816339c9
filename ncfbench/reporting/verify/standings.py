"""How an arm stands to a recall: the second computation's own, from curves and evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ncfbench.reporting.verify.rows import Values
from ncfbench.reporting.verify.runs import Run
from ncfbench.reporting.verify.statistics import Floats, mean
from ncfbench.runs import evaluations

Row = Mapping[str, Any]
Arm: TypeAlias = Mapping[int, Run]
"""The runs of an arm by seed."""


class Level(NamedTuple):
    """A recall of a floor, or of an arm at the rows that validation links choose.

    Attributes:
        lists: recall of each user and share of each item, means over seeds; None where not kept.
        ndcg: NDCG@50 there, the mean over seeds; NaN where not kept.
        of_seeds: the part of its variance that comes of seeds.
    """

    recall: float
    error: float
    lists: Sequence[Floats] | None
    ndcg: float
    of_seeds: float = 0.0


def floor_level(floor: Row) -> Level:
    """Return the recall of a row of :data:`ncfbench.storage.schemas.FLOOR`."""
    lists = [floor["test_user_recalls"], floor["test_item_shares"]]
    known = None if None in lists else [np.asarray(values, float) for values in lists]
    recall, ndcg = (floor[f"test_{name}_at_50"] for name in ("recall", "ndcg"))
    return Level(recall, error_of([floor]), known, ndcg)


def chosen(arm: Arm) -> Level | None:
    """Return the mean recall at the row that each seed reports; None where some seed has none."""
    rows, name = [run.chosen for run in arm.values()], "test_recall_at_50"
    if not rows or any(row.get(name) is None for row in rows):
        return None
    of_seeds = np.var([row[name] for row in rows], ddof=1) if rows[1:] else 0.0
    kept = [
        evaluations.read(run.record.folder).get((row["iteration"], "test"))
        for run, row in zip(arm.values(), rows, strict=True)
    ]
    known = [(one.user_recalls, one.item_shares) for one in kept if one]
    lists = None
    if len(known) == len(kept) and len({tuple(map(len, both)) for both in known}) == 1:
        lists = [np.mean(of, axis=0, dtype=float) for of in zip(*known, strict=True)]
    ndcg = mean(row["test_ndcg_at_50"] for row in rows)
    recall, error = mean(row[name] for row in rows), error_of(rows)
    return Level(recall, error, lists, ndcg, of_seeds / len(rows))


def shown(arms: Sequence[Arm], best: Arm) -> Arm:
    """Return the arm that is set beside floors: the best one, else that of the largest validation
    recall; of the largest recall where some arm has none of that, or one of 1 by chance; of equal
    ones the first by the names of runs.
    """
    if best and chosen(best):
        return best
    known = [arm for arm in arms if not any(run.has_diverged for run in arm.values())]
    known.sort(key=lambda arm: sorted(run.name for run in arm.values()))
    rows = {at: [run.chosen for run in arm.values()] for at, arm in enumerate(known) if chosen(arm)}
    columns = ["validation_recall_at_50", "test_recall_at_50"]
    if any(row["validation_recall_at_50_chance"] == 1 for own in rows.values() for row in own):
        del columns[0]
    for column in columns:
        means = {at: mean(row[column] for row in own) for at, own in rows.items()}
        if means and not any(map(math.isnan, means.values())):
            return known[max(means, key=lambda at: means[at])]
    return {}


def beside(arm: Arm, level: Level) -> Values:
    """Return how an arm stands to a level: by its chosen recall, at two standard errors, and the
    time of the first evaluation of all seeds that is as much above the level.
    """
    name = "test_recall_at_50"
    values: Values = {"best_arm": "unknown" if arm else None}
    unknown = ("passed_after_seconds", "above_by", "above_by_error", "best_arm_ndcg_at_50")
    values |= dict.fromkeys(unknown, math.nan)
    own = chosen(arm)
    if own is None:
        return values
    if own.lists and level.lists and len(own.lists[0]) != len(level.lists[0]):
        return values
    above, error = own.recall - level.recall, math.hypot(*_errors(own, level))
    values |= {"above_by": above, "above_by_error": error, "best_arm_ndcg_at_50": own.ndcg}
    if math.isnan(error):
        return values
    if abs(above) <= 2 * error:
        return values | {"best_arm": "level"}
    if above < 0:
        return values | {"best_arm": "below"}
    least = level.recall + 2 * error
    means = ((at, mean(row[name] for row in rows)) for at, rows in _common(arm, name))
    later = (at for at, recall in means if recall > least)
    at = np.array([next(later, math.nan)])
    if any(math.isnan(run.full) for run in arm.values()) or np.isnan(at).any():
        return values | {"best_arm": "passes"}
    seconds = mean(run.clock(at)[0] for run in arm.values())
    seconds += mean(run.feature_seconds for run in arm.values())
    return values | {"best_arm": "passes", "passed_after_seconds": seconds}


def error_of(ends: Sequence[Row]) -> float:
    """Return the standard error of a mean recall: of users and items, and of seeds."""
    name = "test_recall_at_50"
    names = (f"{name}_error", f"{name}_item_error")
    squares = np.array([[end.get(name) for name in names] for end in ends], float) ** 2
    recalls = np.array([end.get(name) for end in ends], float)
    of_seeds = recalls.var(ddof=1) if len(ends) > 1 else 0.0
    return math.sqrt((squares.sum() + of_seeds) / len(ends))


def _errors(own: Level, other: Level) -> list[float]:
    """Return the parts of a difference's error: those within users, items and seeds where both have
    lists, else the errors of both.
    """
    if own.lists is None or other.lists is None or min(map(len, own.lists)) < 2:
        return [own.error, other.error]
    if len(own.lists[1]) != len(other.lists[1]):
        return [own.error, other.error]
    users, items = (ours - theirs for ours, theirs in zip(own.lists, other.lists, strict=True))
    of_items = len(items) / (len(items) - 1) * (items @ items)
    of_users = np.var(users, ddof=1) / len(users)
    variances = of_users, of_items, own.of_seeds, other.of_seeds
    return [math.sqrt(variance) for variance in variances]


def _common(arm: Arm, name: str) -> list[tuple[int, list[Row]]]:
    """Return the evaluations that all seeds have, by iteration."""
    curves = [
        {row["iteration"]: row for row in run.record.curve if row[name] is not None}
        for run in arm.values()
    ]
    common = sorted(set(curves[0]).intersection(*curves[1:])) if curves else []
    return [(iteration, [curve[iteration] for curve in curves]) for iteration in common]
