"""The baseline of an answer, at its best over batch sizes, k and learning rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean as mean

from ncfbench.reporting.comparison import arm_of
from ncfbench.reporting.contenders import Contender
from ncfbench.reporting.convergence import why_untrained
from ncfbench.timing import statistics as analysis
from ncfbench.timing import ties


def best_baseline(
    contenders: Sequence[Contender], title: str
) -> tuple[Contender | None, list[str]]:
    """Return the baseline at its best, None if none has trained, and what is wrong with others.

    Args:
        title: of the baseline's sampler.
    """
    own = [each for each in contenders if each.is_baseline]
    if not own:
        other = contenders[0].config.sampler
        return None, [
            f"No run of the baseline, {title}, is finished, so there is no ratio. To measure"
            f" against another sampler: --baseline {other}."
        ]
    faults = {each.name: why_untrained(list(each.runs.values()), each.name) for each in own}
    able = {
        each.name: each
        for each in own
        if not each.has_diverged and each.is_timed and faults[each.name] is None
    }
    if not able:
        found = " ".join(filter(None, faults.values())) or f"every run of {title} diverged."
        return None, [f"No ratio: {found}"]
    # A fault that keeps no ratio from the answer needs no words.
    name = ties.most_wins(
        list(able),
        lambda one, other: _ahead(able[one], able[other]),
        lambda one: mean(min(arm_of(run).losses) for run in able[one].runs.values()),
    )
    return able[name], []


def _ahead(one: Contender, other: Contender) -> float | None:
    """Return the mean logarithm of how many times sooner an arm is than another, at the latest loss
    that both reached; None without a common seed that both trained.
    """
    logs = []
    for seed in one.runs.keys() & other.runs.keys():
        arms = arm_of(one.runs[seed]), arm_of(other.runs[seed])
        level = max(min(arm.losses) for arm in arms)
        own, theirs = (seconds_to(level, arm) for arm in arms)
        if own and theirs:
            logs.append(math.log(theirs / own))
    return mean(logs) if logs else None


def seconds_to(level: float, arm: analysis.Arm) -> float | None:
    """Return the seconds of training until an arm's probe first comes down to a level; None if
    never.
    """
    iterations = analysis.iterations_to(level, arm.iterations, arm.losses)
    return None if iterations is None else iterations * arm.full_iteration_seconds
