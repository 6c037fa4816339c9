"""Figures that decide the paper's claims, a function for each claim.

Each returns None where no result bears on its claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from ncfbench.catalog import SAMPLERS, find_loss, find_sampler
from ncfbench.timing import intervals
from ncfbench.timing.intervals import Estimate

Row = Mapping[str, Any]

REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"
RECALL_TOLERANCE = 0.02
"""Share of the baseline's recall that may be lost. The paper's best sampler has 3 % more of it."""
SHARING, BOTH = "ns", "strat-ns"
DISTURBED = "the machine was busy during these runs; a profile beside them tells"
"""Words where no time of the runs can be trusted."""


@dataclass(frozen=True)
class Evidence:
    """Results by which claims on one data set, encoder and loss are judged.

    Attributes:
        arms: rows of the speedup table that have runs, with what claims need of these
            (:mod:`ncfbench.reporting.evidence`).
        claims: names of the claims that they bear on; all by default.
        by_profile: whether a profile gives the times, a row's ``length`` among them.
    """

    arms: Sequence[Row]
    claims: Sequence[str] = ()
    by_profile: bool = False

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
