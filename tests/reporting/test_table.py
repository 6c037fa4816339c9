"""Tables: their labels and groups, and what a terminal shows."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.cli import invoke

from ncfbench.reporting.formats import interval
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.results import collect
from ncfbench.reporting.table import Cell, Col, Table, sentence, under

WORDS = st.text("abcdefgh-_", min_size=1, max_size=40)
NUMBERS = st.from_regex(
    r"[0-9]{1,6}\.[0-9]{2}( \[[0-9]{1,5}\.[0-9], [0-9]{1,5}\])?", fullmatch=True
)


def shown(table, width, encoding="utf-8"):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    show(Console(file=file, width=width, color_system=None, legacy_windows=False), table)
    return raw.getvalue().decode(encoding)


def numbers_of(text):
    """Words with a digit, as a reader sees them."""
    return {word for word in text.split() if re.search("[0-9]", word)}


@given(
    st.lists(WORDS, min_size=1, max_size=6),
    st.lists(NUMBERS, min_size=1, max_size=7),
    st.sampled_from(["", "a data set", "x" * 45]),
    st.integers(64, 160),
)
@settings(max_examples=25)
def test_no_width_cuts_a_number(labels, values, group, width):
    """However long labels and headings of groups are, however many columns there are; a table that
    cannot be as narrow is wider.
    """
    row = [*labels, *values, "some words and 12.345 " * 4]
    own = len(labels)
    cols = [Col(f"label {index}", index) for index in range(own)]
    cols += [Col("a long heading", own + index, group=group) for index in range(len(values))]
    cols += [Col("why", -1, wraps=True)]
    text = shown(Table.of("T", cols, [row, row], labels=own), width)
    assert numbers_of(" ".join(row)) <= numbers_of(text)
    assert text.count(values[0].split()[0]) >= 2


@pytest.mark.long_cases("100")
@pytest.mark.parametrize("width", [100, 60])
def test_every_number_of_a_report_is_whole(rich, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = invoke("report", rich, "--full", "--paper").stdout
    numbers = numbers_of(text)
    for table in collect(rich, rich).tables:
        for row in table.rows:
            assert numbers_of(" ".join(cell.text for cell in row)) <= numbers, (table.title, row)
    assert "…" not in text
    # Commands and paths stay in one line, to be copied; a table of fewer columns would cut numbers.
    long = [line for line in text.splitlines() if len(line) > 100]
    assert all(line.startswith(("  ncf", "Written")) for line in long)


def test_texts_fold_at_spaces_and_headings_first():
    cols = [Col("name", 0), Col("value of a thing", 1), Col("why it is so", 2, wraps=True)]
    table = Table.of("T", cols, [["an arm", "12.5", "some words and then some more"]])
    assert shown(table, 40).splitlines() == [
        "T",
        "            value of a",
        "name             thing  why it is so",
        "────────────────────────────────────────",
        "an arm            12.5  some words and",
        "                        then some more",
        "",
    ]
    name = "ncfbench run --sampler ns --encoder cnn --loss hinge"
    lines = shown(Table.of("T", [Col("arm", 0), Col("s", 1)], [[name, "1.5"]]), 40).splitlines()
    assert max(map(len, lines)) <= 40, "a name that is a command is folded, too"
    assert name.replace(" ", "") in "".join(lines).replace("1.5", "").replace(" ", "")


def test_columns_are_declared_once():
    """Keys are names, indices, attributes, several of them, or functions; None is a dash."""
    rows = [
        {"arm": "iid", "seconds": 1.2345, "low": 0.5, "high": 0.75, "links": 12345},
        {"arm": "strat-ns", "seconds": None, "low": None, "high": None, "links": None},
    ]
    cols = [
        Col("arm", "arm", style=lambda row: "plain" if row["seconds"] else "best"),
        *under("a batch", Col("ms", "seconds", ",.2f", scale=1e3), Col("links", "links", ",")),
        Col("bias %", ("low", "high"), interval(".1f"), scale=100),
        Col("why", lambda row: Cell("no", "muted"), wraps=True),
    ]
    table = Table.of("T", cols, rows, ["N."])
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["iid", "1,234.50", "12,345", "50.0..75.0", "no"],
        ["strat-ns", "-", "-", "-", "no"],
    ]
    assert [row[0].style for row in table.rows] == ["plain", "best"]
    assert [column.align for column in table.header] == ["left", *["right"] * 3, "left"]
    assert table.headings == ("arm", "a batch: ms", "links", "bias %", "why")
    assert Col("", 1, absent="").cell(("a", None)) == Cell("")
    assert Col("", ("real", "imag"), interval("g")).cell(3) == Cell("3..0")
    assert sentence("a label") == sentence("a label.") == "a label."


def test_control_characters_ascii_and_markup():
    """Paths such as ``runs[old]`` or ``r[/x]`` are printed as they are."""
    table = Table.of("1 ± 2 †", [Col("a", str)], ["\x1b[31m ██▍"], ["‡: busy"])
    assert "?[31m ██▍" in shown(table, 60)
    assert shown(table, 60, "ascii").split("\n")[0] == "1 +- 2 +"
    assert "?[31m ###" in shown(table, 60, "ascii")
    console = make_console()
    with console.capture() as captured:
        console.print("Records: runs[old]/r[/x]", soft_wrap=True)
        show(console, Table.of("a[/b]", [Col("a", str)], ["c[bold]"]))
    for text in ("runs[old]/r[/x]", "a[/b]", "c[bold]"):
        assert text in captured.get()
