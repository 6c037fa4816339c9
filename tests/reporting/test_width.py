"""Terminals of every width: whole numbers, lines within the width, labels in each block."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from folders import write_folder, write_run, write_tables
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from ncfbench.cli import app
from ncfbench.reporting.render.columns import blocks
from ncfbench.reporting.render.terminal import show
from ncfbench.reporting.table import Column, Table, text_column

WORDS = st.text("abcdefgh-_", min_size=1, max_size=40)
NUMBERS = st.from_regex(
    r"[0-9]{1,6}\.[0-9]{2}( \[[0-9]{1,5}\.[0-9], [0-9]{1,5}\])?", fullmatch=True
)


def lines_of(table: Table, width: int) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=width, color_system=None), table)
    return out.getvalue().splitlines()


def numbers_of(text: str) -> set[str]:
    """Words with a digit, as a reader sees them."""
    return {word for word in text.split() if re.search("[0-9]", word)}


@given(
    st.lists(WORDS, min_size=1, max_size=6),
    st.lists(NUMBERS, min_size=1, max_size=7),
    st.sampled_from(["", "a data set", "x" * 45]),
    st.integers(64, 160),
)
def test_no_width_cuts_a_number(
    labels: list[str], values: list[str], group: str, width: int
) -> None:
    """However long labels and headings of groups are, and however many labels there are."""
    header: list[Column | str] = [f"label {index}" for index in range(len(labels))]
    header += [Column("a long heading", group=group) for _ in values]
    header += [text_column("why")]
    row = [*labels, *values, "some words and 12.345 " * 4]
    table = Table("T", header, [row, row], labels=len(labels))
    shown = lines_of(table, width)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    assert numbers_of(" ".join(row)) <= numbers_of(text)
    # Each value stands once for each row, in whatever block.
    assert text.count(values[0].split()[0]) >= 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_folder(tmp_path_factory.mktemp("runs"))
    write_tables(made)
    for s in (1, 16):
        write_run(made, "strat-ns", [9, 6, 2.8], 20 / s, [0, 0.3, 0.4], stratum_size=s)
    name = "my-own-rather-long-data-set"
    for sampler, loss in (("iid", 3.0), ("strat-ns", 3.5)):
        longer = {"dataset": name, "batch_size": 128, "epochs": 2, "strata": "user"}
        write_run(made, sampler, [9, 5, loss], 300, [0, 0.3, 0.41], stratum_size=16, **longer)
    return made


@pytest.mark.parametrize("width", [80, 60])
def test_every_number_of_a_record_is_whole(folder: Path, width: int) -> None:
    document = json.loads(CliRunner().invoke(app, ["report", str(folder), "--json"]).stdout)
    shown = CliRunner(env={"COLUMNS": str(width)}).invoke(
        app, ["report", str(folder), "--full", "--paper"]
    )
    lines = shown.stdout.splitlines()
    found = numbers_of(shown.stdout)
    assert len(document["tables"]) > 8
    for table in document["tables"]:
        for row in table["rows"]:
            for cell in row:
                assert numbers_of(cell) <= found, (table["title"], row)
    assert "…" not in shown.stdout
    # Commands and paths stay in one line, to be copied.
    assert not [
        line for line in lines if len(line) > width and not line.startswith(("  ncf", "Written"))
    ]


def test_blocks_repeat_labels_and_hold_every_column() -> None:
    header = ["name", *(Column("value", group=f"g{index // 3}") for index in range(9))]
    table = Table("T", header, [["arm", *(["1234.56 [7, 8]"] * 9)]])
    assert [list(block) for block in blocks(table, 80)] == [
        [0, *range(first, first + 3)] for first in (1, 4, 7)
    ], "a group stays together"
    assert [len(block) for block in blocks(table, 400)] == [10]


def test_texts_fold_at_spaces_and_headings_first() -> None:
    header: list[Column | str] = ["name", "value of a thing", text_column("why it is so")]
    table = Table("T", header, [["an arm", "12.5", "some words and then some more"]])
    assert lines_of(table, 40) == [
        "T",
        "        value",
        "         of a",
        "name    thing  why it is so",
        "────────────────────────────────────────",
        "an arm   12.5  some words and then some",
        "               more",
        "",
    ]
    assert lines_of(table, 60)[1:3] == [
        "name    value of a thing  why it is so",
        "───────────────────────────────────────────────────────",
    ]
