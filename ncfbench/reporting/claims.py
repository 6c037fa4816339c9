"""The paper's claims of its samplers that hold on any hardware, each judged by our runs.

A claim is about one data set, encoder and loss. It is judged by an interval, never by a printed
figure: ``reproduced`` where the whole 95 % interval agrees with it, ``not reproduced`` where the
whole interval contradicts it, else ``undecided``. So is what one seed alone cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from ncfbench.catalog import SAMPLERS, find_loss, find_sampler
from ncfbench.paper.printed import RECALL
from ncfbench.reporting.frames import Run, by_variant, estimate_of
from ncfbench.reporting.profiles import ProfiledComparison
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.tied import log_ratios, recall_difference
from ncfbench.timing import intervals
from ncfbench.timing.intervals import Estimate
from ncfbench.timing.speedups import BUSY_SPREAD, ROUNDS_OF_INTERVALS

Row = Mapping[str, Any]
REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"
RECALL_TOLERANCE = 0.02
"""Share of the baseline's recall that may be lost. The paper's best sampler has 3 % more of it."""
SHARING, BOTH = "ns", "strat-ns"
DISTURBED = "the machine was busy during these runs; a profile beside them tells"
"""Words where no time of the runs can be trusted."""
PLACE = ("dataset", "data_fingerprint", "encoder", "loss", "settings")
"""Columns of our tables that tell verdicts on a claim apart."""


class ClaimVerdict(NamedTuple):
    """Verdict on a claim for one data set, encoder and loss.

    Attributes:
        value, lower, upper: the figure that decides, and its 95 % interval where there is one.
        evidence: the figure in words.
    """

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


class _Figure(NamedTuple):
    """A figure in words, and as a number where it has one.

    Attributes:
        least: the claim holds where the whole interval is above this, and does not where the whole
            interval is below.
        verdict: where there is no interval, or one that decides nothing.
    """

    words: str
    number: Estimate | None = None
    least: float = 1.0
    verdict: str = UNDECIDED

    @property
    def judged(self) -> str:
        """The verdict that it gives."""
        number = self.number
        if number is None or number.lower is None or number.upper is None:
            return self.verdict
        if number.lower > self.least:
            return REPRODUCED
        return NOT_REPRODUCED if number.upper < self.least else self.verdict


class _Arms(NamedTuple):
    """The arms of a comparison that have the paper's settings, by sampler.

    Attributes:
        rows: of the speedup table.
        runs: by seed.
        lengths: how many times shorter an iteration is than the baseline's, by a profile that gives
            the times; None where the runs' own do.
    """

    rows: Mapping[str, Row]
    runs: Mapping[str, Mapping[int, Run]]
    settings: str
    lengths: Mapping[str, Estimate] | None = None

    @classmethod
    def of(cls, comparison: Comparison) -> _Arms:
        """Return the arms of a comparison."""
        encoder, rows = comparison.config.encoder, comparison.speedups
        runs = by_variant(comparison.runs).items()
        return cls(
            {row["sampler"]: row for row in rows if not row["variant"]},
            {arm.sampler: own for arm, own in runs if not arm.note(encoder)},
            rows[0]["settings"],
        )

    @property
    def first(self) -> Row:
        """The row of some arm."""
        return next(iter(self.rows.values()))

    def logs(self, sampler: str) -> dict[int, float]:
        """Return the logarithms by seed of the ratio that decides who is soonest, but for lengths;
        none if some seed has none.
        """
        measure = "total_speedup" if self.lengths is None else "iterations_speedup"
        return log_ratios(self.runs[sampler].values(), measure)


def judge_claims(
    comparisons: Iterable[Comparison], profiled: Iterable[ProfiledComparison]
) -> list[ClaimVerdict]:
    """Return the verdicts on all claims that some result bears on, by data set, encoder, loss and
    settings.

    Where a profile of enough rounds decides a claim, what runs of a busy machine say is left out.
    """
    arms = {each.runs[0].name: _Arms.of(each) for each in comparisons}
    own = [verdict for each in arms.values() if each.rows for verdict in _verdicts(each)]
    by_profile = []
    for each in profiled:
        if each.rounds >= ROUNDS_OF_INTERVALS:
            found = arms[each.runs[0].name]
            lengths = {row["sampler"]: row["per_iteration"] for row in each.rows}
            settings = ", ".join(filter(None, (found.settings, each.computation)))
            by_profile += _verdicts(found._replace(lengths=lengths, settings=settings))
    decided = {_question(verdict) for verdict in by_profile}
    own = [one for one in own if one.evidence != DISTURBED or _question(one) not in decided]
    return sorted([*own, *by_profile], key=lambda one: [getattr(one, name) for name in PLACE])


def _question(verdict: ClaimVerdict) -> tuple[str, ...]:
    return verdict.claim, verdict.data_fingerprint, verdict.encoder, verdict.loss


def _verdicts(arms: _Arms) -> list[ClaimVerdict]:
    """Return the verdicts that arms give; where a profile gives the times, on who is soonest."""
    found = []
    for claim, (says, measure) in CLAIMS.items():
        if arms.lengths is not None and measure is not _soonest:
            continue
        figure = measure(arms)
        if figure is None:
            continue
        names, number = ("value", "lower", "upper"), figure.number
        known: dict[str, Any] = {name: number and getattr(number, name) for name in names}
        known |= {name: arms.first[name] for name in PLACE} | {"settings": arms.settings}
        known |= {"verdict": figure.judged, "evidence": figure.words}
        found.append(ClaimVerdict(claim=claim, says=says, **known))
    return found


def _fewer_iterations(arms: _Arms) -> _Figure | None:
    """Negative sharing comes down to the baseline's smallest loss in fewer iterations."""
    row = arms.rows.get(SHARING, {})
    baseline = find_sampler(arms.first["baseline"]).title
    ratio = estimate_of(row, "iterations_speedup")
    bound = row.get("iterations_speedup_at_most")
    if ratio is not None:
        return _above(ratio, f"{ratio.value:.2f} times fewer iterations than {baseline}")
    if bound is None:
        return None
    words = f"some seed never reaches {baseline}'s loss: at most {bound:.2f}"
    is_certain = bound < 1 and row["seeds"] > 1
    return _Figure(words, verdict=NOT_REPRODUCED if is_certain else UNDECIDED)


def _soonest(arms: _Arms) -> _Figure | None:
    """Each rival of the paper is met in the seeds that both have; the nearest decides. The words
    name those that can train the loss and were not run.
    """
    lengths, family = arms.lengths, find_loss(arms.first["loss"]).family
    logs = arms.logs(BOTH) if BOTH in arms.rows else {}
    if not logs or (lengths is not None and BOTH not in lengths):
        return None
    leads: list[tuple[Estimate, str]] = []
    absent = []
    for name, info in SAMPLERS.items():
        if name == BOTH or not info.in_paper or family not in info.families:
            continue
        if name not in arms.rows:
            absent.append(info.title)
            continue
        if lengths is not None and name not in lengths:
            return _Figure(f"an iteration of {info.title} was not profiled")
        if lengths is None and any(_is_busy(arms.rows[each]) for each in (BOTH, name)):
            return _Figure(DISTURBED)
        theirs = arms.logs(name)
        if not theirs:
            if _is_slower(arms, name):
                continue
            return _Figure(f"{info.title} has no ratio to compare with")
        common = sorted(logs.keys() & theirs.keys())
        if not common:
            return _Figure(f"no seed in common with {info.title}")
        lead = intervals.geometric([math.exp(logs[seed] - theirs[seed]) for seed in common])
        if lengths is not None:
            lead = intervals.product(lead, intervals.quotient(lengths[BOTH], lengths[name]))
        leads.append((lead, info.title))
    if not leads:
        return None
    # One rival that is sooner contradicts the claim; else the least certain lead decides.
    lead, title = min(leads, key=lambda each: each[0].lower or -math.inf)
    sooner = [each for each in leads if each[0].upper is not None and each[0].upper < 1]
    if sooner:
        lead, title = min(sooner, key=lambda each: each[0].value)
    words = f"{lead.value:.2f} times sooner than the next, {title}"
    words += "" if lengths is None else ", with iterations as long as in a profile"
    return _above(lead, words + (f" (not run: {', '.join(absent)})" if absent else ""))


def _is_busy(row: Row) -> bool:
    return (row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD


def _is_slower(arms: _Arms, rival: str) -> bool:
    """Return whether a rival that does not reach the loss with every seed is slower for sure."""
    measure = "total_speedup" if arms.lengths is None else "iterations_speedup"
    bound = arms.rows[rival].get(f"{measure}_at_most")
    ratio = estimate_of(arms.rows[BOTH], measure)
    if bound is None or ratio is None:
        return False
    if arms.lengths is not None:
        ratio = intervals.product(ratio, arms.lengths[BOTH])
        bound *= arms.lengths[rival].upper or math.inf
    return ratio.lower is not None and bool(bound < ratio.lower)


def _kept_recall(arms: _Arms) -> _Figure | None:
    """Recall may be lower by :data:`RECALL_TOLERANCE` of the baseline's."""
    name = arms.first["baseline"]
    bases = arms.runs.get(name, {})
    apart = recall_difference(arms.runs.get(BOTH, {}), bases)
    recalls = [run.summary[RECALL] for run in bases.values()]
    if apart is None or not recalls or None in recalls:
        return None
    scale = fmean(recalls)
    low, high = ((apart.value + side * apart.half_width) / scale for side in (-1, 1))
    side, share = "higher" if apart.value > 0 else "lower", abs(apart.value) / scale
    words = f"recall@50 {side} by {share:.3f} of {find_sampler(name).title}'s {scale:.3f}"
    if len(recalls) == 1:
        words += " (over the users of one seed)"
    number = Estimate(apart.value / scale, low, high, len(recalls))
    return _above(number, words, -RECALL_TOLERANCE)


def _above(number: Estimate, words: str, least: float = 1.0) -> _Figure:
    """Return a figure that must be above a number."""
    words += "; one seed cannot tell" if number.lower is None else ""
    return _Figure(words, number, least)


CLAIMS: Mapping[str, tuple[str, Callable[[_Arms], _Figure | None]]] = {
    "fewer-iterations": ("Sharing negatives needs fewer iterations", _fewer_iterations),
    "soonest": ("Strata with sharing are soonest of the five", _soonest),
    "kept-recall": ("Strata with sharing keep the recall", _kept_recall),
}
"""Claims by name: in words, and the function that returns the figure which decides them."""
