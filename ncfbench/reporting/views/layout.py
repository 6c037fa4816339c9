"""The layout of the paper's tables: a row for each encoder and sampler, which rows are best, and
marks on ratios of times, of runs that were not interleaved or on a busy machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ncfbench.catalog import ENCODERS, SAMPLERS, find_encoder
from ncfbench.paper.printed import Measure
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.table import Cell, Col, Table, sentence
from ncfbench.runs.arms import sampler_label
from ncfbench.runs.labels import label, unusual_label
from ncfbench.statistics.speedups import BUSY_SPREAD

Row = Mapping[str, Any]
Printed = Callable[[Row, Measure], float | None]
"""Returns the figure that the paper printed beside a row's measure."""

STATUS_WORDS = {
    "no baseline of this seed": "no baseline",
    "different environment": "other machine",
    **dict.fromkeys(("reached", "baseline", "measured"), "not measured"),
}
"""Words of statuses that are not their own, where a number is not there."""
RIVALS = ("encoder", "loss", "baseline_variant")
"""Columns that rows share of which one is the best."""
SEPARATE, BUSY = "†", "‡"
NOTES = {
    SEPARATE: "†: times of separate runs, not interleaved with the baseline's.",
    BUSY: f"‡: the middle half of a run's own block times spans {100 * BUSY_SPREAD:.0f} % of their"
    " median or more: the machine was busy with something else, and the ratio is not to be quoted.",
}
"""Signs on ratios of times, and the notes that explain them."""
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


def mark_of(row: Row) -> str:
    """Return the signs behind a row's ratios of times."""
    if row["per_iteration_speedup"] is None or row["runs"] == row["baseline_runs"]:
        return ""
    is_busy = (row["full_iteration_spread"] or 0.0) >= BUSY_SPREAD
    signs = SEPARATE * (not row["interleaved"]) + BUSY * is_busy
    return f" {signs}" if signs else ""


def time_notes(rows: Sequence[Row]) -> list[str]:
    """Return notes on the times of a speedup table."""
    signs = "".join(map(mark_of, rows))
    notes = [SIMULATED_NOTE] * any(row["simulated"] for row in rows)
    return notes + [note for sign, note in NOTES.items() if sign in signs]


def arms_table(
    title: str, cols: Sequence[Col], rows: Iterable[Any], notes: Iterable[str], **more: str
) -> Table:
    """Return a table with a row for each arm, by encoder; see
    :meth:`ncfbench.reporting.table.Table.of`.
    """
    return Table.of(title, [*LABELS, *cols], rows, notes, labels=len(LABELS), grouped=1, **more)


def by_table(
    comparisons: Sequence[Comparison], *, of_all_losses: bool = False
) -> dict[tuple[str, ...], list[Comparison]]:
    """Return the comparisons that share a table, by data set, loss unless a table has all, and
    unusual settings with the profile that gives times. The name of a data set has digits of its
    fingerprint where it stands for several.
    """
    data = dict.fromkeys(each.data for each in comparisons)
    counts = Counter(name for name, _ in data)

    def key(each: Comparison) -> tuple[str, ...]:
        settings = ", ".join(filter(None, (unusual_label(each.runs[0]), each.timed_by)))
        name, fingerprint = each.data
        heading = name if counts[name] == 1 else f"{name} {fingerprint[:6]}"
        return (heading, *([] if of_all_losses else [each.config.loss]), settings)

    return grouped(comparisons, key)


def subject_of(name: str, comparisons: Sequence[Comparison]) -> str:
    """Return the data set by its name, b, s, k, unusual settings and seeds of a table's runs."""
    return f"{name}, {label([run for each in comparisons for run in each.runs])}"


def data_notes(name: str, comparisons: Sequence[Comparison]) -> list[str]:
    """Return what the data are, of a stand-in."""
    labels = dict.fromkeys(each.runs[0].data_label for each in comparisons)
    return [sentence(f"{name}: {text}") for text in labels if text]


def without_value(row: Row) -> Cell:
    """Return the word that says why there is no value."""
    status = str(row["status"])
    return Cell(STATUS_WORDS.get(status, status), "muted")


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


def best_of(rows: Sequence[Row], measure: str) -> set[int]:
    """Return the identities of the rows with the largest value of their encoder, loss and baseline,
    and of those that cannot be told from it.
    """
    known = [row for row in rows if row.get(measure) is not None]
    rivals = grouped(known, lambda row: tuple(row.get(name) for name in RIVALS))
    largest = {key: max(row[measure] for row in own) for key, own in rivals.items()}
    best = [row for key, own in rivals.items() for row in own if row[measure] == largest[key]]
    return {id(row) for row in [*best, *(row for row in known if measure in row.get("tied", ()))]}
