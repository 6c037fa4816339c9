"""Figure of the time of an epoch by encoder and sampler, from profiles or from runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ncfbench.catalog import ENCODERS, find_encoder, find_loss, find_sampler
from ncfbench.config import SETTINGS
from ncfbench.reporting.comparison import Comparison, unusual_settings
from ncfbench.reporting.figures.drawing import (
    PLUGIN_STYLE,
    STYLES,
    Drawing,
    finish,
    new_figure,
    own_settings,
    profile_name,
    rank,
    with_label,
)
from ncfbench.runs.arms import TIMELESS_SETTINGS, shared_settings
from ncfbench.runs.folder import RunRecord

Row = Mapping[str, Any]
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo", "||", "**")
"""Hatches of bars, which tell them apart without colour."""
NAMED = ("dataset", "encoder", "loss", "batch_size")
"""Settings that the figure names anyway."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of the times of one figure: the facts that all of them share."""

    dataset: str
    data_fingerprint: str
    loss: str
    batch_size: int
    environment_key: str
    devices: int = 0
    """0 where the times do not depend on devices."""
    is_simulated: bool = False


Times = Mapping[tuple[str, str, str], float]
"""Seconds of an epoch (full account) by encoder, its settings that differ from the defaults, and
sampler.
"""


def profiled_times(rows: Sequence[Row]) -> tuple[Origin, Times]:
    """Return the times of a profile.

    Args:
        rows: of the cost model, with one data set, loss, batch size and environment.
    """
    first = rows[0]
    origin = Origin(
        devices=first["devices"] or 0,
        is_simulated=bool(first["simulated"]),
        **{name: first[name] for name in ("dataset", "data_fingerprint", "loss", "batch_size")},
        environment_key=first["environment_key"],
    )
    return origin, {
        (row["encoder"], own_settings(row, rows), row["sampler"]): (
            row["measured_full_iteration_seconds"] * row["links"] / row["batch_size"]
        )
        for row in rows
    }


def trained_times(comparisons: Sequence[Comparison]) -> list[tuple[Origin, Times]]:
    """Return the median times of runs with the paper's s and k, for each environment of runs with
    several encoders.

    Runs with unusual settings that cost time and are not the encoder's are left out.
    """
    found: dict[Origin, dict[tuple[str, str, str], list[float]]] = {}
    for each in comparisons:
        words = _encoder_words(each)
        if words is None or each.is_simulated:
            continue
        encoder = each.config.encoder
        usual = [arm for arm in each.arms if not arm.note(encoder)]
        for name, run in ((arm.sampler, run) for arm in usual for run in each.arms[arm].values()):
            seconds, epochs = run.summary["full_iteration_seconds"], run.summary["epochs"]
            if seconds and epochs:
                times = found.setdefault(_origin(each, run), {})
                epoch_seconds = seconds * run.summary["iterations"] / epochs
                times.setdefault((encoder, words, name), []).append(epoch_seconds)
    return [
        (origin, {key: median(values) for key, values in own.items()})
        for origin, own in found.items()
        if len({key[:2] for key in own}) > 1
    ]


def draw_epoch_times(origin: Origin, times: Times, data_label: str) -> Drawing:
    """Draw the seconds of an epoch by encoder and sampler, on a logarithmic scale.

    Args:
        data_label: see :class:`ncfbench.reporting.comparison.Comparison`.
    """
    order = [*ENCODERS, *(encoder for encoder, _, _ in times)]
    arms = sorted({key[:2] for key in times}, key=lambda arm: (order.index(arm[0]), arm[1]))
    samplers = sorted({sampler for _, _, sampler in times}, key=rank)
    figure = new_figure(max(6.4, 1.3 * len(arms)), 3.8)
    axis = figure.subplots()
    width = 0.8 / len(samplers)
    for index, sampler in enumerate(samplers):
        own = {key[:2]: seconds for key, seconds in times.items() if key[2] == sampler}
        shown = [arm for arm in arms if arm in own]
        left = (index - (len(samplers) - 1) / 2) * width
        axis.bar(
            [arms.index(arm) + left for arm in shown],
            [own[arm] for arm in shown],
            0.9 * width,
            color=STYLES.get(sampler, PLUGIN_STYLE)[0],
            edgecolor="black",
            hatch=HATCHES[index % len(HATCHES)],
            label=find_sampler(sampler).title,
        )
    axis.set_yscale("log")
    labels = [
        "\n".join([find_encoder(name).title, *filter(None, unusual.split(", "))])
        for name, unusual in arms
    ]
    axis.set_xticks(range(len(arms)), labels)
    axis.set_ylabel("time of an epoch, s (full account, log scale)")
    finish(axis)
    lowest = 10 ** math.floor(math.log10(min(times.values())))
    legend_rows = math.ceil(len(samplers) / 4)
    axis.set_ylim(lowest, axis.get_ylim()[1] * 2 * 1.5**legend_rows)
    axis.legend(frameon=False, ncols=4, fontsize="small", loc="upper left")
    simulated = ", SIMULATED" if origin.is_simulated else ""
    devices = f", {origin.devices} devices{simulated}" if origin.devices else ""
    loss = find_loss(origin.loss).title
    title = f"Time of an epoch: {origin.dataset}, {loss}, b={origin.batch_size}{devices}"
    axis.set_title(with_label(title, data_label))
    return Drawing(title, figure)


def trained_name(origin: Origin) -> str:
    """Return the name of the figure of runs' times."""
    return profile_name("epoch-time-runs", vars(origin))


def _origin(comparison: Comparison, run: RunRecord) -> Origin:
    config = comparison.config
    return Origin(
        dataset=config.dataset,
        data_fingerprint=comparison.data_fingerprint,
        loss=config.loss,
        batch_size=config.batch_size,
        environment_key=run.summary["environment_key"],
    )


def _encoder_words(comparison: Comparison) -> str | None:
    """Return the encoder's settings that differ from the defaults; None where others that cost time
    differ too.
    """
    config = comparison.config
    own = {setting.name for setting in find_encoder(config.encoder).settings}
    own |= {name for name, setting in SETTINGS.items() if setting.used_by == "encoder"}
    shared = shared_settings(config).keys() - {*NAMED, *TIMELESS_SETTINGS}
    unusual = {name: value for name, value in unusual_settings(config).items() if name in shared}
    if unusual.keys() - own:
        return None
    return ", ".join(f"{name}={value}" for name, value in unusual.items())
