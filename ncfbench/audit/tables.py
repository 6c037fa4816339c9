"""The tables that an audit leaves behind: written, and shown on the terminal (Rich)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ncfbench.audit.conformance import PROPERTIES
from ncfbench.registry import find_loss, find_sampler
from ncfbench.storage import tables
from ncfbench.storage.schemas import AUDIT_TABLES

Row = Mapping[str, Any]
COLORS = {
    "unbiased": "green",
    "consistent": "green",
    "biased": "bold red",
    "too few batches": "yellow",
}


def write(runs_dir: Path, found: Mapping[str, Sequence[Row]]) -> None:
    """Write each table of :data:`ncfbench.storage.schemas.AUDIT_TABLES`, atomically."""
    with tables.storage_errors(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in found.items():
        tables.write_rows(runs_dir / f"{name}.parquet", rows, AUDIT_TABLES[name])


def view(found: Mapping[str, Sequence[Row]]) -> RenderableType:
    """All tables, one below the other."""
    views = {"conformance": conformance_view, "xray": xray_view, "audit": audit_view}
    return Group(*(views[name](rows) for name, rows in found.items()))


def audit_view(rows: Sequence[Row]) -> RenderableType:
    """Verdicts by noise distribution; then the exact objective beside the probe."""
    parts: list[RenderableType] = []
    for noise in dict.fromkeys(row["noise"] for row in rows):
        own = [row for row in rows if row["noise"] == noise]
        margin, first = own[0]["margin"], own[0]
        title = (
            f"Gradients against the exact one: {first['dataset']}, {first['encoder']}, P_n {noise},"
            f" b={first['batch_size']}"
        )
        if first["share"] == "local":
            title += f" in {first['devices']} parts with local sharing"
        table = Table(title=Text(title), title_justify="left")
        for heading in ("sampler", "loss", "parameters", "verdict"):
            table.add_column(heading)
        for heading in (
            "bias %",
            "interval",
            "finds from",
            "cosine",
            "variance",
            "ms",
            "var. x s",
            "shuffled %",
            "predicted",
        ):
            table.add_column(heading, justify="right")
        last = ""
        for row in own:
            if last and row["sampler"] != last:
                table.add_section()
            table.add_row(*_audit_cells(row, own, first_of_sampler=row["sampler"] != last))
            last = row["sampler"]
        parts += [table, *(Text(line, style="dim") for line in _audit_notes(own, margin)), Text("")]
    table = Table(title="Exact objective, and the probe beside it", title_justify="left")
    for heading in ("loss", "P_n", "parameters"):
        table.add_column(heading)
    for heading in ("exact", "probe", "error %"):
        table.add_column(heading, justify="right")
    shown = set()
    for row in rows:
        key = row["loss"], row["noise"], row["point"]
        if key not in shown:
            shown.add(key)
            error = row["probe_loss"] / row["exact_loss"] - 1
            table.add_row(
                find_loss(row["loss"]).title,
                *key[1:],
                f"{row['exact_loss']:.5f}",
                f"{row['probe_loss']:.5f}",
                f"{error:+.3%}",
            )
    note = (
        "Where links x items is small the probe is the exact sum itself, and what differs is"
        " float32's rounding."
    )
    return Group(*parts, table, Text(note, style="dim"), Text(""))


def _audit_cells(row: Row, rivals: Sequence[Row], *, first_of_sampler: bool) -> list[Text]:
    verdict = row["verdict"]
    if verdict == "too few batches" and row["batches_needed"]:
        verdict += f" (try {row['batches_needed']:,})"
    if row["shown_by"] == "weights":
        verdict += " (weights)"
    base = next(
        (
            r
            for r in rivals
            if (r["loss"], r["point"]) == (row["loss"], row["point"]) and r["variance_seconds"]
        ),
        None,
    )
    relative = "-"
    if base is not None and row["variance_seconds"] is not None:
        relative = f"{row['variance_seconds'] / base['variance_seconds']:.2f}"
    interval = f"{100 * row['bias_low']:.2f}..{100 * row['bias_high']:.2f}"
    if row["bias_with_4x_negatives"] is not None:
        interval += f", 4x neg. {100 * row['bias_with_4x_negatives']:.2f}"
    seconds, predicted = row["full_iteration_seconds"], row["predicted_shuffled_bias"]
    cells = [
        find_sampler(row["sampler"]).title_with(row["strata"]) if first_of_sampler else "",
        find_loss(row["loss"]).title,
        row["point"],
        verdict,
        f"{100 * row['bias']:.2f}",
        interval,
        f"{100 * row['detectable_bias']:.2f}",
        f"{row['cosine']:.4f}",
        f"{row['batch_variance']:.2f}",
        "-" if seconds is None else f"{1e3 * seconds:.2f}",
        relative,
        (
            f"{100 * row['shuffled_bias']:.2f}"
            f" ({100 * row['shuffled_bias_low']:.2f}..{100 * row['shuffled_bias_high']:.2f})"
        ),
        "-" if predicted is None else f"{100 * predicted:.3f}",
    ]
    return [
        Text(cell, style=COLORS[row["verdict"]] if place == 3 else "")
        for place, cell in enumerate(cells)
    ]


def _audit_notes(rows: Sequence[Row], margin: float) -> list[str]:
    row = rows[0]
    notes = [
        (
            f"Unbiased: no bias is shown, and it is below {100 * margin:g} % of the exact"
            " gradient's length. Biased: one is shown, however small; (weights): by the"
            f" conformance suite, whatever the parameters. {row['verdicts']} verdicts, nominally 5"
            f" % chance that any is wrong; {row['batches']:,} batches each, with replacement,"
            " dropout off."
        ),
        (
            "Finds from: a bias of so many per cent would be found nine times in ten. Variance: of"
            " one batch's gradient, as a multiple of the exact gradient's squared length."
        ),
        (
            "Var. x s: variance x seconds of an iteration, relative to the first sampler of the"
            " same loss: less should train sooner by plain gradient descent; Adam rescales every"
            " coordinate and bends it."
        ),
        (
            "Shuffled: the streams used in training, and the bias they are predicted to have; for"
            " strata with sharing and mixed N.S. its order of magnitude. Blocks of one epoch are"
            " not independent: their interval is a guide."
        ),
    ]
    if any(find_loss(row["loss"]).family == "listwise" for row in rows):
        notes.append(
            "Softmax: the logarithm of a sampled sum is never unbiased. Consistent: the suite finds"
            " the sum's weights right, and the bias is within the margin, or comes into it or is"
            " shown to fall as the negatives grow (4x neg.)."
        )
    return notes


def xray_view(rows: Sequence[Row]) -> RenderableType:
    """What is in a batch of each sampler."""
    first = rows[0]
    title = (
        f"Batch X-ray: {first['dataset']}, b={first['batch_size']}, means of {first['batches']}"
        " batches"
    )
    table = Table(title=Text(title), title_justify="left")
    table.add_column("P_n")
    table.add_column("sampler")
    headings = (
        "users",
        "distinct",
        "items",
        "distinct",
        "negatives",
        "unmasked",
        "effective",
        "per positive",
        "unmasked",
    )
    for heading in (*headings, "effective", "masked %", "popularity", "padding %", "words %"):
        table.add_column(heading, justify="right")
    last = ""
    for row in rows:
        if row["noise"] != last:
            table.add_section()
        table.add_row(
            row["noise"] if row["noise"] != last else "",
            find_sampler(row["sampler"]).title_with(row["strata"]),
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
        )
        last = row["noise"]
    note = (
        "Nominal counts are the paper's; a shared negative counts once however many links brought"
        " its item. Effective: (sum w)^2 / sum w^2. Popularity: mean degree of the negatives by"
        " weight over its expectation under P_n. Padding: item slots without an item; words: word"
        " slots without a word."
    )
    return Group(table, Text(note, style="dim"), Text(""))


def conformance_view(rows: Sequence[Row]) -> RenderableType:
    """Pass or fail of each property, and what is wrong."""
    table = Table(title="Conformance of the samplers", title_justify="left")
    for heading in ("sampler", "losses", "P_n"):
        table.add_column(heading)
    for name in PROPERTIES:
        table.add_column(name, justify="center")
    table.add_column("finds from %", justify="right")
    groups: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        title = find_sampler(row["sampler"]).title_with(row["strata"])
        groups.setdefault((title, row["loss_family"], row["noise"]), {})[row["property"]] = row
    marks = {"pass": ("pass", "green"), "fail": ("FAIL", "bold red"), "not tested": ("-", "dim")}
    for key, own in groups.items():
        cells = [Text(*marks[own[name]["result"]]) for name in PROPERTIES]
        table.add_row(*key, *cells, _percent(own["expectation"]["detectable_error"]))
    legend = "; ".join(f"{short}: {text}" for short, text in PROPERTIES.items() if short != text)
    faults = [
        Text(
            f"{row['sampler']}, {row['loss_family']}, {row['noise']}:"
            f" {PROPERTIES[row['property']]}: {row['detail']}"
        )
        for row in rows
        if row["result"] == "fail"
    ]
    legend = (
        f"{legend[0].upper()}{legend[1:]}. Finds from: the weights of the negative links, summed in"
        " several ways, must be off by so much for the last property to fail nine times in ten."
    )
    return Group(table, *faults, Text(legend, style="dim"), Text(""))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _count(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
