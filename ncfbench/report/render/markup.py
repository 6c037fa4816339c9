"""Sheets as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ncfbench.report.sheets import Cell, Sheet

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "†": r"\dag{}",
    '"': "''",
}
_MARKDOWN = "\\`*_{}[]<>#|~"


def markdown(sheets: Sequence[Sheet]) -> str:
    """Tables in GitHub's Markdown, each under its title, notes below."""
    return "\n".join(_markdown(sheet) for sheet in sheets)


def latex(sheets: Sequence[Sheet]) -> str:
    """A ``table`` with booktabs rules for each sheet, for ``\\input`` by a document that has
    ``\\usepackage{booktabs}``.
    """
    return "\n".join(["% Needs \\usepackage{booktabs}.", *(_latex(sheet) for sheet in sheets)])


def html_table(sheet: Sheet) -> str:
    """A ``<figure>`` with the table in a box that scrolls by itself, notes below."""
    headings = "".join(
        f'<th colspan="{len(sheet.columns)}" scope="colgroup">{html.escape(group)}</th>'
        for group in sheet.groups
    )
    columns = "".join(
        f'<th scope="col">{html.escape(column)}</th>'
        for _ in sheet.groups
        for column in sheet.columns
    )
    body = []
    for line in sheet.lines:
        cells = "".join(_html_cell(cell) for cell in line.cells)
        start = ' class="first"' if line.encoder else ""
        body.append(
            f"<tr{start}><td>{html.escape(line.encoder)}</td><th"
            f' scope="row">{html.escape(line.sampler)}</th>{cells}</tr>'
        )
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in sheet.notes)
    return (
        f'<figure class="sheet"><h3>{html.escape(sheet.title)}</h3><div class="scroll" tabindex="0"'
        f' role="region" aria-label="{html.escape(sheet.title)}"><table><thead><tr><th'
        f' colspan="2"></th>{headings}</tr><tr><th scope="col" class="left">encoder</th><th'
        f' scope="col" class="left">sampler</th>{columns}</tr></thead>\n<tbody>'
        + "\n".join(body)
        + f"</tbody></table></div>{f'<figcaption>{notes}</figcaption>' if notes else ''}</figure>"
    )


def escape_latex(text: str) -> str:
    """Text in which LaTeX reads every character as itself."""
    return "".join(_LATEX.get(character, character) for character in text)


def escape_markdown(text: str) -> str:
    """Text in which Markdown reads every character as itself."""
    return "".join("\\" + character if character in _MARKDOWN else character for character in text)


def _markdown(sheet: Sheet) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    headings = [
        (
            f"{escape_markdown(group)}: {escape_markdown(column)}"
            if place == 0
            else escape_markdown(column)
        )
        for group in sheet.groups
        for place, column in enumerate(sheet.columns)
    ]
    rows = [["encoder", "sampler", *headings], ["---", "---", *("---:" for _ in headings)]]
    encoder = ""
    for one in sheet.lines:
        encoder = one.encoder or encoder
        cells = [
            f"**{escape_markdown(cell.text)}**" if cell.best else escape_markdown(cell.text)
            for cell in one.cells
        ]
        rows.append([escape_markdown(encoder), escape_markdown(one.sampler), *cells])
    notes = "".join(f"\n{escape_markdown(note)}\n" for note in sheet.notes)
    return f"### {escape_markdown(sheet.title)}\n\n" + "\n".join(map(line, rows)) + f"\n{notes}"


def _latex(sheet: Sheet) -> str:
    width = len(sheet.columns)
    spec = "ll" + "".join("r" * width for _ in sheet.groups)
    groups = "".join(
        rf" & \multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}" for group in sheet.groups
    )
    rules = " ".join(
        rf"\cmidrule(lr){{{3 + place * width}-{2 + (place + 1) * width}}}"
        for place in range(len(sheet.groups))
    )
    columns = " & ".join(escape_latex(column) for _ in sheet.groups for column in sheet.columns)
    body = []
    for place, line in enumerate(sheet.lines):
        if place and line.encoder:
            body.append(r"\midrule")
        cells = [
            rf"\textbf{{{escape_latex(cell.text)}}}" if cell.best else escape_latex(cell.text)
            for cell in line.cells
        ]
        body.append(
            " & ".join([escape_latex(line.encoder), escape_latex(line.sampler), *cells]) + r" \\"
        )
    notes = [rf"\par\smallskip\footnotesize {escape_latex(note)}" for note in sheet.notes]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escape_latex(sheet.title)}}}",
            rf"\begin{{tabular}}{{{spec}}}",
            r"\toprule",
            rf" & {groups} \\",
            rules,
            rf"encoder & sampler & {columns} \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def _html_cell(cell: Cell) -> str:
    text = html.escape(cell.text)
    kind = ' class="muted"' if cell.muted else ""
    return f"<td{kind}>{f'<strong>{text}</strong>' if cell.best else text}</td>"
