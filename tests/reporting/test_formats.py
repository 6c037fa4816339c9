"""Tables in every format: escaped text, whole numbers and commands, and files; and the whole report
in each, beside files that keep its text.
"""

import csv
import io
import json
import os
import re
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.cli import check
from support.cli import invoke as run
from support.records import table_html, write_run

import ncfbench
from ncfbench import __version__
from ncfbench.errors import install_command
from ncfbench.reporting.formats import interval
from ncfbench.reporting.render import html, latex, markdown
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.results import collect
from ncfbench.reporting.table import Cell, Col, Table, sentence, under

GOLDEN = Path(__file__).with_name("golden")
FILES = {"table": "terminal.txt", "markdown": "markdown.txt", "latex": "latex.tex"}
FILES |= {"csv": "frames.csv", "json": "report.json", "html": "page.html"}


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


def test_csv_has_the_numbers_of_json(rich, tmp_path):
    """Null is empty, and the values of a list stand side by side."""
    text = invoke(rich, "--format", "csv", "--full").stdout
    parts = {part.partition("\n")[0][2:]: part.partition("\n")[2] for part in text.split("\n\n")}
    rows = {name: list(csv.DictReader(part.splitlines())) for name, part in parts.items()}
    assert [*rows] == ["answers", "speedup", "recall", "claims", "runs", "probes"]
    printed, file = invoke(rich, "--json").stdout, tmp_path / "report.json"
    check(invoke(rich, "--format", "json", "--output", file), 0)
    assert file.read_text() == printed
    document = json.loads(printed)
    assert document.keys() == {*rows} - {"runs", "probes"} | {"figures", "problems"}
    for name in ("speedup", "recall", "claims"):
        for row, whole in zip(rows[name], document[name], strict=True):
            for key, value in whole.items():
                text = " ".join(value) if isinstance(value, list) else str(value)
                assert row[key] == ("" if value is None else text)
    arms = {row["name"]: row for answer in document["answers"] for row in answer["arms"]}
    shown = [row for row in rows["answers"] if row["name"] in arms]
    assert len(shown) == len(arms)
    assert [row["run"] for row in rows["runs"]] == ncfbench.report(rich).arms["run"].to_pylist()


def test_the_page_is_self_contained(rich, tmp_path):
    check(invoke(rich, "--format", "html", "--output", tmp_path / "page.html"), 0)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    attributes = "href|src|xlink:href|action|data|srcset|poster"
    references = re.findall(rf'\s(?:{attributes})="([^"]*)"', text)
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert not re.search(r"<script|\son\w+=|@import|url\((?!#)", text)
    assert len(ids) == len(set(ids))
    drawings = [each for each in references if each.startswith("data:image/svg+xml;base64,")]
    assert {*references} <= {"data:,", *drawings, *(f"#{name}" for name in ids)}
    assert text.count("<img") == len(drawings) == 4, "two answers, two sets of targets"
    assert "prefers-color-scheme: dark" in text


def test_a_page_on_own_data_leaves_the_paper_out(tmp_path, monkeypatch):
    """Nor has it figures without Matplotlib. It goes into the runs' folder by itself."""
    monkeypatch.setattr(html, "find_spec", lambda name: None)
    write_run(tmp_path, "iid", [9, 5, 3], 200, dataset="mine")
    check(invoke(tmp_path, "--format", "html"), 0)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<table") > 2
    assert "<img" not in page
    text = unescape(re.sub("<[^>]*>", "", page))
    for words in (install_command("plots"), "1 finished run, ncfbench", "1 run, environment one"):
        assert words in text
    assert "printed" not in text
    assert 'id="paper"' not in page
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
    assert (link.is_symlink(), stat.S_ISFIFO(pipe.stat().st_mode)) == (True, True)
    assert sorted(tmp_path.iterdir()) == [link, pipe, written]


def stable(text, folder):
    """Text without what other machines, versions and settings change: the folder, digests of
    settings, and digits behind the sixth of a number.
    """
    text = text.replace(str(folder), "RUNS").replace(__version__, "VERSION")
    text = re.sub(r"(seed\d)-[0-9a-f]{8}", r"\1", text)
    text = re.sub(r"<style>.*</style>", "<style></style>", text, flags=re.DOTALL)
    return re.sub(r"\d+\.\d{6,}(e-\d+)?", lambda number: f"{float(number[0]):.6g}", text)


@pytest.mark.parametrize("kind", FILES)
def test_the_report_is_that_of_its_golden_file(rich, kind, monkeypatch, request):
    """With --update-golden the files are written anew: read their difference."""
    drawing = {"name": "answer-x", "title": "A <title>", "svg": "PHN2Zy8+"}
    monkeypatch.setattr(html, "_drawings", lambda results: [drawing])
    more = [] if kind in ("csv", "json", "html") else ["--full", "--paper"]
    printed = invoke(rich, "--format", kind, *more)
    assert printed.exit_code == 0, printed.output
    text = (rich / "report.html").read_text("utf-8") if kind == "html" else printed.stdout
    if kind == "json":  # of its rows those that are not in CSV too
        answer = json.loads(text)["answers"][1]
        text = json.dumps(answer | {"arms": answer["arms"][:1]}, indent=1)
    path = GOLDEN / FILES[kind]
    if request.config.getoption("update_golden"):
        path.write_text(stable(text, rich), "utf-8")
    assert stable(text, rich) == path.read_text("utf-8")


# --- what a terminal shows

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


def test_every_number_of_a_report_is_whole(rich, monkeypatch):
    """Commands and paths stay in one line, to be copied; a table of fewer columns is wider."""
    monkeypatch.setenv("COLUMNS", "60")
    text = invoke(rich, "--full", "--paper").stdout
    numbers = numbers_of(text)
    for table in collect(rich, rich).tables:
        for row in table.rows:
            assert numbers_of(" ".join(cell.text for cell in row)) <= numbers, (table.title, row)
    assert "…" not in text
    long = [line for line in text.splitlines() if len(line) > 100]
    assert long
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
        Col("arm", "arm"),
        *under("a batch", Col("ms", "seconds", ",.2f", scale=1e3), Col("links", "links", ",")),
        Col("bias %", ("low", "high"), interval(".1f"), scale=100),
        Col("why", lambda row: Cell("no", "muted"), wraps=True),
    ]
    table = Table.of("T", cols, rows, ["N."])
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["iid", "1,234.50", "12,345", "50.0..75.0", "no"],
        ["strat-ns", "-", "-", "-", "no"],
    ]
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


# --- the page in headless Chromium (`make test-browser`)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Chromium asks for updates and the like by itself, which is no request of the page.
FLAGS = ["background-networking", "component-update", "sync"]
# Tables may scroll in their own boxes; the page may not.
WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, .drawing')
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
DRAWN = """[...document.querySelectorAll('.drawing img')].map(img => {
    const box = img.getBoundingClientRect(); return [box.width, box.height, img.naturalWidth]; })"""
COLOURS = """(style => [style.color, style.backgroundColor])(getComputedStyle(document.body))"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    known = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    with playwright.sync_playwright() as started:
        if known is None and not Path(started.chromium.executable_path).exists():
            pytest.fail("There is no Chromium here. Run: playwright install chromium")
        flags = ["--no-sandbox", *(f"--disable-{name}" for name in FLAGS)]
        opened = started.chromium.launch(executable_path=known, args=flags)
        yield opened
        opened.close()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 820, 1400])
def test_the_page_fits_and_asks_for_nothing(browser, rich, tmp_path, width, scheme):
    path = tmp_path / "report.html"
    check(invoke(rich, "--format", "html", "--output", path), 0)
    shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    events, requests = [], []
    shown.on("console", lambda message: events.append((message.type, message.text)))
    shown.on("pageerror", lambda error: events.append(("error", str(error))))
    shown.on("request", lambda request: requests.append(request.url))
    shown.goto(path.as_uri())
    shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert [text for kind, text in events if kind in ("error", "warning")] == []
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.evaluate(WIDE) == []
    drawn = shown.evaluate(DRAWN)
    assert len(drawn) == shown.locator(".drawing").count() == 4
    # Letters of 10 points stay readable on a phone: the drawing scrolls in its own box.
    assert all(
        natural > 0 and across >= max(540, 0.8 * min(width, 1100) - 60) and high > 100
        for across, high, natural in drawn
    )
    ink, paper = map(luminance, shown.evaluate(COLOURS))
    assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7
    assert (paper > 0.5) == (scheme == "light")
    assert shown.locator("main section").first.locator("h2").inner_text() == "Answer"
    shown.close()


def luminance(color):
    """Relative luminance of an ``rgb(...)`` colour (WCAG 2)."""
    channels = [float(part) / 255 for part in re.findall(r"[\d.]+", color)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
