"""The tables of a lint."""

from __future__ import annotations

from ncfbench.linting.findings import KINDS, Severity, with_interval
from ncfbench.linting.lint import Lint
from ncfbench.reporting.table import Col, Style, Table
from ncfbench.statistics.intervals import Estimate, mean

STYLES: dict[Severity, Style] = {"error": "bad", "warning": "open", "note": "muted"}


def lint_tables(lint: Lint) -> list[Table]:
    """Return what is wrong, the worst first, and then what was measured."""
    tables, lead = [], f"No findings on {lint.name}."
    notes = [f"Accepted: {finding.code}: {finding.sentence}" for finding in lint.accepted]
    if lint.findings:
        cols = [
            Col("severity", "severity", style=lambda finding: STYLES[finding.severity]),
            Col("code", "code", align="left"),
            Col("finding", "sentence", wraps=True),
            Col("what to do", "fix", wraps=True),
        ]
        title = f"Findings on {lint.name}"
        tables.append(Table.of(title, cols, lint.findings, notes, labels=2, name="findings"))
        notes, lead = [], ""
    cols = [Col("question", 0, wraps=True), Col("answer", 1, wraps=True)]
    arguments = "; ".join(f"{name}: {meaning}" for name, meaning in lint.read_as.items())
    rows = [("read as", arguments), *_answers(lint)]
    title = f"What {lint.name} does ({lint.framework})"
    tables.append(Table.of(title, cols, rows, notes, name="facts", lead=lead))
    return tables


def rules_table() -> Table:
    """Return all findings that a lint can have."""
    cols = [
        Col("code", "code", align="left"),
        Col("severity", "severity"),
        Col("what is wrong", "what", wraps=True),
        Col("what to do", "fix", wraps=True),
    ]
    rows = [{"code": code} | kind._asdict() for code, kind in KINDS.items()]
    return Table.of("Findings of a lint", cols, rows, name="rules")


def _estimate(number: Estimate | None) -> str:
    return "-" if number is None else with_interval(number.value, number.lower, number.upper)


def _answers(lint: Lint) -> list[tuple[str, str]]:
    if (facts := lint.facts) is None:
        return []
    where = {
        "the batch's items": facts.in_batch,
        "those drawn for the row": facts.drawn,
        "those drawn for other rows": facts.drawn_for_others,
        "all other items": facts.catalogue,
    }
    negatives = ", ".join(name for name, is_so in where.items() if is_so) or "none"
    rows = [
        ("objective, by what a negative's push depends on", facts.title),
        ("negatives of a row", negatives),
        ("scale of scores", _estimate(facts.scale)),
        ("exponent of probability in a negative's weight", _estimate(facts.slope)),
        ("the same of the positive's weight", _estimate(facts.positive_slope)),
        ("positive's weight over another item's", _estimate(facts.positive_weight)),
    ]
    if facts.in_batch:
        times = "once" if facts.masks.counts_once else "twice"
        rows.append(("an item that two rows have counts", times))
    if facts.lengths:
        counting = ", ".join(side for side, counts in facts.lengths.items() if counts)
        rows.append(("vectors whose length counts", counting or "none"))
    contents = facts.contents
    batch = f"in batches of {contents.rows}"
    for name, values in (
        (f"negatives that are training links, {batch}", contents.linked),
        ("their share of the push", contents.linked_push),
        (f"negatives that are the row's own item, {batch}", contents.duplicates),
        ("their share of the push", contents.duplicates_push),
    ):
        rows.append((name, f"{100 * mean(values).value:.2f} %"))
    return rows
