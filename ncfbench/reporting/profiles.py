"""Times of a profile, where the runs' own are not to be trusted.

How many iterations a run needs does not depend on what ran beside it; how long they take does. A
profile measures their length with all samplers in turn, on a quiet machine. So the total speedup of
disturbed runs, and of computations that they did not use, is the ratio of the runs' iterations
times that of the profile's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.reporting.frames import Run, estimate_of
from ncfbench.reporting.labels import unusual_settings
from ncfbench.reporting.rows import Comparison
from ncfbench.runs.arms import COMPUTATION_SETTINGS, TIMELESS_SETTINGS, Variant, shared_settings
from ncfbench.timing.intervals import Estimate, product
from ncfbench.timing.speedups import ROUNDS_OF_INTERVALS

Row = Mapping[str, Any]
PROFILES = ("settings", "data_fingerprint", "environment_key", "encoder", "loss", "batch_size")
"""Columns of the cost model that tell profiles apart."""
NAMED = ("dataset", "encoder", "loss", "batch_size", "negatives")
"""Settings that stand in columns of their own."""


@dataclass(frozen=True)
class ProfiledComparison:
    """Runs that compare, with the times of one profile, the baseline first.

    Attributes:
        runs: their rows of the frame ``arms``.
        computation: settings of the profile that change how it computes, such as
            ``convolution=plain``.
        is_same: True if the runs computed so too.
        environment_key: of the profile.
        rows: of the speedup table, for the arms of the profile. They have ``arm``; ``seconds`` of
            an iteration (full account) and ``per_iteration``, the ratio of the baseline's to these,
            by the profile; ``iterations`` by the runs; ``total``, the product, or ``at_most``, its
            bound. Each is None where it is not known; the last three where there is no reference
            loss, since the baseline's still falls.
    """

    runs: Sequence[Run]
    computation: str
    is_same: bool
    environment_key: str
    rounds: int
    rows: Sequence[Row]

    @property
    def has_totals(self) -> bool:
        """True if some sampler has a total speedup over the baseline, or a bound of one."""
        return any(row["total"] or row["at_most"] is not None for row in self.rows[1:])


def by_profile(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """Return the rows of each profile of a cost model, by sampler."""
    profiles: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        profiles.setdefault(tuple(row[name] for name in PROFILES), {})[row["sampler"]] = row
    return list(profiles.values())


def find_profiled(
    comparisons: Sequence[Comparison], costmodel: Sequence[Row]
) -> list[ProfiledComparison]:
    """Return the comparisons of each profile that share its data and settings.

    Computations that give the same result may differ; runs with the profile's own are preferred to
    those.

    Args:
        costmodel: rows of the cost model.
    """
    profiled = []
    for profile in by_profile(costmodel):
        able = [joined for each in comparisons if (joined := _join(each, profile)) is not None]
        profiled += [each for each in able if each.is_same] or able
    return profiled


def _join(comparison: Comparison, profile: Mapping[str, Row]) -> ProfiledComparison | None:
    """Return runs with the times of a profile; None where they do not belong together."""
    runs = comparison.runs
    some, first = next(iter(profile.values())), runs[0]
    config, base = first.config, profile.get(first.baseline_sampler)
    # The profile's ratios are over its own baseline, whatever the runs are measured against.
    if base is None or base["baseline"] != first.baseline_sampler:
        return None
    unusual, shared = unusual_settings(config), shared_settings(config)
    own = _split(f"{name}={value}" for name, value in unusual.items() if name in shared)
    theirs = _split((some["unusual_settings"] or "").split(", "))
    names = ("encoder", "loss", "batch_size")
    if (
        first.data_fingerprint != some["data_fingerprint"]
        or any(getattr(config, name) != some[name] for name in names)
        or own[0] != theirs[0]
    ):
        return None
    by_arm = {(row["sampler"], row["variant"]): row for row in comparison.speedups}
    arms = {_arm(run.variant, config.encoder): run for run in runs}
    base_arm = _arm(_variant(base), config.encoder)
    joined = []
    for row in profile.values():
        arm = _arm(_variant(row), config.encoder)
        if arm not in arms or arm not in by_arm or row["measured_full_speedup"] is None:
            continue
        # The runs' ratios are to the baseline of the profile's k.
        against = arms[arm].baseline
        if against is not None and _arm(against, config.encoder) == base_arm:
            joined.append(_with_profile(arms[arm].variant, by_arm[arm], row))
    if len(joined) < 2:
        return None
    # The baseline has no status of its own where its loss still falls.
    joined.sort(key=lambda row: _arm(row["arm"], config.encoder) != base_arm)
    key = some["environment_key"]
    return ProfiledComparison(runs, theirs[1], theirs[1] == own[1], key, some["rounds"], joined)


def _with_profile(arm: Variant, row: Row, profiled: Row) -> Row:
    ratio, rounds = profiled["measured_full_speedup"], profiled["rounds"]
    lower, upper = profiled["lower_full_speedup"], profiled["upper_full_speedup"]
    if rounds < ROUNDS_OF_INTERVALS:
        lower = upper = None
    per_iteration = Estimate(ratio, lower, upper, rounds)
    iterations = estimate_of(row, "iterations_speedup")
    at_most = row.get("iterations_speedup_at_most")
    return {
        **row,
        "arm": arm,
        "seconds": profiled["measured_full_iteration_seconds"],
        "per_iteration": per_iteration,
        "iterations": iterations,
        "total": iterations and product(iterations, per_iteration),
        "at_most": None if at_most is None else at_most * per_iteration.value,
    }


def _variant(row: Row) -> Variant:
    strata = "user" if row["strata"] == "user" else None
    return Variant(row["sampler"], row["stratum_size"], row["negatives"], strata)


def _arm(variant: Variant, encoder: str) -> tuple[str, str]:
    return variant.sampler, variant.note(encoder)


def _split(settings: Iterable[str]) -> tuple[dict[str, str], str]:
    """Return the settings that change the objective by name, and those that change only how it is
    computed as text; without those of :data:`NAMED` and those that take no time.
    """
    words = dict(word.split("=", 1) for word in settings if "=" in word)
    for name in (*NAMED, *TIMELESS_SETTINGS, "sampler", "stratum_size", "strata"):
        words.pop(name, None)
    computation = [f"{name}={words[name]}" for name in words if name in COMPUTATION_SETTINGS]
    objective = {name: words[name] for name in words if name not in COMPUTATION_SETTINGS}
    return objective, ", ".join(computation)
