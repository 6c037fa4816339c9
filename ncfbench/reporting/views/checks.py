"""Tables of a verification, and of two folders side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.reporting.regression import Change
from ncfbench.reporting.table import Cell, Header, Table, text_column
from ncfbench.reporting.verify.check import Value
from ncfbench.reporting.verify.verification import Verification


def verification_tables(found: Verification) -> list[Table]:
    """Return the table of values that do not come out again; none where all do."""
    rows = [
        [
            one.table,
            one.cell,
            one.note or one.column,
            "" if one.note else _text(one.written),
            "" if one.note else _text(one.recomputed),
        ]
        for one in found.mismatches
    ]
    header: Header = ["table", "cell", text_column("column"), "written", "recomputed"]
    return [Table("What does not match", header, rows, labels=2)] if rows else []


def changes_table(changes: Sequence[Change], own: str, other: str, limit: float) -> Table:
    """Return both folders side by side, and what has regressed."""
    rows = []
    for one in changes:
        gain = "-" if one.gain is None else f"{one.gain:.3f}"
        if one.lower is not None and one.upper is not None:
            gain += f" [{one.lower:.3f}, {one.upper:.3f}]"
        if one.gain_at_most is not None:
            gain = f"at most {one.gain_at_most:.3f}"
        arm = (one.dataset, one.encoder, one.loss, f"{one.sampler} {one.variant}".strip())
        values = (_text(one.own), _text(one.other), gain, str(one.seeds or "-"))
        note = f"{'REGRESSED ' * one.regressed}{one.note}".strip()
        texts = (*arm, one.settings, one.measure, *values)
        rows.append([*map(Cell, texts), Cell(note, "bad" if one.regressed else "muted")])
    note = (
        "Gain above 1: the first folder is better; in brackets its 95 % interval over common"
        " seeds, where there are several. Regressed: the second is better by more than"
        f" {100 * limit:g} %, whatever the interval, or has what the first lost."
    )
    names = ["data set", "encoder", "loss", "sampler", "settings", "measure"]
    header: Header = [*names, "first", "second", "gain", "n", text_column("")]
    return Table(f"{own} against {other}", header, rows, [note], labels=6, grouped=5)


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, str | bool) else f"{value:.6g}"
