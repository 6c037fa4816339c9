"""Tables of an audit: written as Parquet, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.auditing.conformance import PROPERTIES
from ncfbench.auditing.verdict import worded
from ncfbench.catalog import find_loss, find_sampler
from ncfbench.reporting.formats import interval
from ncfbench.reporting.table import Cell, Col, Style, Table, slug, under
from ncfbench.storage import tables
from ncfbench.storage.schemas import AUDIT_TABLES

Row = Mapping[str, Any]
VERDICTS: dict[str, Style] = {
    "unbiased": "good",
    "consistent": "good",
    "biased": "bad",
    "too few batches": "open",
    "too few negatives": "open",
}
RESULTS = {
    "pass": Cell("pass", "good"),
    "fail": Cell("FAIL", "bad"),
    "not tested": Cell("-", "muted"),
    "declared": Cell("declared", "open"),
}
NOISE = Col("P_n", "noise")


def _sampler(row: Row) -> str:
    return find_sampler(row["sampler"]).with_strata(row["strata"]).title


def write(runs_dir: Path, record: Mapping[str, Sequence[Row]]) -> None:
    """Write each table of :data:`ncfbench.storage.schemas.AUDIT_TABLES`, atomically."""
    with tables.storage_errors(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in record.items():
        tables.write_rows(runs_dir / f"{name}.parquet", rows, AUDIT_TABLES[name])


def audit_tables(record: Mapping[str, Sequence[Row]]) -> list[Table]:
    """Return the tables of an audit of samplers, as far as it has rows."""
    views = {"conformance": conformance_tables, "audit": bias_tables}
    return [
        table for name, view in views.items() if record.get(name) for table in view(record[name])
    ]


def bias_tables(rows: Sequence[Row]) -> list[Table]:
    """Return the verdicts by noise distribution."""
    views = []
    for noise in dict.fromkeys(row["noise"] for row in rows):
        of_noise = [row for row in rows if row["noise"] == noise]
        first = of_noise[0]
        title = (
            f"Gradients against the exact one: {first['dataset']}, {first['encoder']}, P_n {noise},"
            f" b={first['batch_size']}"
        )
        # The notes hold for every noise distribution; they stand below the last.
        notes = _bias_notes(of_noise) if noise == rows[-1]["noise"] else []
        name = slug("bias", noise)
        views.append(Table.of(title, _bias_cols(), of_noise, notes, labels=2, grouped=1, name=name))
    return views


def _bias_cols() -> list[Col]:
    return [
        Col("sampler", _sampler),
        Col("loss", lambda row: find_loss(row["loss"]).title),
        Col("verdict", worded, style=lambda row: VERDICTS[row["verdict"]], align="left"),
        *under(
            "bias %",
            Col("mean", "bias", ".2f", scale=100),
            Col("interval", ("bias_low", "bias_high"), interval(".2f"), scale=100),
            Col("finds from", "detectable_bias", ".2f", scale=100),
        ),
        Col("cosine", "cosine", ".4f"),
        Col("variance", "batch_variance", ".2f"),
    ]


def _bias_notes(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    notes = [
        f"Unbiased: no bias is shown, and it is below {100 * row['margin']:g} % of the exact"
        " gradient's length. Biased: one is shown, however small; (weights): by the conformance"
        f" suite, whatever the parameters. {row['verdicts']} verdicts, nominally 5 % chance that"
        f" any is wrong; {row['batches']:,} batches each, with replacement, dropout off.",
        "Finds from: a bias of so many per cent would be found nine times in ten. Variance: of one"
        " batch's gradient, as a multiple of the exact gradient's squared length.",
    ]
    if any(find_loss(row["loss"]).family == "listwise" for row in rows):
        notes.append(
            "Softmax: the logarithm of a sampled sum is never unbiased. Consistent: the suite finds"
            " the sum's weights right, and the bias is within the margin. Too few negatives: it is"
            " not; it falls as they grow. Take a larger --batch-size."
        )
    return notes


def conformance_tables(rows: Sequence[Row]) -> list[Table]:
    """Return pass or fail of each property, then what is wrong."""
    cases: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        case = _sampler(row), row["loss_family"], row["noise"]
        cases.setdefault(case, {})[row["property"]] = row
    names = [Col("sampler", _sampler), Col("losses", "loss_family"), NOISE]
    summary = [
        dict(by_name["expectation"])
        | {name: RESULTS[row["result"]] for name, row in by_name.items()}
        for by_name in cases.values()
    ]
    cols = [
        *names,
        *(Col(name, name, align="center") for name in PROPERTIES),
        Col("finds from %", "detectable_error", ".1f", scale=100),
    ]
    legend = "; ".join(f"{short}: {text}" for short, text in PROPERTIES.items() if short != text)
    legend = (
        f"{legend[0].upper()}{legend[1:]}. Finds from: the weights of the negative links, summed in"
        " several ways, must be off by so much for the last property to fail nine times in ten."
    )
    declared = {
        f"{_sampler(row)}, {row['loss_family']}, declared: {row['detail']}."
        for row in rows
        if row["result"] == "declared"
    }
    title, notes = "Conformance of the samplers", [legend, *sorted(declared)]
    views = [Table.of(title, cols, summary, notes, labels=3, name="conformance")]
    faults = [row for row in rows if row["result"] == "fail"]
    if faults:
        texts = [
            Col("property", lambda row: PROPERTIES[row["property"]], wraps=True),
            Col("what was found", "detail", wraps=True),
        ]
        views.append(Table.of("What is wrong", [*names, *texts], faults, labels=3, name="faults"))
    return views
