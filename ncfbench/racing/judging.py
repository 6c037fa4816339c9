"""Who leaves a race at the end of a rung: from entries to the rule of :mod:`ncfbench.racing.rule`.

Pure: no clock, no file.
"""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.racing import rule
from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.question import FINALISTS, Question
from ncfbench.racing.rungs import Plan, arms_of_rungs


def judge(
    question: Question,
    active: Sequence[Entry],
    ended: Sequence[Entry],
    plan: Plan | None,
    clock: float,
) -> tuple[str, dict[Entry, str]] | None:
    """Judge entries that have all trained to a clock; None while none of them has a line.

    Return the leader's name, and the reason of each entry that leaves; empty for want of a line.

    Those leave that cannot win, or for whom there is no time; nobody after the last rung, where all
    have trained as long as any.

    Args:
        active: entries that can train on.
        ended: others; the best of those that ended by themselves is one to be beaten.
        plan: of the rest of the race; None where nothing can train on.
    """
    known = {
        each: curve
        for each in [*active, *ended]
        if (curve := question.curve(each)) is not None and question.is_known(each)
    }
    racing = [each for each in active if each in known]
    over = [each for each in ended if each in known and each.status is Status.ENDED]
    over.sort(key=lambda each: known[each].level)
    arms = {
        each.name: rule.Arm(known[each], "", learning_rate=each.arm.learning_rate)
        for each in [*racing, *over[:1]]
    }
    if not arms:
        return None
    is_last = plan is None or not plan.clocks
    horizon = clock if plan is None else plan.horizon
    keep = arms_of_rungs(len(active), 2, FINALISTS)[1]
    leader, leaving = rule.decide(arms, horizon, keep + len(over[:1]))
    if is_last:
        return leader, {}
    # One that comes to rest early can be the soonest though it will not be the lowest.
    soonest, _ = question.winner([*racing, *over]) or ("", 0.0)
    dropped = {
        each: leaving[each.name] for each in racing if each.name in leaving and each.name != soonest
    }
    room = max(keep - (len(racing) - len(dropped)), 0)
    silent = [each for each in active if each not in known]
    return leader, dropped | dict.fromkeys(silent[room:], "")
