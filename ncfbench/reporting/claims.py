"""Claims: what the paper says of its samplers on any hardware, each judged by runs of ours.

A claim is about one data set, encoder and loss. It is judged by an interval, never by a printed
figure: ``reproduced`` where the whole 95 % interval agrees with it, ``not reproduced`` where the
whole interval contradicts it, else ``undecided``. So is what one seed alone cannot tell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncfbench.registry import SAMPLERS, find_sampler
from ncfbench.reporting.comparison import Comparison, arm_of
from ncfbench.reporting.tied import log_ratios, recall_difference
from ncfbench.reporting.verdicts import (
    RATIO_TOLERANCE,
    RECALL,
    RECALL_TOLERANCE,
    REPRODUCED,
    UNDECIDED,
)
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.timing import seed_statistics
from ncfbench.timing.seed_statistics import CONFIDENCE, NORMAL_QUANTILE, Estimate

Row = Mapping[str, Any]

NOT_REPRODUCED = "not reproduced"
STRATA, SHARING, BOTH = "strat", "ns", "strat-ns"
SHARED = {"neg": SHARING, STRATA: BOTH}
"""Samplers that share the items of a batch, by those with the same links that do not."""
LEAST_TREND = 4
"""A trend over three sizes has one order of six by chance, too many for 95 %."""
COUPLING = ("coupling", "coupling_weight")
SHORTER = (
    "shorter-iterations",
    "Where items dominate, strata shorten an iteration as they cut the items",
)
"""Name and words of the claim that profiles can judge too."""


@dataclass(frozen=True)
class Case:
    """Runs by which claims on one data set, encoder and loss are judged.

    Attributes:
        speedups: rows of the comparison.
        others: all comparisons, some of which differ from this one in one setting.
        audits: rows of the audits beside the runs.
    """

    comparison: Comparison
    speedups: Sequence[Row]
    others: Sequence[Comparison]
    audits: Sequence[Row]

    def speedup(self, sampler: str) -> Row:
        """Return a sampler's row with the paper's settings; empty where it has none."""
        own = (row for row in self.speedups if row["sampler"] == sampler and not row["variant"])
        return next(own, {})

    def variant(self, sampler: str) -> Variant | None:
        """Return a sampler's arm with the paper's settings; None where it has none."""
        encoder = self.comparison.config.encoder
        arms = (arm for arm in self.comparison.arms if arm.sampler == sampler)
        return next((arm for arm in arms if not arm.note(encoder)), None)

    @property
    def baseline(self) -> str:
        """The baseline's title."""
        return find_sampler(self.comparison.baseline_sampler).title


@dataclass(frozen=True)
class Finding:
    """A verdict on a claim, and the evidence of runs for it.

    Attributes:
        value, lower, upper: the figure that decides, and its 95 % interval where there is one.
        evidence: the figure in words.
    """

    verdict: str
    evidence: str
    value: float | None = None
    lower: float | None = None
    upper: float | None = None


Judge = Callable[[Case], Finding | None]
"""Judges a claim; None where no run bears on it."""


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict on one data set, encoder and loss."""

    claim: str
    says: str
    dataset: str
    data_fingerprint: str
    encoder: str
    loss: str
    settings: str
    verdict: str
    value: float | None
    lower: float | None
    upper: float | None
    evidence: str


def _decide(
    estimate: Estimate, evidence: str, least: float = 1.0, contradicts: float | None = None
) -> Finding:
    """Return the finding that a figure is above a number.

    Args:
        contradicts: the claim is contradicted below this; ``least`` by default.
    """
    value, lower, upper = estimate.value, estimate.lower, estimate.upper
    if lower is None or upper is None:
        return Finding(UNDECIDED, f"{evidence}; one seed cannot tell", value)
    verdict = UNDECIDED
    if lower > least:
        verdict = REPRODUCED
    elif upper < (least if contradicts is None else contradicts):
        verdict = NOT_REPRODUCED
    return Finding(verdict, evidence, value, lower, upper)


def _estimate(row: Row, measure: str) -> Estimate | None:
    if row.get(measure) is None:
        return None
    return Estimate(
        row[measure], row.get(f"{measure}_lower"), row.get(f"{measure}_upper"), row["seeds"]
    )


# --- the claims


def _fewer_iterations(case: Case) -> Finding | None:
    row = case.speedup(SHARING)
    found = _estimate(row, "iterations_speedup")
    if found is not None:
        return _decide(found, f"{found.value:.2f} times fewer iterations than {case.baseline}")
    bound = row.get("iterations_speedup_at_most")
    if bound is None:
        return None
    words = f"some seed never reaches {case.baseline}'s loss: at most {bound:.2f}"
    return Finding(NOT_REPRODUCED if bound < 1 and row["seeds"] > 1 else UNDECIDED, words)


def _shorter_iterations(case: Case) -> Finding | None:
    row, base = case.speedup(STRATA), case.speedup(case.comparison.baseline_sampler)
    found = _estimate(row, "per_iteration_speedup")
    if found is None or not row.get("item_slots") or not base.get("item_slots"):
        return None
    return judge_shorter(found, base["item_slots"] / row["item_slots"])


def judge_shorter(found: Estimate, items: float, how: str = "") -> Finding:
    """Return whether iterations are shorter by about as much as items are fewer.

    Where items are cheap the ratio of items cannot be reached: that is no contradiction.

    Args:
        found: how many times shorter an iteration is.
        items: how many times fewer items it embeds.
        how: added to the evidence.
    """
    words = f"{found.value:.1f} times shorter with {items:.1f} times fewer items{how}"
    least = max((1 - RATIO_TOLERANCE) * items, 1.0)
    finding = _decide(found, words, least, contradicts=1.0)
    if finding.verdict == UNDECIDED and finding.upper is not None and finding.upper < least:
        words += ": what all samplers share weighs too much here"
    return Finding(finding.verdict, words, found.value, found.lower, found.upper)


def _soonest(case: Case) -> Finding | None:
    """Each rival of the paper is met in the seeds that both have; the nearest decides."""
    own = case.variant(BOTH)
    logs = {} if own is None else log_ratios(case.comparison, own, "total_speedup")
    if not logs:
        return None
    nearest: tuple[str, Estimate] | None = None
    for name in SAMPLERS:
        rival = case.variant(name)
        if rival is None or rival == own or not find_sampler(name).in_paper:
            continue
        theirs = log_ratios(case.comparison, rival, "total_speedup")
        title = find_sampler(name).title
        if not theirs:
            bound = case.speedup(name).get("total_speedup_at_most")
            low = case.speedup(BOTH).get("total_speedup_lower")
            if bound is not None and low is not None and bound < low:
                continue
            return Finding(UNDECIDED, f"{title} has no ratio to compare with")
        common = sorted(logs.keys() & theirs.keys())
        if not common:
            return Finding(UNDECIDED, f"no seed in common with {title}")
        apart = seed_statistics.geometric([math.exp(logs[k] - theirs[k]) for k in common])
        if nearest is None or apart.value < nearest[1].value:
            nearest = title, apart
    if nearest is None:
        return None
    return _decide(nearest[1], f"{nearest[1].value:.2f} times sooner than the next, {nearest[0]}")


def _kept_recall(case: Case) -> Finding | None:
    """Recall may be lower by :data:`RECALL_TOLERANCE` of the baseline's."""
    own, base = case.variant(BOTH), case.variant(case.comparison.baseline_sampler)
    if own is None or base is None:
        return None
    recalls = _recalls(case.comparison, base)
    apart = recall_difference(case.comparison, own, base) if recalls else None
    if apart is None or not recalls:
        return None
    scale = math.fsum(recalls) / len(recalls)
    half = seed_statistics.t_quantile(apart.degrees) * apart.error
    low, high = (apart.value - half) / scale, (apart.value + half) / scale
    side, share = "higher" if apart.value > 0 else "lower", abs(apart.value) / scale
    words = f"recall@50 {side} by {share:.3f} of {case.baseline}'s {scale:.3f}"
    if len(recalls) == 1:
        words += " (over the users of one seed)"
    return _decide(Estimate(apart.value / scale, low, high, len(recalls)), words, -RECALL_TOLERANCE)


def _more_negatives(case: Case) -> Finding | None:
    """Recall rises with k, by the chance of such an order."""
    arms = _sizes(case.comparison, case.comparison.baseline_sampler, "negatives")
    recalls = {k: _recalls(case.comparison, arm) for k, arm in arms.items()}
    values = {k: math.fsum(own) / len(own) for k, own in recalls.items() if own}
    if len(values) < LEAST_TREND:
        return None
    listed = ", ".join(f"{value:.3f} (k={k})" for k, value in values.items())
    return _trend(list(values.values()), f"{case.baseline}'s recall@50: {listed}")


def _larger_strata(case: Case) -> Finding | None:
    """The smallest loss rises with s while a batch holds ever fewer items."""
    arms = _sizes(case.comparison, BOTH, "stratum_size")
    lowest, slots = [], []
    for arm in arms.values():
        runs = list(case.comparison.arms[arm].values())
        lowest.append(math.fsum(min(arm_of(run).losses) for run in runs) / len(runs))
        slots.append(math.fsum(run.summary["item_slots"] or 0.0 for run in runs) / len(runs))
    if len(arms) < LEAST_TREND:
        return None
    words = ", ".join(
        f"{loss:.3f} with {items:.0f} items (s={s})"
        for s, loss, items in zip(arms, lowest, slots, strict=True)
    )
    if any(later >= earlier for earlier, later in itertools.pairwise(slots)):
        return Finding(NOT_REPRODUCED, f"larger strata do not hold fewer items: {words}")
    return _trend(lowest, f"smallest loss {words}")


def _slower_regularised(case: Case) -> Finding | None:
    """The largest weight of functional regularisation beside items embedded by g alone."""
    config, own = case.comparison.config, case.variant(BOTH)
    if config.coupling != "direct" or own is None:
        return None
    same = _without_coupling(case.comparison)
    rivals = [
        each
        for each in case.others
        if each.config.coupling == "regularised" and own in each.arms
        if each.data_fingerprint == case.comparison.data_fingerprint
        if _without_coupling(each) == same
    ]
    rival = max(rivals, key=lambda each: each.config.coupling_weight, default=None)
    if rival is None:
        return None
    runs, theirs = case.comparison.arms[own], rival.arms[own]
    seeds = sorted(runs.keys() & theirs.keys())
    pairs = [(arm_of(runs[seed]), arm_of(theirs[seed])) for seed in seeds]
    if not pairs:
        return None
    # The regularised runs are the baseline here, so that above 1 they are the slower ones.
    found = seed_statistics.speedup_at([min(arm.losses) for arm, _ in pairs], pairs)
    weight = f"a weight of {rival.config.coupling_weight:g}"
    if found.iterations is not None:
        words = f"{found.iterations.value:.2f} times as many iterations with {weight}"
        return _decide(found.iterations, words)
    least = found.iterations_at_least
    if least is None:
        return Finding(UNDECIDED, f"with {weight} some seeds reach the loss, and some do not")
    words = f"with {weight} the loss is not reached in {least:.2f} times as many iterations"
    return Finding(REPRODUCED if least >= 1 and len(pairs) > 1 else UNDECIDED, words)


def _lower_variance(case: Case) -> Finding | None:
    """Sharing is set beside the same links without it, by the audits' variance of a batch."""
    config = case.comparison.config
    places = ("point", "seed", "batch_size", "noise", "batches")
    known: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in case.audits:
        is_own = (row["data_fingerprint"], row["encoder"], row["loss"]) == (
            *(case.comparison.data_fingerprint, config.encoder, config.loss),
        )
        if is_own and row["batch_variance"] and row["mask"] and row["strata"] is None:
            own = known.setdefault(tuple(row[name] for name in places), {})
            own[row["sampler"]] = row["batch_variance"]
    ratios = [
        (own[alone] / own[shared], place[-1], alone, shared)
        for place, own in known.items()
        for alone, shared in SHARED.items()
        if alone in own and shared in own
    ]
    if not ratios:
        return None
    ratio, batches, alone, shared = min(ratios)
    titles = [find_sampler(name).title for name in (shared, alone)]
    # A variance over n batches is known to sqrt(2 / n) of itself if the gradient had one dimension.
    half = NORMAL_QUANTILE * math.sqrt(2 * 2 / batches)
    estimate = Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half), 1)
    points = f", the least of {len(ratios)} ratios" if len(ratios) > 1 else ""
    return _decide(
        estimate, f"{titles[0]}: variance {ratio:.2f} times less than {titles[1]}{points}"
    )


CLAIMS: Mapping[str, tuple[str, Judge]] = {
    "fewer-iterations": ("Sharing negatives needs fewer iterations", _fewer_iterations),
    "lower-variance": ("Sharing negatives lowers the gradient's variance", _lower_variance),
    SHORTER[0]: (SHORTER[1], _shorter_iterations),
    "soonest": ("Strata with sharing are soonest of the five", _soonest),
    "kept-recall": ("Strata with sharing keep the recall", _kept_recall),
    "more-negatives": ("More negatives raise the recall", _more_negatives),
    "larger-strata": ("Larger strata cost loss and save items", _larger_strata),
    "slower-regularised": ("Functional regularisation slows training", _slower_regularised),
}
"""Claims by name: what the paper says, and what judges it."""


def judge_claims(
    comparisons: Sequence[Comparison], speedups: Sequence[Sequence[Row]], audits: Sequence[Row]
) -> list[Judged]:
    """Return the verdicts on all claims that some run bears on, by comparison.

    Args:
        speedups: rows of each comparison.
        audits: rows of the audits beside the runs.
    """
    judged = []
    for comparison, own in zip(comparisons, speedups, strict=True):
        case, config = Case(comparison, own, comparisons, audits), comparison.config
        for name, (says, judge) in CLAIMS.items():
            if (found := judge(case)) is not None:
                where = config.dataset, comparison.data_fingerprint, config.encoder, config.loss
                judged.append(Judged(name, says, *where, comparison.title(), **asdict(found)))
    return judged


def as_rows(found: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return verdicts as plain rows."""
    return [asdict(each) for each in found]


def _recalls(comparison: Comparison, variant: Variant) -> list[float]:
    """Return the reported recall@50 of each seed; none where some seed has none."""
    found = [run.summary[RECALL] for run in comparison.arms[variant].values()]
    return [] if None in found else found


def _sizes(comparison: Comparison, sampler: str, setting: str) -> dict[int, Variant]:
    """Return a sampler's arms that differ in one setting alone, by its value, ascending."""
    usual = next((arm for arm in comparison.arms if arm.sampler == sampler), None)
    if usual is None:
        return {}

    def others(arm: Variant) -> dict[str, Any]:
        return asdict(arm) | {setting: None}

    groups: dict[str, dict[int, Variant]] = {}
    for arm in comparison.arms:
        if arm.sampler == sampler:
            groups.setdefault(repr(others(arm)), {})[getattr(arm, setting)] = arm
    largest = max(groups.values(), key=len)
    return dict(sorted(largest.items()))


def _trend(values: Sequence[float], evidence: str) -> Finding:
    """Return the finding that values rise, by Kendall's exact test of their order."""
    from scipy.stats import kendalltau

    rises, falls = (
        float(kendalltau(range(len(values)), values, alternative=side, method="exact").pvalue)
        for side in ("greater", "less")
    )
    chance = 1 - CONFIDENCE
    verdict = REPRODUCED if rises <= chance else NOT_REPRODUCED if falls <= chance else UNDECIDED
    return Finding(verdict, f"{evidence}; p = {rises:.3f} by chance")


def _without_coupling(comparison: Comparison) -> dict[str, str]:
    settings = shared_settings(comparison.config)
    return {name: str(value) for name, value in settings.items() if name not in COUPLING}
