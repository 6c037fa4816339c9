"""Speedups of runs with the times of a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ncfbench.catalog import find_sampler
from ncfbench.reporting.formats import estimate, three_digits
from ncfbench.reporting.labels import subject, unusual_label
from ncfbench.reporting.profiles import ProfiledComparison
from ncfbench.reporting.table import Col, Table, slug
from ncfbench.runs.arms import sampler_label
from ncfbench.timing.speedups import ROUNDS_OF_INTERVALS


def _or_bound(ratio: Any, at_most: float | None) -> str:
    if ratio is not None:
        return estimate(".2f")(ratio)
    return "" if at_most is None else f"< {at_most:.2f}"


COLS = (
    Col("sampler", lambda row: sampler_label(row["sampler"], row["variant"])),
    Col("ms an it.", "seconds", three_digits, scale=1e3),
    Col("per it., by the profile", "per_iteration", estimate(".2f")),
    Col(
        "# of it., by the runs",
        lambda row: _or_bound(row["iterations"], row.get("iterations_speedup_at_most")),
    ),
    Col("total", lambda row: _or_bound(row["total"], row["at_most"])),
    Col("n", "seeds"),
)


def profiled_tables(profiled: Sequence[ProfiledComparison]) -> list[Table]:
    """Return a table for each group of runs and profile."""
    counts = Counter(map(_name, profiled))
    # Profiles of several machines or versions differ in their environment alone.
    return [_table(each, is_alone=counts[_name(each)] == 1) for each in profiled]


def _name(profiled: ProfiledComparison) -> str:
    first = profiled.runs[0]
    config, digits = first.config, first.data_fingerprint[:6]
    where = config.dataset, config.encoder, config.loss, digits
    return slug("profiled", *where, unusual_label(profiled.runs[0]), profiled.computation)


def _table(profiled: ProfiledComparison, *, is_alone: bool) -> Table:
    few = "" if profiled.rounds >= ROUNDS_OF_INTERVALS else ", too few for an interval,"
    notes = [
        f"A profile of {profiled.rounds} rounds{few} measured the length of an iteration, all"
        " samplers in turn; the runs' own times do not count here.",
        "[..]: 95 % interval, of the total as if both ratios were independent; n: seeds. <: some"
        " seed never came down to the reference loss, so the ratio is at most this.",
    ]
    computed = f" ({profiled.computation})" if profiled.computation else ""
    baseline = find_sampler(profiled.runs[0].baseline_sampler).title
    title = f"Speedup over {baseline} with a profile's times{computed}: {subject(profiled.runs)}"
    name, key = _name(profiled), profiled.environment_key[:6]
    if not is_alone:
        title, name = f"{title}, environment {key}", f"{name}-{key}"
    return Table.of(title, COLS, profiled.rows, notes, name=name)
