"""The report as one self-contained HTML page: no network, no script; light and dark; readable on a
phone.
"""

from __future__ import annotations

import html
import importlib.util
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench import __version__
from ncfbench.data.preparation import preparation
from ncfbench.report import sheets, verdicts
from ncfbench.report.render.markup import html_table
from ncfbench.report.results import Results

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
MEASURE_TITLES = {
    **{measure: title for title, measure, _ in sheets.SPEEDUPS},
    sheets.RECALL: "recall@50",
}
UNSTABLE = (
    "format_version",
    "key",
    "load_average",
    "memory_available_bytes",
    "time",
    "interleaved",
)
"""What an environment's runs differ in."""
LEFT = ' class="left"'
NO_PLOTS = "No figures: Matplotlib is not installed. Get them with: pip install 'ncfbench[plots]'"


def page(results: Results, places: Mapping[str, str]) -> str:
    """The whole document.

    Args:
        places: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    names = sorted({comparison.config.dataset for comparison in results.comparisons})
    labelled = {
        f" {each.config.dataset}: {each.data_label}."
        for each in results.comparisons
        if each.data_label
    }
    labels = html.escape("".join(sorted(labelled)))
    sections = {
        "verdicts": ("Verdicts", _verdicts(results)),
        "tables": ("Tables", _tables(results)),
        "figures": ("Figures", _figures(results)),
        "environment": ("Environment", _environments(results)),
        "repeat": ("How to repeat it", _repeat(results, places)),
    }
    links = "".join(
        f'<a href="#{name}">{html.escape(title)}</a>' for name, (title, _) in sections.items()
    )
    body = "\n".join(
        f'<section id="{name}"><h2>{html.escape(title)}</h2>\n{content}</section>'
        for name, (title, content) in sections.items()
    )
    finished = sum(
        len(runs) for comparison in results.comparisons for runs in comparison.arms.values()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        "<title>ncfbench:"
        f" {html.escape(', '.join(names))}</title><style>{STYLE}</style></head>\n<body>"
        "<header><h1>Mini-batches for content-based recommenders:"
        f" {html.escape(', '.join(names))}</h1>"
        f"<p>{finished} finished runs, ncfbench {html.escape(__version__)}. A speedup is the"
        " baseline's time over the "
        "sampler's: above 1 is"
        f" faster.{labels}</p><nav>{links}</nav></header>\n<main>{body}</main></body></html>\n"
    )


def inline_svg(text: str, name: str) -> str:
    """The ``<svg>`` element of a file, with ids that no other figure of a page has, and nothing
    that points outside.
    """
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Width and height in points would not let the page scale it; the view box stays.
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    return re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text).strip()


def _verdicts(results: Results) -> str:
    lines = "".join(
        f"<li>{html.escape(line)}</li>" for line in verdicts.summary_lines(results.verdicts)
    )
    present = [one for one in results.verdicts if one.verdict != verdicts.MISSING]
    rows = []
    for one in present:
        interval = (
            "" if one.lower is None or one.upper is None else f" [{one.lower:.4g}, {one.upper:.4g}]"
        )
        value = "-" if one.value is None else f"{one.value:.4g}{interval}"
        word = one.verdict + (
            f" ({one.figures_alone})"
            if one.figures_alone and one.figures_alone != one.verdict
            else ""
        )
        cells = [one.dataset, one.encoder, one.loss, one.sampler, MEASURE_TITLES[one.measure]]
        left = "".join(f'<td class="left">{html.escape(cell)}</td>' for cell in cells)
        kind = one.verdict if one.verdict in verdicts.BY_FIGURES else "muted"
        rows.append(
            f"<tr>{left}<td>{html.escape(value)}</td><td>{one.printed:g}</td><td>{one.seeds}</td>"
            f'<td class="left fold {kind}">{html.escape(word)}</td><td class="left'
            f' wrap">{html.escape(one.reason)}</td></tr>'
        )
    headings = (
        "data set",
        "encoder",
        "loss",
        "sampler",
        "measure",
        "ours",
        "printed",
        "seeds",
        "verdict",
        "why",
    )
    texts = ("data set", "encoder", "loss", "sampler", "measure", "verdict", "why")
    head = "".join(
        f'<th scope="col"{LEFT if name in texts else ""}>{name}</th>' for name in headings
    )
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Verdicts"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    note = (
        f"Reproduced: ours is within {100 * verdicts.RATIO_TOLERANCE:.0f} % (ratios) or"
        f" {100 * verdicts.RECALL_TOLERANCE:.0f} % (recall) of the printed value and, with several"
        " seeds, that lies in our 95 % interval. Undecided: it lies in the interval, and ours is"
        " not that near (too wide to tell), or a bound leaves it open. Not comparable: text, data,"
        " settings or hardware differ; in brackets what the two figures alone would say."
    )
    every = (
        f"<details><summary>All {len(rows)} verdicts, with their reasons</summary>{table}</details>"
    )
    return f"<ul>{lines}</ul><p class='note'>{html.escape(note)}</p>{every if rows else ''}"


def _tables(results: Results) -> str:
    shown = [
        *sheets.speedup_sheets(results.comparisons, results.speedups),
        *sheets.recall_sheets(results.comparisons, results.recalls),
        *sheets.verdict_sheets(
            results.comparisons, results.speedups, results.recalls, results.verdicts
        ),
    ]
    return "\n".join(html_table(sheet) for sheet in shown)


def _figures(results: Results) -> str:
    if importlib.util.find_spec("matplotlib") is None:
        return f"<p>{html.escape(NO_PLOTS)}</p>"
    from ncfbench.report.render.figures import draw_all

    parts = []
    with tempfile.TemporaryDirectory() as folder:
        drawn = draw_all(
            results.comparisons,
            results.beside,
            Path(folder),
            ["svg"],
            allow_mixed=results.allow_mixed,
        )
        for number, path in enumerate(drawn):
            svg = inline_svg(path.read_text(encoding="utf-8"), f"f{number}")
            name = html.escape(path.stem.replace("-", " "))
            style = f"--points: {_points(svg):.0f}"
            drawing = (
                f'<div class="drawing" style="{style}" role="img" aria-label="{name}"'
                f' tabindex="0">{svg}</div>'
            )
            parts.append(f"<figure>{drawing}<figcaption>{name}</figcaption></figure>")
    return "\n".join(parts) or "<p>No run has anything to draw.</p>"


def _points(svg: str) -> float:
    """How wide a drawing was made, by its view box: the page stretches all alike, so that their
    letters are of one size.
    """
    box = re.search(r'viewBox="[^"]*?([\d.]+) [\d.]+"', svg)
    return float(box[1]) if box else 680.0


def _environments(results: Results) -> str:
    finished = [
        run
        for comparison in results.comparisons
        for runs in comparison.arms.values()
        for run in runs.values()
    ]
    counts = Counter(str(run.environment["key"]) for run in finished)
    parts = []
    for key, count in counts.items():
        environment = next(run.environment for run in finished if run.environment["key"] == key)
        parts.append(_fact_table(f"{count} runs, environment {key}", _facts(environment)))
    for name, fingerprint in _data(results):
        manifest = results.manifests.get(fingerprint)
        facts = [("fingerprint", fingerprint)]
        if manifest is not None:
            facts = [("what", manifest["label"]), *facts] if manifest.get("label") else facts
            facts += [
                (key.replace("_", " "), f"{value:g}")
                for key, value in manifest["statistics"].items()
            ]
            facts += _facts(manifest["options"])
        parts.append(_fact_table(f"Data set {name}", facts))
    return "\n".join(parts)


def _data(results: Results) -> list[tuple[str, str]]:
    """Names and fingerprints of the data sets."""
    return sorted({(each.config.dataset, each.data_fingerprint) for each in results.comparisons})


def _fact_table(title: str, facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td class="left'
        f' wrap">{html.escape(value)}</td></tr>'
        for name, value in facts
    )
    return (
        f'<h3>{html.escape(title)}</h3><div class="scroll" tabindex="0" role="region"'
        f' aria-label="{html.escape(title)}"><table><tbody>{rows}</tbody></table></div>'
    )


def _facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What an environment says of itself, whatever it holds, in plain words."""
    facts = []
    for name, value in environment.items():
        if name in UNSTABLE or value in (None, [], {}):
            continue
        if isinstance(value, Mapping):
            text = ", ".join(f"{key} {item}" for key, item in value.items())
        elif isinstance(value, Sequence) and not isinstance(value, str):
            text = ", ".join(
                " ".join(map(str, item.values())) if isinstance(item, Mapping) else str(item)
                for item in value
            )
        else:
            text = str(value)
        facts.append((name.replace("_", " "), text))
    return facts


def _repeat(results: Results, places: Mapping[str, str]) -> str:
    data_dir = "".join(f" {shlex.join(pair)}" for pair in places.items() if pair[0] == "--data-dir")
    commands = [
        preparation(name, results.manifests[fingerprint]) + data_dir
        for name, fingerprint in _data(results)
        if fingerprint in results.manifests
    ]
    where = [word for pair in places.items() for word in pair]
    commands.append(shlex.join(["ncfbench", "report", "--format", "html", *where]))
    missing = sorted(
        {str(row["command"]) for row in [*results.speedup, *results.recall] if row.get("command")}
    )
    parts = [f"<pre>{html.escape(chr(10).join(commands))}</pre>"]
    if missing:
        parts += [
            "<p>What would fill its missing cells:</p>",
            f"<pre>{html.escape(chr(10).join(missing))}</pre>",
        ]
    return "".join(parts)
