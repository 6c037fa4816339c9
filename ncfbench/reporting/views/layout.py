"""The paper's layout of a table: rows by encoder and sampler, columns by data set; and the marks on
ratios of times, of runs that were not interleaved or on a busy machine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from ncfbench.catalog import (
    ENCODERS,
    LOSSES,
    SAMPLERS,
    find_encoder,
    find_loss,
    find_sampler,
    serves,
)
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.labels import data_headings, label, unusual_label
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.table import Cell, Col, Table, sentence
from ncfbench.runs.arms import sampler_label
from ncfbench.timing.speedups import BUSY_SPREAD

Row = Mapping[str, Any]
Render = Callable[[Row, bool], Cell]
"""Makes a cell of a row; the flag says that the row is the best of its column."""
Mark = Callable[[Row], str]
"""Returns the signs after a row's ratios of times."""
Arm = tuple[str, str, str]
"""Encoder, sampler and variant: a row of the table."""
Place = tuple[str, str, str]
"""Data set, its fingerprint, and loss."""

STATUS_WORDS = {
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


class TimeMark(NamedTuple):
    """A sign on the ratios of some rows, and the note that explains it."""

    sign: str
    applies: Callable[[Row], bool]
    note: str


SEPARATE = TimeMark(
    "†",
    lambda row: not row["interleaved"],
    "times of separate runs, not interleaved with the baseline's; all others are of interleaved"
    " runs.",
)
BUSY = TimeMark(
    "‡",
    lambda row: (row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD,
    f"the middle half of a run's own block times spans {100 * BUSY_SPREAD:.0f} % of their median"
    " or more: the machine was busy with something else, and the ratio is not to be quoted.",
)
SIMULATED_NOTE = (
    "Devices are SIMULATED by CPUs: losses, iterations and recall are those of real devices; times"
    " and their ratios are not, and say nothing of speed."
)


def arrange(
    title: str,
    comparisons: Sequence[Comparison],
    rows: Iterable[Row],
    columns: Sequence[Column],
    notes: Sequence[str],
    *,
    name: str,
) -> Table:
    """Return a table with a row for each encoder, sampler and variant of some comparisons' rows."""
    arms: dict[Arm, dict[Place, Row]] = {}
    for row in rows:
        arm = (row["encoder"], row["sampler"], row["variant"])
        place = (row["dataset"], row["data_fingerprint"], row["loss"])
        arms.setdefault(arm, {})[place] = row
    data = data_names(comparisons)
    cols = [
        Col("encoder", lambda arm: find_encoder(arm[0]).title),
        Col("sampler", lambda arm: sampler_label(arm[1], arm[2])),
    ]
    cols += [
        Col(column.heading, partial(_cell, arms, column, (*place, column.loss)), group=data_set)
        for place, data_set in data.items()
        for column in columns
    ]
    labels = {data[each.data]: each.runs[0].data_label for each in comparisons}
    above = [sentence(f"{data_set}: {text}") for data_set, text in labels.items() if text]
    table = Table.of(title, cols, sorted(arms, key=_order), labels=2, grouped=1, name=name)
    above += [INVALID_NOTE] if any(INVALID in row for row in table.rows) else []
    return replace(table, notes=(*above, *notes))


def _cell(arms: Mapping[Arm, Mapping[Place, Row]], column: Column, place: Place, arm: Arm) -> Cell:
    row = arms[arm].get(place)
    if row is None:
        return _absent(arm, column.loss)
    rivals = [rows[place] for other, rows in arms.items() if other[0] == arm[0] and place in rows]
    best = column.measure is not None and _is_best(row, rivals, column.measure)
    return column.render(row, best)


def marks(rows: Sequence[Row]) -> tuple[list[str], Mark]:
    """Return notes on the times of a speedup table, and the function that marks its rows."""
    divided = [
        row
        for row in rows
        if row.get("per_iteration_speedup") is not None and row["status"] != "baseline"
    ]
    notes = [SIMULATED_NOTE] if any(row.get("simulated") for row in rows) else []
    present = [each for each in (SEPARATE, BUSY) if any(map(each.applies, divided))]
    if divided and SEPARATE not in present:
        notes.append("Times are of interleaved runs.")
    elif divided and all(map(SEPARATE.applies, divided)):
        notes.append("Times are of separate runs, not interleaved.")
        present.remove(SEPARATE)  # it would stand in every row

    def mark(row: Row) -> str:
        signs = [each.sign for each in present if each.applies(row)]
        return f" {''.join(signs)}" if signs and row["status"] != "baseline" else ""

    return [*notes, *(f"{each.sign}: {each.note}" for each in present)], mark


def no_mark(row: Row) -> str:
    """Mark nothing: for ratios that no time decides."""
    return ""


def by_table(comparisons: Iterable[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """Return the comparisons that share a table, by loss and unusual settings."""
    return grouped(comparisons, lambda each: (each.config.loss, unusual_label(each.runs[0])))


def by_settings(comparisons: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Return the comparisons that share a table of all losses, by unusual settings."""
    by_loss = itertools.chain.from_iterable(by_table(comparisons).values())
    return grouped(by_loss, lambda each: unusual_label(each.runs[0]))


def label_of(comparisons: Iterable[Comparison]) -> str:
    """Return b, s, k, unusual settings and seeds of the runs of a table."""
    return label([run for each in comparisons for run in each.runs])


def losses(comparisons: Iterable[Comparison]) -> list[str]:
    """Return the losses of a table in the catalog's order, plug-ins last."""
    present = {each.config.loss for each in comparisons}
    return [*(name for name in LOSSES if name in present), *sorted(present - LOSSES.keys())]


def data_names(comparisons: Iterable[Comparison]) -> dict[tuple[str, str], str]:
    """Return a heading for each data set."""
    return data_headings(each.data for each in comparisons)


def without_value(row: Row) -> Cell:
    """Return the word that says why there is no value."""
    return Cell(STATUS_WORDS.get(row["status"], "not measured"), "muted")


def _absent(arm: Arm, loss: str) -> Cell:
    """Return the word for an arm of which no row exists: it has no run, or cannot have one."""
    _, sampler, variant = arm
    info = find_sampler(sampler).with_strata("user" if "by user" in variant else "item")
    return Cell("no run", "muted") if serves(info, find_loss(loss)) else INVALID


def _order(arm: Arm) -> tuple[Any, ...]:
    """Return the sorting key of a row: catalog order, plug-ins last, ``s=2`` before ``s=16``."""
    encoder, sampler, variant = arm
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
