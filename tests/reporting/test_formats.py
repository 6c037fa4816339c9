"""The report in each format, of runs that are written as literals."""

import base64
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
from support.records import table_html, write_folder, write_run

import ncfbench
from ncfbench.errors import install_command
from ncfbench.reporting.render import html, latex, markdown
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Cell, Col, Table


def invoke(*words):
    return run("report", *words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("runs"))


NASTY = Table.of(
    "Speed_up {100 %} & more",
    [
        Col("encoder", 0),
        Col("sampler", 1),
        Col("# of it.", 2, group="data<1>"),
        Col("# of it.", 3, group="b|c"),
        Col("why", 4),
    ],
    [
        ["CNN", "a_b", Cell("1 ± 2", "best"), "<script>", "a | b"],
        ["CNN", "x", Cell("-", "muted"), "9", ""],
    ],
    ["50 % ~ ^"],
    labels=2,
    grouped=1,
)


def test_latex_reads_every_character_as_itself():
    escaped = r"\textbackslash{}\_\&\%\$\#\{\}\textasciitilde{}\textasciicircum{}"
    assert latex.escape(r"\_&%$#{}~^") == escaped
    assert latex.escape("--loss sg") == "-{}-loss sg", "no dash"
    text = latex.render([NASTY])
    for part in (
        r"\caption{Speed\_up \{100 \%\} \& more}",
        r"CNN & a\_b & \textbf{1 $\pm$ 2} & \textless{}script\textgreater{}"
        r" & a \textbar{} b \\",
        r"encoder & sampler & data\textless{}1\textgreater{}: \# of it. & b\textbar{}c:",
    ):
        assert part in text


def test_latex_is_balanced(folder):
    text = invoke(folder, "--format", "latex").stdout
    opened = re.findall(r"\\begin\{(\w+)\}", text)
    assert sorted(opened) == sorted(re.findall(r"\\end\{(\w+)\}", text))
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        width = len(re.match(r"\{(\w+)\}", body)[1])
        for line in body.splitlines():
            if line.endswith(r"\\"):
                spans = [int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
                assert len(re.split(r"(?<!\\)&", line)) + sum(spans) == width, line
    for rule in ("toprule", "midrule", "bottomrule"):
        assert f"\\{rule}" in text


def test_markdown_escapes_and_keeps_the_width(folder):
    assert markdown.escape("a|b_*<") == r"a\|b\_\*\<"
    lines = [line for line in markdown.render([NASTY]).splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {7}
    assert r"**1 ± 2**" in lines[2]
    assert lines[3].startswith("| CNN | x |"), "repeated: Markdown has no rule between groups"
    assert r"| a \| b |" in lines[2]
    text = invoke(folder, "--format", "markdown").stdout
    assert "### Speedup over iid, SG loss" in text


def test_csv_has_the_numbers_of_json(folder):
    """Null is empty, and the values of a list stand side by side."""
    text = invoke(folder, "--format", "csv", "--full").stdout
    parts = {part.partition("\n")[0][2:]: part.partition("\n")[2] for part in text.split("\n\n")}
    assert [*parts] == ["answers", "speedup", "recall", "claims", "runs", "probes"]
    document = json.loads(invoke(folder, "--json").stdout)
    for name in ("speedup", "recall", "claims"):
        found = list(csv.DictReader(parts[name].splitlines()))
        for row, whole in zip(found, document[name], strict=True):
            for key, value in whole.items():
                text = " ".join(value) if isinstance(value, list) else str(value)
                assert row[key] == ("" if value is None else text)
    arms = {row["name"]: row for row in document["answers"][0]["arms"]}
    for row in csv.DictReader(parts["answers"].splitlines()):
        assert float(row["test_recall_at_50"]) == arms[row["name"]]["test_recall_at_50"]
    runs = [row["run"] for row in csv.DictReader(parts["runs"].splitlines())]
    assert runs == ncfbench.report(folder).arms["run"].to_pylist()


def test_json_is_json_under_both_names(folder, tmp_path):
    first, second = invoke(folder, "--json"), invoke(folder, "--format", "json")
    assert first.stdout == second.stdout
    file = tmp_path / "report.json"
    check(invoke(folder, "--format", "json", "--output", file), 0)
    assert file.read_text() == first.stdout
    keys = {"answers", "speedup", "recall", "claims", "figures", "problems"}
    assert json.loads(first.stdout).keys() == keys


def test_lines_of_a_message_become_one():
    """A table's cell is one line, whatever an error says."""
    table = Table.of("t", [Col("a", str)], ["first\nsecond\n\nthird"], ["one\ntwo"])
    for render in (markdown.render, latex.render):
        assert "first second third" in render([table])
        assert "one two" in render([table])


def test_the_terminal_shows_intervals_and_printed_cells(folder):
    words = "[", "<: some seed never came down", "(2/3)", "Speedup beside the paper's", "(19.50)"
    check(invoke(folder, "--paper"), 0, *words, "(0.4866)")


def test_formats_that_do_not_go_together(folder, tmp_path):
    for words, message in (
        (["--format", "htlm"], "did you mean 'html'"),
        (["--format", "md"], "did you mean 'markdown'"),
        (["--json", "--format", "csv"], "does not go with"),
        (["--verify", "--format", "html"], "leave --format"),
        (["--runs-dir", str(folder)], "once"),
        (["--output", str(tmp_path / "x")], "> FILE"),
        (["--json", "--table", "recall"], "leave --table out"),
    ):
        check(invoke(folder, *words), 2, message)


class Reader(HTMLParser):
    """Open tags, references and ids of a page."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("href", "src", "xlink:href", "action", "data", "srcset", "poster"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")
            assert not name.startswith("on"), f"{name}: no script is needed"

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_is_whole_and_self_contained(folder, tmp_path):
    target = tmp_path / "page.html"
    check(invoke(folder, "--format", "html", "--output", target), 0)
    text = target.read_text(encoding="utf-8")
    reader = read(text)
    assert "script" not in reader.tags
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(reader.ids) == len(set(reader.ids)), "every id once"
    drawings = [each for each in reader.references if each.startswith("data:image/svg+xml;base64,")]
    for drawing in drawings:
        assert b"<svg" in base64.b64decode(drawing.partition(",")[2], validate=True)
    known = {"data:,", *drawings, *(f"#{name}" for name in reader.ids)}
    assert set(reader.references) <= known
    assert reader.tags.count("img") == 2, "the answer, and speedup at every target"
    names = ("answer", "tables", "figures", "paper", "environment", "repeat")
    order = [text.index(f'id="{name}"') for name in names]
    assert order == sorted(order)
    for part in ("viewport", "prefers-color-scheme: dark", "overflow-x: auto"):
        assert part in text
    for part in (
        "a <fast> & small one",
        f"ncfbench report --format html --runs-dir {folder}",
        "Speedup beside the paper's",
    ):
        assert part in reader.text


@pytest.mark.parametrize(
    ("lost", "words"),
    [(0, "1 finished run, ncfbench"), (1, "1 finished run and 1 diverged, ncfbench")],
)
def test_the_page_counts_runs(tmp_path, lost, words, monkeypatch):
    monkeypatch.setattr(html, "_drawings", lambda results: [])
    write_run(tmp_path, "iid", [9, 5, 3], 10, [0, 0.2, 0.3])
    for _ in range(lost):
        write_run(tmp_path, "ns", [9, 5], 10, status="diverged", key="two")
    check(invoke(tmp_path, "--format", "html"), 0)
    text = (tmp_path / "report.html").read_text()
    assert words in " ".join(text.split())
    assert "1 run, environment one" in text
    assert not re.search(r"\b1 (runs|tables|trials|arms)\b", text)


def test_a_page_on_own_data_leaves_the_paper_out(tmp_path, monkeypatch):
    """It goes into the runs' folder by itself, and says nothing of the paper."""
    monkeypatch.setattr(html, "find_spec", lambda name: None)
    write_run(tmp_path, "iid", [9, 5, 3], 200, dataset="mine")
    check(invoke(tmp_path, "--format", "html"), 0)
    reader = read((tmp_path / "report.html").read_text())
    assert reader.tags.count("table") > 2
    assert "printed" not in reader.text
    assert "paper" not in reader.ids
    assert "The paper printed no figures" in invoke(tmp_path, "--paper").stdout


def test_output_makes_its_folder(folder, tmp_path):
    target = tmp_path / "new" / "folder" / "tables.csv"
    check(invoke(folder, "--format", "csv", "--output", target), 0)
    assert target.read_text().startswith("# ")
    below = target / "below-a-file.csv"
    check(invoke(folder, "--format", "csv", "--output", below), 3, "Cannot write")


@pytest.mark.parametrize("kind", ["csv", "markdown", "latex", "json", "html"])
def test_output_follows_links_and_writes_to_devices(folder, tmp_path, kind, monkeypatch):
    """None is replaced by a file, nor taken for a folder since it has no suffix."""
    monkeypatch.setattr(html, "_drawings", lambda results: [])
    written, link = tmp_path / "written.txt", tmp_path / "link"
    link.symlink_to(written)  # which is not there yet
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check(invoke(folder, "--format", kind, "--output", "/dev/null"), 0)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    check(invoke(folder, "--format", kind, "--output", link), 0)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        check(invoke(folder, "--format", kind, "--output", pipe), 0)
        assert read.result(timeout=60) == written.read_text() != ""
    assert link.is_symlink()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, pipe, written]


def test_a_page_without_matplotlib(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "find_spec", lambda name: None)
    check(invoke(folder, "--format", "html", "--output", tmp_path / "p.html"), 0)
    reader = read((tmp_path / "p.html").read_text())
    assert "img" not in reader.tags
    assert install_command("plots") in reader.text


def test_flags_and_commands_stay_whole(monkeypatch):
    """No format cuts a flag at a hyphen, nor folds a command that is to be copied."""
    command = "ncfbench advise citeulike --loss sg --metric mrr --runs-dir some/where/far/away/x"
    table = Table.of(
        "T", [Col("a", str)], ["1"], ["Try:", command], lead="Use --batch-size 64 <now>."
    )
    page = table_html(table)
    assert "Use <code>--batch-size</code> 64 &lt;now&gt;." in page
    assert f'<code class="command">{command}</code>' in page
    assert f"\n    {command}\n" in markdown.render([table])
    monkeypatch.setenv("COLUMNS", "60")
    console = make_console()
    with console.capture() as captured:
        show(console, table)
    assert f"  {command}\n" in captured.get()


def test_html_is_escaped():
    reader = read(table_html(NASTY))
    assert "script" not in reader.tags
    assert "<script>" in reader.text
