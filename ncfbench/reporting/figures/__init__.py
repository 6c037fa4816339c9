"""Figures: the paper's and our own, drawn from our runs (Matplotlib, the ``plots`` extra)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ncfbench.errors import UsageError, nearest
from ncfbench.reporting.comparison import Comparison
from ncfbench.reporting.figures.answers import draw_answer
from ncfbench.reporting.figures.arms import draw_arms
from ncfbench.reporting.figures.costs import (
    Iterations,
    draw_crossover,
    draw_product_ratios,
    product_ratios_name,
)
from ncfbench.reporting.figures.curves import draw_convergence, draw_targets
from ncfbench.reporting.figures.drawing import Drawing, file_name, profile_name, save
from ncfbench.reporting.figures.epoch_times import (
    draw_epoch_times,
    profiled_times,
    trained_name,
    trained_times,
)
from ncfbench.reporting.profiled_speedups import by_profile
from ncfbench.reporting.results import Results
from ncfbench.reporting.selection import choose
from ncfbench.reporting.tied import log_ratios

KINDS = ("svg", "png", "pdf")
USUAL_KINDS = ("svg", "png")
PROFILE = ("dataset", "loss", "batch_size", "data_fingerprint", "environment_key")
"""Columns of a profile whose rows stand in one figure of epoch times."""
Row = Mapping[str, Any]
Draw = Callable[[], Drawing | None]
"""Draws a figure; None where the runs have nothing to draw."""


def figures(results: Results) -> dict[str, Draw]:
    """Return what draws each figure of the runs, the answers and the profile's tables, by name.

    Training time is that of a profile where the runs' own is not to be trusted.
    """
    comparisons, profile = results.comparisons, results.beside
    found: dict[str, Draw] = {
        each.named("answer"): partial(draw_answer, each) for each in results.answers
    }
    for comparison, retimed in zip(comparisons, results.retimed, strict=True):
        own: dict[str, Draw] = {
            "convergence": partial(draw_convergence, retimed),
            "targets": partial(draw_targets, retimed, allow_mixed=results.allow_mixed),
            "stratum-size": partial(draw_arms, comparison, "stratum_size"),
            "negatives": partial(draw_arms, comparison, "negatives"),
        }
        found |= {file_name(kind, comparison): draw for kind, draw in own.items()}
    labels = {comparison.data_fingerprint: comparison.data_label for comparison in comparisons}
    for rows in _grouped(profile.get("costmodel", ()), *PROFILE):
        label = labels.get(rows[0]["data_fingerprint"], "")
        found[profile_name("epoch-time", rows[0])] = partial(
            draw_epoch_times, *profiled_times(rows), label
        )
    for rows in _on_one_graph(profile.get("costmodel", ())):
        if len({row["encoder"] for row in rows}) > 1:
            name = profile_name("crossover", rows[0])
            name += f"-k{_negatives(rows)}" if name in found else ""
            label = labels.get(rows[0]["data_fingerprint"], "")
            ratios = _iterations(comparisons, rows)
            found[name] = partial(draw_crossover, rows, ratios, label)
    for origin, times in trained_times(comparisons):
        label = labels[origin.data_fingerprint]
        found[trained_name(origin)] = partial(draw_epoch_times, origin, times, label)
    products = [row for row in profile.get("unitcost", ()) if row["part"].endswith("product")]
    for rows in _grouped(products, "environment_key"):
        found[product_ratios_name(rows)] = partial(draw_product_ratios, rows)
    return found


def draw_all(
    found: Mapping[str, Draw],
    folder: Path,
    kinds: Sequence[str] = USUAL_KINDS,
    wanted: Sequence[str] = (),
) -> list[Path]:
    """Draw the wanted figures, all by default, as files of each kind; return the files.

    Args:
        wanted: names, or what names begin with (:func:`ncfbench.reporting.selection.choose`).

    Raises:
        UsageError: Matplotlib is not installed, or there is no figure of a name.
        DataError: the folder cannot be written.
    """
    drawn = [(name, found[name]()) for name in choose(found, wanted, "figure")]
    return [
        path
        for name, drawing in drawn
        if drawing is not None
        for path in save(drawing, [folder / f"{name}.{kind}" for kind in kinds])
    ]


def check_kind(kind: str) -> None:
    """Refuse a kind of file that no figure can be.

    Raises:
        UsageError: the message names the valid ones.
    """
    if kind not in KINDS:
        raise UsageError(
            f"Unknown kind of figure {kind!r}{nearest(kind, KINDS)} Valid: {', '.join(KINDS)}."
        )


def _on_one_graph(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows of profiles with the same links, loss, batch size, negatives and environment.
    Their texts may differ: some encoders need word pieces.
    """
    found: dict[tuple[Any, ...], list[Row]] = {}
    for own in by_profile(rows):
        own_rows = list(own.values())
        first = own_rows[0]
        graph = first["links"] or first["data_fingerprint"]
        same = (first[name] for name in ("loss", "batch_size", "environment_key"))
        found.setdefault((graph, *same, _negatives(own_rows)), []).extend(own_rows)
    return list(found.values())


def _negatives(rows: Sequence[Row]) -> int | None:
    """Return a profile's k; None where no sampler draws any."""
    return next((row["negatives"] for row in rows if row["negatives"] is not None), None)


def _iterations(comparisons: Sequence[Comparison], profiled: Sequence[Row]) -> Iterations | None:
    """Return how many times fewer iterations each sampler needs, by the runs of the profiles' data,
    loss and batch size with the most samplers that come down to the reference; none without such.
    """
    names, found = ("data_fingerprint", "loss", "batch_size"), []
    alike = {tuple(row[name] for name in names) for row in profiled}
    for each in comparisons:
        if (each.data_fingerprint, each.config.loss, each.config.batch_size) in alike:
            logs = {arm: log_ratios(each, arm, "iterations_speedup") for arm in each.arms}
            ratios = {
                arm.sampler: math.exp(math.fsum(by_seed.values()) / len(by_seed))
                for arm, by_seed in logs.items()
                if by_seed and not arm.note(each.config.encoder)
            }
            found.append(Iterations(each.config.encoder, ratios))
    most = max(found, key=lambda one: len(one.by_sampler), default=None)
    return most if most and most.by_sampler else None


def _grouped(rows: Sequence[Row], *names: str) -> list[list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(found.values())
