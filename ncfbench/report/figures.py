"""Figures of the paper, drawn from our own runs (Matplotlib, the ``plots`` extra). The one place
that draws.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.config import RunConfig
from ncfbench.errors import UsageError
from ncfbench.registry import ENCODERS, find_encoder, find_loss, find_sampler
from ncfbench.report.comparison import Comparison
from ncfbench.report.targets import TARGET_MEASURES, Target, sensitivity
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.storage.tables import storage_errors
from ncfbench.timing import seed_statistics

STYLES = {
    "iid": ("#000000", "-", "o"),
    "neg": ("#7a7a7a", "--", "s"),
    "strat": ("#0072b2", "-.", "^"),
    "ns": ("#d55e00", ":", "D"),
    "strat-ns": ("#009e73", "-", "v"),
    "mixed-ns": ("#cc79a7", "--", "P"),
}
"""Colour, line and mark of a sampler: told apart also in black and white, and by readers who are
colour-blind.
"""
BOUNDS = {"at_least": (r"$\uparrow$", "at least"), "at_most": (r"$\downarrow$", "at most")}
"""Arrows at what is only bounded: carets could be taken for the marks of some samplers."""
PLUGIN_STYLE = ("#56b4e9", "-.", "X")
HATCHES = ("", "//", "..", "xx", "\\\\", "--")
"""Of bars, so that they are told apart without colour."""
KINDS = ("svg", "png")


def convergence(comparison: Comparison, folder: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Probe loss and test recall@50 against epoch and against training time, as SVG and PNG.

    The paper's convergence curves, training loss and test performance (KDD 2017, section 5.3):
    means over seeds, with the range from the least to the largest. Where a sampler ran with several
    s or k, the paper's.

    Raises:
        UsageError: Matplotlib is not installed.
        DataError: the folder cannot be written.
    """
    config = comparison.config
    figure = _figure(9.5, 6.2)
    axes = figure.subplots(2, 2)
    xs = (("epoch", "epoch"), ("train_seconds", "training time, s (full account, log scale)"))
    ys = (
        ("probe_loss", f"probe loss ({find_loss(config.loss).title}, log scale)"),
        ("test_recall_at_50", "test recall@50"),
    )
    for row, (y, y_label) in enumerate(ys):
        for column, (x, x_label) in enumerate(xs):
            axis = axes[row, column]
            for variant in _main_variants(comparison):
                _draw(axis, variant, list(comparison.arms[variant].values()), x, y, config.encoder)
            axis.set(xlabel=x_label, ylabel=y_label)
            if x == "train_seconds":
                axis.set_xscale("log")
                _label_few(axis.xaxis)
            if y == "probe_loss":
                axis.set_yscale("log")
                _label_few(axis.yaxis)
            if not axis.lines:
                axis.text(
                    0.5,
                    0.5,
                    "nothing was measured",
                    transform=axis.transAxes,
                    ha="center",
                    va="center",
                    color="#7a7a7a",
                )
            _finish(axis)
    axes[0, 0].legend(frameon=False)
    figure.suptitle(_over(comparison.data_label, _what(comparison)))
    return _save(figure, folder, f"convergence-{_name(comparison)}", kinds)


def _label_few(axis: Any) -> None:
    """Plain labels on a logarithmic axis, at 1, 2 and 5 of each decade; round numbers where that
    would be one or none.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 5 * low else MaxNLocator(6))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def targets(
    comparison: Comparison, folder: Path, kinds: Sequence[str] = KINDS, *, allow_mixed: bool = False
) -> list[Path]:
    """Total speedup and speedup in iterations at every loss level and every recall level; nothing
    where none has a ratio.

    The band is the 95 % interval over seeds. Where some seed did not reach a level, or was past it
    at its first look, there is no point but a bound: an arrow to the side on which the ratio lies.
    """
    found = {
        measure: sensitivity(comparison, measure, allow_mixed=allow_mixed)
        for measure in TARGET_MEASURES
    }
    if not any(target.speedup.total for own in found.values() for target in own):
        return []
    config = comparison.config
    figure = _figure(9.5, 6.2)
    axes = figure.subplots(2, 2)
    for row, kind in enumerate(("total", "iterations")):
        for column, (measure, own) in enumerate(found.items()):
            axis = axes[row, column]
            for variant in (
                one
                for one in _main_variants(comparison)
                if any(target.variant == one for target in own)
            ):
                _draw_targets(
                    axis,
                    [target for target in own if target.variant == variant],
                    kind,
                    config.encoder,
                )
            title = find_loss(config.loss).title
            label = (
                f"target: probe loss ({title}, log scale)"
                if measure == "probe_loss"
                else "target: test recall@50"
            )
            axis.set(
                xlabel=label,
                ylabel={"total": "speedup, total", "iterations": "speedup, # of iterations"}[kind],
            )
            if measure == "probe_loss":
                if all(target.level > 0 for target in own):
                    axis.set_xscale("log")
                    _label_few(axis.xaxis)
                axis.invert_xaxis()
            axis.set_yscale("log")
            _label_few(axis.yaxis)
            axis.axhline(1, color="#7a7a7a", linewidth=0.8, linestyle="--")
            _finish(axis)
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    bounds = {text for _, text in BOUNDS.values()}
    shown = sorted(handles, key=bounds.__contains__)  # the samplers first
    figure.legend(
        [handles[label] for label in shown],
        shown,
        frameon=False,
        loc="outside lower center",
        ncols=6,
    )
    baseline = find_sampler(comparison.baseline_sampler).title
    figure.suptitle(
        _over(
            comparison.data_label, f"Speedup over {baseline} at every target: {_what(comparison)}"
        )
    )
    return _save(figure, folder, f"targets-{_name(comparison)}", kinds)


def by_setting(
    comparison: Comparison, setting: str, folder: Path, kinds: Sequence[str] = KINDS
) -> list[Path]:
    """Smallest probe loss and test recall@50 against s or k: the paper's figures of stratum size
    and of negatives.

    Nothing where no sampler ran with two values. Points are means over the seeds that all of them
    have, bars 95 % intervals. Samplers that share the batch's negatives have no k: they are levels
    beside the others.

    Args:
        setting: ``stratum_size`` or ``negatives``.
    """
    usual = {
        "stratum_size": RunConfig.stratum_size,
        "negatives": find_encoder(comparison.config.encoder).negatives,
    }
    lines: dict[str, dict[int, Mapping[int, RunRecord]]] = {}
    beside: dict[str, Mapping[int, RunRecord]] = {}
    for variant, runs in comparison.arms.items():
        others = [
            getattr(variant, name) in (None, value)
            for name, value in usual.items()
            if name != setting
        ]
        if not all(others) or any((variant.strata, variant.uniform_items, variant.share)):
            continue
        value = getattr(variant, setting)
        if value is not None:
            lines.setdefault(variant.sampler, {})[value] = runs
        elif setting == "negatives":
            beside[variant.sampler] = runs
    lines = {sampler: points for sampler, points in lines.items() if len(points) > 1}
    common = (
        set.intersection(*(set(runs) for points in lines.values() for runs in points.values()))
        if lines
        else set()
    )
    if not common:
        return []
    figure = _figure(9.5, 3.6)
    labels = {"smallest_probe_loss": "smallest probe loss", "test_recall_at_50": "test recall@50"}
    for axis, (measure, label) in zip(figure.subplots(1, 2), labels.items(), strict=True):
        for sampler in sorted(lines, key=_place):
            points = {
                value: [runs[seed] for seed in sorted(common)]
                for value, runs in lines[sampler].items()
            }
            _draw_setting(axis, sampler, points, measure)
        for sampler in sorted(beside, key=_place):
            _draw_level(
                axis,
                sampler,
                [run for seed, run in beside[sampler].items() if seed in common],
                measure,
            )
        values = sorted({value for points in lines.values() for value in points})
        axis.set_xscale("log", base=2)
        axis.set_xticks(values, [str(value) for value in values])
        axis.set_xticks([], minor=True)
        axis.set(
            xlabel={"stratum_size": "links in a stratum, s", "negatives": "negatives, k"}[setting],
            ylabel=label,
        )
        _finish(axis)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        frameon=False,
        loc="outside lower center",
        ncols=4,
    )
    seeds_text = f"{len(common)} seed{'' if len(common) == 1 else 's'}"
    figure.suptitle(_over(comparison.data_label, f"{_what(comparison)}, {seeds_text}"))
    return _save(figure, folder, f"{setting.replace('_', '-')}-{_name(comparison)}", kinds)


def epoch_time(
    rows: Sequence[Mapping[str, Any]],
    folder: Path,
    kinds: Sequence[str] = KINDS,
    *,
    data_label: str = "",
) -> list[Path]:
    """Seconds of an epoch by encoder and sampler, on a logarithmic scale (KDD 2017, figure of epoch
    times by item function).

    Args:
        rows: of the cost model, of one data set, loss and environment.
        data_label: see :class:`ncfbench.report.comparison.Comparison`.
    """
    figure = _figure(6.4, 3.8)
    axis = figure.subplots()
    encoders = sorted(
        {row["encoder"] for row in rows}, key=lambda name: [*ENCODERS, name].index(name)
    )
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
                label = (
                    find_sampler(sampler).title
                    if encoder == next(name for name in encoders if name in own)
                    else None
                )
                axis.bar(
                    x,
                    seconds,
                    0.9 * width,
                    color=color,
                    edgecolor="black",
                    hatch=HATCHES[place % len(HATCHES)],
                    label=label,
                )
    axis.set_yscale("log")
    axis.set_xticks(range(len(encoders)), [find_encoder(name).title for name in encoders])
    axis.set_ylabel("time of an epoch, s (full account, log scale)")
    _finish(axis)
    lowest = min(
        row["measured_full_iteration_seconds"] * row["links"] / row["batch_size"] for row in rows
    )
    axis.set_ylim(10 ** math.floor(math.log10(lowest)), axis.get_ylim()[1] * 3)
    axis.legend(frameon=False, ncols=3, fontsize="small", loc="upper left")
    first = rows[0]
    on = (
        f", {first['devices']} devices" + ", SIMULATED" * bool(first["simulated"])
        if first["devices"]
        else ""
    )
    axis.set_title(
        _over(
            data_label,
            f"{first['dataset']}, {find_loss(first['loss']).title}, b={first['batch_size']}{on}",
        )
    )
    return _save(
        figure,
        folder,
        f"epoch-time-{first['dataset']}-{first['loss']}-b{first['batch_size']}-{first['data_fingerprint'][:6]}-{first['environment_key'][:6]}",
        kinds,
    )


def product_ratio(
    rows: Sequence[Mapping[str, Any]], folder: Path, kinds: Sequence[str] = KINDS
) -> list[Path]:
    """Time of all n x n scores by vector products over that by one matrix product, against n (KDD
    2017, the other figure).

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
    return _save(figure, folder, f"product-ratio-{matrix['environment_key'][:6]}", kinds)


def draw_all(
    comparisons: Sequence[Comparison],
    profile: Mapping[str, Sequence[Mapping[str, Any]]],
    folder: Path,
    kinds: Sequence[str] = KINDS,
    *,
    allow_mixed: bool = False,
) -> list[Path]:
    """Every figure that the runs and the profile's tables allow."""
    paths: list[Path] = []
    for comparison in comparisons:
        paths += convergence(comparison, folder, kinds)
        paths += targets(comparison, folder, kinds, allow_mixed=allow_mixed)
        for setting in ("stratum_size", "negatives"):
            paths += by_setting(comparison, setting, folder, kinds)
    by_data: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in profile.get("costmodel", ()):
        key = tuple(
            row[name]
            for name in ("dataset", "loss", "batch_size", "data_fingerprint", "environment_key")
        )
        by_data.setdefault(key, []).append(row)
    labels = {comparison.data_fingerprint: comparison.data_label for comparison in comparisons}
    for rows in by_data.values():
        paths += epoch_time(
            rows, folder, kinds, data_label=labels.get(rows[0]["data_fingerprint"], "")
        )
    pairs: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in profile.get("unitcost", ()):
        if row["part"].endswith("product"):
            pairs.setdefault((row["environment_key"],), []).append(row)
    return paths + [path for rows in pairs.values() for path in product_ratio(rows, folder, kinds)]


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "Figures need Matplotlib. Install it with: pip install 'ncfbench[plots]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def _finish(axis: Any) -> None:
    axis.grid(alpha=0.25, which="both", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, folder: Path, name: str, kinds: Sequence[str]) -> list[Path]:
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            figure.savefig(path, dpi=130)
    return paths


def _what(comparison: Comparison) -> str:
    config = comparison.config
    found = (
        f"{config.dataset}, {find_encoder(config.encoder).title}, {find_loss(config.loss).title}"
    )
    if config.devices > 1:
        found += f", {config.devices} devices"
    return f"{found}, SIMULATED: times are of no use" if comparison.is_simulated else found


def _over(data_label: str, title: str) -> str:
    """A figure's title, with what the data set is called, where it is called anything, on a line of
    its own.
    """
    return f"{title}\n{data_label}" if data_label else title


def _name(comparison: Comparison) -> str:
    """Of a file. A plug-in's name has a colon, which some file systems refuse; unusual settings
    have their digest.
    """
    config, title = comparison.config, comparison.title()
    arms = f"{config.dataset}-{config.encoder}-{config.loss}".replace(":", ".")
    name = f"{arms}-{comparison.data_fingerprint[:6]}"
    return name + (f"-{hashlib.sha256(title.encode()).hexdigest()[:6]}" if title else "")


def _place(sampler: str) -> int:
    return list(STYLES).index(sampler) if sampler in STYLES else len(STYLES)


def _style(variant: Variant) -> tuple[str, dict[str, Any]]:
    """A variant's colour, and its line and marks; those of local sharing are hollow."""
    color, line, mark = STYLES.get(variant.sampler, PLUGIN_STYLE)
    hollow = {"markerfacecolor": "white", "alpha": 0.7} if variant.share else {}
    return (
        color,
        {
            "color": color,
            "linestyle": line,
            "marker": mark,
            "markersize": 4,
            "linewidth": 1.5,
        }
        | hollow,
    )


def _draw(
    axis: Any, variant: Variant, runs: Sequence[RunRecord], x: str, y: str, encoder: str
) -> None:
    """One sampler's line: means over seeds at the iterations that all have, and the range as a
    band.

    The point before training is left out: far above the others, and none on a logarithmic time
        axis.
    """
    color, style = _style(variant)
    curves = [
        {row["iteration"]: row for row in run.curve if row[y] is not None and row["iteration"] > 0}
        for run in runs
    ]
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    if not common:  # an encoder without vectors of held-out items has no recall
        return
    rows = [[curve[iteration] for curve in curves] for iteration in common]
    xs = [math.fsum(row[x] for row in each) / len(each) for each in rows]
    ys = [math.fsum(row[y] for row in each) / len(each) for each in rows]
    axis.plot(xs, ys, markevery=max(1, len(rows) // 8), label=_label(variant, encoder), **style)
    if len(runs) > 1:
        lowest, highest = ([bound(row[y] for row in each) for each in rows] for bound in (min, max))
        axis.fill_between(xs, lowest, highest, color=color, alpha=0.15, linewidth=0)


def _draw_targets(axis: Any, targets: Sequence[Target], kind: str, encoder: str) -> None:
    """One sampler's speedup at each target that all its seeds reached."""
    variant = targets[0].variant
    color, style = _style(variant)
    points = [(target.level, getattr(target.speedup, kind)) for target in targets]
    known = [(level, estimate) for level, estimate in points if estimate is not None]
    levels, values = [level for level, _ in known], [estimate.value for _, estimate in known]
    axis.plot(
        levels, values, markevery=max(1, len(known) // 8), label=_label(variant, encoder), **style
    )
    bands = [
        (level, estimate.lower, estimate.upper)
        for level, estimate in known
        if estimate.lower is not None
    ]
    if len(bands) > 1:
        axis.fill_between(*zip(*bands, strict=True), color=color, alpha=0.15, linewidth=0)
    for end, (head, text) in BOUNDS.items():
        bounds = [
            (target.level, bound)
            for target in targets
            if (bound := getattr(target.speedup, f"{kind}_{end}")) is not None
        ]
        if bounds:
            shown = bounds[:: max(1, len(bounds) // 8)]
            axis.plot(
                *zip(*shown, strict=True),
                color=color,
                linestyle="none",
                marker=head,
                markersize=5,
                alpha=0.6,
                zorder=1.5,
            )
            axis.plot(
                [], [], color="#7a7a7a", linestyle="none", marker=head, markersize=7, label=text
            )


def _draw_setting(
    axis: Any, sampler: str, points: Mapping[int, Sequence[RunRecord]], measure: str
) -> None:
    """One sampler's means over seeds by s or k."""
    color, line, mark = STYLES.get(sampler, PLUGIN_STYLE)
    known = [
        (value, estimate)
        for value, runs in sorted(points.items())
        if (estimate := _mean(runs, measure)) is not None
    ]
    halves = [
        0.0 if estimate.upper is None else estimate.upper - estimate.value for _, estimate in known
    ]
    axis.errorbar(
        [value for value, _ in known],
        [estimate.value for _, estimate in known],
        yerr=halves if any(halves) else None,
        color=color,
        linestyle=line,
        marker=mark,
        markersize=4,
        linewidth=1.5,
        capsize=3,
        label=find_sampler(sampler).title,
    )


def _draw_level(axis: Any, sampler: str, runs: Sequence[RunRecord], measure: str) -> None:
    """The mean of a sampler without the setting, across the whole axis."""
    estimate = _mean(runs, measure)
    if estimate is not None:
        color, line, _ = STYLES.get(sampler, PLUGIN_STYLE)
        label = f"{find_sampler(sampler).title} (the batch's)"
        axis.axhline(estimate.value, color=color, linestyle=line, linewidth=1.5, label=label)


def _mean(runs: Sequence[RunRecord], measure: str) -> seed_statistics.Estimate | None:
    values = [run.summary[measure] for run in runs if run.summary.get(measure) is not None]
    return seed_statistics.mean(values) if values else None


def _main_variants(comparison: Comparison) -> list[Variant]:
    """The paper's s and k of each sampler where it ran with them, else all that it ran with."""
    usual = (RunConfig.stratum_size, find_encoder(comparison.config.encoder).negatives)
    by_sampler: dict[tuple[Any, ...], list[Variant]] = {}
    for variant in comparison.arms:
        by_sampler.setdefault((variant.sampler, variant.strata, variant.uniform_items), []).append(
            variant
        )
    found = []
    for own in by_sampler.values():
        paper = [
            one
            for one in own
            if one.stratum_size in (None, usual[0]) and one.negatives in (None, usual[1])
        ]
        found += paper or own
    return sorted(found, key=_variant_place)


def _label(variant: Variant, encoder: str) -> str:
    note = variant.note(encoder)
    return find_sampler(variant.sampler).title + (f" ({note})" if note else "")


def _variant_place(variant: Variant) -> tuple[int, int, int]:
    return _place(variant.sampler), variant.stratum_size or 0, variant.negatives or 0
