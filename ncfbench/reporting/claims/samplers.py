"""Claims on samplers: their iterations, how long these are, recall, variance, and coupling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ncfbench.catalog import SAMPLERS, find_loss, find_sampler
from ncfbench.reporting.claims.case import (
    BOTH,
    NOT_REPRODUCED,
    SHARING,
    STRATA,
    Case,
    Finding,
    decide,
    estimate_of,
    recalls_of,
)
from ncfbench.reporting.comparison import Comparison, arm_of
from ncfbench.reporting.marks import is_busy
from ncfbench.reporting.tied import log_ratios, recall_difference
from ncfbench.reporting.verdicts import RATIO_TOLERANCE, RECALL_TOLERANCE, REPRODUCED, UNDECIDED
from ncfbench.runs.arms import shared_settings
from ncfbench.timing import seed_statistics
from ncfbench.timing.seed_statistics import NORMAL_QUANTILE, Estimate

SHARED = {"neg": SHARING, STRATA: BOTH}
"""Samplers that share the items of a batch, by those with the same links that do not."""
COUPLING = ("coupling", "coupling_weight")
DISTURBED = "the machine was busy during these runs; a profile beside them tells"
"""Evidence where no time of the runs can be trusted."""


def fewer_iterations(case: Case) -> Finding | None:
    """N.S. comes down to the baseline's smallest loss in fewer iterations."""
    row = case.speedup(SHARING)
    found = estimate_of(row, "iterations_speedup")
    if found is not None:
        return decide(found, f"{found.value:.2f} times fewer iterations than {case.baseline}")
    bound = row.get("iterations_speedup_at_most")
    if bound is None:
        return None
    words = f"some seed never reaches {case.baseline}'s loss: at most {bound:.2f}"
    return Finding(NOT_REPRODUCED if bound < 1 and row["seeds"] > 1 else UNDECIDED, words)


def shorter_iterations(case: Case) -> Finding | None:
    """Those of Stratified Sampling beside the baseline's; see :func:`judge_shorter`."""
    row, base = case.speedup(STRATA), case.speedup(case.comparison.baseline_sampler)
    found = estimate_of(row, "per_iteration_speedup")
    if found is None or not row.get("item_slots") or not base.get("item_slots"):
        return None
    if is_busy(row) or is_busy(base):
        return Finding(UNDECIDED, DISTURBED)
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
    finding = decide(found, words, least, contradicts=1.0)
    if finding.verdict == UNDECIDED and finding.upper is not None and finding.upper < least:
        words += ": what all samplers share weighs too much here"
    return Finding(finding.verdict, words, found.value, found.lower, found.upper)


def soonest(case: Case, lengths: Mapping[str, Estimate] | None = None) -> Finding | None:
    """Each rival of the paper is met in the seeds that both have; the nearest decides. The evidence
    names those that can train the loss and were not run.

    Args:
        lengths: by sampler, how many times shorter an iteration is than one of the baseline,
            measured elsewhere; by default the runs' own times count.
    """
    own = case.variant(BOTH)
    measure = "total_speedup" if lengths is None else "iterations_speedup"
    logs = {} if own is None else log_ratios(case.comparison, own, measure)
    if not logs or (lengths is not None and BOTH not in lengths):
        return None
    nearest: tuple[str, Estimate] | None = None
    absent = []
    family = find_loss(case.comparison.config.loss).family
    for name, info in SAMPLERS.items():
        rival, title = case.variant(name), info.title
        if rival == own or not info.in_paper or family not in info.families:
            continue
        if rival is None:
            absent.append(title)
            continue
        if lengths is not None and name not in lengths:
            return Finding(UNDECIDED, f"an iteration of {title} was not profiled")
        if lengths is None and (is_busy(case.speedup(BOTH)) or is_busy(case.speedup(name))):
            return Finding(UNDECIDED, DISTURBED)
        theirs = log_ratios(case.comparison, rival, measure)
        if not theirs:
            if _is_bounded(case, name, lengths):
                continue
            return Finding(UNDECIDED, f"{title} has no ratio to compare with")
        common = sorted(logs.keys() & theirs.keys())
        if not common:
            return Finding(UNDECIDED, f"no seed in common with {title}")
        apart = seed_statistics.geometric([math.exp(logs[k] - theirs[k]) for k in common])
        if lengths is not None:
            shorter = seed_statistics.quotient(lengths[BOTH], lengths[name])
            apart = seed_statistics.product(apart, shorter)
        if nearest is None or apart.value < nearest[1].value:
            nearest = title, apart
    if nearest is None:
        return None
    how = "" if lengths is None else ", with iterations as long as in a profile"
    how += f" (not run: {', '.join(absent)})" if absent else ""
    return decide(
        nearest[1], f"{nearest[1].value:.2f} times sooner than the next, {nearest[0]}{how}"
    )


def _is_bounded(case: Case, rival: str, lengths: Mapping[str, Estimate] | None) -> bool:
    """Return whether a rival that does not reach the loss with every seed is slower for sure."""
    measure = "total_speedup" if lengths is None else "iterations_speedup"
    bound = case.speedup(rival).get(f"{measure}_at_most")
    own = estimate_of(case.speedup(BOTH), measure)
    if bound is None or own is None:
        return False
    if lengths is not None:
        own = seed_statistics.product(own, lengths[BOTH])
        bound *= lengths[rival].upper or math.inf
    return own.lower is not None and bool(bound < own.lower)


def kept_recall(case: Case) -> Finding | None:
    """Recall may be lower by :data:`RECALL_TOLERANCE` of the baseline's."""
    own, base = case.variant(BOTH), case.variant(case.comparison.baseline_sampler)
    if own is None or base is None:
        return None
    recalls = recalls_of(case.comparison, base)
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
    return decide(Estimate(apart.value / scale, low, high, len(recalls)), words, -RECALL_TOLERANCE)


def slower_regularised(case: Case) -> Finding | None:
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
        return decide(found.iterations, words)
    least = found.iterations_at_least
    if least is None:
        return Finding(UNDECIDED, f"with {weight} some seeds reach the loss, and some do not")
    words = f"with {weight} the loss is not reached in {least:.2f} times as many iterations"
    return Finding(REPRODUCED if least >= 1 and len(pairs) > 1 else UNDECIDED, words)


def lower_variance(case: Case) -> Finding | None:
    """Sharing is set beside the same links without it, by the audits' variance of a batch."""
    config = case.comparison.config
    if config.coupling != "direct":  # audits are of items that g alone embeds
        return None
    places = ("point", "seed", "batch_size", "noise", "batches")
    known: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in case.audits:
        is_own = (row["data_fingerprint"], row["encoder"], row["loss"]) == (
            *(case.comparison.data_fingerprint, config.encoder, config.loss),
        )
        if is_own and row["batch_variance"] and row["mask"] and row["strata"] != "user":
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
    ratio, batches, _, _ = min(ratios)
    # A variance over n batches is known to sqrt(2 / n) of itself if the gradient had one dimension.
    half = NORMAL_QUANTILE * math.sqrt(2 * 2 / batches)
    estimate = Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half), 1)
    words = []
    for pair in SHARED.items():
        own_ratios = sorted(1 / each[0] for each in ratios if each[2:] == pair)
        if own_ratios:
            ends = " to ".join(dict.fromkeys(f"{own_ratios[end]:.2f}" for end in (0, -1)))
            alone, shared = (find_sampler(name).title for name in pair)
            words.append(f"{shared} has {ends} times the variance of {alone}")
    return decide(estimate, "; ".join(words))


def _without_coupling(comparison: Comparison) -> dict[str, str]:
    settings = shared_settings(comparison.config)
    return {name: str(value) for name, value in settings.items() if name not in COUPLING}
