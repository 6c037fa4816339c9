"""Arms of different objectives in one table, by recall and training time."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.registry import find_encoder, find_loss
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.objectives import Field, Racer, find_fields
from ncfbench.reporting.table import Column, Table, slug, three_digits


def objective_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return a table for each data set and model that was trained for several objectives."""
    return [_table(field) for field in find_fields(answers)]


def _table(field: Field) -> Table:
    config = field.first.config
    header = [
        Column("arm", "left", wraps=True),
        Column("objective", "left", wraps=True),
        Column(f"s to {field.level:.3f}"),
        Column("best recall@50"),
        Column("after s"),
    ]
    rows = [
        [
            racer.contender.name,
            _objective(racer),
            three_digits(racer.to_level),
            f"{racer.recall:.3f}",
            three_digits(racer.seconds),
        ]
        for racer in field.racers
    ]
    notes = [
        "Objectives that differ have no probe in common. Seconds of training (full account) to the"
        f" first evaluation with a test recall@50 of {field.level:.3f}, which every arm reached,"
        " and to its best. Arms of different objectives did not take turns."
    ]
    return Table(
        f"Recall by training time, over objectives: {config.dataset},"
        f" {find_encoder(config.encoder).title}",
        header,
        rows,
        notes,
        name=slug("objectives", config.dataset, config.encoder, field.first.data_fingerprint[:6]),
    )


def _objective(racer: Racer) -> str:
    config = racer.answer.config
    parts = [find_loss(config.loss).title, racer.answer.settings]
    return ", ".join(filter(None, parts))
