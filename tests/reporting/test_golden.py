"""The whole report in each format, beside files that keep its text."""

import json
import re
from pathlib import Path

import pytest
from support.cli import invoke

from ncfbench import __version__
from ncfbench.reporting.render import html

GOLDEN = Path(__file__).with_name("golden")
FILES = {"table": "terminal.txt", "markdown": "markdown.txt", "latex": "latex.tex"}
FILES |= {"csv": "frames.csv", "json": "report.json", "html": "page.html"}


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
    printed = invoke("report", rich, "--format", kind, *more)
    assert printed.exit_code == 0, printed.output
    text = (rich / "report.html").read_text("utf-8") if kind == "html" else printed.stdout
    if kind == "json":  # of its rows those that are not in CSV too
        answer = json.loads(text)["answers"][1]
        text = json.dumps(answer | {"arms": answer["arms"][:1]}, indent=1)
    path = GOLDEN / FILES[kind]
    if request.config.getoption("update_golden"):
        path.write_text(stable(text, rich), "utf-8")
    assert stable(text, rich) == path.read_text("utf-8")
