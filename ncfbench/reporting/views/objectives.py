"""Arms of different objectives in one table, by recall and training time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ncfbench.catalog import find_encoder, find_loss
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.objectives import LEVEL_SHARES, ObjectiveArm, compare_objectives
from ncfbench.reporting.table import Col, Table, slug

NOTE = (
    "Objectives that differ have no probe in common. Seconds of training (full account; by a"
    " profile where runs were disturbed) to the first evaluations with"
    f" {' and '.join(f'{100 * share:.0f} %' for share in LEVEL_SHARES)} of the best"
    " test recall@50 of all arms, and to the arm's own best; in brackets the lowest and highest"
    " seed. Arms of different objectives did not take turns."
)


def objective_tables(answers: Sequence[Answer], *, allow_mixed: bool = False) -> list[Table]:
    """Return a table for each data set and model that was trained for several objectives.

    Args:
        allow_mixed: compare times of different environments too.
    """
    return [_table(arms) for arms in compare_objectives(answers, allow_mixed=allow_mixed)]


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
        Col("after s", "seconds", three_digits),
    ]
    title = f"Recall by training time, over objectives: {config.dataset},"
    name = slug("objectives", config.dataset, config.encoder, first.data_fingerprint[:6])
    encoder = find_encoder(config.encoder).title
    return Table.of(f"{title} {encoder}", cols, arms, [NOTE], name=name)


def _objective(each: ObjectiveArm) -> str:
    loss = find_loss(each.answer.config.loss).title
    return ", ".join(filter(None, [loss, each.answer.settings]))


def _to_level(index: int, each: ObjectiveArm) -> float | None:
    return each.to_levels[index]


def _recall(each: ObjectiveArm) -> str:
    spread = f" ({min(each.recalls):.3f} to {max(each.recalls):.3f})"
    return f"{each.recall:.3f}{spread if len(each.recalls) > 1 else ''}"
