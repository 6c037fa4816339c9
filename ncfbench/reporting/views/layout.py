"""The paper's layout of a table: rows by encoder and sampler, columns by data set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.catalog import (
    ENCODERS,
    LOSSES,
    SAMPLERS,
    find_encoder,
    find_loss,
    find_sampler,
    serves,
)
from ncfbench.reporting import table
from ncfbench.reporting.comparison import Comparison, label
from ncfbench.reporting.table import Cell, Table, sentence

Row = Mapping[str, Any]
Member = tuple[Comparison, Sequence[Row]]
"""A comparison with its rows."""
Render = Callable[[Row, bool], Cell]
"""Makes a cell of a row; the flag says that the row is the best of its column."""

STATUS_WORDS = {
    "missing": "no run",
    "not reached": "not reached",
    "no recall": "no recall",
    "no baseline": "no baseline",
    "no baseline of this seed": "no baseline",
    "no times": "no times",
    "different environment": "other machine",
    "diverged": "diverged",
    "not trained": "not trained",
}
"""Words that stand where a number is not there."""
INVALID = Cell("invalid", "muted")
INVALID_NOTE = "invalid: the sampler cannot train with this loss."


@dataclass(frozen=True)
class Column:
    """A column below each data set.

    Attributes:
        loss: the loss whose rows it shows.
        measure: the number whose largest value is the best; None where none is.
    """

    heading: str
    loss: str
    render: Render
    measure: str | None = None


def arrange(
    title: str,
    members: Sequence[Member],
    columns: Sequence[Column],
    notes: Sequence[str],
    *,
    name: str,
) -> Table:
    """Return a table with a row for each encoder, sampler and variant."""
    data = data_names(members)
    cells: dict[tuple[str, str, str], dict[tuple[str, str, str], Row]] = {}
    for comparison, member in members:
        for row in member:
            column_of = (*data_of(comparison), comparison.config.loss)
            own = cells.setdefault((row["encoder"], row["sampler"], row["variant"]), {})
            own[column_of] = row
    rows = []
    for key in sorted(cells, key=_order):
        encoder, sampler, variant = key
        shown = []
        for own_data in data:
            for column in columns:
                here = (*own_data, column.loss)
                found = cells[key].get(here)
                if found is None:
                    shown.append(_absent(sampler, variant, column.loss))
                    continue
                rivals = [
                    own[here]
                    for (other, _, _), own in cells.items()
                    if other == encoder and here in own
                ]
                best = column.measure is not None and _is_best(found, rivals, column.measure)
                shown.append(column.render(found, best))
        label = find_sampler(sampler).title + (f" ({variant})" if variant else "")
        rows.append([Cell(find_encoder(encoder).title), Cell(label), *shown])
    labels = {
        data[data_of(comparison)]: comparison.data_label
        for comparison, _ in members
        if comparison.data_label
    }
    header = [
        table.Column(each.heading, group=data_set) for data_set in data.values() for each in columns
    ]
    return Table(
        title,
        ["encoder", "sampler", *header],
        rows,
        [
            *(sentence(f"{data_set}: {text}") for data_set, text in labels.items()),
            *([INVALID_NOTE] if any(INVALID in row for row in rows) else []),
            *notes,
        ],
        labels=2,
        grouped=1,
        name=name,
    )


def by_table(
    comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]
) -> dict[tuple[str, str], list[Member]]:
    """Return the comparisons that share a table, by loss and unusual settings."""
    tables: dict[tuple[str, str], list[Member]] = {}
    for comparison, member in zip(comparisons, rows, strict=True):
        key = (comparison.config.loss, comparison.title())
        tables.setdefault(key, []).append((comparison, member))
    return tables


def by_settings(
    comparisons: Sequence[Comparison], rows: Sequence[Sequence[Row]]
) -> dict[str, list[Member]]:
    """Return the comparisons that share a table of all losses, by unusual settings."""
    tables: dict[str, list[Member]] = {}
    for (_, settings), members in by_table(comparisons, rows).items():
        tables.setdefault(settings, []).extend(members)
    return tables


def label_of(members: Sequence[Member]) -> str:
    """Return b, s, k, unusual settings and seeds of the comparisons of a table."""
    return label([comparison for comparison, _ in members])


def losses(members: Sequence[Member]) -> list[str]:
    """Return the losses of some comparisons in the catalog's order, plug-ins last."""
    present = {comparison.config.loss for comparison, _ in members}
    known = list(LOSSES)
    return sorted(
        present, key=lambda name: (known.index(name) if name in known else len(known), name)
    )


def data_of(comparison: Comparison) -> tuple[str, str]:
    """Return the name and the fingerprint of a comparison's data set."""
    return comparison.config.dataset, comparison.data_fingerprint


def data_names(members: Sequence[Member]) -> dict[tuple[str, str], str]:
    """Return a heading for each data set, with digits of the fingerprint where names collide."""
    unique = list(dict.fromkeys(data_of(comparison) for comparison, _ in members))
    names = [name for name, _ in unique]
    return {
        (name, digits): name if names.count(name) == 1 else f"{name} {digits[:6]}"
        for name, digits in unique
    }


def without_value(row: Row) -> Cell:
    """Return the word that says why there is no value."""
    return Cell(STATUS_WORDS.get(row["status"], "not measured"), "muted")


def _absent(sampler: str, variant: str, loss: str) -> Cell:
    """Return the word for an arm of which no row exists: it has no run, or cannot have one."""
    strata = "user" if "by user" in variant else "item"
    is_served = serves(find_sampler(sampler).with_strata(strata), find_loss(loss))
    return without_value({"status": "missing"}) if is_served else INVALID


def _order(key: tuple[str, str, str]) -> tuple[Any, ...]:
    """Return the sorting key of a row: catalog order, plug-ins last, ``s=2`` before ``s=16``."""
    encoder, sampler, variant = key
    known = {name: index for index, name in enumerate([*ENCODERS, *SAMPLERS])}
    settings = re.findall(r"([^0-9]+)([0-9]*)", variant)
    return (
        known.get(encoder, len(known)),
        encoder,
        known.get(sampler, len(known)),
        sampler,
        [(text, int(digits or 0)) for text, digits in settings],
    )


def _is_best(row: Row, rivals: Sequence[Row], measure: str) -> bool:
    """Return whether a row has the largest value of its encoder, data set and loss, or cannot be
    told from it.

    Ratios over different baselines, such as those of another k, do not compete.
    """
    against = _baseline_of(row, rivals)
    known = [
        other[measure]
        for other in rivals
        if other.get(measure) is not None and _baseline_of(other, rivals) == against
    ]
    is_largest = bool(known) and row.get(measure) == max(known)
    return is_largest or measure in row.get("tied", ())


def _baseline_of(row: Row, rows: Sequence[Row]) -> str | None:
    """Return the variant of the baseline that a row is divided by; None for recalls."""
    runs = set(row.get("baseline_runs") or ())
    return next(
        (
            other["variant"]
            for other in rows
            if other["status"] == "baseline" and runs & set(other["runs"])
        ),
        None,
    )
