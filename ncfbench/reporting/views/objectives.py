"""Arms of different objectives in one table, by recall and training time."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.catalog import find_encoder, find_loss
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.objectives import LEVEL_SHARES, Field, Racer, find_fields
from ncfbench.reporting.table import Column, Table, slug, three_digits


def objective_tables(answers: Sequence[Answer], *, allow_mixed: bool = False) -> list[Table]:
    """Return a table for each data set and model that was trained for several objectives.

    Args:
        allow_mixed: compare times of different environments too.
    """
    return [_table(field) for field in find_fields(answers, allow_mixed=allow_mixed)]


def _table(field: Field) -> Table:
    config = field.first.config
    header = [
        Column("arm", "left", wraps=True),
        Column("objective", "left", wraps=True),
        *(Column(f"s to {level:.3f}") for level in field.levels),
        Column("best recall@50"),
        Column("after s"),
    ]
    rows = [
        [
            racer.contender.name,
            _objective(racer),
            *("never" if each is None else three_digits(each) for each in racer.to_levels),
            f"{racer.recall:.3f}{_range(racer)}",
            three_digits(racer.seconds),
        ]
        for racer in field.racers
    ]
    shares = " and ".join(f"{100 * share:.0f} %" for share in LEVEL_SHARES)
    notes = [
        "Objectives that differ have no probe in common. Seconds of training (full account; by a"
        f" profile where runs were disturbed) to the first evaluations with {shares} of the best"
        " test recall@50 of all arms, and to the arm's own best; in brackets the lowest and highest"
        " seed. Arms of different objectives did not take turns."
    ]
    return Table(
        f"Recall by training time, over objectives: {config.dataset},"
        f" {find_encoder(config.encoder).title}",
        header,
        rows,
        notes,
        name=slug("objectives", config.dataset, config.encoder, field.first.data_fingerprint[:6]),
    )


def _range(racer: Racer) -> str:
    if len(racer.recalls) == 1:
        return ""
    return f" ({min(racer.recalls):.3f} to {max(racer.recalls):.3f})"


def _objective(racer: Racer) -> str:
    config = racer.answer.config
    parts = [find_loss(config.loss).title, racer.answer.settings]
    return ", ".join(filter(None, parts))
