"""Tables of the paper's claims, judged by our runs, and of our figures beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncfbench.paper import printed
from ncfbench.paper.printed import RECALL, SPEEDUP_LOSS, Measure, PrintedCell
from ncfbench.reporting.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from ncfbench.reporting.frames import by_variant
from ncfbench.reporting.rows import Comparison, tied_recalls, tied_speedups
from ncfbench.reporting.table import Col, Style, Table
from ncfbench.reporting.views.results import Row, recall_tables, speedup_tables

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
    figures = printed.values()
    covered = {(cell.dataset, cell.encoder, cell.loss) for cell in figures}
    chosen = [
        _main(each)
        for each in comparisons
        if (sources[each.data], each.config.encoder, each.config.loss) in covered
        and not each.runs[0].chosen_baseline
    ]

    def theirs(row: Row, measure: Measure) -> float | None:
        source = sources[row["dataset"], row["data_fingerprint"]]
        names = row["encoder"], row["sampler"], row["loss"]
        return figures.get(PrintedCell(source, *names, measure))

    timed = [each for each in chosen if each.config.loss == SPEEDUP_LOSS]
    tables = speedup_tables(timed, theirs, f"{BRACKETS_NOTE} {HARDWARE_NOTE}")
    return tables + recall_tables(chosen, theirs, BRACKETS_NOTE)


def _main(comparison: Comparison) -> Comparison:
    """Return a comparison with the rows of arms that have the paper's settings alone; ties are
    taken among these.
    """
    encoder = comparison.config.encoder
    arms = by_variant(comparison.runs)
    main = {arm: runs for arm, runs in arms.items() if not arm.note(encoder)}
    tied = {arm.sampler: columns for arm, columns in tied_speedups(main).items()}
    for arm in tied_recalls(main):
        tied.setdefault(arm.sampler, []).append(RECALL)
    speedups, recalls = (
        [{**row, "tied": tied.get(row["sampler"], [])} for row in rows if not row["variant"]]
        for rows in (comparison.speedups, comparison.recalls)
    )
    return replace(comparison, speedups=speedups, recalls=recalls)


def claims_table(verdicts: Sequence[Row]) -> Table:
    """Return the verdicts on the paper's claims, with settings where some are unusual."""
    names = ["dataset", "encoder", "loss"]
    names += ["settings"] if any(row["settings"] for row in verdicts) else []
    cols = [
        *(Col(name, name) for name in names),
        Col("claim", "says", wraps=True),
        Col("verdict", "verdict", style=lambda row: STYLES[row["verdict"]], wraps=True),
        Col("evidence", _evidence, wraps=True),
    ]
    count, title = len(names), "The paper's claims, by these runs"
    return Table.of(
        title, cols, verdicts, [CLAIMS_NOTE], labels=count, grouped=count, name="claims"
    )


def _evidence(row: Row) -> str:
    lower, upper = row["lower"], row["upper"]
    ends = "" if lower is None else f" [{lower:.3g}, {upper:.3g}]"
    return f"{row['evidence']}{ends}"
