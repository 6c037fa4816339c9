"""The report as one self-contained HTML page: no network, no script, light and dark."""

from __future__ import annotations

import base64
import io
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from ncfbench import __version__
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
    runs = results.runs
    lost = sum(run.has_diverged for run in runs)
    return (
        templates()
        .get_template("page.html")
        .render(
            version=__version__,
            names=sorted({run.config.dataset for run in runs}),
            runs=counted(len(runs) - lost, "finished run") + (f" and {lost} diverged" * bool(lost)),
            sections={
                name: [table for table in tables if table.section == name]
                for name in ("answer", "main", "detail", "paper")
            },
            drawings=_drawings(results),
            has_plots=find_spec("matplotlib") is not None,
            install=install_command("plots"),
            environments=_environments(results),
            command=shlex.join(
                ["ncfbench", "report", "--format", "html", *chain(*results.locations.items())]
            ),
        )
    )


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


def _drawings(results: Results) -> list[dict[str, str]]:
    """Return the name and title of each figure, and its SVG in base 64."""
    if find_spec("matplotlib") is None:
        return []
    from ncfbench.reporting.figures import drawn
    from ncfbench.reporting.figures.drawing import draw

    shown = []
    for name, drawing in drawn(results).items():
        file = io.BytesIO()
        draw(drawing, file, "svg")
        svg = base64.b64encode(file.getvalue()).decode()
        shown.append({"name": name, "title": drawing.get_suptitle(), "svg": svg})
    return shown


def _environments(results: Results) -> list[Table]:
    """Return a table of each environment of the runs."""
    environments = {run.environment["key"]: run.environment for run in reversed(results.runs)}
    counts = Counter(run.environment["key"] for run in results.runs)
    tables = []
    for key, count in counts.items():
        title = f"{counted(count, 'run')}, environment {key}"
        tables.append(known_table(title, environments[key], UNSTABLE))
    return tables
