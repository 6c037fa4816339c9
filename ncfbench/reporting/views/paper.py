"""Tables of our figures beside the paper's, with a verdict on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ncfbench.catalog import find_loss
from ncfbench.paper import cells
from ncfbench.paper.cells import CellVerdict
from ncfbench.paper.claims import ClaimVerdict
from ncfbench.paper.measures import NOT_REPRODUCED
from ncfbench.paper.printed import RECALL, SPEEDUP_LOSS
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.table import Cell, Col, Style, Table, slug
from ncfbench.reporting.views.layout import (
    Column,
    Mark,
    Row,
    arrange,
    by_settings,
    by_table,
    label_of,
    losses,
    marks,
    no_mark,
    without_value,
)
from ncfbench.reporting.views.results import SPEEDUPS

BRACKETS_NOTE = (
    "In brackets the printed value, with a verdict where text, data, settings and hardware are the"
    " paper's."
)
CLAIMS_NOTE = (
    "Reproduced: the whole 95 % interval agrees with the claim. Not reproduced: the whole interval"
    " contradicts it. Undecided: neither; one seed alone decides no ratio."
)
HARDWARE_NOTE = "Every per-iteration and total ratio depends on hardware, which is not the paper's."
RULE_NOTE = (
    f"Reproduced: ours is within {100 * cells.RATIO_TOLERANCE:.0f} % (ratios) or"
    f" {100 * cells.RECALL_TOLERANCE:.0f} % (recall) of the printed value and, with several"
    " seeds, that lies in our 95 % interval. Undecided: it lies in the interval, and ours is not"
    " that near (too wide to tell), or a bound leaves it open. Not comparable: text, data, settings"
    " or hardware differ; in brackets what the two figures alone would say."
)
STYLES: dict[str, Style] = {
    cells.REPRODUCED: "good",
    cells.BETTER: "good",
    cells.WORSE: "bad",
    NOT_REPRODUCED: "bad",
    cells.UNDECIDED: "open",
}
"""Styles of verdicts; one that says nothing of our figure is muted."""


def beside_tables(
    comparisons: Sequence[Comparison], verdicts: Sequence[CellVerdict]
) -> list[Table]:
    """Return speedups and recalls beside the printed ones, as far as the paper printed any."""
    by_cell = {verdict.key: verdict for verdict in verdicts}
    printed = {(one.dataset, one.data_fingerprint, one.encoder, one.loss) for one in verdicts}
    chosen = [
        each
        for each in comparisons
        if (*each.data, each.config.encoder, each.config.loss) in printed
    ]
    tables = []
    for (loss, settings), own in by_table(chosen).items():
        if loss != SPEEDUP_LOSS:
            continue
        rows = [row for each in own for row in each.speedups if not row["variant"]]
        times, mark = marks(rows)
        columns = []
        for heading, measure, is_timed in SPEEDUPS:
            render = partial(_beside, by_cell, measure, mark if is_timed else no_mark)
            columns.append(Column(heading, loss, render, measure))
        title = f"Speedup beside the paper's, {find_loss(loss).title} loss: {label_of(own)}"
        notes = [f"{BRACKETS_NOTE} {HARDWARE_NOTE}", *times]
        name = slug("paper-speedup", loss, settings)
        tables.append(arrange(title, own, rows, columns, notes, name=name))
    for settings, own in by_settings(chosen).items():
        rows = [row for each in own for row in each.recalls if not row["variant"]]
        render = partial(_beside, by_cell, RECALL, no_mark)
        columns = [Column(find_loss(name).title, name, render, RECALL) for name in losses(own)]
        title = f"Recall@50 beside the paper's: {label_of(own)}"
        name = slug("paper-recall", settings)
        tables.append(arrange(title, own, rows, columns, [BRACKETS_NOTE], name=name))
    return tables


def _beside(
    by_cell: Mapping[tuple[str, ...], CellVerdict], measure: str, mark: Mark, row: Row, best: bool
) -> Cell:
    verdict = by_cell.get((*(row[name] for name in cells.KEY), measure))
    value, bound = row.get(measure), row.get(f"{measure}_at_most")
    digits = 4 if measure == RECALL else 2
    if value is not None:
        ours = Cell(f"{value:.{digits}f}", "best" if best else "plain")
    elif bound is not None and verdict is not None:
        ours = Cell(f"< {bound:.{digits}f}", "best" if best else "plain")
    else:
        ours, mark = without_value(row), no_mark
    text = ours.text
    if verdict is not None:
        is_comparable = verdict.verdict != cells.NOT_COMPARABLE
        word = f", {verdict.verdict}" if is_comparable else ""
        text += f" ({verdict.printed:.{digits}f}{word})"
    return Cell(text + mark(row), ours.style)


def claims_table(verdicts: Sequence[ClaimVerdict]) -> Table:
    """Return the verdicts on the paper's claims, with settings where some are unusual."""
    labels = [Col("data set", "dataset"), Col("encoder", "encoder"), Col("loss", "loss")]
    if any(verdict.settings for verdict in verdicts):
        labels.append(Col("settings", "settings"))
    cols = [
        *labels,
        Col("claim", "says", wraps=True),
        Col("verdict", "verdict", style=_style, wraps=True),
        Col("evidence", lambda one: f"{one.evidence}{_interval(one, '.3g')}", wraps=True),
    ]
    count, title = len(labels), "The paper's claims, by these runs"
    return Table.of(
        title, cols, verdicts, [CLAIMS_NOTE], labels=count, grouped=count, name="claims"
    )


def verdict_table(verdicts: Sequence[CellVerdict]) -> Table:
    """Return every verdict on a cell that has a run, with its reason."""
    measures = {measure: heading for heading, measure, _ in SPEEDUPS} | {RECALL: "recall@50"}
    cols = [
        Col("data set", "dataset"),
        *(Col(name, name) for name in ("encoder", "loss", "sampler")),
        Col("measure", lambda one: measures[one.measure]),
        Col("ours", _ours),
        Col("printed", "printed", "g"),
        Col("seeds", "seeds"),
        Col("verdict", _verdict, style=_style, wraps=True),
        Col("why", "reason", wraps=True),
    ]
    with_runs = [verdict for verdict in verdicts if verdict.verdict != cells.MISSING]
    return Table.of("Verdicts", cols, with_runs, [RULE_NOTE], labels=5, name="verdicts")


def _style(one: ClaimVerdict | CellVerdict) -> Style:
    return STYLES.get(one.verdict, "muted")


def _verdict(one: CellVerdict) -> str:
    alone = one.figures_alone
    return f"{one.verdict} ({alone})" if alone and alone != one.verdict else one.verdict


def _ours(one: CellVerdict) -> str:
    return "none" if one.value is None else f"{one.value:.4g}{_interval(one, '.4g')}"


def _interval(one: ClaimVerdict | CellVerdict, spec: str) -> str:
    if one.lower is None or one.upper is None:
        return ""
    return f" [{one.lower:{spec}}, {one.upper:{spec}}]"
