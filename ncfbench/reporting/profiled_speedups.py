"""Speedups with the times of a profile, where the runs' own times are not to be trusted.

How many iterations a run needs does not depend on what ran beside it; how long they take does. A
profile measures their length with all samplers in turn, on a quiet machine. So the total speedup of
disturbed runs, and of computations that they did not use, is the ratio of the runs' iterations
times that of the profile's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.reporting.comparison import Comparison, unusual_settings
from ncfbench.runs.arms import COMPUTATION_SETTINGS, TIMELESS_SETTINGS, Variant, shared_settings
from ncfbench.timing.seed_statistics import Estimate, product
from ncfbench.timing.statistics import ROUNDS_OF_INTERVALS

Row = Mapping[str, Any]
PROFILES = ("settings", "data_fingerprint", "environment_key", "encoder", "loss", "batch_size")
"""Columns of the cost model that tell profiles apart."""
NAMED = ("dataset", "encoder", "loss", "batch_size", "negatives")
"""Settings that stand in columns of their own."""


@dataclass(frozen=True)
class ProfiledSpeedup:
    """A sampler's speedup over the baseline: iterations of runs, their length by a profile.

    Attributes:
        variant: its arm of the comparison.
        speedup: the row of the speedup table.
        seconds: length of an iteration, full account.
        per_iteration: ratio of the baseline's seconds to these; without an interval where the
            profile has too few rounds for one.
        iterations, total: None where some seed never came down to the reference loss, or there is
            none, since the baseline's loss still falls.
        at_most: of the total, in that case; None where nothing bounds it.
    """

    variant: Variant
    speedup: Row
    seconds: float
    per_iteration: Estimate
    iterations: Estimate | None
    total: Estimate | None
    at_most: float | None


@dataclass(frozen=True)
class ProfiledComparison:
    """The runs of a comparison with the times of one profile, the baseline first.

    Attributes:
        computation: settings of the profile that change how it computes, such as
            ``convolution=plain``.
        is_same: True if the runs computed so too.
        environment_key: of the profile.
    """

    comparison: Comparison
    computation: str
    is_same: bool
    environment_key: str
    rounds: int
    speedups: Sequence[ProfiledSpeedup]

    @property
    def has_totals(self) -> bool:
        """True if some sampler has a total speedup over the baseline, or a bound of one."""
        return any(each.total is not None or each.at_most is not None for each in self.speedups[1:])


def by_profile(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """Return the rows of each profile of a cost model, by sampler."""
    profiles: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        profiles.setdefault(tuple(row[name] for name in PROFILES), {})[row["sampler"]] = row
    return list(profiles.values())


def find_profiled(
    comparisons: Sequence[Comparison], speedups: Sequence[Sequence[Row]], profiled: Sequence[Row]
) -> list[ProfiledComparison]:
    """Return the comparisons of each profile that share its data and settings.

    Computations that give the same result may differ; comparisons with the profile's own are
    preferred to those.

    Args:
        speedups: rows of the speedup table, by comparison.
        profiled: rows of the cost model.
    """
    found = []
    for own in by_profile(profiled):
        words = _words((next(iter(own.values()))["unusual_settings"] or "").split(", "))
        able = [
            joined
            for comparison, rows in zip(comparisons, speedups, strict=True)
            if (joined := _join(comparison, rows, own, words)) is not None
        ]
        found += [each for each in able if each.is_same] or able
    return found


def _join(
    comparison: Comparison,
    rows: Sequence[Row],
    profile: Mapping[str, Row],
    words: Mapping[str, str],
) -> ProfiledComparison | None:
    """Return a comparison with the times of a profile; None where they do not belong together."""
    some = next(iter(profile.values()))
    config = comparison.config
    base = profile.get(comparison.baseline_sampler)
    # The profile's ratios are over its own baseline, whatever the runs are measured against.
    if base is None or base["baseline"] != comparison.baseline_sampler:
        return None
    if (
        comparison.data_fingerprint,
        config.encoder,
        config.loss,
        config.batch_size,
        _objective(_settings(comparison)),
    ) != (
        some["data_fingerprint"],
        some["encoder"],
        some["loss"],
        some["batch_size"],
        _objective(words),
    ):
        return None
    by_arm = {(row["sampler"], row["variant"]): row for row in rows}
    variants = {
        (variant.sampler, variant.note(config.encoder)): variant for variant in comparison.arms
    }
    base_arm = _arm(base, config.encoder)
    joined = []
    for row in profile.values():
        arm = _arm(row, config.encoder)
        if arm not in variants or arm not in by_arm or row["measured_full_speedup"] is None:
            continue
        # The runs' ratios are to the baseline of the profile's k.
        against = comparison.baseline(variants[arm])
        if against is None or (against.sampler, against.note(config.encoder)) != base_arm:
            continue
        joined.append(_speedup(variants[arm], by_arm[arm], row))
    if len(joined) < 2:
        return None
    # The baseline has no status of its own where its loss still falls.
    joined.sort(
        key=lambda each: (each.variant.sampler, each.variant.note(config.encoder)) != base_arm
    )
    computation = _computation(words)
    is_same = computation == _computation(_settings(comparison))
    key = some["environment_key"]
    return ProfiledComparison(comparison, computation, is_same, key, some["rounds"], joined)


def _speedup(variant: Variant, row: Row, profiled: Row) -> ProfiledSpeedup:
    has_interval = profiled["rounds"] >= ROUNDS_OF_INTERVALS
    per_iteration = Estimate(
        profiled["measured_full_speedup"],
        profiled["lower_full_speedup"] if has_interval else None,
        profiled["upper_full_speedup"] if has_interval else None,
        profiled["rounds"],
    )
    iterations, at_most = None, row.get("iterations_speedup_at_most")
    if row.get("iterations_speedup") is not None:
        lower, upper = (row[f"iterations_speedup_{end}"] for end in ("lower", "upper"))
        iterations = Estimate(row["iterations_speedup"], lower, upper, row["seeds"])
    return ProfiledSpeedup(
        variant,
        row,
        profiled["measured_full_iteration_seconds"],
        per_iteration,
        iterations,
        iterations and product(iterations, per_iteration),
        None if at_most is None else at_most * per_iteration.value,
    )


def _arm(row: Row, encoder: str) -> tuple[str, str]:
    """Return the sampler and the variant of a profile's row, as the speedup table names them."""
    strata = "user" if row["strata"] == "user" else None
    variant = Variant(row["sampler"], row["stratum_size"], row["negatives"], strata)
    return row["sampler"], variant.note(encoder)


def _settings(comparison: Comparison) -> dict[str, str]:
    """Return the unusual settings that all runs of a comparison share, as words."""
    unusual, shared = unusual_settings(comparison.config), shared_settings(comparison.config)
    return _words(f"{name}={value}" for name, value in unusual.items() if name in shared)


def _words(settings: Iterable[str]) -> dict[str, str]:
    """Return settings by name, without those of :data:`NAMED` and those that take no time."""
    named = dict(word.split("=", 1) for word in settings if "=" in word)
    return {
        name: value
        for name, value in named.items()
        if name not in (*NAMED, *TIMELESS_SETTINGS, "sampler", "stratum_size", "strata")
    }


def _objective(words: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in words.items() if name not in COMPUTATION_SETTINGS}


def _computation(words: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name}={value}" for name, value in words.items() if name in COMPUTATION_SETTINGS
    )
