"""Tables of an audit: written as Parquet, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.auditing.conformance import PROPERTIES
from ncfbench.auditing.verdict import NONE_DECIDES, worded
from ncfbench.catalog import find_loss, find_sampler
from ncfbench.reporting.formats import interval
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
}
RESULTS = {
    "pass": Cell("pass", "good"),
    "fail": Cell("FAIL", "bad"),
    "not tested": Cell("-", "muted"),
    "declared": Cell("declared", "open"),
}
SHUFFLED_ENDS = ("shuffled_bias_low", "shuffled_bias_high")
NOISE = Col("P_n", "noise")


def _sampler(row: Row) -> str:
    return find_sampler(row["sampler"]).with_strata(row["strata"]).title


def _loss(row: Row) -> str:
    return find_loss(row["loss"]).title


def _point(row: Row) -> str:
    """Return the name of the parameters, and whether negatives are explicit ones."""
    return f"{row['point']} (explicit negatives)" if _is_explicit(row) else str(row["point"])


def _is_explicit(row: Row) -> bool:
    return bool(row["negative_items"] == "explicit")


SAMPLER, LOSS, POINT = Col("sampler", _sampler), Col("loss", _loss), Col("parameters", _point)


def write(runs_dir: Path, found: Mapping[str, Sequence[Row]]) -> None:
    """Write each table of :data:`ncfbench.storage.schemas.AUDIT_TABLES`, atomically."""
    with tables.storage_errors(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
    for name, rows in found.items():
        tables.write_rows(runs_dir / f"{name}.parquet", rows, AUDIT_TABLES[name])


def audit_tables(found: Mapping[str, Sequence[Row]]) -> list[Table]:
    """Return the tables of an audit of samplers, as far as it has rows."""
    views = {"conformance": conformance_tables, "xray": xray_tables, "audit": bias_tables}
    return [table for name, view in views.items() if found.get(name) for table in view(found[name])]


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
        # The notes hold for every noise distribution; they stand below the last.
        notes = _bias_notes(own) if noise == rows[-1]["noise"] else []
        name = slug("bias", noise)
        found.append(Table.of(title, _bias_cols(own), own, notes, labels=3, grouped=1, name=name))
    return [*found, _objective_table(rows)]


def _bias_cols(rows: Sequence[Row]) -> list[Col]:
    costs = {
        (row["loss"], row["point"], _is_explicit(row)): row["variance_seconds"]
        for row in reversed(rows)
        if row["variance_seconds"]
    }

    def relative_cost(row: Row) -> float | None:
        """Return variance x seconds, over that of the first sampler of the objective."""
        base = costs.get((row["loss"], row["point"], _is_explicit(row)))
        cost = row["variance_seconds"]
        return None if base is None or cost is None else cost / base

    shuffled = under(
        "shuffled %",
        Col("mean", "shuffled_bias", ".2f", scale=100),
        Col("interval", SHUFFLED_ENDS, interval(".2f"), scale=100),
        Col("predicted", "predicted_shuffled_bias", ".3f", scale=100),
    )
    return [
        SAMPLER,
        LOSS,
        POINT,
        Col("verdict", worded, style=lambda row: VERDICTS[row["verdict"]], align="left"),
        *under(
            "bias %",
            Col("mean", "bias", ".2f", scale=100),
            Col("interval", _bias_interval),
            Col("finds from", "detectable_bias", ".2f", scale=100),
        ),
        Col("cosine", "cosine", ".4f"),
        Col("variance", "batch_variance", ".2f"),
        Col("ms", "full_iteration_seconds", ".2f", scale=1e3),
        Col("var. x s", relative_cost, ".2f"),
        *(shuffled if _has_shuffled(rows) else ()),
    ]


def _has_shuffled(rows: Sequence[Row]) -> bool:
    return any(row["shuffled_bias"] is not None for row in rows)


def _bias_interval(row: Row) -> str:
    more = row["bias_with_4x_negatives"]
    text = f"{100 * row['bias_low']:.2f}..{100 * row['bias_high']:.2f}"
    return text if more is None else f"{text}, 4x neg. {100 * more:.2f}"


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
    ]
    if _has_shuffled(rows):
        notes.append(
            "Shuffled: the streams used in training, and the bias they are predicted to have; for"
            " strata with sharing and mixed-ns its order of magnitude. Blocks of one epoch are not"
            " independent: their interval is a guide."
        )
    if any(NONE_DECIDES in worded(row) for row in rows):
        notes.append(
            f"{NONE_DECIDES.capitalize()}: a softmax is judged with four times the negatives too,"
            " for which these data are too small. Take a smaller --batch-size."
        )
    if any(map(_is_explicit, rows)):
        notes.append(f"Explicit negatives: unbiased is for {EXPLICIT_OBJECTIVE}.")
    if any(find_loss(row["loss"]).family == "listwise" for row in rows):
        notes.append(
            "Softmax: the logarithm of a sampled sum is never unbiased. Consistent: the suite finds"
            " the sum's weights right, and the bias is within the margin, or comes into it or is"
            " shown to fall as the negatives grow (4x neg.)."
        )
    return notes


def _objective_table(rows: Sequence[Row]) -> Table:
    """Return the exact objective with the probe beside it."""
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault((row["loss"], row["noise"], row["point"], _is_explicit(row)), row)

    def point(row: Row) -> str:
        return _point(row) if _is_explicit(row) else str(row["point"])

    def error(row: Row) -> float | None:
        return None if row["probe_loss"] is None else row["probe_loss"] / row["exact_loss"] - 1

    cols = [
        LOSS,
        NOISE,
        Col("parameters", point),
        Col("exact", "exact_loss", ".5f"),
        Col("probe", "probe_loss", ".5f"),
        Col("error %", error, "+.3f", scale=100),
    ]
    notes = [
        "Where links x items is small the probe is the exact sum itself, and only float32's"
        " rounding differs."
    ]
    if any(map(_is_explicit, rows)):
        notes.append("The probe knows no explicit negatives: it has one P_n for all users.")
    title = "Exact objective, and the probe beside it"
    return Table.of(title, cols, first.values(), notes, labels=3, name="objective")


def xray_tables(rows: Sequence[Row]) -> list[Table]:
    """Return what is in a batch of each sampler."""
    first = rows[0]
    title = (
        f"Batch X-ray: {first['dataset']}, b={first['batch_size']}, means of {first['batches']}"
        " batches"
    )
    kinds = ("nominal", "unmasked", "effective")

    def counts(what: str, kinds: Sequence[str], digits: int = 0) -> list[Col]:
        return [Col(kind, f"{kind}_{what}", f",.{digits}f") for kind in kinds]

    cols = [
        NOISE,
        SAMPLER,
        *under("users", *counts("users", ("nominal", "distinct"))),
        *under("items", *counts("items", ("nominal", "distinct"))),
        *under("negatives", *counts("negatives", kinds)),
        *under("of a positive", *counts("negatives_of_a_positive", kinds, 1)),
        Col("masked %", "masked_share", ".2f", scale=100),
        Col("popularity", "popularity_ratio", ",.3f"),
        *under(
            "padding %",
            Col("items", "padding_share", ".1f", scale=100),
            Col("words", "word_padding_share", ".1f", scale=100),
        ),
    ]
    note = (
        "Nominal counts are the paper's; a shared negative counts once however many links brought"
        " its item. Effective: (sum w)^2 / sum w^2. Popularity: mean degree of the negatives by"
        " weight over its expectation under P_n. Padding: item slots without an item, word slots"
        " without a word."
    )
    return [Table.of(title, cols, rows, [note], labels=2, grouped=1, name="xray")]


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
