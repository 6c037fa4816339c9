"""Tables of a verification, and of two folders side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.reporting.regression import Change
from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.verify.check import Value
from ncfbench.reporting.verify.verification import Verification


def verification_tables(found: Verification) -> list[Table]:
    """Return the table of values that do not come out again; none where all do."""
    cols = [
        Col("table", "table"),
        Col("cell", "cell"),
        Col("column", lambda wrong: wrong.note or wrong.column, wraps=True),
        Col("written", lambda wrong: "" if wrong.note else _text(wrong.written)),
        Col("recomputed", lambda wrong: "" if wrong.note else _text(wrong.recomputed)),
    ]
    title = "What does not match"
    return [Table.of(title, cols, found.mismatches, labels=2)] if found.mismatches else []


def changes_table(changes: Sequence[Change], own: str, other: str, limit: float) -> Table:
    """Return both folders side by side, and what has regressed."""
    cols = [
        Col("data set", "dataset"),
        Col("encoder", "encoder"),
        Col("loss", "loss"),
        Col("sampler", lambda change: f"{change.sampler} {change.variant}".strip()),
        Col("settings", "settings"),
        Col("measure", "measure"),
        Col("first", lambda change: _text(change.own)),
        Col("second", lambda change: _text(change.other)),
        Col("gain", _gain),
        Col("n", lambda change: change.seeds or None),
        Col(
            "",
            lambda change: f"{'REGRESSED ' * change.regressed}{change.note}".strip(),
            style=lambda change: "bad" if change.regressed else "muted",
            wraps=True,
        ),
    ]
    note = (
        "Gain above 1: the first folder is better; in brackets its 95 % interval over common"
        " seeds, where there are several. Regressed: the second is better by more than"
        f" {100 * limit:g} %, whatever the interval, or has what the first lost."
    )
    return Table.of(f"{own} against {other}", cols, changes, [note], labels=6, grouped=5)


def _gain(change: Change) -> str:
    if change.gain_at_most is not None:
        return f"at most {change.gain_at_most:.3f}"
    if change.gain is None:
        return "-"
    ends = change.lower, change.upper
    interval = "" if None in ends else " [{:.3f}, {:.3f}]".format(*ends)
    return f"{change.gain:.3f}{interval}"


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, str | bool) else f"{value:.6g}"
