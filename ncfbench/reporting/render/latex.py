r"""Tables in LaTeX, for ``\input`` by a document that has ``\usepackage{booktabs}``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ncfbench.reporting.table import Cell, Table, is_command

SPECIAL = {each: f"\\{each}" for each in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    '"': "''",
}


def render(tables: Sequence[Table]) -> str:
    """Return a ``table`` environment for each table, with its name as the label ``tab:NAME``."""
    return "\n".join([r"% Needs \usepackage{booktabs}.", *map(_table, tables)])


def escape(text: str) -> str:
    """Return text in one line in which LaTeX reads every character as itself."""
    # Two hyphens of a flag would become a dash.
    return "".join(SPECIAL.get(each, each) for each in " ".join(text.split())).replace("--", "-{}-")


def _table(table: Table) -> str:
    body = []
    for index, row in enumerate(table.shown_rows()):
        body += [r"\midrule"] if table.starts_group(index) else []
        body.append(_line(map(_cell, row)))
    lines = [
        *(part for line in table.paragraphs for part in (_text(line), "")),
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{escape(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{''.join(column.align[0] for column in table.header)}}}",
        r"\toprule",
        _line(map(escape, table.headings)),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {_text(note)}" for note in table.notes),
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _text(line: str) -> str:
    return rf"\texttt{{{escape(line)}}}" if is_command(line) else escape(line)


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.style == "best" else text
