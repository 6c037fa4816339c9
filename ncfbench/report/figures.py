"""Figures of the paper, drawn from our own runs (Matplotlib, the ``plots`` extra). The one place that draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError
from ncfbench.registry import ENCODERS, find_encoder, find_loss, find_sampler
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
HATCHES = ("", "//", "..", "xx", "\\\\", "--")
"""Of bars, so that they are told apart without colour."""


def convergence(comparison: Comparison, folder: Path) -> list[Path]:
    """Probe loss and test recall@50 against epoch and against training time, as SVG and PNG.

    The paper's convergence curves, training loss and test performance (KDD 2017, section 5.3). One seed of each sampler.

    Raises:
        UsageError: Matplotlib is not installed.
        DataError: the folder cannot be written.
    """
    config = comparison.config
    figure = _figure(9.5, 6.2)
    axes = figure.subplots(2, 2)
    xs = (("epoch", "epoch"), ("train_seconds", "training time, s (full account, log scale)"))
    ys = (("probe_loss", f"probe loss ({find_loss(config.loss).title}, log scale)"), ("test_recall_at_50", "test recall@50"))
    for row, (y, y_label) in enumerate(ys):
        for column, (x, x_label) in enumerate(xs):
            axis = axes[row, column]
            for variant, runs in sorted(comparison.arms.items(), key=lambda arm: _place(arm[0].sampler)):
                _draw(axis, variant, next(iter(runs.values())), x, y, config.encoder)
            axis.set(xlabel=x_label, ylabel=y_label)
            if x == "train_seconds":
                axis.set_xscale("log")
                _label_few(axis.xaxis)
            if y == "probe_loss":
                axis.set_yscale("log")
                _label_few(axis.yaxis)
            _finish(axis)
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"{config.dataset}, {find_encoder(config.encoder).title}, {find_loss(config.loss).title}")
    name = f"convergence-{config.dataset}-{config.encoder}-{config.loss}-{comparison.data_fingerprint[:6]}"
    return _save(figure, folder, name)


def _label_few(axis: Any) -> None:
    """Plain labels at 1, 2 and 5 of each decade of a logarithmic axis: of less than two decades every tick is named else."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def epoch_time(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Seconds of an epoch by encoder and sampler, on a logarithmic scale (KDD 2017, figure of epoch times by item function).

    Args:
        rows: of the cost model, of one data set, loss and environment.
    """
    figure = _figure(6.4, 3.8)
    axis = figure.subplots()
    encoders = sorted({row["encoder"] for row in rows}, key=lambda name: [*ENCODERS, name].index(name))
    samplers = sorted({row["sampler"] for row in rows}, key=_place)
    width = 0.8 / len(samplers)
    for place, sampler in enumerate(samplers):
        own = {row["encoder"]: row for row in rows if row["sampler"] == sampler}
        color, _, _ = STYLES.get(sampler, PLUGIN_STYLE)
        for number, encoder in enumerate(encoders):
            if encoder in own:
                row = own[encoder]
                seconds = row["measured_full_iteration_seconds"] * row["links"] / row["batch_size"]
                x = number + (place - (len(samplers) - 1) / 2) * width
                label = find_sampler(sampler).title if encoder == next(name for name in encoders if name in own) else None
                axis.bar(
                    x, seconds, 0.9 * width, color=color, edgecolor="black", hatch=HATCHES[place % len(HATCHES)], label=label
                )
    axis.set_yscale("log")
    axis.set_xticks(range(len(encoders)), [find_encoder(name).title for name in encoders])
    axis.set_ylabel("time of an epoch, s (full account, log scale)")
    _finish(axis)
    lowest = min(row["measured_full_iteration_seconds"] * row["links"] / row["batch_size"] for row in rows)
    axis.set_ylim(10 ** math.floor(math.log10(lowest)), axis.get_ylim()[1] * 3)
    axis.legend(frameon=False, ncols=3, fontsize="small", loc="upper left")
    first = rows[0]
    axis.set_title(f"{first['dataset']}, {find_loss(first['loss']).title}, b={first['batch_size']}")
    return _save(
        figure,
        folder,
        f"epoch-time-{first['dataset']}-{first['loss']}-b{first['batch_size']}-{first['data_fingerprint'][:6]}-{first['environment_key'][:6]}",
    )


def product_ratio(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Time of all n x n scores by vector products over that by one matrix product, against n (KDD 2017, the other figure).

    Args:
        rows: the two rows of products of one profile's unit costs.
    """
    by_part = {row["part"]: row for row in rows}
    matrix, vectors = by_part["matrix product"], by_part["element-wise product"]
    figure = _figure(5.2, 3.6)
    axis = figure.subplots()
    ratios = [other / own for own, other in zip(matrix["seconds"], vectors["seconds"], strict=True)]
    axis.plot(matrix["sizes"], ratios, color="#000000", marker="o", linewidth=1.5)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.axhline(1, color="#7a7a7a", linewidth=0.8, linestyle="--")
    axis.set(xlabel="n", ylabel="time of n x n scores,\nvector products / matrix product")
    axis.set_xticks(matrix["sizes"], [str(size) for size in matrix["sizes"]])
    _finish(axis)
    return _save(figure, folder, f"product-ratio-{matrix['environment_key'][:6]}")


def draw_all(
    comparisons: Sequence[Comparison], profile: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path
) -> list[Path]:
    """Every figure that the runs and the profile's tables allow."""
    paths = [path for comparison in comparisons for path in convergence(comparison, folder)]
    by_data: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in profile.get("costmodel", ()):
        key = tuple(row[name] for name in ("dataset", "loss", "batch_size", "data_fingerprint", "environment_key"))
        by_data.setdefault(key, []).append(row)
    paths += [path for rows in by_data.values() for path in epoch_time(rows, folder)]
    pairs: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in profile.get("unitcost", ()):
        if row["part"].endswith("product"):
            pairs.setdefault((row["environment_key"],), []).append(row)
    return paths + [path for rows in pairs.values() for path in product_ratio(rows, folder)]


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("Figures need Matplotlib. Install it with: pip install 'ncfbench[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def _finish(axis: Any) -> None:
    axis.grid(alpha=0.25, which="both", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            figure.savefig(path, dpi=130)
    return paths


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
