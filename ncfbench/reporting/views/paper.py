"""Tables of our figures beside the paper's, with a verdict on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ncfbench.catalog import find_loss
from ncfbench.reporting import claims, verdicts
from ncfbench.reporting.claims import Judged
from ncfbench.reporting.comparison import Comparison
from ncfbench.reporting.marks import Mark, marks, no_mark
from ncfbench.reporting.table import Cell, Header, Style, Table, slug, text_column
from ncfbench.reporting.verdicts import KEY, NOT_COMPARABLE, RECALL, Verdict, key_of
from ncfbench.reporting.views.layout import (
    Column,
    Row,
    arrange,
    by_settings,
    by_table,
    data_of,
    label_of,
    losses,
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
    f"Reproduced: ours is within {100 * verdicts.RATIO_TOLERANCE:.0f} % (ratios) or"
    f" {100 * verdicts.RECALL_TOLERANCE:.0f} % (recall) of the printed value and, with several"
    " seeds, that lies in our 95 % interval. Undecided: it lies in the interval, and ours is not"
    " that near (too wide to tell), or a bound leaves it open. Not comparable: text, data, settings"
    " or hardware differ; in brackets what the two figures alone would say."
)
STYLES: dict[str, Style] = {
    verdicts.REPRODUCED: "good",
    verdicts.BETTER: "good",
    verdicts.WORSE: "bad",
    verdicts.UNDECIDED: "open",
}
CLAIM_STYLES: dict[str, Style] = {
    verdicts.REPRODUCED: "good",
    claims.NOT_REPRODUCED: "bad",
    verdicts.UNDECIDED: "open",
}


def beside_tables(
    comparisons: Sequence[Comparison],
    speedups: Sequence[Sequence[Row]],
    recalls: Sequence[Sequence[Row]],
    found: Sequence[Verdict],
) -> list[Table]:
    """Return speedups and recalls beside the printed ones, as far as the paper printed any."""
    by_key = {key_of(verdict): verdict for verdict in found}

    def printed(rows: Sequence[Sequence[Row]]) -> tuple[list[Comparison], list[list[Row]]]:
        """Return the comparisons with a printed cell, and their rows without variants."""
        kept = [
            (comparison, [row for row in member if not row["variant"]])
            for comparison, member in zip(comparisons, rows, strict=True)
            if any(
                key[:4] == (*data_of(comparison), comparison.config.encoder, comparison.config.loss)
                for key in by_key
            )
        ]
        return [comparison for comparison, _ in kept], [member for _, member in kept]

    tables = []
    for (loss, settings), members in by_table(*printed(speedups)).items():
        if not any(one.measure == "iterations_speedup" and one.loss == loss for one in found):
            continue
        times, mark = marks([row for _, member in members for row in member])
        columns = [
            Column(
                heading,
                loss,
                partial(_beside, by_key, measure, mark if timed else no_mark),
                measure,
            )
            for heading, measure, timed in SPEEDUPS
        ]
        title = f"Speedup beside the paper's, {find_loss(loss).title} loss: {label_of(members)}"
        notes = [f"{BRACKETS_NOTE} {HARDWARE_NOTE}", *times]
        name = slug("paper-speedup", loss, settings)
        tables.append(arrange(title, members, columns, notes, name=name))
    for settings, members in by_settings(*printed(recalls)).items():
        columns = [
            Column(find_loss(name).title, name, partial(_beside, by_key, RECALL, no_mark), RECALL)
            for name in losses(members)
        ]
        title = f"Recall@50 beside the paper's: {label_of(members)}"
        name = slug("paper-recall", settings)
        tables.append(arrange(title, members, columns, [BRACKETS_NOTE], name=name))
    return tables


def claims_table(found: Sequence[Judged]) -> Table:
    """Return the verdicts on the paper's claims, with settings where some are unusual."""
    labels = ["data set", "encoder", "loss"]
    if any(each.settings for each in found):
        labels.append("settings")
    rows = [
        [
            *map(Cell, (each.dataset, each.encoder, each.loss, each.settings)[: len(labels)]),
            Cell(each.says),
            Cell(each.verdict, CLAIM_STYLES[each.verdict]),
            Cell(each.evidence + _interval(each)),
        ]
        for each in found
    ]
    texts = (text_column("claim"), text_column("verdict"), text_column("evidence"))
    return Table(
        "The paper's claims, by these runs",
        [*labels, *texts],
        rows,
        [CLAIMS_NOTE],
        labels=len(labels),
        grouped=len(labels),
        name="claims",
    )


def _interval(one: Judged) -> str:
    if one.lower is None or one.upper is None:
        return ""
    return f" [{one.lower:.3g}, {one.upper:.3g}]"


def verdict_table(found: Sequence[Verdict]) -> Table:
    """Return every verdict on a cell that has a run, with its reason."""
    measures = {measure: heading for heading, measure, _ in SPEEDUPS} | {RECALL: "recall@50"}
    rows = []
    for one in found:
        if one.verdict == verdicts.MISSING:
            continue
        value = "none" if one.value is None else f"{one.value:.4g}"
        if one.lower is not None and one.upper is not None:
            value += f" [{one.lower:.4g}, {one.upper:.4g}]"
        word = one.verdict
        if one.figures_alone and one.figures_alone != one.verdict:
            word += f" ({one.figures_alone})"
        names = (one.dataset, one.encoder, one.loss, one.sampler, measures[one.measure])
        rows.append(
            [
                *map(Cell, (*names, value, f"{one.printed:g}", str(one.seeds))),
                Cell(word, STYLES.get(one.verdict, "muted")),
                Cell(one.reason),
            ]
        )
    texts = (text_column("verdict"), text_column("why"))
    labels = ["data set", "encoder", "loss", "sampler", "measure"]
    header: Header = [*labels, "ours", "printed", "seeds", *texts]
    return Table("Verdicts", header, rows, [RULE_NOTE], labels=len(labels), name="verdicts")


def _beside(
    by_key: Mapping[tuple[str, ...], Verdict], measure: str, mark: Mark, row: Row, best: bool
) -> Cell:
    """Return our value, the printed one and the verdict."""
    verdict = by_key.get((*(row[name] for name in KEY), measure))
    value, bound = row.get(measure), row.get(f"{measure}_at_most")
    digits = 4 if measure == RECALL else 2
    end = "" if value is None and bound is None else mark(row)
    style: Style = "best" if best else "plain"
    if verdict is None:
        return without_value(row) if value is None else Cell(f"{value:.{digits}f}{end}", style)
    word = "" if verdict.verdict == NOT_COMPARABLE else f", {verdict.verdict}"
    if value is not None:
        ours = f"{value:.{digits}f}"
    else:
        ours = without_value(row).text if bound is None else f"< {bound:.{digits}f}"
    text = f"{ours} ({verdict.printed:.{digits}f}{word}){end}"
    return Cell(text, "muted" if value is None and bound is None else style)
