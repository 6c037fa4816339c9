"""Figures: the paper's and our own, drawn from our runs (Matplotlib, the ``plots`` extra)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from ncfbench.errors import UsageError, nearest
from ncfbench.reporting.figures.costs import Iterations, draw_crossover, draw_epoch_times
from ncfbench.reporting.figures.curves import draw_answer, draw_targets
from ncfbench.reporting.figures.drawing import Drawing, file_name, profile_name
from ncfbench.reporting.frames import Run, by_variant, grouped
from ncfbench.reporting.profiles import by_profile
from ncfbench.reporting.results import Results
from ncfbench.reporting.selection import choose, free_name
from ncfbench.reporting.tied import log_ratios

KINDS = ("svg", "png", "pdf")
PROFILE = ("dataset", "loss", "batch_size", "data_fingerprint", "environment_key")
"""Columns of a profile whose rows stand in one figure of epoch times."""
Row = Mapping[str, Any]
Draw = Callable[[], Drawing | None]
"""Draws a figure; None where the runs have nothing to draw."""


def figures(results: Results) -> dict[str, Draw]:
    """Return what draws each figure of the runs, the answers and the profile's tables, by name; one
    whose name is taken has a number after it.

    Training time is that of a profile where the runs' own is not to be trusted.
    """
    groups = results.groups
    found: dict[str, Draw] = {}
    for answer in results.answers:
        found[free_name(answer.named("answer"), found)] = partial(draw_answer, answer)
    for runs, retimed in zip(groups, results.retimed, strict=True):
        timed = [run for run in retimed if not run.is_unprofiled]
        draw = partial(draw_targets, timed, allow_mixed=results.allow_mixed)
        found[free_name(file_name("targets", runs[0]), found)] = draw
    labels = {runs[0].data_fingerprint: runs[0].data_label for runs in groups}
    costs = results.beside.get("costmodel", ())
    for rows in grouped(costs, lambda row: tuple(row[name] for name in PROFILE)).values():
        label = labels.get(rows[0]["data_fingerprint"], "")
        name = free_name(profile_name("epoch-time", rows[0]), found)
        found[name] = partial(draw_epoch_times, rows, label)
    profiles = [list(by_sampler.values()) for by_sampler in by_profile(costs)]
    for group in grouped(profiles, _graph).values():
        alike = [row for own_rows in group for row in own_rows]
        if len({row["encoder"] for row in alike if row["sampler"] == row["baseline"]}) > 1:
            name = profile_name("crossover", alike[0])
            name += f"-k{_negatives(alike)}" if name in found else ""
            label = labels.get(alike[0]["data_fingerprint"], "")
            found[free_name(name, found)] = partial(
                draw_crossover, alike, _iterations(groups, alike), label
            )
    return found


def drawn(results: Results, wanted: Sequence[str] = ()) -> dict[str, Drawing]:
    """Return the wanted figures that the runs have something to draw for, all by default, by name.

    Args:
        wanted: names, or what names begin with (:func:`ncfbench.reporting.selection.choose`).

    Raises:
        UsageError: Matplotlib is not installed, or there is no figure of a name.
    """
    known = figures(results)
    made = {name: known[name]() for name in choose(known, wanted, "figure")}
    return {name: drawing for name, drawing in made.items() if drawing is not None}


def check_kind(kind: str) -> None:
    """Refuse a kind of file that no figure can be.

    Raises:
        UsageError: the message names the valid ones.
    """
    if kind not in KINDS:
        raise UsageError(
            f"Unknown kind of figure {kind!r}{nearest(kind, KINDS)} Valid: {', '.join(KINDS)}."
        )


def _graph(rows: Sequence[Row]) -> tuple[Any, ...]:
    """Return the links, loss, batch size, environment and negatives of a profile. Those that agree
    in them may differ in their texts: some encoders need word pieces.
    """
    first = rows[0]
    same = (first[name] for name in ("loss", "batch_size", "environment_key"))
    return (first["links"] or first["data_fingerprint"], *same, _negatives(rows))


def _negatives(rows: Sequence[Row]) -> int | None:
    return next((row["negatives"] for row in rows if row["negatives"] is not None), None)


def _iterations(groups: Sequence[Sequence[Run]], profiled: Sequence[Row]) -> Iterations | None:
    """Return how many times fewer iterations each sampler needs, by the runs of the profiles' data,
    loss and batch size with the most samplers that come down to the reference; none without such.
    """
    alike = {(row["data_fingerprint"], row["loss"], row["batch_size"]) for row in profiled}
    found = []
    for runs in groups:
        config = runs[0].config
        if (runs[0].data_fingerprint, config.loss, config.batch_size) in alike:
            logs = {
                arm.sampler: list(log_ratios(own.values(), "iterations_speedup").values())
                for arm, own in by_variant(runs).items()
                if not arm.note(config.encoder)
            }
            ratios = {name: math.exp(fmean(values)) for name, values in logs.items() if values}
            found.append(Iterations(config.encoder, ratios))
    most = max(found, key=lambda iterations: len(iterations.by_sampler), default=None)
    return most if most and most.by_sampler else None
