"""The table of an audit of frameworks, and a sentence for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.auditing.tables import VERDICTS
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.table import Col, Table, under

Row = Mapping[str, Any]
SHORT = {"too few batches": "undecided"}


def percent(share: float) -> str:
    """Return a share in per cent, with three digits and at most one behind the point."""
    return f"{100 * share:.1f}" if share < 1 else f"{100 * share:.0f}"


def _direction(row: Row) -> str:
    """Return ``down 12.3`` or ``up 4.5``, in points of probability; empty if none is shown."""
    if row["popular_push_low"] <= 0 <= row["popular_push_high"]:
        return ""
    word = "down" if row["popular_push"] > 0 else "up"
    return f"{word} {100 * abs(row['popular_push']):.1f}"


COLS = [
    Col("estimator", "title"),
    Col("claims", "claim_title", align="left"),
    Col(
        "verdict",
        lambda row: SHORT.get(row["verdict"], row["verdict"]),
        style=lambda row: VERDICTS[row["verdict"]],
        align="left",
    ),
    *under(
        "bias %",
        Col("mean", "bias", percent),
        Col("interval", ("bias_low", "bias_high"), lambda ends: "..".join(map(percent, ends))),
        Col("4 b", "bias_with_4x_batch", percent),
    ),
    Col("cos.", "cosine", ".2f"),
    Col("var.", "batch_variance", three_digits),
    Col("linked", "linked_share", ".1f", scale=100),
    Col("popular", lambda row: _direction(row) or "-", align="left"),
]


def frameworks_tables(rows: Sequence[Row]) -> list[Table]:
    """Return the table, at most 100 columns wide, with a sentence for each row below."""
    first = rows[0]
    data = first["dataset"] or f"{first['users']} users, {first['items']} items"
    title = (
        f"Estimators of frameworks against what they claim: {data}, b={first['batch_size']},"
        f" {first['batches']:,} batches"
    )
    return [Table.of(title, COLS, rows, _notes(rows), name="frameworks")]


def finding(row: Row) -> str:
    """Return what is wrong with an estimator and what to do, in two sentences."""
    word, shown_by, meaning = row["verdict"], row["shown_by"], row["claim_meaning"]
    bias, low, high = (percent(row[name]) for name in ("bias", "bias_low", "bias_high"))
    more = row["bias_with_4x_batch"]
    with_more = "" if more is None else f"{percent(more)} % with four times the batch"
    if shown_by == "links":
        text = (
            f"{100 * row['linked_share']:.1f} % of its negatives are training links, and it claims"
            f" {meaning}"
        )
    elif shown_by == "limit":
        text = (
            f"biased by {percent(row['limit_bias'])} % however large the batch as an estimate of"
            f" {meaning}, and by {bias} % with this batch ({with_more})"
        )
    elif word == "biased":
        text = f"biased by {bias} % ({low} to {high}) as an estimate of {meaning}"
    elif word == "too few batches":
        text = (
            f"bias of {low} to {high} % as an estimate of {meaning}, undecided with these batches"
        )
    elif word == "falls with b":
        text = (
            f"bias of {bias} % as an estimate of {meaning}, and {with_more}; whether it vanishes is"
            " not known"
        )
    else:
        text = f"estimates {meaning}"
        if with_more:
            limit = "" if row["limit_bias"] is None else ", 0 in the limit"
            text += f", with a bias of {bias} % from sampling ({with_more}{limit})"
    if row["planted_fault"]:
        text = f"planted, {row['planted_fault']}; {text}"
    direction = _direction(row)
    if direction:
        text += f"; popular items are pushed {direction} points"
    return f"{row['title']}: {text}. {row['remedy']}"


def _notes(rows: Sequence[Row]) -> list[str]:
    first = rows[0]
    return [
        "Bias: of the mean gradient, as a share of the exact gradient's length, and with four times"
        " the batch for a softmax: what sampling alone does falls with the batch, a fault stays."
        " Consistent: it falls, and the exact gradient of its limit for large batches is the right"
        " one."
        f" Unbiased: none is shown, and it is below {100 * first['margin']:g} %."
        " Cos.: cosine of the mean gradient and the exact one."
        f" {first['verdicts']} verdicts, nominally 5 % chance that any is wrong.",
        "Var.: variance of one batch's gradient over the exact gradient's squared length. Linked:"
        " per cent of the negatives that are training links; a softmax over all items has them.",
        "Popular: the fewest items with half of all links, and by how many points of probability"
        " their scores are pushed down or up beyond the objective in which all items count alike.",
        *(finding(row) for row in rows),
    ]
