"""Figures of the paper, drawn from our own runs (Matplotlib, the ``plots`` extra). The one place that draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError
from ncfbench.registry import find_encoder, find_loss, find_sampler
from ncfbench.report.comparison import Comparison, Variant
from ncfbench.runs import RunRecord
from ncfbench.tables import storage_errors

STYLES = {
    "iid": ("#000000", "-", "o"), "neg": ("#7a7a7a", "--", "s"), "strat": ("#0072b2", "-.", "^"),
    "ns": ("#d55e00", ":", "D"), "strat-ns": ("#009e73", "-", "v"),
    "mixed-ns": ("#cc79a7", "--", "P"),
}  # fmt: skip
"""Colour, line and mark of a sampler: told apart also in black and white, and by readers who are colour-blind."""
PLUGIN_STYLE = ("#56b4e9", "-.", "X")


def convergence(comparison: Comparison, folder: Path) -> list[Path]:
    """Probe loss and test recall@50 against epoch and against training time, as SVG and PNG.

    The paper's convergence curves, training loss and test performance (KDD 2017, section 5.3). One seed of each sampler.

    Raises:
        UsageError: Matplotlib is not installed.
        DataError: the folder cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("Figures need Matplotlib. Install it with: pip install 'ncfbench[plots]'") from error
    config = comparison.config
    figure = Figure(figsize=(9.5, 6.2), layout="constrained")
    axes = figure.subplots(2, 2)
    xs = (("epoch", "epoch"), ("train_seconds", "training time, s (full account, log scale)"))
    ys = (("probe_loss", f"probe loss ({find_loss(config.loss).title}, log scale)"), ("test_recall_at_50", "test recall@50"))
    for row, (y, y_label) in enumerate(ys):
        for column, (x, x_label) in enumerate(xs):
            axis = axes[row, column]
            for variant, runs in sorted(comparison.arms.items(), key=lambda arm: _place(arm[0].sampler)):
                _draw(axis, variant, next(iter(runs.values())), x, y, config.encoder)
            axis.set(xlabel=x_label, ylabel=y_label)
            axis.set_xscale("log" if x == "train_seconds" else "linear")
            axis.set_yscale("log" if y == "probe_loss" else "linear")
            axis.grid(alpha=0.25, which="both", linewidth=0.5)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"{config.dataset}, {find_encoder(config.encoder).title}, {find_loss(config.loss).title}")
    name = f"convergence-{config.dataset}-{config.encoder}-{config.loss}-{comparison.data_fingerprint[:6]}"
    paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            figure.savefig(path, dpi=130)
    return paths


def draw_all(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Every figure that the runs allow."""
    return [path for comparison in comparisons for path in convergence(comparison, folder)]


def _place(sampler: str) -> int:
    return list(STYLES).index(sampler) if sampler in STYLES else len(STYLES)


def _draw(axis: Any, variant: Variant, run: RunRecord, x: str, y: str, encoder: str) -> None:
    """One sampler's line, without the point before training: far above the others, and none on a logarithmic time axis."""
    color, line, mark = STYLES.get(variant.sampler, PLUGIN_STYLE)
    rows = [row for row in run.curve if row[y] is not None and row["iteration"] > 0]
    note = variant.note(encoder)
    label = find_sampler(variant.sampler).title + (f" ({note})" if note else "")
    every = max(1, len(rows) // 8)
    axis.plot(
        [row[x] for row in rows], [row[y] for row in rows], color=color, linestyle=line, marker=mark, markevery=every,
        markersize=4, linewidth=1.5, label=label,
    )  # fmt: skip
