"""Tables of the paper's claims, judged by our runs, and of our figures beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ncfbench.catalog import find_loss
from ncfbench.paper import printed
from ncfbench.paper.printed import RECALL, SPEEDUP_LOSS, Measure, PrintedCell
from ncfbench.reporting.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED, ClaimVerdict
from ncfbench.reporting.frames import by_variant
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.table import Cell, Col, Style, Table, slug
from ncfbench.reporting.tied import tied_recalls, tied_speedups
from ncfbench.reporting.views.layout import (
    Mark,
    Row,
    arms_table,
    best_of,
    by_settings,
    by_table,
    marks,
    no_mark,
    subject_of,
    without_value,
)
from ncfbench.reporting.views.results import SPEEDUPS, by_loss

BRACKETS_NOTE = (
    "In brackets the printed value. Text, data, settings and hardware may not be the paper's."
)
CLAIMS_NOTE = (
    "Reproduced: the whole 95 % interval agrees with the claim. Not reproduced: the whole interval"
    " contradicts it. Undecided: neither; one seed alone decides no ratio."
)
HARDWARE_NOTE = "Every per-iteration and total ratio depends on hardware, which is not the paper's."
STYLES: Mapping[str, Style] = {REPRODUCED: "good", NOT_REPRODUCED: "bad", UNDECIDED: "open"}
"""Styles of verdicts on claims."""


def beside_tables(
    comparisons: Sequence[Comparison], manifests: Mapping[str, Mapping[str, Any]]
) -> list[Table]:
    """Return speedups and recalls beside the printed ones, as far as the paper printed any; none
    over a chosen baseline.

    Args:
        manifests: of data sets, by fingerprint. Their source says which of the paper's they are;
            of data without one the name does.
    """
    sources = {
        each.data: str(manifests.get(each.data[1], {}).get("source", each.data[0]))
        for each in comparisons
    }
    covered = {(cell.dataset, cell.encoder, cell.loss) for cell in printed.values()}
    chosen = [
        each
        for each in comparisons
        if (sources[each.data], each.config.encoder, each.config.loss) in covered
        and not each.runs[0].chosen_baseline
    ]
    tables = []
    for (data, loss, settings), own in by_table(chosen).items():
        if loss != SPEEDUP_LOSS:
            continue
        rows = [row for each in own for row in _main_rows(each, each.speedups)]
        times, mark = marks(rows)
        cols = []
        for heading, measure, is_timed in SPEEDUPS:
            render = partial(_beside, sources, measure, mark if is_timed else no_mark)
            cols.append(Col(heading, partial(render, best_of(rows, measure))))
        what = f"Speedup beside the paper's, {find_loss(loss).title} loss"
        title, name = (
            f"{what}: {subject_of(data, own)}",
            slug("paper-speedup", data, loss, settings),
        )
        notes = [f"{BRACKETS_NOTE} {HARDWARE_NOTE}", *times]
        tables.append(arms_table(title, cols, rows, notes, name=name))
    for (data, settings), own in by_settings(chosen).items():
        rows = [row for each in own for row in _main_rows(each, each.recalls)]
        render = partial(_beside, sources, RECALL, no_mark)
        title = f"Recall@50 beside the paper's: {subject_of(data, own)}"
        name = slug("paper-recall", data, settings)
        tables.append(by_loss(title, own, rows, render, [BRACKETS_NOTE], name=name))
    return tables


def _main_rows(comparison: Comparison, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of arms with the paper's settings; ties are taken among these alone."""
    encoder = comparison.config.encoder
    arms = by_variant(comparison.runs)
    main = {arm: runs for arm, runs in arms.items() if not arm.note(encoder)}
    tied = {arm.sampler: columns for arm, columns in tied_speedups(main).items()}
    for arm in tied_recalls(main):
        tied.setdefault(arm.sampler, []).append(RECALL)
    return [{**row, "tied": tied.get(row["sampler"], [])} for row in rows if not row["variant"]]


def _beside(
    sources: Mapping[tuple[str, str], str],
    measure: Measure,
    mark: Mark,
    best: Sequence[Row],
    row: Row,
) -> Cell:
    is_best = any(row is each for each in best)
    source = sources[row["dataset"], row["data_fingerprint"]]
    cell = PrintedCell(source, row["encoder"], row["sampler"], row["loss"], measure)
    theirs = printed.values().get(cell)
    value, bound = row.get(measure), row.get(f"{measure}_at_most")
    digits = 4 if measure == RECALL else 2
    if value is not None:
        ours = Cell(f"{value:.{digits}f}", "best" if is_best else "plain")
    elif bound is not None and theirs is not None:
        ours = Cell(f"< {bound:.{digits}f}", "best" if is_best else "plain")
    else:
        ours, mark = without_value(row), no_mark
    text = ours.text + ("" if theirs is None else f" ({theirs:.{digits}f})")
    return Cell(text + mark(row), ours.style)


def claims_table(verdicts: Sequence[ClaimVerdict]) -> Table:
    """Return the verdicts on the paper's claims, with settings where some are unusual."""
    labels = [Col("data set", "dataset"), Col("encoder", "encoder"), Col("loss", "loss")]
    if any(verdict.settings for verdict in verdicts):
        labels.append(Col("settings", "settings"))
    cols = [
        *labels,
        Col("claim", "says", wraps=True),
        Col("verdict", "verdict", style=lambda one: STYLES[one.verdict], wraps=True),
        Col("evidence", lambda one: f"{one.evidence}{_interval(one)}", wraps=True),
    ]
    count, title = len(labels), "The paper's claims, by these runs"
    return Table.of(
        title, cols, verdicts, [CLAIMS_NOTE], labels=count, grouped=count, name="claims"
    )


def _interval(one: ClaimVerdict) -> str:
    if one.lower is None or one.upper is None:
        return ""
    return f" [{one.lower:.3g}, {one.upper:.3g}]"
