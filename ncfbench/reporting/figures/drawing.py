"""Styles, titles and files that all figures share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ncfbench.catalog import SAMPLERS
from ncfbench.errors import UsageError, install_command
from ncfbench.runs.arms import Variant
from ncfbench.storage.tables import atomic_path, storage_errors

Style = dict[str, Any]
"""Colour, line and mark, by Matplotlib's names."""
COLOURS = (
    *("#000000", "#7a7a7a", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8c564b"),
    *("#332288", "#aa4499"),
)
LINES, MARKS = ("-", "--", "-.", ":"), "os^DvP<>hd"


def styles_of(names: Iterable[str]) -> dict[str, Style]:
    """Return a colour, line and mark of each name; where colours repeat, lines and marks differ."""
    found = {}
    for number, name in enumerate(names):
        turn, place = divmod(number, len(COLOURS))
        line, mark = LINES[(place + turn) % len(LINES)], MARKS[(place + turn) % len(MARKS)]
        found[name] = {"color": COLOURS[place], "linestyle": line, "marker": mark}
    return found


STYLES = styles_of(SAMPLERS)
"""Styles of samplers, told apart without colour too."""
PLUGIN_STYLE: Style = {"color": "#56b4e9", "linestyle": "-.", "marker": "X"}
GREY = "#7a7a7a"
LEVEL_COLOR = "#404040"
UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata that makes Matplotlib leave the date out, by the kind of a file."""
LETTERS = 10
"""Letters of a title in an inch."""


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of some inches.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        command = install_command("plots")
        raise UsageError(f"Figures need Matplotlib. Install it with: {command}") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, paths: Sequence[Path]) -> list[Path]:
    """Write a figure to files of the kinds that their suffixes name; return the files.

    Raises:
        DataError: a file cannot be written.
    """
    for path in paths:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as new:
            draw(figure, new, path.suffix[1:])
    return list(paths)


def draw(figure: Any, target: Path | BinaryIO, kind: str) -> None:
    """Draw to a file of a kind such as ``svg``: the same bytes whenever the figure is the same."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "ncfbench"}):
        figure.savefig(target, dpi=130, format=kind, metadata=UNDATED.get(kind))


def finish(axis: Any) -> None:
    """Add a grid and take away the frame's upper and right line."""
    axis.grid(alpha=0.25, which="both", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def add_legend_below(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Add a legend below all axes, in as many columns as there is room for, but six at most."""
    below = {"frameon": False, "loc": "outside lower center"}
    for columns in range(min(len(handles), 6), 0, -1):
        legend = figure.legend(handles, labels, ncols=columns, **below)
        if legend.get_window_extent().width <= figure.bbox.width or columns == 1:
            return
        legend.remove()


def label_few(axis: Any) -> None:
    """Label a logarithmic axis plainly at 1, 2 and 5 of each decade, or at round numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 5 * low else MaxNLocator(6))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def entitle(figure: Any, title: str, note: str = "") -> Any:
    """Write a title above a figure, in one line, and a note below it; return the figure."""
    size = min(12.0, 12.0 * LETTERS * figure.get_figwidth() / max(len(title), 1))
    figure.suptitle(title, fontsize=size)
    if note:
        width = int(1.5 * LETTERS * figure.get_figwidth())
        lines = textwrap.wrap(f"{note}.", width, break_on_hyphens=False)
        figure.supxlabel("\n".join(lines), fontsize="small", color=LEVEL_COLOR)
    return figure


def main_variants(arms: Iterable[Variant], encoder: str) -> list[Variant]:
    """Return the arms with the paper's settings, in the order of :data:`STYLES`; all where no
    baseline has them.
    """
    order = [*STYLES]
    arms = sorted(arms, key=lambda arm: [*order, arm.sampler].index(arm.sampler))
    return [arm for arm in arms if not arm.note(encoder)] or arms
