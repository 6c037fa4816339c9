"""Tables of the compared runs: speedups, what they are made of and recall."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ncfbench.catalog import find_encoder, find_loss, find_sampler, serves
from ncfbench.paper.printed import RECALL, Measure
from ncfbench.reporting.formats import counted, three_digits
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.quality import ERROR
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.table import Cell, Col, Table, sentence, slug
from ncfbench.reporting.views.layout import (
    BUSY,
    LABELS,
    SIMULATED_NOTE,
    Mark,
    Row,
    arms_table,
    best_of,
    by_settings,
    by_table,
    data_notes,
    losses,
    marks,
    no_mark,
    order,
    sampler_of,
    subject_of,
    without_value,
)
from ncfbench.runs.quality import CERTAIN
from ncfbench.timing.ranking import ONE_SEED_FACTOR

INTERVAL_NOTE = (
    "[..]: 95 % interval over seeds, arm and baseline paired by seed; n: seeds. With one seed there"
    " is no interval."
)
CENSORED_NOTE = (
    "<: some seed never came down to the reference loss, so the ratio is at most this; (seeds that"
    " did)."
)
RECALL_NOTE = f"{ERROR}, whose number is in brackets."
KINDS_NOTE = "Links to new and to known items count alike; the answers tell them apart."
WITHOUT_ERROR = "Without ±: some run has no error."
TIES_NOTE = (
    "Bold: the best, and what cannot be told from it by paired differences over seeds; with one"
    f" seed, what is nearer than a factor of {ONE_SEED_FACTOR:.1f}."
)
RECALL_TIES_NOTE = (
    "Bold: the best, and what cannot be told from it by paired differences over seeds; with one"
    " seed, over users and items, if the runs kept their evaluations."
)
SPEEDUPS: tuple[tuple[str, Measure, bool], ...] = (
    ("per it.", "per_iteration_speedup", True),
    ("# of it.", "iterations_speedup", False),
    ("total", "total_speedup", True),
)
"""The paper's three columns: heading, measure, and whether times decide it."""
INVALID = Cell("invalid", "muted")
INVALID_NOTE = "invalid: the sampler cannot train with this loss."
NO_BASELINE = ("no baseline", "no baseline of this seed")
"""Statuses of rows without any ratio: a table of nothing else is left out."""


def speedup_tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """Return a speedup table for each data set, loss and choice of settings that have a baseline,
    above it who is soonest.
    """
    tables = []
    for (data, loss, settings), own in by_table(comparisons).items():
        rows = [row for each in own for row in each.speedups]
        if all(row["status"] in NO_BASELINE for row in rows):
            continue
        times, mark = marks(rows)
        cols = []
        for heading, measure, is_timed in SPEEDUPS:
            render = partial(_speedup, measure, mark if is_timed else no_mark)
            cols.append(Col(heading, partial(render, best_of(rows, measure))))
        cols.append(Col("n", lambda row: row.get("seeds") or 0))
        notes = [*data_notes(data, own), _reference_note(own), *_untrained_notes(own)]
        notes += [INTERVAL_NOTE, TIES_NOTE]
        notes += [CENSORED_NOTE] * any(row["status"] == "not reached" for row in rows)
        notes += times
        if any(row.get("same_environment") is False for row in rows):
            notes.append("Some times are of different machines.")
        over = find_sampler(own[0].runs[0].baseline_sampler).title
        title = f"Speedup over {over}, {find_loss(loss).title} loss: {subject_of(data, own)}"
        lead = " ".join(filter(None, map(_soonest, own)))
        name = slug("speedup", data, loss, settings)
        tables.append(arms_table(title, cols, rows, notes, name=name, lead=lead))
    return tables


def parts_tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """Return what the ratios of each speedup table are made of."""
    cols = [Col(heading, render) for heading, render in PARTS.items()]
    return [
        arms_table(
            f"What the ratios are made of, {find_loss(loss).title} loss: {subject_of(data, own)}"
            " (full account; step beside it)",
            cols,
            [row for each in own for row in each.speedups],
            _by_row_notes(own),
            name=slug("parts", data, loss, settings),
        )
        for (data, loss, settings), own in by_table(comparisons).items()
    ]


def recall_tables(comparisons: Sequence[Comparison]) -> list[Table]:
    """Return a recall table of all losses for each data set and choice of other settings."""
    tables = []
    for (data, settings), own in by_settings(comparisons).items():
        rows = [row for each in own for row in each.recalls]
        known = [row for row in rows if row.get("reported_epoch") is not None]
        epochs = {f"{row['reported_epoch']:.3g}" for row in known}
        notes = [*data_notes(data, own), RECALL_NOTE]
        is_simulated = any(run.is_simulated for each in own for run in each.runs)
        notes += [SIMULATED_NOTE] * is_simulated
        if any((row.get(f"{RECALL}_chance") or 0) >= 1 for row in rows):
            notes.append(f"{CERTAIN[0].upper()}{CERTAIN[1:]}")
        if any(row.get(RECALL) is not None and row.get(f"{RECALL}_error") is None for row in rows):
            notes.append(WITHOUT_ERROR)
        notes.append(RECALL_TIES_NOTE)
        reasons = sorted({str(row["reason"]) for row in rows if row.get("reason")})
        notes += [sentence(f"No recall: {reason}") for reason in reasons]
        notes += [_epochs_note(epochs)]
        is_known = any(row.get(f"{RECALL}_known_items") is not None for row in rows)
        kind = "test links" if is_known else "cold test items"
        has_new = any(row.get(f"{RECALL}_new_items") is not None for row in rows)
        notes += [KINDS_NOTE] if is_known and has_new else []
        title = f"Recall@50 on {kind}: {subject_of(data, own)}"
        render = partial(_recall, len(epochs) > 1)
        name = slug("recall", data, settings)
        tables.append(by_loss(title, own, rows, render, notes, name=name))
    return tables


def by_loss(
    title: str,
    comparisons: Sequence[Comparison],
    rows: Sequence[Row],
    render: Callable[[Sequence[Row], Row], Cell],
    notes: Sequence[str],
    *,
    name: str,
) -> Table:
    """Return a table of recalls, with a column for each loss.

    Args:
        rows: of all losses.
        render: makes a cell of the best rows and its own row.
    """
    arms = grouped(
        sorted(rows, key=order), lambda row: (row["encoder"], row["sampler"], row["variant"])
    )
    best = best_of(rows, RECALL)
    cols = [Col(col.heading, partial(_label, col)) for col in LABELS]
    for loss in losses(comparisons):
        cols.append(Col(find_loss(loss).title, partial(_of_loss, loss, partial(render, best))))
    table = Table.of(title, cols, [*arms.values()], notes, labels=len(LABELS), grouped=1, name=name)
    is_invalid = any(INVALID in row for row in table.rows)
    return replace(table, notes=(*[INVALID_NOTE] * is_invalid, *table.notes))


def _soonest(comparison: Comparison) -> str:
    """Return which arm comes down to its baseline's smallest loss soonest; nothing where none has a
    ratio of times that its machine does not disturb.
    """
    mark = marks(comparison.speedups)[1]
    rows = [row for row in comparison.speedups if row.get("total_speedup") is not None]
    rows = [row for row in rows if BUSY.sign not in mark(row)]
    if len(rows) < 2:
        return ""
    best = max(rows, key=lambda row: float(row["total_speedup"]))
    where = f"{comparison.config.dataset}, {find_encoder(comparison.config.encoder).title}"
    label, baseline = sampler_of(best), find_sampler(best["baseline"]).title
    if best["status"] == "baseline":
        return f"{where}: none is sooner than {label}."
    ends = [best[f"total_speedup_{end}"] for end in ("lower", "upper")]
    interval = "" if None in ends else f"95 %: {ends[0]:.3g} to {ends[1]:.3g}, "
    ties = [sampler_of(row) for row in rows if row is not best and "total_speedup" in row["tied"]]
    return (
        f"{where}: {label} comes down to the smallest loss of {baseline}"
        f" {three_digits(best['total_speedup'])} times sooner"
        f" ({interval}{counted(best['seeds'], 'seed')})"
        f"{'; tied with it: ' if ties else ''}{', '.join(ties)}."
    )


def _reference_note(comparisons: Sequence[Comparison]) -> str:
    parts = []
    for each in comparisons:
        own = [row for row in each.speedups if row["status"] == "baseline"]
        info = find_encoder(each.config.encoder)
        for row in own:
            which = f" {row['variant'] or f'k={info.negatives}'}" if len(own) > 1 else ""
            parts.append(f"{info.title}{which}: {row['reference_loss']:.4f}")
    known = "; ".join(parts) or "none: no baseline has trained"
    return f"Reference loss (smallest probe of the baseline, mean over seeds): {known}."


def _untrained_notes(comparisons: Sequence[Comparison]) -> list[str]:
    reasons = [
        f"No ratio, {find_encoder(row['encoder']).title}: {row['reason']}"
        for each in comparisons
        for row in each.speedups
        if row["status"] in ("not trained", "no baseline") and row.get("reason")
    ]
    return list(dict.fromkeys(reasons))


def _epochs_note(epochs: set[str]) -> str:
    if len(epochs) < 2:
        return f"At epoch {epochs.pop()}." if epochs else "No epoch was evaluated."
    return "@: the reported epoch, mean over seeds."


def _by_row_notes(comparisons: Sequence[Comparison]) -> list[str]:
    notes = [
        f"{find_encoder(run.config.encoder).title}: updated by row (docs/optimizers.md):"
        f" {', '.join(tables)}."
        for each in comparisons
        for run in each.runs
        if (tables := run.environment.get("updated_by_row"))
    ]
    return list(dict.fromkeys(notes))


def _speedup(measure: str, mark: Mark, best: Sequence[Row], row: Row) -> Cell:
    """Return the cell of a ratio.

    Args:
        mark: of ratios of times; :func:`no_mark` of iterations, which no machine decides.
    """
    value, at_most = row.get(measure), row.get(f"{measure}_at_most")
    if value is None:
        if at_most is None:
            return without_value(row)
        reached = f"({row['seeds_reached']}/{row['seeds']})"
        return Cell(f"< {at_most:.2f} {reached}{mark(row)}", "muted")
    text, lower, upper = f"{value:.2f}", row.get(f"{measure}_lower"), row.get(f"{measure}_upper")
    if lower is not None and upper is not None and row["status"] != "baseline":
        text += f" [{lower:.2f}, {upper:.2f}]"
    signs = mark(row)
    is_best = any(row is each for each in best) and BUSY.sign not in signs
    return Cell(text + signs, "best" if is_best else "plain")


def _recall(has_epoch: bool, best: Sequence[Row], row: Row) -> Cell:
    value, error = row.get(RECALL), row.get(f"{RECALL}_error")
    if value is None:
        return without_value(row)
    text = f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")
    text += f" ({row['seeds']})" if row["seeds"] > 1 else ""
    text += f" @{row['reported_epoch']:.3g}" if has_epoch else ""
    return Cell(text, "best" if any(row is each for each in best) else "plain")


def _label(col: Col, rows: Sequence[Row]) -> Cell:
    return col.cell(rows[0])


def _of_loss(loss: str, render: Callable[[Row], Cell], rows: Sequence[Row]) -> Cell:
    """Return the cell of an arm's row of a loss, or why it has none."""
    row = next((row for row in rows if row["loss"] == loss), None)
    if row is not None:
        return render(row)
    strata = "user" if "by user" in rows[0]["variant"] else "item"
    info = find_sampler(rows[0]["sampler"]).with_strata(strata)
    return Cell("no run", "muted") if serves(info, find_loss(loss)) else INVALID


def _full_over_step(row: Row) -> Cell:
    full, step = row.get("full_iteration_seconds"), row.get("step_iteration_seconds")
    return Cell(f"{full / step:.2f}") if full and step else without_value(row)


def _number(column: str, digits: int, scale: float = 1) -> Callable[[Row], Cell]:
    def render(row: Row) -> Cell:
        value = row.get(column)
        if value is not None:
            return Cell(f"{value * scale:,.{digits}f}")
        return Cell("never", "muted") if row["status"] == "not reached" else without_value(row)

    return render


PARTS: Mapping[str, Callable[[Row], Cell]] = {
    "items": _number("item_slots", 0),
    "full ms": _number("full_iteration_seconds", 2, 1e3),
    "step ms": _number("step_iteration_seconds", 2, 1e3),
    "full/step": _full_over_step,
    "step x": _number("step_per_iteration_speedup", 2),
    "it. to ref.": _number("iterations_to_reference", 0),
    "s to ref.": _number("seconds_to_reference", 1),
}
"""Columns of what the ratios are made of."""
