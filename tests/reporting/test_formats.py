"""What every format must have: escaped text, whole commands, numbers that agree, and files."""

import csv
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.cli import check
from support.cli import invoke as run
from support.records import table_html, write_run

import ncfbench
from ncfbench.errors import install_command
from ncfbench.reporting.render import html, latex, markdown
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Cell, Col, Table


def invoke(*words):
    return run("report", *words)


COMMAND = "ncfbench advise citeulike --loss sg --metric mrr --runs-dir some/where/far/away/x"
NASTY = Table.of(
    "Speed_up {100 %} & more",
    [
        *(Col("encoder", 0), Col("sampler", 1), Col("# of it.", 2, group="data<1>")),
        *(Col("# of it.", 3, group="b|c"), Col("why", 4)),
    ],
    [
        ["CNN", "a_b", Cell("1 ± 2", "best"), "<script>", "a | b\n\nc"],
        ["CNN", "x", Cell("-", "muted"), "9", ""],
    ],
    ["50 % ~ ^", "Try:", COMMAND],
    lead="Use --batch-size 64 <now>.",
    labels=2,
    grouped=1,
)
ESCAPED = {
    latex.render: [
        r"\caption{Speed\_up \{100 \%\} \& more}",
        r"CNN & a\_b & \textbf{1 $\pm$ 2} & \textless{}script\textgreater{}"
        r" & a \textbar{} b c \\",
        r"encoder & sampler & data\textless{}1\textgreater{}: \# of it. & b\textbar{}c:",
        r"50 \% \textasciitilde{} \textasciicircum{}",
        "Use -{}-batch-size 64",  # two hyphens would become a dash
    ],
    markdown.render: [
        r"| CNN | a\_b | **1 ± 2** | \<script\> | a \| b c |",
        "\n| CNN | x |",  # repeated: Markdown has no rule between groups
        f"\n    {COMMAND}\n",
    ],
    table_html: [
        "&lt;script&gt;",
        "Use <code>--batch-size</code> 64 &lt;now&gt;.",
        f'<code class="command">{COMMAND}</code>',
    ],
}


@pytest.mark.parametrize("render", ESCAPED)
def test_every_character_is_read_as_itself(render):
    """One line for each cell, whatever a message says, and the same number of cells in each."""
    text = render(NASTY) if render is table_html else render([NASTY])
    for part in ESCAPED[render]:
        assert part in text
    if render is markdown.render:
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {7}
    if render is latex.render:
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {5}


def test_a_terminal_folds_no_command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    console = make_console()
    with console.capture() as captured:
        show(console, NASTY)
    assert f"  {COMMAND}\n" in captured.get()


def test_csv_has_the_numbers_of_json(rich, tmp_path):
    """Null is empty, and the values of a list stand side by side."""
    text = invoke(rich, "--format", "csv", "--full").stdout
    parts = {part.partition("\n")[0][2:]: part.partition("\n")[2] for part in text.split("\n\n")}
    frames = {name: list(csv.DictReader(part.splitlines())) for name, part in parts.items()}
    assert [*frames] == ["answers", "speedup", "recall", "claims", "runs", "probes"]
    printed, file = invoke(rich, "--json").stdout, tmp_path / "report.json"
    check(invoke(rich, "--format", "json", "--output", file), 0)
    assert file.read_text() == printed
    document = json.loads(printed)
    assert document.keys() == {*frames} - {"runs", "probes"} | {"figures", "problems"}
    for name in ("speedup", "recall", "claims"):
        for row, whole in zip(frames[name], document[name], strict=True):
            for key, value in whole.items():
                text = " ".join(value) if isinstance(value, list) else str(value)
                assert row[key] == ("" if value is None else text)
    arms = {row["name"]: row for answer in document["answers"] for row in answer["arms"]}
    shown = [row for row in frames["answers"] if row["name"] in arms]
    assert len(shown) == len(arms)
    for row in shown:
        assert float(row["test_recall_at_50"]) == arms[row["name"]]["test_recall_at_50"]
    runs = [row["run"] for row in frames["runs"]]
    assert runs == ncfbench.report(rich).arms["run"].to_pylist()


class Reader(HTMLParser):
    """Open tags, references and ids of a page."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.references, self.ids, self.tags, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open += [] if tag in self.VOID else [tag]
        for name, value in attributes:
            if name in ("href", "src", "xlink:href", "action", "data", "srcset", "poster"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value)
            assert not name.startswith("on"), f"{name}: no script is needed"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_is_whole_and_self_contained(rich, tmp_path):
    target = tmp_path / "page.html"
    check(invoke(rich, "--format", "html", "--output", target), 0)
    text = target.read_text(encoding="utf-8")
    reader = Reader(text)
    assert "script" not in reader.tags
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(reader.ids) == len(set(reader.ids))
    drawings = [each for each in reader.references if each.startswith("data:image/svg+xml;base64,")]
    assert {*reader.references} <= {"data:,", *drawings, *(f"#{name}" for name in reader.ids)}
    assert reader.tags.count("img") == len(drawings) == 4, "two answers, two sets of targets"
    assert "prefers-color-scheme: dark" in text


def test_a_page_on_own_data_leaves_the_paper_out(tmp_path, monkeypatch):
    """Nor has it figures without Matplotlib. It goes into the runs' folder by itself."""
    monkeypatch.setattr(html, "find_spec", lambda name: None)
    write_run(tmp_path, "iid", [9, 5, 3], 200, dataset="mine")
    check(invoke(tmp_path, "--format", "html"), 0)
    reader = Reader((tmp_path / "report.html").read_text())
    assert reader.tags.count("table") > 2
    assert not {"img", "script"} & {*reader.tags}
    assert install_command("plots") in reader.text
    assert "printed" not in reader.text
    assert "paper" not in reader.ids
    assert "1 finished run, ncfbench" in reader.text
    assert "1 run, environment one" in reader.text
    assert "The paper printed no figures" in invoke(tmp_path, "--paper").stdout


def test_output_follows_links_and_writes_to_devices(rich, tmp_path):
    """None is replaced by a file, nor taken for a folder since it has no suffix."""
    written, link = tmp_path / "written.txt", tmp_path / "link"
    link.symlink_to(written)  # which is not there yet
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = (rich, "--format", "markdown", "--output")
    check(invoke(*words, "/dev/null"), 0)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    check(invoke(*words, link), 0)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        check(invoke(*words, pipe), 0)
        assert read.result(timeout=60) == written.read_text() != ""
    assert link.is_symlink()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, pipe, written]
