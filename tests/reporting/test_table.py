"""Tables: their labels and groups, what a terminal shows, and every room's tables in every
format.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from folders import write_tables
from html_tables import table_html
from hypothesis import given
from hypothesis import strategies as st
from invoked import invoke
from rich.console import Console

from ncfbench.reporting.formats import estimate, interval
from ncfbench.reporting.render import csv, latex, markdown
from ncfbench.reporting.render.json import render
from ncfbench.reporting.render.terminal import show
from ncfbench.reporting.table import (
    Cell,
    Col,
    Column,
    Table,
    columns_of,
    sentence,
    text_column,
    under,
)

NUMBERS = st.floats(-1e9, 1e9).map(lambda value: f"{value:,.2f} [{value:,.2f}, {value:,.2f}]")


def shown(table: Table, width: int, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    show(Console(file=file, width=width, color_system=None, legacy_windows=False), table)
    return raw.getvalue().decode(encoding)


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.integers(70, 200), st.booleans())
def test_no_width_cuts_a_number(values: list[str], width: int, grouped: bool) -> None:
    """Every line fits, every number is whole, and each block repeats the labels."""
    header = [
        "sampler",
        *(Column(f"heading {index}", group="all" * grouped) for index in range(len(values))),
        text_column("words"),
    ]
    text = shown(Table("Numbers", header, [["strat-ns", *values, "some words " * 9]]), width)
    assert all(value in text for value in values)
    assert max(map(len, text.splitlines())) <= width
    rows = [line for line in text.splitlines() if line.startswith("strat-ns")]
    assert sum(line.startswith("sampler") for line in text.splitlines()) == len(rows)


def test_columns_are_declared_once() -> None:
    """Keys are names, indices, attributes, several of them, or functions; None is a dash."""
    rows: list[dict[str, Any]] = [
        {"arm": "iid", "seconds": 1.2345, "low": 0.5, "high": 0.75, "links": 12345},
        {"arm": "strat-ns", "seconds": None, "low": None, "high": None, "links": None},
    ]
    cols = [
        Col("arm", "arm", style=lambda row: "plain" if row["seconds"] else "best"),
        *under("a batch", Col("ms", "seconds", ",.2f", scale=1e3), Col("links", "links", ",")),
        Col("bias %", ("low", "high"), interval(".1f"), scale=100),
        Col("ratio", lambda row: row["links"] and (2.0, row["low"], None), estimate(".2f")),
        Col("why", lambda row: Cell("no", "muted"), wraps=True),
    ]
    table = Table.of("T", cols, rows, ["N."])
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["iid", "1,234.50", "12,345", "50.0..75.0", "2.00", "no"],
        ["strat-ns", "-", "-", "-", "-", "no"],
    ]
    assert [row[0].style for row in table.rows] == ["plain", "best"]
    assert [column.align for column in table.header] == ["left", *["right"] * 4, "left"]
    assert table.headings == ("arm", "a batch: ms", "links", "bias %", "ratio", "why")
    assert Col("", 1, absent="").cell(("a", None)) == Cell("")
    assert Col("", ("real", "imag"), interval("g")).cell(3) == Cell("3..0")
    assert estimate(".1f")((2.0, 1.5, 2.5)) == "2.0 [1.5, 2.5]"


def test_repeated_labels_are_shown_once() -> None:
    header: list[Column | str] = ["encoder", "sampler", *columns_of("data", "a", "b")]
    rows = [["CNN", "IID", "1", "2"], ["CNN", "N.S.", "3", "4"], ["LSTM", "IID", "5", "6"]]
    table = Table("T", header, rows, labels=2, grouped=1)
    assert [row[0].text for row in table.shown_rows()] == ["CNN", "", "LSTM"]
    assert [table.starts_group(index) for index in range(3)] == [False, False, True]
    assert table.headings == ("encoder", "sampler", "data: a", "b")
    assert [[cell.text for cell in row] for row in table.rows] == rows, "programs get all labels"
    assert shown(table, 60).count("CNN") == latex.render([table]).count("CNN") == 1
    assert markdown.render([table]).count("CNN") == csv.render([table]).count("CNN") == 2
    with pytest.raises(ValueError, match="cells under 4 columns"):
        Table("T", header, [["CNN"]])


def test_commands_are_not_folded() -> None:
    command = "ncfbench run " + "--set word_dimension=8 " * 9
    table = Table("Commands", [Column("command", "left", verbatim=True)], [[command]])
    assert f"  {command}\n" in shown(table, 40)


def test_control_characters_and_ascii() -> None:
    table = Table("1 ± 2 †", ["a"], [["\x1b[31m ██▍"]], ["‡: busy"])
    assert "?[31m ██▍" in shown(table, 60)
    assert shown(table, 60, "ascii").split("\n")[0] == "1 +- 2 +"
    assert "?[31m ###" in shown(table, 60, "ascii")


def test_json_and_html_hold_every_cell() -> None:
    table = Table("T", ["a", "b"], [["x", Cell("1.5", "best")], ["y", Cell("-", "muted")]], ["N."])
    assert render([table]) == [
        {
            "name": "t",
            "title": "T",
            "lead": "",
            "header": ["a", "b"],
            "rows": [["x", "1.5"], ["y", "-"]],
            "notes": ["N."],
        }
    ]
    page = table_html(table)
    assert "<strong>1.5</strong>" in page
    assert 'class="right muted">-</td>' in page


@pytest.mark.parametrize("text", ["a label", "a label."])
def test_sentences_end_in_one_stop(text: str) -> None:
    assert sentence(text) == "a label."


def test_every_table_is_in_every_format(tmp_path: Path) -> None:
    """The tables of ``profile`` and ``audit`` are published like those of runs."""
    rows = write_tables(tmp_path)
    titles = (
        "Unit costs",
        "What an iteration does",
        "Milliseconds of an iteration",
        "Accounts",
        "What each of 3 devices sends",
        "Conformance of the samplers",
        "What is wrong",
        "Batch X-ray",
        "Gradients against the exact one",
        "Exact objective",
    )
    for kind in ("table", "markdown", "latex", "html", "json"):
        result = invoke("report", tmp_path, "--format", kind)
        assert result.exit_code == 0, result.output
        page = tmp_path / "report.html"
        text = page.read_text() if kind == "html" else result.stdout
        assert [title for title in titles if title not in text] == []
    lines = invoke("report", tmp_path, "--format", "csv").stdout.splitlines()
    assert {line[2:] for line in lines if line.startswith("# ")} == set(rows)
