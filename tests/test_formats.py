"""The report in each of its formats, from run folders that are written as literals."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from folders import write_folder, write_run
from typer.testing import CliRunner, Result

from ncfbench import tuning
from ncfbench.cli import app
from ncfbench.report import described, figures, page
from ncfbench.report.comparison import group
from ncfbench.report.longform import columns
from ncfbench.report.markup import escape_latex, escape_markdown, html_table, latex, markdown
from ncfbench.report.results import collect
from ncfbench.report.sheets import Cell, Line, Sheet
from ncfbench.runs import RECORDS, read_all


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("runs"))


NASTY = Sheet(
    "Speed_up {100 %} & more",
    ("data<1>", "b|c"),
    ("# of it.",),
    (Line("CNN", "a_b", (Cell("1 ± 2", best=True), Cell("<script>"))), Line("", "x", (Cell("-", muted=True), Cell("9")))),
    ("50 % ~ ^",),
)


def test_latex_reads_every_character_as_itself() -> None:
    assert escape_latex(r"\_&%$#{}~^") == (r"\textbackslash{}\_\&\%\$\#\{\}\textasciitilde{}\textasciicircum{}")
    text = latex([NASTY])
    assert r"\caption{Speed\_up \{100 \%\} \& more}" in text
    assert r"CNN & a\_b & \textbf{1 $\pm$ 2} & \textless{}script\textgreater{} \\" in text
    assert r" &  & \multicolumn{1}{c}{data\textless{}1\textgreater{}} & \multicolumn{1}{c}{b\textbar{}c} \\" in text
    assert r"\cmidrule(lr){3-3} \cmidrule(lr){4-4}" in text


def test_latex_has_balanced_environments_and_as_many_cells_as_columns(folder: Path) -> None:
    result = invoke(folder, "--format", "latex")
    assert result.exit_code == 0, result.output
    opened = re.findall(r"\\begin\{(\w+)\}", result.stdout)
    assert sorted(opened) == sorted(re.findall(r"\\end\{(\w+)\}", result.stdout))
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", result.stdout, re.DOTALL):
        width = len(re.match(r"\{(\w+)\}", body)[1])
        for line in body.splitlines():
            if line.endswith(r"\\"):
                spans = [int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
                assert len(re.split(r"(?<!\\)&", line)) + sum(spans) == width, line
    for rule in ("toprule", "midrule", "bottomrule"):
        assert f"\\{rule}" in result.stdout


def test_markdown_escapes_and_keeps_the_width(folder: Path) -> None:
    assert escape_markdown("a|b_*<") == r"a\|b\_\*\<"
    lines = [line for line in markdown([NASTY]).splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {6}
    assert r"**1 ± 2**" in lines[2]
    assert lines[3].startswith("| CNN | x |"), "the encoder is repeated: Markdown has no rule between groups"
    text = invoke(folder, "--format", "markdown").stdout
    assert "### Speedup over IID, SG loss" in text


def test_csv_has_a_row_for_each_cell_and_units_in_its_header(folder: Path) -> None:
    result = invoke(folder, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert list(rows[0]) == columns()
    assert len(set(columns())) == len(columns())
    by_sampler = {row["sampler"]: row for row in rows}
    assert set(by_sampler) == {"iid", "neg", "strat", "ns", "strat-ns"}
    ns = by_sampler["ns"]
    assert float(ns["full_iteration_seconds"]) == pytest.approx(0.021)
    assert float(ns["total_speedup_lower"]) < float(ns["total_speedup"]) < float(ns["total_speedup_upper"])
    assert float(ns["test_recall_at_50"]) == pytest.approx(0.43)
    assert (ns["speedup_status"], ns["recall_status"], ns["speedup_seeds"]) == ("reached", "measured", "3")
    assert (ns["total_speedup_printed"], ns["total_speedup_verdict"]) == ("19.5", "not comparable")
    assert "other hardware; printed value" in ns["total_speedup_verdict_reason"]
    assert by_sampler["neg"]["total_speedup_verdict_reason"] == "no run"
    assert len(ns["runs"].split()) == len(ns["baseline_runs"].split()) == 3
    strat = by_sampler["strat"]
    assert (strat["speedup_status"], strat["seeds_reached"], strat["total_speedup"]) == ("not reached", "2", "")
    assert float(strat["total_speedup_at_most"]) > 0
    assert by_sampler["neg"]["speedup_status"] == "missing"


def test_json_is_json_under_both_names(folder: Path) -> None:
    first, second = invoke(folder, "--json"), invoke(folder, "--format", "json")
    assert first.stdout == second.stdout
    document = json.loads(first.stdout)
    assert {row["measure"] for row in document["sensitivity"]} == {"probe_loss", "test_recall_at_50"}
    levels = [row for row in document["sensitivity"] if (row["sampler"], row["measure"]) == ("ns", "probe_loss")]
    assert [row["level"] for row in levels] == sorted((row["level"] for row in levels), reverse=True)
    assert levels[0]["total_speedup"] > 1
    assert levels[-1]["total_speedup"] is None
    assert (levels[-1]["seeds_reached"], levels[-1]["baseline_seeds_reached"]) == (3, 0)
    assert levels[-1]["total_speedup_at_least"] > 1
    rising = [row for row in document["sensitivity"] if (row["sampler"], row["measure"]) == ("ns", "test_recall_at_50")]
    assert [row["level"] for row in rising] == sorted(row["level"] for row in rising)
    assert len(document["verdicts"]) == 112


def test_a_recall_passed_before_the_first_evaluation_is_a_bound(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 8, 7, 6, 5], 200, [0, 0.05, 0.1, 0.15, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 20, [0, 0.35, 0.4])
    rows = [row for row in json.loads(invoke(tmp_path, "--json").stdout)["sensitivity"] if row["measure"] != "probe_loss"]
    assert [row["level"] for row in rows] == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.35, 0.4])
    bounds = [(row["iterations_speedup_at_least"], row["total_speedup_at_least"]) for row in rows]
    assert bounds[0] == (None, None), "both had 0.05 at their first evaluation"
    # The first of N.S. is at iteration 100; IID comes to the levels at 200, 300, 400, and is at 400 when it ends.
    expected = [(2, 20), (3, 30), (4, 40), (4, 40), (2, 20)]
    assert [value for pair in bounds[1:] for value in pair] == pytest.approx([value for pair in expected for value in pair])
    assert not any(row["iterations_speedup"] or row["iterations_speedup_at_most"] for row in rows)


def test_the_table_shows_intervals_seeds_censored_cells_and_verdicts(folder: Path) -> None:
    text = invoke(folder).stdout
    for part in (
        "[",
        "± ",
        "not reached <",
        "(2/3)",
        "Speedup beside the paper's",
        "(19.50, n/c",
        "(0.4866, ",
        "printed cells",
    ):
        assert part in text


def test_a_single_seed_stands_without_an_interval_and_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3])
    write_run(tmp_path, "ns", [9, 4, 2], 20, [0.1, 0.2, 0.4])
    text = invoke(tmp_path).stdout
    assert "13.33" in text
    assert "13.33 [" not in text
    assert "With one seed there is no interval" in text
    assert "one seed" in json.dumps(json.loads(invoke(tmp_path, "--json").stdout)["verdicts"])


def test_formats_that_do_not_go_together(folder: Path, tmp_path: Path) -> None:
    for words, message in (
        (["--format", "htlm"], "did you mean 'html'"),
        (["--json", "--format", "csv"], "does not go with"),
        (["--verify", "--against", str(tmp_path)], "one at a time"),
        (["--verify", "--format", "html"], "leave --format"),
        (["--regression", "5%"], "--against DIR"),
        (["--verify", "--regression", "5%"], "--against DIR"),
        (["--runs-dir", str(folder)], "once"),
        (["--output", str(tmp_path / "x")], "> FILE"),
        (["--against", str(folder), "--regression", "much"], "10%"),
    ):
        result = invoke(folder, *words)
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.output.split())


def test_a_read_only_folder_is_printed_and_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "r", "iid", [9, 5, 3], 200)
    (tmp_path / "r").chmod(0o555)
    if os.geteuid() == 0:  # who may write everywhere
        monkeypatch.setattr(os, "access", lambda path, mode: (Path(path), mode) != (tmp_path / "r", os.W_OK))
    try:
        result = invoke(tmp_path / "r", "--export", tmp_path / "kept")
        page_too = invoke(tmp_path / "r", "--format", "html", "--output", tmp_path / "page.html")
    finally:
        (tmp_path / "r").chmod(0o755)
    assert result.exit_code == page_too.exit_code == 0, result.output + page_too.output
    assert "Speedup over IID" in result.stdout
    assert "is read-only" in result.stderr
    assert not list((tmp_path / "r").glob("*.parquet"))
    assert (tmp_path / "kept" / "speedup.parquet").exists()
    assert (tmp_path / "page.html").exists()


def test_an_export_of_tuned_runs_has_their_trials(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    for sampler in ("iid", "ns"):
        write_run(folder, sampler, [9, 5, 3], 200, [0, 0.2, 0.3], tuned="learning_rate:2x2", learning_rate=0.02)
        for rate in (0.01, 0.02):
            own = write_run(folder / tuning.FOLDER, sampler, [9, 5, 3], 200, seed=tuning.SEED, learning_rate=rate)
            (own / "checkpoints").mkdir()
    write_run(folder / tuning.FOLDER, "ns", [9, 5, 3], 200, seed=tuning.SEED, fingerprint="e" * 64)
    (folder / tuning.FOLDER / "begun").mkdir()
    result = invoke(folder, "--export", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    assert "2 runs, 4 trials and their tables" in result.stderr
    copied = list((tmp_path / "kept" / tuning.FOLDER).iterdir())
    assert len(copied) == 4
    assert {path.name for one in copied for path in one.iterdir()} == set(RECORDS)
    write_run(tmp_path / "plain", "iid", [9, 5, 3], 200)
    shutil.copytree(folder / tuning.FOLDER, tmp_path / "plain" / tuning.FOLDER)
    assert ": 1 run and its tables" in invoke(tmp_path / "plain", "--export", tmp_path / "other").stderr


class Reader(HTMLParser):
    """Tags that are open, what is referred to, and ids."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("href", "src", "xlink:href", "action", "data", "srcset", "poster"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")
            assert not name.startswith("on"), f"{name}: no script is needed"

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_is_whole_and_self_contained(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    result = invoke(folder, "--format", "html", "--output", target)
    assert result.exit_code == 0, result.output
    text = target.read_text(encoding="utf-8")
    reader = read(text)
    assert "script" not in reader.tags
    assert all(reference.startswith("#") or reference == "data:," for reference in reader.references)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(reader.ids) == len(set(reader.ids)), "every id once, in all figures together"
    assert {reference[1:] for reference in reader.references if reference.startswith("#")} <= set(reader.ids)
    assert reader.tags.count("svg") == 2, "convergence, and speedup at every target"
    order = [text.index(f'id="{name}"') for name in ("verdicts", "tables", "figures", "environment", "repeat")]
    assert order == sorted(order)
    for part in ("viewport", "prefers-color-scheme: dark", "overflow-x: auto"):
        assert part in text
    for part in (
        "a <fast> & small one",
        'dataset = "citeulike"\nsampler = ["iid", "ns", "strat-ns", "strat"]\nencoder = "cnn"\nloss = "sg"\nseed = [0, 1, 2]',
        f"ncfbench sweep sweep-1.toml --runs-dir {folder}\nncfbench report --format html --runs-dir {folder}",
        "ncfbench run --dataset citeulike --sampler neg",
        "f" * 64,
        "printed cells",
    ):
        assert part in reader.text


def test_the_page_goes_into_the_runs_folder_by_itself(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    assert invoke(tmp_path, "--format", "html").exit_code == 0
    assert read((tmp_path / "report.html").read_text()).tags.count("table") > 2


MANIFEST = {
    "fingerprint": "f" * 64, "source": "citeulike", "statistics": {"users": 9, "words_mean": 1.5}, "files": {},
    "options": {"text": ["title"], "max_length": 40, "test_fraction": 0.2, "vocabulary_size": None},
}  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [
        {"options": []}, {"options": {"text": "title"}}, {"options": {"max_length": "40"}}, {"options": {"text": [1]}},
        {"options": {"test_fraction": {}}}, {"statistics": {"users": "x"}}, {"statistics": [9]}, {"statistics": {"users": None}},
        {"files": ["users.dat"]}, {"files": {"users.dat": True}}, {"source": 3}, {"fingerprint": "e" * 64}, {"fingerprint": None},
    ],
)  # fmt: skip
def test_damaged_descriptions_of_data_are_left_out(tmp_path: Path, damage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_figures", lambda results: "")
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    path = tmp_path / described.FILE
    for manifest, known in ((MANIFEST, True), (MANIFEST | damage, False)):
        path.write_text(json.dumps({"f" * 64: manifest}))
        results = collect(tmp_path, tmp_path / "no-data", allow_mixed=False, places={})
        assert (list(results.manifests) == ["f" * 64]) == known
        assert [problem.startswith("Skipped datasets.json") for problem in results.problems] == [True] * (not known)
        text = page.page(results, {})
        assert ("ncfbench prepare citeulike --text title --max-length 40" in text) == known
        assert ("words mean" in text) == known


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', "null", '"x"'])
def test_a_damaged_file_of_descriptions_is_named(tmp_path: Path, text: str) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    (tmp_path / described.FILE).write_text(text)
    result = invoke(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert "Skipped datasets.json" in result.stderr


def test_without_matplotlib_the_page_says_how_to_get_figures(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else find(name, *more))
    assert invoke(folder, "--format", "html", "--output", tmp_path / "p.html").exit_code == 0
    reader = read((tmp_path / "p.html").read_text())
    assert "svg" not in reader.tags
    assert "pip install 'ncfbench[plots]'" in reader.text


def test_figures_inlined_twice_share_no_id() -> None:
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "x" "http://www.w3.org/x.dtd"><svg width="9pt" height="5pt" viewBox="0 0 9 5">'
        '<metadata><a href="http://purl.org"/></metadata><path id="p1"/><use xlink:href="#p1" clip-path="url(#p1)"/></svg>'
    )
    inlined = page.inline_svg(svg, "f3")
    assert inlined == ('<svg viewBox="0 0 9 5"><path id="f3-p1"/><use xlink:href="#f3-p1" clip-path="url(#f3-p1)"/></svg>')


def test_html_is_escaped() -> None:
    reader = read(html_table(NASTY))
    assert "script" not in reader.tags
    assert "<script>" in reader.text


def test_s_and_k_have_their_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for s in (2, 4, 8):
        write_run(tmp_path / "r", "strat-ns", [9, 4, 2 + 0.1 * s], 20, [0.1, 0.2, 0.3], stratum_size=s)
    for k in (5, 10):
        write_run(tmp_path / "r", "neg", [9, 4, 2 + 0.1 * k], 20, [0.1, 0.2, 0.3], negatives=k)
    assert invoke(tmp_path / "r", "--figures", tmp_path / "f", "--json").exit_code == 0
    kinds = {path.stem.partition("-citeulike")[0] for path in (tmp_path / "f").iterdir()}
    assert kinds == {"convergence", "stratum-size", "negatives"}


def test_bounds_are_drawn_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    write_run(tmp_path, "iid", [9, 8, 7, 6, 5], 200, [0, 0.05, 0.1, 0.15, 0.2])
    write_run(tmp_path, "ns", [9, 4, 2], 20, [0, 0.35, 0.4])
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "_save", lambda figure, *given: drawn.append(figure) or [])
    (comparison,) = group(read_all(tmp_path)[0])
    figures.targets(comparison, tmp_path)
    total, iterations = drawn[0].axes[1], drawn[0].axes[3]
    for axis, values in ((total, [20, 30, 40, 40, 20]), (iterations, [2, 3, 4, 4, 2])):
        arrows = [line for line in axis.lines if line.get_marker() == figures.BOUNDS["at_least"][0] and len(line.get_xdata())]
        assert [(list(line.get_xdata()), list(line.get_ydata())) for line in arrows] == [
            (pytest.approx([0.1, 0.15, 0.2, 0.35, 0.4]), pytest.approx(values))
        ]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["N.S.", "at least"]


def test_points_of_s_and_k_are_of_the_same_seeds_and_otherwise_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    for seed in (0, 1):
        write_run(tmp_path, "strat", [9, 4], 20, seed=seed)
    write_run(tmp_path, "strat", [9, 3], 20, stratum_size=8)
    write_run(tmp_path, "strat", [9, 2], 20, negatives=1)
    write_run(tmp_path, "ns", [9, 1], 20)
    drawn: list[tuple[str, Any]] = []
    setting_line, level_line = figures._draw_setting, figures._draw_level
    keep = {
        "_draw_setting": lambda *given: (drawn.append(given[1:3]), setting_line(*given)),
        "_draw_level": lambda *given: (drawn.append((given[1], {0: given[2]})), level_line(*given)),
    }
    for name, action in keep.items():
        monkeypatch.setattr(figures, name, action)
    (comparison,) = group(read_all(tmp_path)[0])
    for setting, expected in (("stratum_size", {4: [4], 8: [3]}), ("negatives", {1: [2], 10: [4]})):
        drawn.clear()
        figures.by_setting(comparison, setting, tmp_path / "f")
        found = [(sampler, {value: [run.curve[-1]["probe_loss"] for run in runs] for value, runs in points.items()})
                 for sampler, points in drawn]  # fmt: skip
        level = [("ns", {0: [1]})] if setting == "negatives" else []
        assert found == [("strat", expected), *level] * 2
    assert [figures._label(one, "cnn") for one in figures._main_variants(comparison)] == ["Stratified", "N.S."]
