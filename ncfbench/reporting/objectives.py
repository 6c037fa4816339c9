"""Arms that minimise different things, compared by recall against training time.

The probes of two objectives do not compare; the recall of their models does. All arms of a data
set, encoder and model stand in one list, and one table, by the seconds to shares of the best recall
of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ncfbench.catalog import find_encoder, find_loss
from ncfbench.reporting.answers import TRIED, Answer
from ncfbench.reporting.arms import TEST_RECALL, ArmResult, Peak
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.table import Col, Table, slug
from ncfbench.runs.arms import shared_settings

OBJECTIVE = ("loss", "gamma", "lambda", "noise", "mask")
"""Settings of every run that say what is minimised."""
LEVEL_SHARES = (0.5, 0.9)
"""Shares of the best recall of all arms: the levels that their times are compared at."""

NOTE = (
    "Objectives that differ have no probe in common. Seconds of training (full account; by a"
    " profile where runs were disturbed) to the first evaluations with"
    f" {' and '.join(f'{100 * share:.0f} %' for share in LEVEL_SHARES)} of the best"
    " test recall@50 of all arms, and to the arm's own best; in brackets the lowest and highest"
    " seed. Arms of different objectives did not take turns."
)
FEATURES_NOTE = "Seconds count those that derived item features took before training."


@dataclass(frozen=True)
class ObjectiveArm:
    """An arm beside those of other objectives.

    Attributes:
        peak: its largest test recall@50.
        levels: the levels of recall.
        to_levels: training until the first evaluation at or above each; None if never.
    """

    answer: Answer
    arm: ArmResult
    peak: Peak
    levels: Sequence[float]
    to_levels: Sequence[float | None]


def compare_objectives(
    answers: Sequence[Answer], *, allow_mixed: bool = False
) -> list[list[ObjectiveArm]]:
    """Return the arms of each data set and model with timed arms of two objectives or more.

    Those that reach the highest level come first, the soonest before the others.

    Args:
        allow_mixed: compare times of different environments too; else each has lists of its own.
    """
    groups: dict[tuple[object, ...], list[Answer]] = {}
    for answer in answers:
        config, runs = answer.config, [run for arm in answer.arms for run in arm.runs.values()]
        left_out = {*TRIED, *OBJECTIVE, *config.objective_settings}
        shared = shared_settings(config)
        key = [(name, str(shared[name])) for name in sorted(shared) if name not in left_out]
        keys = () if allow_mixed else tuple(sorted({str(run.environment["key"]) for run in runs}))
        groups.setdefault((answer.data_fingerprint, keys, *key), []).append(answer)
    return [arms for members in groups.values() if (arms := _beside_each_other(members))]


def objective_tables(answers: Sequence[Answer], *, allow_mixed: bool = False) -> list[Table]:
    """Return a table for each data set and model that was trained for several objectives.

    Args:
        allow_mixed: compare times of different environments too.
    """
    return [_table(arms) for arms in compare_objectives(answers, allow_mixed=allow_mixed)]


def _beside_each_other(answers: Sequence[Answer]) -> list[ObjectiveArm]:
    """Return the arms of some answers in order; none where one answer alone has timed arms."""
    able = [
        (answer, arm, arm.peak)
        for answer in answers
        for arm in answer.main
        if not arm.has_diverged and arm.peak is not None
    ]
    if len({id(answer) for answer, _, _ in able}) < 2:
        return []
    best = max(peak.recall for _, _, peak in able)
    levels = [share * best for share in LEVEL_SHARES]
    arms = []
    for answer, arm, peak in able:
        means = arm.means(TEST_RECALL)
        reached = [
            next((seconds for seconds, recall in means if recall >= level), None)
            for level in levels
        ]
        arms.append(ObjectiveArm(answer, arm, peak, levels, reached))
    return sorted(arms, key=_order)


def _order(each: ObjectiveArm) -> tuple[float, ...]:
    times = (math.inf if seconds is None else seconds for seconds in reversed(each.to_levels))
    return (*times, -each.peak.recall)


def _table(arms: Sequence[ObjectiveArm]) -> Table:
    first = arms[0].answer
    config = first.config
    cols = [
        Col("arm", lambda each: each.arm.name, wraps=True),
        Col("objective", _objective, wraps=True),
        *(
            Col(f"s to {level:.3f}", partial(_to_level, index), three_digits, absent="never")
            for index, level in enumerate(arms[0].levels)
        ),
        Col("best recall@50", _recall),
        Col("after s", lambda each: each.peak.seconds, three_digits),
    ]
    title = f"Recall by training time, over objectives: {config.dataset},"
    name = slug("objectives", config.dataset, config.encoder, first.data_fingerprint[:6])
    notes = [NOTE, *([FEATURES_NOTE] if any(each.arm.feature_seconds for each in arms) else [])]
    encoder = find_encoder(config.encoder).title
    return Table.of(f"{title} {encoder}", cols, arms, notes, name=name)


def _objective(each: ObjectiveArm) -> str:
    loss = find_loss(each.answer.config.loss).title
    return ", ".join(filter(None, [loss, each.answer.settings]))


def _to_level(index: int, each: ObjectiveArm) -> float | None:
    return each.to_levels[index]


def _recall(each: ObjectiveArm) -> str:
    recalls = each.peak.recalls
    spread = f" ({min(recalls):.3f} to {max(recalls):.3f})"
    return f"{each.peak.recall:.3f}{spread if len(recalls) > 1 else ''}"
