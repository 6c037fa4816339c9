"""MIND in commands and reports: what it stands in for, and the real sample."""

from html import unescape

import pytest
from folders import write_run
from invoked import check, invoke
from mind_files import prepare, write

from ncfbench.data import prepare as prepare_data
from ncfbench.data.sources import mind, prepare_command
from ncfbench.data.sources.mind import Options
from ncfbench.reporting import beside
from ncfbench.reporting.figures import drawn
from ncfbench.reporting.render import html
from ncfbench.reporting.results import collect
from ncfbench.storage import tables


def test_the_command_says_what_it_stands_in_for(tmp_path):
    words = ["--data-dir", str(tmp_path / "d")]
    needed = ("licence", "https://msnews.github.io", "--from FOLDER")
    check(invoke("prepare", "mind", *words), 2, *needed)
    source = write(tmp_path / "source")
    result = invoke("prepare", "mind", "--from", source, *words)
    check(result, 0, f"{mind.LABEL}.")


def test_reports_name_the_stand_in(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "_drawings", lambda results: [])
    source, runs = write(tmp_path / "source"), tmp_path / "r"
    manifest, _ = prepare(source, tmp_path / "d")
    for sampler in ("iid", "ns"):
        write_run(runs, sampler, [9, 5, 3], 200, fingerprint=manifest["fingerprint"])
    tables.write_json(runs / beside.FILE, {manifest["fingerprint"]: manifest})
    results = collect(runs, tmp_path / "d")
    text = unescape(html.page(results, results.tables))
    assert text.count(f"citeulike: {mind.LABEL}.") >= 3, "the page's head, and below each table"
    shares = "test_fraction=0.0, validation_fraction=0.0"
    command = f"prepare mind --name citeulike --from FOLDER  # from Python, with {shares}"
    assert command in prepare_command("citeulike", manifest)
    figures = drawn(results).values()
    assert figures
    assert all(one.figure.get_suptitle().endswith(mind.LABEL) for one in figures)
    assert results.beside_paper == [], "they are not the paper's data"


@pytest.mark.real
def test_the_real_sample(shared_data, tmp_path):
    said: list[str] = []
    options = Options(from_=shared_data / "mind-sample")
    clicks = prepare_data("mind", options, tmp_path, say=said.append)["statistics"]
    # Counted from the two files with a dozen lines of plain Python.
    assert [clicks[name] for name in ("users", "items", "links")] == [166, 59, 175]
