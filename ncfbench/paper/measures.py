"""Figures that decide the paper's claims, a function for each claim.

Each returns None where no result bears on its claim.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import SAMPLERS, find_loss, find_sampler
from ncfbench.timing import intervals, speedups
from ncfbench.timing.intervals import CONFIDENCE, Estimate

Row = Mapping[str, Any]

REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"
RATIO_TOLERANCE = 0.25
"""Share by which a ratio of iteration times may fall short of that of items: a choice."""
RECALL_TOLERANCE = 0.02
"""Share of the baseline's recall that may be lost. The paper's best sampler has 3 % more of it."""
STRATA, SHARING, BOTH = "strat", "ns", "strat-ns"
SHARED = {"neg": SHARING, STRATA: BOTH}
"""Samplers that share the items of a batch, by those with the same links that do not."""
DISTURBED = "the machine was busy during these runs; a profile beside them tells"
"""Words where no time of the runs can be trusted."""
LEAST_TREND = 4
"""A trend over three sizes has one order of six by chance, too many for 95 %."""


@dataclass(frozen=True)
class Evidence:
    """Results by which claims on one data set, encoder and loss are judged.

    Attributes:
        arms: rows of the speedup table that have runs, with what claims need of these
            (:mod:`ncfbench.reporting.evidence`).
        claims: names of the claims that they bear on; all by default.
        by_profile: whether a profile gives the times, a row's ``length`` among them.
        comparisons: the arms of all comparisons.
        audits: rows of the audits beside the runs.
    """

    arms: Sequence[Row]
    claims: Sequence[str] = ()
    by_profile: bool = False
    comparisons: Sequence[Sequence[Row]] = ()
    audits: Sequence[Row] = ()

    @property
    def baseline(self) -> str:
        """The baseline's sampler."""
        return str(self.arms[0]["baseline"])

    def arm(self, sampler: str) -> Row:
        """Return a sampler's arm with the paper's settings; empty where it has none."""
        return _main(self.arms, sampler)


class Measured(NamedTuple):
    """A figure in words, and as a number where it has one.

    Attributes:
        least: the claim holds where the whole interval is above this.
        contradicted: it does not hold where the whole interval is below this.
        verdict: where there is no interval, or one that decides nothing.
    """

    words: str
    figure: Estimate | None = None
    least: float = 1.0
    contradicted: float = 1.0
    verdict: str = UNDECIDED


def fewer_iterations(evidence: Evidence) -> Measured | None:
    """Negative sharing comes down to the baseline's smallest loss in fewer iterations."""
    row, baseline = evidence.arm(SHARING), find_sampler(evidence.baseline).title
    ratio = estimate_of(row, "iterations_speedup")
    if ratio is not None:
        return _above(ratio, f"{ratio.value:.2f} times fewer iterations than {baseline}")
    bound = row.get("iterations_speedup_at_most")
    if bound is None:
        return None
    words = f"some seed never reaches {baseline}'s loss: at most {bound:.2f}"
    is_certain = bound < 1 and row["seeds"] > 1
    return Measured(words, verdict=NOT_REPRODUCED if is_certain else UNDECIDED)


def shorter_iterations(evidence: Evidence) -> Measured | None:
    """Iterations of Stratified Sampling are shorter by about as much as items are fewer.

    Where items are cheap the ratio of items cannot be reached: that is no contradiction.
    """
    row, base = evidence.arm(STRATA), evidence.arm(evidence.baseline)
    ratio = estimate_of(row, "per_iteration_speedup")
    if ratio is None or not row.get("item_slots") or not base.get("item_slots"):
        return None
    if row["is_busy"] or base["is_busy"]:
        return Measured(DISTURBED)
    items = base["item_slots"] / row["item_slots"]
    words = f"{ratio.value:.1f} times shorter with {items:.1f} times fewer items"
    if evidence.by_profile:
        share = base["predicted_items_seconds"] / base["predicted_full_iteration_seconds"]
        title = find_sampler(evidence.baseline).title
        words += f", by a profile: items take {100 * share:.0f} % of {title}'s iteration"
    least = max((1 - RATIO_TOLERANCE) * items, 1.0)
    if ratio.upper is not None and 1 <= ratio.upper < least:
        words += ": what all samplers share weighs too much here"
    return Measured(words, ratio, least)


def soonest(evidence: Evidence) -> Measured | None:
    """Each rival of the paper is met in the seeds that both have; the nearest decides. The words
    name those that can train the loss and were not run.
    """
    own, by_profile = evidence.arm(BOTH), evidence.by_profile
    measure = "iterations_speedup" if by_profile else "total_speedup"
    logs = own.get(f"{measure}_logs")
    if not logs or (by_profile and own["length"] is None):
        return None
    leads: list[tuple[Estimate, str]] = []
    absent = []
    family = find_loss(own["loss"]).family
    for name, info in SAMPLERS.items():
        if name == BOTH or not info.in_paper or family not in info.families:
            continue
        rival, title = evidence.arm(name), info.title
        if not rival:
            absent.append(title)
            continue
        if by_profile and rival["length"] is None:
            return Measured(f"an iteration of {title} was not profiled")
        if not by_profile and (own["is_busy"] or rival["is_busy"]):
            return Measured(DISTURBED)
        theirs = rival[f"{measure}_logs"]
        if not theirs:
            if _is_slower(rival, own, measure, by_profile):
                continue
            return Measured(f"{title} has no ratio to compare with")
        common = sorted(logs.keys() & theirs.keys())
        if not common:
            return Measured(f"no seed in common with {title}")
        lead = intervals.geometric([math.exp(logs[k] - theirs[k]) for k in common])
        if by_profile:
            shorter = intervals.quotient(own["length"], rival["length"])
            lead = intervals.product(lead, shorter)
        leads.append((lead, title))
    if not leads:
        return None
    # One rival that is sooner contradicts the claim; else the least certain lead decides.
    lead, title = min(leads, key=lambda lead: lead[0].lower or -math.inf)
    sooner = [lead for lead in leads if lead[0].upper is not None and lead[0].upper < 1]
    if sooner:
        lead, title = min(sooner, key=lambda lead: lead[0].value)
    words = f"{lead.value:.2f} times sooner than the next, {title}"
    words += ", with iterations as long as in a profile" if by_profile else ""
    words += f" (not run: {', '.join(absent)})" if absent else ""
    return _above(lead, words)


def _is_slower(rival: Row, own: Row, measure: str, by_profile: bool) -> bool:
    """Return whether a rival that does not reach the loss with every seed is slower for sure."""
    bound, ratio = rival.get(f"{measure}_at_most"), estimate_of(own, measure)
    if bound is None or ratio is None:
        return False
    if by_profile:
        ratio = intervals.product(ratio, own["length"])
        bound *= rival["length"].upper or math.inf
    return ratio.lower is not None and bool(bound < ratio.lower)


def kept_recall(evidence: Evidence) -> Measured | None:
    """Recall may be lower by :data:`RECALL_TOLERANCE` of the baseline's."""
    apart = evidence.arm(BOTH).get("recall_difference")
    recalls = _recalls(evidence.arm(evidence.baseline))
    if apart is None or not recalls:
        return None
    scale = fmean(recalls)
    low, high = ((apart.value + side * apart.half_width) / scale for side in (-1, 1))
    side, share = "higher" if apart.value > 0 else "lower", abs(apart.value) / scale
    baseline = find_sampler(evidence.baseline).title
    words = f"recall@50 {side} by {share:.3f} of {baseline}'s {scale:.3f}"
    if len(recalls) == 1:
        words += " (over the users of one seed)"
    figure = Estimate(apart.value / scale, low, high, len(recalls))
    return _above(figure, words, -RECALL_TOLERANCE)


def lower_variance(evidence: Evidence) -> Measured | None:
    """Sharing is set beside the same links without it, by the audits' variance of a batch."""
    where = evidence.arms[0]
    if where["coupling"] != "direct":  # audits are of items that g alone embeds
        return None
    shared_columns = ("data_fingerprint", "encoder", "loss")
    audited: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in evidence.audits:
        is_own = all(row[column] == where[column] for column in shared_columns)
        if is_own and row["batch_variance"] and row["mask"] and row["strata"] != "user":
            columns = ("seed", "batch_size", "noise", "batches")
            variances = audited.setdefault(tuple(row[column] for column in columns), {})
            variances[row["sampler"]] = row["batch_variance"]
    ratios = [
        (variances[alone] / variances[shared], batches, alone)
        for (*_, batches), variances in audited.items()
        for alone, shared in SHARED.items()
        if alone in variances and shared in variances
    ]
    if not ratios:
        return None
    ratio, batches, _ = min(ratios)
    words = []
    for alone, shared in SHARED.items():
        if shares := sorted(1 / value for value, _, name in ratios if name == alone):
            ends = " to ".join(dict.fromkeys(f"{shares[end]:.2f}" for end in (0, -1)))
            titles = find_sampler(shared).title, find_sampler(alone).title
            words.append(f"{titles[0]} has {ends} times the variance of {titles[1]}")
    return _above(intervals.ratio_of_variances(ratio, batches), "; ".join(words))


def slower_regularised(evidence: Evidence) -> Measured | None:
    """The largest weight of functional regularisation beside items embedded by g alone."""
    own = evidence.arm(BOTH)
    if not own or own["coupling"] != "direct":
        return None
    rivals = [
        rival
        for arms in evidence.comparisons
        if (rival := _main(arms, BOTH))
        if rival["coupling"] == "regularised"
        if rival["data_fingerprint"] == own["data_fingerprint"]
        if rival["other_settings"] == own["other_settings"]
    ]
    strongest = max(rivals, key=lambda row: row["coupling_weight"], default=None)
    if strongest is None:
        return None
    curves, theirs = own["curves"], strongest["curves"]
    pairs = [(curves[seed], theirs[seed]) for seed in sorted(curves.keys() & theirs.keys())]
    if not pairs:
        return None
    # The regularised runs are the baseline here, so that above 1 they are the slower ones.
    speedup = speedups.speedup_at([min(curve.losses) for curve, _ in pairs], pairs)
    weight = f"a weight of {strongest['coupling_weight']:g}"
    if speedup.iterations is not None:
        words = f"{speedup.iterations.value:.2f} times as many iterations with {weight}"
        return _above(speedup.iterations, words)
    least = speedup.iterations_at_least
    if least is None:
        return Measured(f"with {weight} some seeds reach the loss, and some do not")
    words = f"with {weight} the loss is not reached in {least:.2f} times as many iterations"
    is_certain = least >= 1 and len(pairs) > 1
    return Measured(words, verdict=REPRODUCED if is_certain else UNDECIDED)


def more_negatives(evidence: Evidence) -> Measured | None:
    """Recall rises with k, by the chance of such an order. The baseline decides; where it has too
    few sizes, the first other sampler that has enough.
    """
    for sampler in dict.fromkeys((evidence.baseline, *SAMPLERS)):
        arms = _sizes(evidence.arms, sampler, "negatives")
        values = {k: fmean(recalls) for k, arm in arms.items() if (recalls := _recalls(arm))}
        if len(values) >= LEAST_TREND:
            listed = ", ".join(f"{value:.3f} (k={k})" for k, value in values.items())
            title = find_sampler(sampler).title
            return _trend(list(values.values()), f"recall@50 of {title}: {listed}")
    return None


def larger_strata(evidence: Evidence) -> Measured | None:
    """The smallest loss rises with s while a batch holds ever fewer items."""
    arms = _sizes(evidence.arms, BOTH, "stratum_size")
    if len(arms) < LEAST_TREND:
        return None
    lowest = [
        fmean([min(curve.losses) for curve in arm["curves"].values()]) for arm in arms.values()
    ]
    slots = [fmean(list(arm["slots"].values())) for arm in arms.values()]
    words = ", ".join(
        f"{loss:.3f} with {items:.0f} items (s={s})"
        for s, loss, items in zip(arms, lowest, slots, strict=True)
    )
    if any(later >= earlier for earlier, later in itertools.pairwise(slots)):
        words = f"larger strata do not hold fewer items: {words}"
        return Measured(words, verdict=NOT_REPRODUCED)
    return _trend(lowest, f"smallest loss {words}")


def _sizes(arms: Sequence[Row], sampler: str, setting: str) -> dict[int, Row]:
    """Return a sampler's arms that differ in one setting alone, by its value, ascending."""
    groups: dict[Any, dict[int, Row]] = {}
    for row in arms:
        if row["sampler"] == sampler:
            others = replace(row["arm"], **{setting: None})
            groups.setdefault(others, {})[getattr(row["arm"], setting)] = row
    largest = max(groups.values(), key=len, default={})
    return dict(sorted(largest.items()))


def _trend(values: Sequence[float], words: str) -> Measured:
    """Return whether values rise, by a permutation test of their order."""
    orders, pairs = falls_by_chance(values), list(itertools.combinations(values, 2))
    falling = sum(earlier > later for earlier, later in pairs)
    rising = sum(earlier < later for earlier, later in pairs)
    rises, falls = (float(orders[: opposite + 1].sum()) for opposite in (falling, rising))
    chance = 1 - CONFIDENCE
    verdict = REPRODUCED if rises <= chance else NOT_REPRODUCED if falls <= chance else UNDECIDED
    return Measured(f"{words}; p = {rises:.3f} by chance", verdict=verdict)


def falls_by_chance(values: Sequence[float]) -> NDArray[np.floating]:
    """Return the share of all orders of some values that have 0, 1, 2 and so on falling pairs.

    Exact, also where values are equal: the coefficients of the q-multinomial. That of rising pairs
    is the same. It is the distribution of Kendall's test.
    """
    ways: NDArray[np.floating] = np.ones(1)
    placed = 0
    for count in Counter(values).values():
        for size in range(1, count + 1):
            ways = np.polydiv(np.convolve(ways, np.ones(placed + size)), np.ones(size))[0]
        placed += count
    shares: NDArray[np.floating] = ways / ways.sum()
    return shares


def _above(figure: Estimate, words: str, least: float = 1.0) -> Measured:
    """Return a figure that must be above a number."""
    words += "; one seed cannot tell" if figure.lower is None else ""
    return Measured(words, figure, least, contradicted=least)


def _main(arms: Sequence[Row], sampler: str) -> Row:
    arms_of_sampler = (row for row in arms if row["sampler"] == sampler and not row["variant"])
    return next(arms_of_sampler, {})


def estimate_of(row: Row, measure: str) -> Estimate | None:
    """Return a figure of a row with its interval; None where it has none."""
    if row.get(measure) is None:
        return None
    return Estimate(row[measure], row[f"{measure}_lower"], row[f"{measure}_upper"], row["seeds"])


def _recalls(arm: Row) -> list[float]:
    """Return the reported recall@50 of each seed; none where some seed has none."""
    recalls = list(arm.get("recalls", {}).values())
    return [] if None in recalls else recalls
