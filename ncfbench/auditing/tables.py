"""Tables of an audit: written as Parquet, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.auditing.conformance import PROPERTIES
from ncfbench.catalog import find_loss, find_sampler
from ncfbench.reporting.table import (
    Cell,
    Column,
    Header,
    Style,
    Table,
    columns_of,
    slug,
    text_column,
)
from ncfbench.storage import tables
from ncfbench.storage.schemas import AUDIT_TABLES

Row = Mapping[str, Any]
VERDICTS: dict[str, Style] = {
    "unbiased": "good",
    "consistent": "good",
    "falls with b": "open",
    "biased": "bad",
    "too few batches": "open",
}
RESULTS: dict[str, Cell] = {
    "pass": Cell("pass", "good"),
    "fail": Cell("FAIL", "bad"),
    "not tested": Cell("-", "muted"),
    "declared": Cell("declared", "open"),
}


def write(runs_dir: Path, found: Mapping[str, Sequence[Row]]) -> None:
    """Write each table of :data:`ncfbench.storage.schemas.AUDIT_TABLES`, atomically."""
    with tables.storage_errors(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in found.items():
        tables.write_rows(runs_dir / f"{name}.parquet", rows, AUDIT_TABLES[name])


def audit_tables(found: Mapping[str, Sequence[Row]]) -> dict[str, list[Table]]:
    """Return the tables of an audit of samplers by the name of their Parquet file, as far as it has
    rows.
    """
    views = {"conformance": conformance_tables, "xray": xray_tables, "audit": bias_tables}
    return {name: view(found[name]) for name, view in views.items() if found.get(name)}


def bias_tables(rows: Sequence[Row]) -> list[Table]:
    """Return the verdicts by noise distribution, then the exact objective beside the probe."""
    found = []
    for noise in dict.fromkeys(row["noise"] for row in rows):
        own = [row for row in rows if row["noise"] == noise]
        first = own[0]
        title = (
            f"Gradients against the exact one: {first['dataset']}, {first['encoder']}, P_n {noise},"
            f" b={first['batch_size']}"
        )
        if first["share"] == "local":
            title += f" in {first['devices']} parts with local sharing"
        header: Header = [
            "sampler",
            "loss",
            "parameters",
            Column("verdict", "left"),
            *columns_of("bias %", "mean", "interval", "finds from"),
            "cosine",
            "variance",
            "ms",
            "var. x s",
            *columns_of("shuffled %", "mean", "interval", "predicted"),
        ]
        cells = [_bias_cells(row, own) for row in own]
        # The notes hold for every noise distribution; they stand below the last.
        notes = _bias_notes(own) if noise == rows[-1]["noise"] else []
        found.append(
            Table(title, header, cells, notes, labels=3, grouped=1, name=slug("bias", noise))
        )
    measured = [row for row in rows if row["variance_over_users"] is not None]
    parts = [_variance_table(measured)] if measured else []
    return [*found, *parts, _objective_table(rows)]


def _variance_table(rows: Sequence[Row]) -> Table:
    """Return the parts of each gradient's variance."""
    header: Header = [
        "sampler",
        "loss",
        "P_n",
        "parameters",
        "variance",
        *columns_of("over", "users", "items", "positive links"),
    ]
    cells = []
    for row in rows:
        parts = [row[f"variance_over_{part}"] for part in ("users", "items", "positive_links")]
        cells.append(
            [
                _title(row),
                find_loss(row["loss"]).title,
                row["noise"],
                _point(row),
                *(f"{value:.2f}" for value in (sum(parts), *parts)),
            ]
        )
    notes = [
        "Variance of one batch's gradient over the squared length of the exact one. Over users:"
        " what goes if each item of the batch meets all users instead of its own; over items: what"
        " goes besides if the whole negative term is exact; over positive links: the rest."
    ]
    first = rows[0]
    title = f"Parts of the variance: {first['dataset']}, {first['encoder']}"
    title += f", b={first['batch_size']}"
    return Table(title, header, cells, notes, labels=4, name="variance-parts")


def _bias_cells(row: Row, rivals: Sequence[Row]) -> list[Cell]:
    verdict = row["verdict"]
    if verdict == "too few batches" and row["batches_needed"]:
        verdict += f" (try {row['batches_needed']:,})"
    if row["shown_by"] in ("weights", "declared"):
        verdict += f" ({row['shown_by']})"
    base = next(
        (
            rival["variance_seconds"]
            for rival in rivals
            if (rival["loss"], rival["point"]) == (row["loss"], row["point"])
            and rival["variance_seconds"]
        ),
        None,
    )
    cost = row["variance_seconds"]
    interval = f"{100 * row['bias_low']:.2f}..{100 * row['bias_high']:.2f}"
    if row["bias_with_4x_negatives"] is not None:
        interval += f", 4x neg. {100 * row['bias_with_4x_negatives']:.2f}"
    seconds, predicted = row["full_iteration_seconds"], row["predicted_shuffled_bias"]
    return [
        Cell(_title(row)),
        Cell(find_loss(row["loss"]).title),
        Cell(_point(row)),
        Cell(verdict, VERDICTS[row["verdict"]]),
        Cell(f"{100 * row['bias']:.2f}"),
        Cell(interval),
        Cell(f"{100 * row['detectable_bias']:.2f}"),
        Cell(f"{row['cosine']:.4f}"),
        Cell(f"{row['batch_variance']:.2f}"),
        Cell("-" if seconds is None else f"{1e3 * seconds:.2f}"),
        Cell("-" if base is None or cost is None else f"{cost / base:.2f}"),
        Cell(f"{100 * row['shuffled_bias']:.2f}"),
        Cell(f"{100 * row['shuffled_bias_low']:.2f}..{100 * row['shuffled_bias_high']:.2f}"),
        Cell("-" if predicted is None else f"{100 * predicted:.3f}"),
    ]


def _point(row: Row) -> str:
    """Return the name of the parameters; with the age of the mined items, if there are any."""
    if row["cache_age"] is None:
        return str(row["point"])
    return f"{row['point']} ({row['negative_items']} items, {row['cache_age']} old)"


def _bias_notes(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    notes = [
        f"Unbiased: no bias is shown, and it is below {100 * row['margin']:g} % of the exact"
        " gradient's length. Biased: one is shown, however small; (weights): by the conformance"
        f" suite, whatever the parameters. {row['verdicts']} verdicts, nominally 5 % chance that"
        f" any is wrong; {row['batches']:,} batches each, with replacement, dropout off.",
        "Finds from: a bias of so many per cent would be found nine times in ten. Variance: of one"
        " batch's gradient, as a multiple of the exact gradient's squared length.",
        "Var. x s: variance x seconds of an iteration, relative to the first sampler of the same"
        " loss. Less should train sooner by gradient descent; Adam rescales every coordinate.",
        "Shuffled: the streams used in training, and the bias they are predicted to have; for"
        " strata with sharing and mixed N.S. its order of magnitude. Blocks of one epoch are not"
        " independent: their interval is a guide.",
    ]
    if any(row["cache_age"] is not None for row in rows):
        notes.append(
            "Mined items: negatives come from those of the highest scores as many iterations"
            " earlier."
        )
    if any(find_loss(row["loss"]).family == "listwise" for row in rows):
        notes.append(
            "Softmax: the logarithm of a sampled sum is never unbiased. Consistent: the suite finds"
            " the sum's weights right, and the bias is within the margin, or comes into it or is"
            " shown to fall as the negatives grow (4x neg.)."
        )
    return notes


def _objective_table(rows: Sequence[Row]) -> Table:
    """Return the exact objective with the probe beside it."""
    by_key = {(row["loss"], row["noise"], row["point"]): row for row in reversed(rows)}
    cells = [
        [
            find_loss(loss).title,
            noise,
            point,
            f"{row['exact_loss']:.5f}",
            f"{row['probe_loss']:.5f}",
            f"{100 * (row['probe_loss'] / row['exact_loss'] - 1):+.3f}",
        ]
        for (loss, noise, point), row in reversed(by_key.items())
    ]
    note = (
        "Where links x items is small the probe is the exact sum itself, and only float32's"
        " rounding differs."
    )
    header = ["loss", "P_n", "parameters", "exact", "probe", "error %"]
    title = "Exact objective, and the probe beside it"
    return Table(title, header, cells, [note], labels=3, name="objective")


def xray_tables(rows: Sequence[Row]) -> list[Table]:
    """Return what is in a batch of each sampler."""
    first = rows[0]
    title = (
        f"Batch X-ray: {first['dataset']}, b={first['batch_size']}, means of {first['batches']}"
        " batches"
    )
    header: Header = [
        "P_n",
        "sampler",
        *columns_of("users", "nominal", "distinct"),
        *columns_of("items", "nominal", "distinct"),
        *columns_of("negatives", "nominal", "unmasked", "effective"),
        *columns_of("of a positive", "nominal", "unmasked", "effective"),
        "masked %",
        "popularity",
        *columns_of("padding %", "items", "words"),
    ]
    cells = [
        [
            row["noise"],
            _title(row),
            _count(row["nominal_users"]),
            _count(row["distinct_users"]),
            _count(row["nominal_items"]),
            _count(row["distinct_items"]),
            _count(row["nominal_negatives"]),
            _count(row["unmasked_negatives"]),
            _count(row["effective_negatives"]),
            _count(row["nominal_negatives_of_a_positive"], 1),
            _count(row["unmasked_negatives_of_a_positive"], 1),
            _count(row["effective_negatives_of_a_positive"], 1),
            f"{100 * row['masked_share']:.2f}",
            _count(row["popularity_ratio"], 3),
            f"{100 * row['padding_share']:.1f}",
            f"{100 * row['word_padding_share']:.1f}",
        ]
        for row in rows
    ]
    note = (
        "Nominal counts are the paper's; a shared negative counts once however many links brought"
        " its item. Effective: (sum w)^2 / sum w^2. Popularity: mean degree of the negatives by"
        " weight over its expectation under P_n. Padding: item slots without an item, word slots"
        " without a word."
    )
    return [Table(title, header, cells, [note], labels=2, grouped=1, name="xray")]


def conformance_tables(rows: Sequence[Row]) -> list[Table]:
    """Return pass or fail of each property, then what is wrong."""
    groups: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        title = _title(row)
        groups.setdefault((title, row["loss_family"], row["noise"]), {})[row["property"]] = row
    cells: list[list[Cell | str]] = []
    for key, own in groups.items():
        error = own["expectation"]["detectable_error"]
        results = [RESULTS[own[name]["result"]] for name in PROPERTIES]
        cells.append([*key, *results, "-" if error is None else f"{100 * error:.1f}"])
    legend = "; ".join(f"{short}: {text}" for short, text in PROPERTIES.items() if short != text)
    legend = (
        f"{legend[0].upper()}{legend[1:]}. Finds from: the weights of the negative links, summed in"
        " several ways, must be off by so much for the last property to fail nine times in ten."
    )
    header: Header = [
        "sampler",
        "losses",
        "P_n",
        *(Column(name, "center") for name in PROPERTIES),
        "finds from %",
    ]
    title = "Conformance of the samplers"
    declared = {
        f"{_title(row)}, {row['loss_family']}, declared: {row['detail']}."
        for row in rows
        if row["result"] == "declared"
    }
    notes = [legend, *sorted(declared)]
    found = [Table(title, header, cells, notes, labels=3, name="conformance")]
    faults = [
        [
            _title(row),
            row["loss_family"],
            row["noise"],
            PROPERTIES[row["property"]],
            row["detail"],
        ]
        for row in rows
        if row["result"] == "fail"
    ]
    if faults:
        texts = (text_column("property"), text_column("what was found"))
        names: Header = ["sampler", "losses", "P_n", *texts]
        found.append(Table("What is wrong", names, faults, labels=3, name="faults"))
    return found


def _title(row: Row) -> str:
    return find_sampler(row["sampler"]).with_strata(row["strata"]).title


def _count(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
