"""The table of an audit of frameworks, and a sentence for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.auditing.tables import VERDICTS
from ncfbench.reporting.table import Cell, Column, Header, Table, columns_of, three_digits

Row = Mapping[str, Any]
SHORT = {"too few batches": "undecided"}


def frameworks_tables(rows: Sequence[Row]) -> list[Table]:
    """Return the table, at most 100 columns wide, with a sentence for each row below."""
    first = rows[0]
    data = first["dataset"] or f"{first['users']} users, {first['items']} items"
    header: Header = [
        "estimator",
        Column("claims", "left"),
        Column("verdict", "left"),
        *columns_of("bias %", "mean", "interval", "4 b"),
        "cos.",
        "var.",
        "linked",
        Column("popular", "left"),
    ]
    title = (
        f"Estimators of frameworks against what they claim: {data}, b={first['batch_size']},"
        f" {first['batches']:,} batches"
    )
    return [Table(title, header, [_cells(row) for row in rows], _notes(rows), name="frameworks")]


def packages_table(rows: Sequence[Row]) -> Table:
    """Return the losses of one batch, by us and by the installed packages."""
    header: Header = ["estimator", Column("package", "left"), "version", "follows", "ours", "its"]
    cells = [
        [
            Cell(row["name"]),
            Cell(row["package"]),
            Cell(row["version"]),
            Cell(row["followed_version"]),
            Cell(f"{row['our_loss']:.6f}"),
            Cell(f"{row['package_loss']:.6f}", "good" if row["agrees"] else "bad"),
        ]
        for row in rows
    ]
    notes = ["The loss of one batch of ours. They agree where they differ by no more than 1e-5."]
    others = {row["package"]: row for row in rows if row["version"] != row["followed_version"]}
    notes += [
        f"{package} {row['version']} is installed, and ours follows {row['followed_version']}: the"
        " audit's findings hold for that version."
        for package, row in others.items()
    ]
    return Table("Losses of installed packages", header, cells, notes, name="packages")


def finding(row: Row) -> str:
    """Return what is wrong with an estimator and what to do, in two sentences."""
    found = row["verdict"]
    low, high = (percent(row[f"bias_{end}"]) for end in ("low", "high"))
    meaning = row["claim_meaning"]
    if row["shown_by"] == "links":
        text = (
            f"{100 * row['linked_share']:.1f} % of its negatives are training links, and it claims"
            f" {meaning}"
        )
    elif row["shown_by"] == "limit":
        text = (
            f"biased by {percent(row['limit_bias'])} % however large the batch as an estimate of"
            f" {meaning}, and by {percent(row['bias'])} % with this batch"
            f" ({percent(row['bias_with_4x_batch'])} % with four times the batch)"
        )
    elif found == "biased":
        text = f"biased by {percent(row['bias'])} % ({low} to {high}) as an estimate of {meaning}"
    elif found == "too few batches":
        text = (
            f"bias of {low} to {high} % as an estimate of {meaning}, undecided with these batches"
        )
    elif found == "falls with b":
        text = (
            f"bias of {percent(row['bias'])} % as an estimate of {meaning}, and"
            f" {percent(row['bias_with_4x_batch'])} % with four times the batch; whether it"
            " vanishes is not known"
        )
    else:
        text = f"estimates {meaning}"
        if row["bias_with_4x_batch"] is not None:
            text += (
                f", with a bias of {percent(row['bias'])} % from sampling"
                f" ({percent(row['bias_with_4x_batch'])} % with four times the batch"
                f"{'' if row['limit_bias'] is None else ', 0 in the limit'})"
            )
    if row["planted_fault"]:
        text = f"planted, {row['planted_fault']}; {text}"
    direction = _direction(row)
    if direction:
        text += f"; popular items are pushed {direction} points"
    return f"{row['title']}: {text}. {row['remedy']}"


def percent(share: float) -> str:
    """Return a share in per cent, with three digits and at most one behind the point."""
    return f"{100 * share:.1f}" if share < 1 else f"{100 * share:.0f}"


def _cells(row: Row) -> list[Cell]:
    verdict: str = row["verdict"]
    more = row["bias_with_4x_batch"]
    return [
        Cell(row["title"]),
        Cell(row["claim_title"]),
        Cell(SHORT.get(verdict, verdict), VERDICTS[verdict]),
        Cell(percent(row["bias"])),
        Cell(f"{percent(row['bias_low'])}..{percent(row['bias_high'])}"),
        Cell("-" if more is None else percent(more)),
        Cell(f"{row['cosine']:.2f}"),
        Cell(three_digits(row["batch_variance"])),
        Cell(f"{100 * row['linked_share']:.1f}"),
        Cell(_direction(row) or "-"),
    ]


def _direction(row: Row) -> str:
    """Return ``down 12.3`` or ``up 4.5``, in points of probability; empty if none is shown."""
    if row["popular_push_low"] <= 0 <= row["popular_push_high"]:
        return ""
    word = "down" if row["popular_push"] > 0 else "up"
    return f"{word} {100 * abs(row['popular_push']):.1f}"


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
