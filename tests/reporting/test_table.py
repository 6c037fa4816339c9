"""Tables: their labels and groups, what a terminal shows, and every room's tables in every
format.
"""

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.cli import invoke
from support.records import table_html, write_folder, write_run, write_tables

from ncfbench.reporting.formats import estimate, interval
from ncfbench.reporting.render import latex, markdown
from ncfbench.reporting.render.terminal import show
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
@settings(deadline=None, max_examples=40)
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
    assert shown(table, 60).splitlines()[1:3] == [
        "name    value of a thing  why it is so",
        "───────────────────────────────────────────────────────",
    ]


def test_columns_are_declared_once():
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


def test_repeated_labels_are_shown_once():
    cols = [Col("encoder", 0), Col("sampler", 1), *under("data", Col("a", 2), Col("b", 3))]
    rows = [["CNN", "iid", "1", "2"], ["CNN", "ns", "3", "4"], ["LSTM", "iid", "5", "6"]]
    table = Table.of("T", cols, rows, labels=2, grouped=1)
    assert [row[0].text for row in table.shown_rows()] == ["CNN", "", "LSTM"]
    assert [table.starts_group(index) for index in range(3)] == [False, False, True]
    assert table.headings == ("encoder", "sampler", "data: a", "b")
    assert [[cell.text for cell in row] for row in table.rows] == rows, "programs get all labels"
    assert shown(table, 60).count("CNN") == latex.render([table]).count("CNN") == 1
    assert markdown.render([table]).count("CNN") == 2


def test_names_that_are_commands_fold_as_texts_do():
    name = "ncfbench run --sampler ns --encoder cnn --loss hinge"
    lines = shown(Table.of("T", [Col("arm", 0), Col("s", 1)], [[name, "1.5"]]), 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert name.replace(" ", "") in "".join(lines).replace("1.5", "").replace(" ", "")


def test_control_characters_and_ascii():
    table = Table.of("1 ± 2 †", [Col("a", str)], ["\x1b[31m ██▍"], ["‡: busy"])
    assert "?[31m ██▍" in shown(table, 60)
    assert shown(table, 60, "ascii").split("\n")[0] == "1 +- 2 +"
    assert "?[31m ###" in shown(table, 60, "ascii")


def test_html_holds_every_cell():
    rows = [("x", Cell("1.5", "best")), ("y", Cell("-", "muted"))]
    table = Table.of("T", [Col("a", 0), Col("b", 1)], rows, ["N."])
    page = table_html(table)
    assert "<strong>1.5</strong>" in page
    assert 'class="right muted">-</td>' in page


@pytest.mark.parametrize("text", ["a label", "a label."])
def test_sentences_end_in_one_stop(text):
    assert sentence(text) == "a label."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = write_folder(tmp_path_factory.mktemp("runs"))
    write_tables(made)
    for s in (1, 16):
        write_run(made, "strat-ns", [9, 6, 2.8], 20 / s, [0, 0.3, 0.4], stratum_size=s)
    name = "my-own-rather-long-data-set"
    for sampler, loss in (("iid", 3.0), ("strat-ns", 3.5)):
        longer = {"dataset": name, "batch_size": 128, "epochs": 2, "strata": "user"}
        write_run(made, sampler, [9, 5, loss], 300, [0, 0.3, 0.41], stratum_size=16, **longer)
    return made


@pytest.mark.long_cases("100")
@pytest.mark.parametrize("width", [100, 60])
def test_every_number_of_a_record_is_whole(folder, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    found = collect(folder, folder).tables
    text = invoke("report", folder, "--full", "--paper").stdout
    assert len(found) > 8
    for table in found:
        for row in table.rows:
            shown = numbers_of(" ".join(cell.text for cell in row))
            assert shown <= numbers_of(text), (table.title, row)
    assert "…" not in text
    # Commands and paths stay in one line, to be copied; a table of fewer columns would cut numbers.
    long = [line for line in text.splitlines() if len(line) > 100]
    assert all(line.startswith(("  ncf", "Written")) for line in long)
