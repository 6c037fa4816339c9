"""What verification and the comparison of two folders found, for the terminal (Rich)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ncfbench.report.regression import Change
from ncfbench.report.verify.recomputed import Value
from ncfbench.report.verify.verification import Verification


def verification_view(found: Verification) -> RenderableType:
    """How many numbers came out again, and each that did not."""
    parts: list[RenderableType] = [Text(f"Warning: {problem}") for problem in found.problems]
    wrong = len(found.mismatches)
    parts.append(
        Text(
            f"{found.numbers:,} values recomputed from settings, raw samples and curves; {wrong:,}"
            " do not match."
        )
    )
    if found.mismatches:
        table = Table(title="What does not match", title_justify="left")
        for heading in ("table", "cell", "column"):
            table.add_column(heading)
        for heading in ("written", "recomputed"):
            table.add_column(heading, justify="right")
        for one in found.mismatches:
            cells = (
                (one.note, "", "")
                if one.note
                else (one.column, _text(one.written), _text(one.recomputed))
            )
            table.add_row(*(Text(text) for text in (one.table, one.cell, *cells)))
        parts.append(table)
    return Group(*parts)


def changes_view(found: Sequence[Change], own: str, other: str, limit: float) -> RenderableType:
    """Both folders side by side, and what has regressed."""
    table = Table(title=Text(f"{own} against {other}"), title_justify="left")
    for heading in ("data set", "encoder", "loss", "sampler", "settings", "measure"):
        table.add_column(heading)
    for heading in ("first", "second", "gain", "n"):
        table.add_column(heading, justify="right")
    table.add_column("")
    last: tuple[str, ...] = ()
    for one in found:
        cell = (
            one.dataset,
            one.encoder,
            one.loss,
            " ".join(filter(None, (one.sampler, one.variant))),
            one.settings,
        )
        if last and cell != last:
            table.add_section()
        gain = "-" if one.gain is None else f"{one.gain:.3f}"
        if one.lower is not None and one.upper is not None:
            gain += f" [{one.lower:.3f}, {one.upper:.3f}]"
        if one.gain_at_most is not None:
            gain = f"at most {one.gain_at_most:.3f}"
        mark = Text(one.note, style="dim")
        if one.regressed:
            mark = Text.assemble(
                ("REGRESSED", "bold red"), *([(f" {one.note}", "dim")] if one.note else [])
            )
        names = cell if cell != last else ("",) * len(cell)
        texts = (*names, one.measure, _text(one.own), _text(one.other), gain, str(one.seeds or "-"))
        table.add_row(*(Text(text) for text in texts), mark)
        last = cell
    note = (
        "Gain above 1: the first folder is better; in brackets its 95 % interval over common"
        " seeds, where there are several. Regressed: the second is better by more than"
        f" {100 * limit:g} %, whatever the interval, or has what the first lost."
    )
    return Group(table, Text(note, style="dim"))


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, str | bool) else f"{value:.6g}"
