"""Tables of an audit: written as Parquet, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.auditing.conformance import PROPERTIES
from ncfbench.auditing.verdict import worded
from ncfbench.catalog import find_loss, find_sampler
from ncfbench.reporting.table import Cell, Col, Style, Table, slug, under
from ncfbench.sampling.listed import EXPLICIT_OBJECTIVE
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


def _audited(row: Row) -> str:
    """Return the sampler, with the items that it draws from and their age where P_n draws none."""
    if row["cache_age"] is not None:
        return f"{_sampler(row)} ({row['negative_items']} items, {row['cache_age']} old)"
    return f"{_sampler(row)} (explicit negatives)" if _is_explicit(row) else _sampler(row)


def _is_explicit(row: Row) -> bool:
    return bool(row["negative_items"] == "explicit")


def write(runs_dir: Path, found: Mapping[str, Sequence[Row]]) -> None:
    """Write each table of :data:`ncfbench.storage.schemas.AUDIT_TABLES`, atomically."""
    with tables.storage_errors(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in found.items():
        tables.write_rows(runs_dir / f"{name}.parquet", rows, AUDIT_TABLES[name])


def audit_tables(found: Mapping[str, Sequence[Row]]) -> list[Table]:
    """Return the tables of an audit of samplers, as far as it has rows."""
    views = {"conformance": conformance_tables, "audit": bias_tables}
    return [table for name, view in views.items() if found.get(name) for table in view(found[name])]


def bias_tables(rows: Sequence[Row]) -> list[Table]:
    """Return the verdicts by noise distribution."""
    found = []
    for noise in dict.fromkeys(row["noise"] for row in rows):
        own = [row for row in rows if row["noise"] == noise]
        first = own[0]
        title = (
            f"Gradients against the exact one: {first['dataset']}, {first['encoder']}, P_n {noise},"
            f" b={first['batch_size']}"
        )
        # The notes hold for every noise distribution; they stand below the last.
        notes = _bias_notes(own) if noise == rows[-1]["noise"] else []
        name = slug("bias", noise)
        found.append(Table.of(title, _bias_cols(), own, notes, labels=2, grouped=1, name=name))
    return found


def _bias_cols() -> list[Col]:
    return [
        Col("sampler", _audited),
        Col("loss", lambda row: find_loss(row["loss"]).title),
        Col("verdict", worded, style=lambda row: VERDICTS[row["verdict"]], align="left"),
        *under(
            "bias %",
            Col("mean", "bias", ".2f", scale=100),
            Col("interval", _bias_interval),
            Col("finds from", "detectable_bias", ".2f", scale=100),
        ),
        Col("cosine", "cosine", ".4f"),
        Col("variance", "batch_variance", ".2f"),
    ]


def _bias_interval(row: Row) -> str:
    return f"{100 * row['bias_low']:.2f}..{100 * row['bias_high']:.2f}"


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
    if any(row["cache_age"] is not None for row in rows):
        notes.append(
            "Mined items: negatives come from those of the highest scores as many iterations"
            " earlier."
        )
    if any(map(_is_explicit, rows)):
        notes.append(f"Explicit negatives: unbiased is for {EXPLICIT_OBJECTIVE}.")
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
    # The property holds for another objective than L.
    others: dict[str, list[str]] = {}
    for row in rows:
        if row["result"] == "pass" and row["detail"]:
            others.setdefault(row["detail"], []).append(f"{_sampler(row)} ({row['loss_family']})")
    apart = [f"{', '.join(dict.fromkeys(names))}: {text}." for text, names in others.items()]
    title, notes = "Conformance of the samplers", [legend, *sorted(declared), *apart]
    found = [Table.of(title, cols, summary, notes, labels=3, name="conformance")]
    faults = [row for row in rows if row["result"] == "fail"]
    if faults:
        texts = [
            Col("property", lambda row: PROPERTIES[row["property"]], wraps=True),
            Col("what was found", "detail", wraps=True),
        ]
        found.append(Table.of("What is wrong", [*names, *texts], faults, labels=3, name="faults"))
    return found
