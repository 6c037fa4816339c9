"""Tables of the compared runs in the layout of the paper's: a row for each encoder and sampler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
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
from ncfbench.paper.printed import RECALL, Measure
from ncfbench.reporting.formats import counted, three_digits
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.quality import ERROR
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.table import Cell, Col, Table, sentence, slug
from ncfbench.runs.arms import sampler_label
from ncfbench.runs.labels import label, unusual_label
from ncfbench.runs.quality import CERTAIN
from ncfbench.statistics.intervals import LOSS_SPREAD
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
INTERVAL_NOTE = (
    "[..]: 95 % interval over seeds, arm and baseline paired by seed; n: seeds. With one seed there"
    " is no interval."
)
PROFILE_NOTE = (
    "[..]: 95 % interval, of times over the profile's rounds, of iterations over seeds, of totals"
    " as if both were independent; n: seeds."
)
CENSORED_NOTE = (
    "<: some seed never came down to the reference loss, so the ratio is at most this; (seeds that"
    " did)."
)
TIES_NOTE = (
    "Bold: the best, and what cannot be told from it by paired differences over seeds; with one"
    " seed, what is nearer than a factor of {factor:.1f}."
)
RECALL_TIES_NOTE = (
    "Bold: the best, and what cannot be told from it by paired differences over seeds; with one"
    " seed, over users and items, if the runs kept their evaluations."
)
SPEEDUPS: tuple[tuple[str, Measure], ...] = (
    ("per it.", "per_iteration_speedup"),
    ("# of it.", "iterations_speedup"),
    ("total", "total_speedup"),
)
"""The paper's three columns: heading and measure."""
INVALID = Cell("invalid", "muted")
NO_BASELINE = ("no baseline", "no baseline of this seed")
"""Statuses of rows without any ratio: a table of nothing else is left out."""


def speedup_tables(
    comparisons: Sequence[Comparison], printed: Printed | None = None, note: str = ""
) -> list[Table]:
    """Return a speedup table for each data set, loss and choice of settings that have a baseline,
    above it who is soonest.

    Args:
        printed: gives the paper's figures, which then stand in brackets in place of intervals.
        note: on these.
    """
    tables = []
    for (data, loss, settings), own in by_table(comparisons).items():
        rows = sorted((row for each in own for row in each.speedups), key=order)
        if all(row["status"] in NO_BASELINE for row in rows):
            continue
        cols = [
            Col(heading, partial(_speedup, measure, best_of(rows, measure), printed))
            for heading, measure in SPEEDUPS
        ]
        if printed is None:
            cols.append(Col("n", lambda row: row.get("seeds") or 0))
            intervals = PROFILE_NOTE if own[0].timed_by else INTERVAL_NOTE
            notes = [*_reference_notes(own), intervals]
            notes.append(TIES_NOTE.format(factor=LOSS_SPREAD.factor))
            notes += [CENSORED_NOTE] * any(row["status"] == "not reached" for row in rows)
            over = find_sampler(own[0].runs[0].baseline_sampler).title
            times = f" with times of a {own[0].timed_by}" if own[0].timed_by else ""
            what, name = f"Speedup over {over}{times}", "speedup"
            lead = " ".join(filter(None, map(_soonest, own)))
        else:
            what, name, lead, notes = "Speedup beside the paper's", "paper-speedup", "", [note]
        title = f"{what}, {find_loss(loss).title} loss: {subject_of(data, own)}"
        name = slug(name, data, loss, settings)
        notes += time_notes(rows)
        tables.append(arms_table(title, cols, rows, notes, name=name, lead=lead))
    return tables


def recall_tables(
    comparisons: Sequence[Comparison], printed: Printed | None = None, note: str = ""
) -> list[Table]:
    """Return a recall table of all losses for each data set and choice of other settings.

    Args:
        printed, note: as for :func:`speedup_tables`.
    """
    tables = []
    for (data, settings), own in by_table(comparisons, of_all_losses=True).items():
        rows = sorted((row for each in own for row in each.recalls), key=order)
        epochs = {f"{at:.3g}" for row in rows if (at := row.get("reported_epoch")) is not None}
        is_known = any(row.get(f"{RECALL}_known_items") is not None for row in rows)
        kind = "test links" if is_known else "cold test items"
        notes, what, name = _recall_notes(own, rows, epochs), f"Recall@50 on {kind}", "recall"
        if printed is not None:
            notes, what, name = [note], "Recall@50 beside the paper's", "paper-recall"
        present = {each.config.loss for each in own}
        losses = [*(one for one in LOSSES if one in present), *sorted(present - LOSSES.keys())]
        render = partial(_recall, len(epochs) > 1, best_of(rows, RECALL), printed)
        cols = [Col(find_loss(loss).title, partial(_of_loss, loss, render)) for loss in losses]
        of_arms = grouped(rows, lambda row: (row["encoder"], row["sampler"], row["variant"]))
        arms = [of[0] | {"losses": {row["loss"]: row for row in of}} for of in of_arms.values()]
        if any(col.cell(arm) == INVALID for col in cols for arm in arms):
            notes = ["invalid: the sampler cannot train with this loss.", *notes]
        title, name = f"{what}: {subject_of(data, own)}", slug(name, data, settings)
        tables.append(arms_table(title, cols, arms, notes, name=name))
    return tables


def _recall_notes(
    own: Sequence[Comparison], rows: Sequence[Row], epochs: Collection[str]
) -> list[str]:
    """Return the notes of a recall table."""
    notes = [f"{ERROR}, whose number is in brackets."]
    notes += [SIMULATED_NOTE] * any(run.is_simulated for each in own for run in each.runs)
    if any((row.get(f"{RECALL}_chance") or 0) >= 1 for row in rows):
        notes.append(f"{CERTAIN[0].upper()}{CERTAIN[1:]}")
    notes.append(RECALL_TIES_NOTE)
    reasons = sorted({str(row["reason"]) for row in rows if row.get("reason")})
    notes += [sentence(f"No recall: {reason}") for reason in reasons]
    at = f"At epoch {', '.join(epochs)}." if epochs else "No epoch was evaluated."
    notes.append(at if len(epochs) < 2 else "@: the reported epoch, mean over seeds.")
    if any(row.get(f"{RECALL}_new_items") is not None for row in rows):
        notes.append("Links to new and to known items count alike; the answers tell them apart.")
    return notes


def _soonest(comparison: Comparison) -> str:
    """Return which arm comes down to its baseline's smallest loss soonest; nothing where none has a
    ratio of times that its machine does not disturb.
    """
    rows = [row for row in comparison.speedups if row.get("total_speedup") is not None]
    rows = [row for row in rows if BUSY not in mark_of(row)]
    if len(rows) < 2:
        return ""
    best = max(rows, key=lambda row: float(row["total_speedup"]))
    where = f"{comparison.config.dataset}, {find_encoder(comparison.config.encoder).title}"
    label, baseline = sampler_of(best), find_sampler(best["baseline"]).title
    if best["status"] == "baseline":
        return f"{where}: none is sooner than {label}."
    ends = [best[f"total_speedup_{end}"] for end in ("lower", "upper")]
    interval = "" if None in ends else f"95 %: {ends[0]:.3g} to {ends[1]:.3g}, "
    tied = [
        sampler_of(row)
        for row in rows
        if "total_speedup" in row["tied"] and row["baseline_variant"] == best["baseline_variant"]
    ]
    others = ", ".join(name for name in tied if name != label)
    return (
        f"{where}: {label} comes down to the smallest loss of {baseline}"
        f" {three_digits(best['total_speedup'])} times sooner"
        f" ({interval}{counted(best['seeds'], 'seed')}){'; tied with it: ' if others else ''}"
        f"{others}."
    )


def _reference_notes(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the reference losses, and why some baseline gives none."""
    parts, reasons = [], dict[str, None]()
    for each in comparisons:
        title, k = (
            find_encoder(each.config.encoder).title,
            find_encoder(each.config.encoder).negatives,
        )
        own = [row for row in each.speedups if row["status"] == "baseline"]
        for row in own:
            which = f" {row['variant'] or f'k={k}'}" if len(own) > 1 else ""
            parts.append(f"{title}{which}: {row['reference_loss']:.4f}")
        for row in each.speedups:
            if row["status"] in ("not trained", "no baseline") and row.get("reason"):
                reasons[f"No ratio, {title}: {row['reason']}"] = None
    known = "; ".join(parts) or "none: no baseline has trained"
    note = f"Reference loss (smallest probe of the baseline, mean over seeds): {known}."
    return [note, *reasons]


def _speedup(measure: Measure, best: Collection[int], printed: Printed | None, row: Row) -> Cell:
    """Return the cell of a ratio; no machine decides that of iterations, which has no marks."""
    value, at_most = row.get(measure), row.get(f"{measure}_at_most")
    signs = "" if measure == "iterations_speedup" else mark_of(row)
    theirs = "" if printed is None else _in_brackets(printed(row, measure), 2)
    if value is None and at_most is None:
        own = without_value(row)
        return Cell(own.text + theirs, own.style)
    if value is None:
        reached = theirs if printed else f" ({row['seeds_reached']}/{row['seeds']})"
        return Cell(f"< {at_most:.2f}{reached}{signs}", "muted")
    text, lower, upper = f"{value:.2f}", row.get(f"{measure}_lower"), row.get(f"{measure}_upper")
    if lower is not None and not printed and row["status"] != "baseline":
        text += f" [{lower:.2f}, {upper:.2f}]"
    is_best = id(row) in best and BUSY not in signs
    return Cell(f"{text}{theirs}{signs}", "best" if is_best else "plain")


def _recall(has_epoch: bool, best: Collection[int], printed: Printed | None, row: Row) -> Cell:
    value, error = row.get(RECALL), row.get(f"{RECALL}_error")
    theirs = "" if printed is None else _in_brackets(printed(row, RECALL), 4)
    if value is None:
        own = without_value(row)
        return Cell(own.text + theirs, own.style)
    text = f"{value:.4f}"
    if printed is None:
        text += "" if error is None else f" ± {error:.4f}"
        text += f" ({row['seeds']})" if row["seeds"] > 1 else ""
        text += f" @{row['reported_epoch']:.3g}" if has_epoch else ""
    return Cell(text + theirs, "best" if id(row) in best else "plain")


def _in_brackets(value: float | None, digits: int) -> str:
    return "" if value is None else f" ({value:.{digits}f})"


def _of_loss(loss: str, render: Callable[[Row], Cell], arm: Row) -> Cell:
    """Return the cell of an arm's row of a loss, or why it has none."""
    if loss in arm["losses"]:
        return render(arm["losses"][loss])
    strata = "user" if "by user" in arm["variant"] else "item"
    info = find_sampler(arm["sampler"]).with_strata(strata)
    return Cell("no run", "muted") if serves(info, find_loss(loss)) else INVALID


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
