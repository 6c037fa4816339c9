"""The layout of the paper's tables: a row for each encoder and sampler, which rows are best, and
marks on ratios of times, of runs that were not interleaved or on a busy machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ncfbench.catalog import ENCODERS, LOSSES, SAMPLERS, find_encoder
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.labels import data_headings, label, unusual_label
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.table import Cell, Col, Table, sentence
from ncfbench.runs.arms import sampler_label
from ncfbench.timing.speedups import BUSY_SPREAD

Row = Mapping[str, Any]
Mark = Callable[[Row], str]
"""Returns the signs after a row's ratios of times."""

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


def sampler_of(row: Row) -> str:
    """Return a row's sampler with its variant."""
    return sampler_label(row["sampler"], row["variant"])


LABELS = (
    Col("encoder", lambda row: find_encoder(row["encoder"]).title),
    Col("sampler", sampler_of),
)
"""Columns that name a row."""


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


def arms_table(
    title: str, cols: Sequence[Col], rows: Iterable[Row], notes: Iterable[str], **more: str
) -> Table:
    """Return a table with a row for each arm, by encoder, in the paper's order.

    Args:
        more: ``name`` and ``lead`` of :meth:`ncfbench.reporting.table.Table.of`.
    """
    ordered, labels = sorted(rows, key=order), len(LABELS)
    return Table.of(title, [*LABELS, *cols], ordered, notes, labels=labels, grouped=1, **more)


def by_table(comparisons: Sequence[Comparison]) -> dict[tuple[str, str, str], list[Comparison]]:
    """Return the comparisons that share a table, by data set, loss and unusual settings."""
    names = data_names(comparisons)
    return grouped(
        comparisons,
        lambda each: (names[each.data], each.config.loss, unusual_label(each.runs[0])),
    )


def by_settings(comparisons: Sequence[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """Return the comparisons that share a table of all losses, by data set and unusual settings."""
    names = data_names(comparisons)
    return grouped(comparisons, lambda each: (names[each.data], unusual_label(each.runs[0])))


def subject_of(name: str, comparisons: Sequence[Comparison]) -> str:
    """Return the data set, b, s, k, unusual settings and seeds of the runs of a table.

    Args:
        name: of the data set.
    """
    return f"{name}, {label([run for each in comparisons for run in each.runs])}"


def data_notes(name: str, comparisons: Sequence[Comparison]) -> list[str]:
    """Return what the data are, of a stand-in."""
    labels = dict.fromkeys(each.runs[0].data_label for each in comparisons)
    return [sentence(f"{name}: {text}") for text in labels if text]


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


def order(row: Row) -> tuple[Any, ...]:
    """Return the sorting key of a row: catalog order, plug-ins last, ``s=2`` before ``s=16``."""
    encoder, sampler, variant = (row[name] for name in ("encoder", "sampler", "variant"))
    known = {name: index for index, name in enumerate([*ENCODERS, *SAMPLERS])}
    settings = re.findall(r"([^0-9]+)([0-9]*)", variant)
    return (
        known.get(encoder, len(known)),
        encoder,
        known.get(sampler, len(known)),
        sampler,
        [(text, int(digits or 0)) for text, digits in settings],
    )


def best_of(rows: Sequence[Row], measure: str) -> list[Row]:
    """Return the rows with the largest value of their encoder and loss, and those that cannot be
    told from it.
    """
    rivals = grouped(rows, lambda row: (row["encoder"], row["loss"]))
    return [row for own in rivals.values() for row in own if _is_best(row, own, measure)]


def _is_best(row: Row, rivals: Sequence[Row], measure: str) -> bool:
    """Return whether a row has the largest value of some rows, or cannot be told from it.

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
