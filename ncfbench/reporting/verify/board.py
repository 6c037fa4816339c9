"""Checks of the board: when each contestant comes to a share of the best quality of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ncfbench.reporting.verify.check import Check
from ncfbench.reporting.verify.overall import UNTRIED, Ranked, Ranking, against, rank, times_slower
from ncfbench.reporting.verify.runs import unusual_settings
from ncfbench.reporting.verify.standings import Arm

Row = Mapping[str, Any]
Contestant: TypeAlias = Ranked | Row
"""An arm, or the row of a floor."""
NAMED = ("encoder", "loss", "sampler")
TARGET = 0.97
PLACES = {"recommended": 0, "tied": 1, "lower": 1, "slower": 2, "left": 2}


def board_checks(board: Row | None, arms: Sequence[Arm], floors: Sequence[Row]) -> Iterator[Check]:
    """Yield the checks of each contestant's times.

    Args:
        board: as ``report --json`` prints it; None where there is none.
        arms: those of the answers on each loss and encoder.
        floors: kept rows of :data:`ncfbench.storage.schemas.FLOOR`.
    """
    of_digest: dict[str, list[Arm]] = {}
    for arm in arms:
        of_digest.setdefault(arm[min(arm)].record.data_fingerprint, []).append(arm)
    ranked = {digest: rank(own) for digest, own in of_digest.items()}
    rankings = {
        digest: ranking
        for digest, ranking in ranked.items()
        if ranking is not None and any(arm.learned for arm in ranking.arms)
    }
    judged = {(ranking.metric, ranking.split) for ranking in rankings.values()}
    found = _contestants(rankings) if len(rankings) > 1 and len(judged) == 1 else {}
    keys = [set(own) for own in found.values()]
    common = set.intersection(*keys) if keys else set()
    shared = {digest: [own[key] for key in sorted(common)] for digest, own in found.items()}
    able = [_is_able(arm) for own in shared.values() for arm in own]
    is_expected = len(common) > 1 and any(able)
    if board is None or not is_expected:
        if is_expected or board is not None:
            note = "there is no board" if is_expected else "there must be none"
            yield Check("board", "", {}, {}, [note])
        return
    rows = board["standings"]
    metric, split = judged.pop()
    missing = len(set().union(*keys) - common)
    whole = {**board, "left_out": len(board["left_out"])}
    yield Check("board", "", whole, {"metric": metric, "split": split, "left_out": missing})
    names = {tuple(sorted(each["runs"])): row["contestant"] for row in rows for each in row["on"]}
    contestants: dict[str, dict[str, Contestant]] = {}
    for digest, own_arms in shared.items():
        contestants[digest] = {
            floor["floor"]: floor for floor in floors if floor["data_fingerprint"] == digest
        }
        for one in own_arms:
            runs = tuple(sorted(run.name for run in one.runs.values()))
            contestants[digest][names.get(runs, runs[0])] = one
    known = {name for own in contestants.values() for name in own}
    for name in sorted(known - {row["contestant"] for row in rows}):
        yield Check("board", name, {}, {}, ["it is not on the board"])
    for row in rows:
        cell, on = row["contestant"], dict(contestants)
        for each in row["on"]:
            own = on.pop(each["data_fingerprint"], {})
            if row["contestant"] not in own:
                note = "no such floor is kept, or no arm on all data sets has just its runs"
                yield Check("board", f"{cell}/{each['dataset']}", each, {}, [note])
                continue
            times = _times(own, rankings[each["data_fingerprint"]])
            seconds, is_tied = times[row["contestant"]]
            kept = {"seconds": seconds if seconds < math.inf else math.nan, "is_tied": is_tied}
            yield Check("board", f"{cell}/{each['dataset']}", each, kept)
        notes = [f"it lacks {digest}" for digest, own in on.items() if row["contestant"] in own]
        yield Check("board", cell, row, {}, notes)


def _times(
    contestants: Mapping[str, Contestant], ranking: Ranking
) -> dict[str, tuple[float, bool]]:
    """Return the seconds of each contestant to the target, and whether it is the soonest one or
    cannot be told from it.
    """
    level = TARGET * max(_quality(one, ranking) for one in contestants.values())
    seconds = {name: _seconds(one, ranking, level) for name, one in contestants.items()}
    first = contestants[min(seconds, key=lambda name: seconds[name])]
    return {
        name: (at, at < math.inf and _is_tied(first, contestants[name], level))
        for name, at in seconds.items()
    }


def _contestants(rankings: Mapping[str, Ranking]) -> dict[str, dict[str, Ranked]]:
    """Return the best arm of each contestant, by data set and what makes a contestant."""
    settings = {
        digest: {id(arm): _settings(arm) for arm in ranking.arms}
        for digest, ranking in rankings.items()
    }
    differing = set()
    for own in settings.values():
        for name in {name for each in own.values() for name in each}:
            if len({str(each.get(name)) for each in own.values()}) > 1:
                differing.add(name)
    found: dict[str, dict[str, Ranked]] = {}
    for digest, ranking in rankings.items():
        found[digest] = {}
        for arm in sorted(ranking.arms, key=lambda arm: (_place(arm, ranking), arm.first.name)):
            values = settings[digest][id(arm)]
            key = str([(name, str(values[name])) for name in sorted(differing & values.keys())])
            found[digest].setdefault(key, arm)
    return found


def _settings(arm: Ranked) -> dict[str, Any]:
    config = arm.config
    left_out = {*UNTRIED, "learning_rate"}
    found = unusual_settings(config) | {name: getattr(config, name) for name in NAMED}
    return {name: value for name, value in found.items() if name not in left_out}


def _place(arm: Ranked, ranking: Ranking) -> tuple[float, ...]:
    values, order = against(arm, ranking.best, ranking.level)
    last = (math.inf if math.isnan(value) else value for value in order)
    return PLACES.get(str(values["status"]), len(PLACES)), *last


def _is_able(arm: Ranked) -> bool:
    return bool(arm.points) and arm.status != "diverged"


def _quality(one: Contestant, ranking: Ranking) -> float:
    if not isinstance(one, Ranked):
        return one.get(ranking.column) or 0.0
    return one.quality if _is_able(one) else 0.0


def _seconds(one: Contestant, ranking: Ranking, level: float) -> float:
    if _quality(one, ranking) < level or (isinstance(one, Ranked) and not _is_able(one)):
        return math.inf
    if isinstance(one, Ranked):
        return one.seconds_to(level)
    return float(one["content_seconds"] + one["choice_seconds"] + one["fit_seconds"])


def _is_tied(first: Contestant, one: Contestant, level: float) -> bool:
    if one is first:
        return True
    if not (isinstance(first, Ranked) and isinstance(one, Ranked)):
        return False
    return times_slower(first, one, level)[1] <= 1
