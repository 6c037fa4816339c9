"""The report as one self-contained HTML page: no network, no script, light and dark."""

from __future__ import annotations

import io
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from ncfbench import __version__
from ncfbench.data.sources import prepare_command
from ncfbench.errors import install_command
from ncfbench.reporting.formats import counted
from ncfbench.reporting.results import Results
from ncfbench.reporting.table import Table, is_command
from ncfbench.reporting.views.run import known_table

UNSTABLE = (
    *("key", "load_average", "memory_available_bytes", "time", "interleaved", "updated_by_row"),
)
"""Entries of an environment in which runs of the same environment differ."""


def page(results: Results, tables: Sequence[Table]) -> str:
    """Return the whole document.

    Args:
        tables: those to show; all but answers, main ones and the paper's are folded.
    """
    runs, drawings = results.runs, _drawings(results)
    answers = {table.name for table in results.tables if table.section == "answer"}
    lost = sum(run.has_diverged for run in runs)
    return (
        templates()
        .get_template("page.html")
        .render(
            version=__version__,
            names=sorted({run.config.dataset for run in runs}),
            labels=sorted({(run.config.dataset, run.data_label) for run in runs if run.data_label}),
            runs=counted(len(runs) - lost, "finished run") + (f" and {lost} diverged" * bool(lost)),
            sections={
                name: [table for table in tables if table.section == name]
                for name in ("answer", "main", "detail", "paper")
            },
            answer_drawings=[each for each in drawings if each["name"] in answers],
            drawings=[each for each in drawings if each["name"] not in answers],
            has_plots=find_spec("matplotlib") is not None,
            install=install_command("plots"),
            environments=_environments(results),
            commands=_commands(results),
        )
    )


def inline_svg(text: str, name: str) -> Markup:
    """Return the ``<svg>`` element of a file that Matplotlib wrote, fit to stand in a page.

    Its ids are made different from those of other figures, and nothing in it points outside.
    """
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Width and height in points would keep the page from scaling it; the view box stays.
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    return Markup(re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text).strip())


@cache
def templates() -> jinja2.Environment:
    """Return the environment of the page's templates, which escapes all that they are given."""
    found = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["code"] = with_code
    found.filters["counted"] = counted
    return found


def with_code(text: str) -> Markup:
    """Return text with commands, and flags in sentences, as code, which is not cut at hyphens."""
    if is_command(text):
        return Markup('<code class="command">{}</code>').format(text)
    return Markup(re.sub(r"--[a-z][a-z-]*[a-z]", r"<code>\g<0></code>", str(escape(text))))


def _drawings(results: Results) -> list[dict[str, Any]]:
    """Return the name, title and SVG of each figure, and the width in points that it was drawn for:
    all are scaled alike, so that their letters are of one size.
    """
    if find_spec("matplotlib") is None:
        return []
    from ncfbench.reporting.figures import drawn
    from ncfbench.reporting.figures.drawing import draw

    shown = []
    for number, (name, drawing) in enumerate(drawn(results).items()):
        file = io.StringIO()
        draw(drawing, file, "svg")
        svg = inline_svg(file.getvalue(), f"f{number}")
        box = re.search(r'viewBox="[^"]*?([\d.]+) [\d.]+"', svg)
        points = float(box[1]) if box else 680.0
        shown.append({"name": name, "title": drawing.title, "svg": svg, "points": points})
    return shown


def _environments(results: Results) -> list[Table]:
    """Return tables of each environment of the runs and of each data set that is known."""
    environments = {run.environment["key"]: run.environment for run in reversed(results.runs)}
    counts = Counter(run.environment["key"] for run in results.runs)
    tables = []
    for key, count in counts.items():
        title = f"{counted(count, 'run')}, environment {key}"
        tables.append(known_table(title, environments[key], UNSTABLE))
    for name, fingerprint in _data(results):
        manifest = results.manifests.get(fingerprint, {"statistics": {}, "options": {}})
        facts = {"what": manifest.get("label"), "fingerprint": fingerprint}
        facts |= manifest["statistics"] | manifest["options"]
        tables.append(known_table(f"Data set {name}", facts))
    return tables


def _data(results: Results) -> list[tuple[str, str]]:
    return sorted({(run.config.dataset, run.data_fingerprint) for run in results.runs})


def _commands(results: Results) -> list[str]:
    data_dir = results.locations.get("--data-dir")
    places = [word for pair in results.locations.items() for word in pair]
    there = "" if data_dir is None else f" --data-dir {shlex.quote(data_dir)}"
    prepares = [
        prepare_command(name, results.manifests[digest]) + there
        for name, digest in _data(results)
        if digest in results.manifests
    ]
    return [*prepares, shlex.join(["ncfbench", "report", "--format", "html", *places])]
