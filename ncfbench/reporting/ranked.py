"""Arms ranked by the time to the best ranking quality: one rule for a report and for a race.

The arm is recommended that is the soonest of those with about the best quality
(:func:`ncfbench.timing.ranking.soonest`). The mean over the seeds that all arms have decides, as
far as the shortest trained, else the first seed of each. In a race the arms that were repeated are
compared among themselves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from ncfbench.reporting.arms import PLACES, Arm
from ncfbench.timing import ranking
from ncfbench.timing.seeds import status_beside, times_to_level


def rank_soonest(
    arms: Sequence[Arm], finalists: Collection[str] = ()
) -> tuple[list[Arm], float | None]:
    """Return the arms with how they stand to the one that ranks best soonest, and the level that
    decides; None where no arm was evaluated and is known to be better than chance.

    Args:
        finalists: arms with further seeds, of which one is recommended, by the seeds they share; by
            default all are.
    """
    able = {
        index: arm
        for index, arm in enumerate(arms)
        if arm.learned_at is not None and math.isfinite(arm.level) and arm.status in PLACES
    }
    if not able:
        undecided = [
            replace(arm, status="undecided") if arm.status == "tied" else arm for arm in arms
        ]
        return undecided, None
    chosen = [index for index, arm in able.items() if arm.name in finalists] or [*able]
    seeds = sorted(set.intersection(*(set(able[index].measured.curves) for index in chosen)))
    able.update({index: replace(able[index], seeds=seeds) for index in chosen})
    tops = {index: -able[index].level for index in chosen}
    level = -ranking.SHARE * max(tops.values())
    able = {index: arm.to_level(level) for index, arm in able.items()}
    seconds = {
        index: math.inf if arm.seconds is None else arm.measured.feature_seconds + arm.seconds
        for index, arm in able.items()
    }
    best = ranking.soonest(tops, seconds)
    ranked = []
    for index, arm in enumerate(arms):
        behind = None
        if index == best:
            arm = replace(able[best], status="recommended", expected=1.0)
        else:
            arm = able.get(index) or arm.to_level(level)
            if index in able:
                behind = times_to_level(able[best].measured, arm.measured, level)
            expected = math.inf if behind is None else behind.value
            status = status_beside(arm.status, behind)
            arm = replace(arm, behind=behind, status=status, expected=expected)
        ranked.append(arm)
    return ranked, level
