"""Speedups of runs with the times of a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ncfbench.catalog import find_encoder, find_loss, find_sampler
from ncfbench.reporting.comparison import label
from ncfbench.reporting.profiled_speedups import ProfiledComparison, ProfiledSpeedup
from ncfbench.reporting.table import Column, Header, Table, slug, three_digits
from ncfbench.timing.seed_statistics import Estimate
from ncfbench.timing.statistics import ROUNDS_OF_INTERVALS


def profiled_tables(found: Sequence[ProfiledComparison]) -> list[Table]:
    """Return a table for each comparison and profile."""
    counts = Counter(map(_name, found))
    # Profiles of several machines or versions differ in their environment alone.
    return [_table(each, is_alone=counts[_name(each)] == 1) for each in found]


def _name(found: ProfiledComparison) -> str:
    comparison = found.comparison
    config = comparison.config
    return slug(
        "profiled",
        config.dataset,
        config.encoder,
        config.loss,
        comparison.data_fingerprint[:6],
        comparison.title(),
        found.computation,
    )


def _table(found: ProfiledComparison, *, is_alone: bool) -> Table:
    comparison = found.comparison
    config = comparison.config
    baseline = find_sampler(comparison.baseline_sampler).title
    header: Header = [
        "sampler",
        Column("ms an it."),
        Column("per it., by the profile"),
        Column("# of it., by the runs"),
        Column("total"),
        Column("n"),
    ]
    rows = [
        [
            " ".join(filter(None, [find_sampler(row["sampler"]).title, row["variant"]])),
            three_digits(1e3 * each.seconds),
            _ratio(each.per_iteration),
            _iterations(each),
            _total(each),
            str(row["seeds"]),
        ]
        for each in found.speedups
        if (row := each.speedup)
    ]
    few = "" if found.rounds >= ROUNDS_OF_INTERVALS else ", too few for an interval,"
    notes = [
        f"A profile of {found.rounds} rounds{few} measured the length of an iteration, all samplers"
        " in turn; the runs' own times do not count here.",
        "[..]: 95 % interval, of the total as if both ratios were independent; n: seeds. <: some"
        " seed never came down to the reference loss, so the ratio is at most this.",
    ]
    parts = [
        config.dataset,
        find_encoder(config.encoder).title,
        find_loss(config.loss).title,
        label([comparison]),
    ]
    computed = f" ({found.computation})" if found.computation else ""
    title = f"Speedup over {baseline} with a profile's times{computed}: {', '.join(parts)}"
    key = found.environment_key[:6]
    return Table(
        title if is_alone else f"{title}, environment {key}",
        header,
        rows,
        notes,
        name=_name(found) if is_alone else f"{_name(found)}-{key}",
    )


def _ratio(estimate: Estimate) -> str:
    if estimate.lower is None or estimate.upper is None or estimate.lower == estimate.upper:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.lower:.2f}, {estimate.upper:.2f}]"


def _iterations(each: ProfiledSpeedup) -> str:
    if each.iterations is not None:
        return _ratio(each.iterations)
    at_most = each.speedup["iterations_speedup_at_most"]
    return "" if at_most is None else f"< {at_most:.2f}"


def _total(each: ProfiledSpeedup) -> str:
    if each.total is not None:
        return _ratio(each.total)
    return "" if each.at_most is None else f"< {each.at_most:.2f}"
