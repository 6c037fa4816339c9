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
from ncfbench.reporting.frames import Run, by_variant
from ncfbench.reporting.rows import Comparison, log_ratios, recall_difference
from ncfbench.statistics import intervals
from ncfbench.statistics.intervals import Estimate, estimate_of
from ncfbench.statistics.speedups import BUSY_SPREAD

Row = Mapping[str, Any]
REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"
RECALL_TOLERANCE = 0.02
"""Share of the baseline's recall that may be lost. The paper's best sampler has 3 % more of it."""
SHARING, BOTH = "ns", "strat-ns"
DISTURBED = "the machine was busy during these runs; --profiles takes times of quiet ones"
"""Words where no time of the runs can be trusted."""
PLACE = ("dataset", "data_fingerprint", "encoder", "loss", "settings")
"""Columns of our tables that tell verdicts on a claim apart."""


class _Figure(NamedTuple):
    """A figure in words, and as a number where it has one; the claim holds where the whole interval
    of that is above ``least``, and does not where it is below.
    """

    words: str
    number: Estimate | None = None
    least: float = 1.0
    is_refuted: bool = False

    @property
    def verdict(self) -> str:
        """The verdict that it gives."""
        number = self.number
        if number is None or number.lower is None or number.upper is None:
            return NOT_REPRODUCED if self.is_refuted else UNDECIDED
        if number.lower > self.least:
            return REPRODUCED
        return NOT_REPRODUCED if number.upper < self.least else UNDECIDED


class _Arms(NamedTuple):
    """The arms of a comparison that have the paper's settings, by sampler.

    Attributes:
        rows: of the speedup table.
        runs: by seed.
        is_profiled: whether a profile gives the times.
    """

    rows: Mapping[str, Row]
    runs: Mapping[str, Mapping[int, Run]]
    is_profiled: bool

    @property
    def first(self) -> Row:
        """The row of some arm."""
        return next(iter(self.rows.values()))

    def logs(self, sampler: str) -> dict[int, float]:
        """Return the logarithms by seed of the ratio that the runs give; none if some seed has
        none. A profile multiplies it by the ratio of the times.
        """
        measure = "iterations_speedup" if self.is_profiled else "total_speedup"
        return log_ratios(self.runs.get(sampler, {}).values(), measure)

    def lead(self, rival: str) -> Estimate | None:
        """Return how many times sooner strata with sharing are than a rival, over the seeds that
        both have; None without any.
        """
        own, theirs = self.logs(BOTH), self.logs(rival)
        common = sorted(own.keys() & theirs.keys())
        if not common:
            return None
        lead = intervals.geometric([math.exp(own[seed] - theirs[seed]) for seed in common])
        one, other = (
            estimate_of(self.rows[name], "per_iteration_speedup") for name in (BOTH, rival)
        )
        if self.is_profiled and one and other:
            lead = intervals.product(lead, intervals.quotient(one, other))
        return lead


def judge_claims(comparisons: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Return the verdicts on all claims that some result bears on, by data set, encoder, loss and
    settings; with the times of a profile those on who is soonest.

    Returns:
        Rows of :data:`PLACE`, ``claim``, what it ``says``, the ``verdict``, the figure that decides
        as ``value``, ``lower`` and ``upper`` where there is one, and that in words, ``evidence``.
    """
    found, decided = list[dict[str, Any]](), set[tuple[str, ...]]()
    for each in comparisons:
        encoder, runs = each.config.encoder, by_variant(each.runs).items()
        arms = _Arms(
            {row["sampler"]: row for row in each.speedups if not row["variant"]},
            {arm.sampler: own for arm, own in runs if not arm.note(encoder)},
            bool(each.timed_by),
        )
        for claim, (says, measure) in CLAIMS.items() if arms.rows else ():
            figure = measure(arms) if measure is _soonest or not arms.is_profiled else None
            if figure is None:
                continue
            settings = ", ".join(filter(None, (arms.first["settings"], each.timed_by)))
            row = {"claim": claim, "says": says} | {name: arms.first[name] for name in PLACE}
            row |= {"settings": settings, "verdict": figure.verdict}
            for name in ("value", "lower", "upper"):
                row[name] = figure.number and getattr(figure.number, name)
            is_one = figure.number is not None and figure.number.lower is None
            found.append(row | {"evidence": figure.words + "; one seed cannot tell" * is_one})
        decided |= {_question(found[-1])} if arms.is_profiled and found else set()
    found = [row for row in found if row["evidence"] != DISTURBED or _question(row) not in decided]
    return sorted(found, key=lambda row: [row[name] for name in PLACE])


def _question(row: Row) -> tuple[str, ...]:
    return row["claim"], row["data_fingerprint"], row["encoder"], row["loss"]


def _fewer_iterations(arms: _Arms) -> _Figure | None:
    """Negative sharing comes down to the baseline's smallest loss in fewer iterations."""
    row = arms.rows.get(SHARING, {})
    baseline = find_sampler(arms.first["baseline"]).title
    ratio = estimate_of(row, "iterations_speedup")
    bound = row.get("iterations_speedup_at_most")
    if ratio is not None:
        return _Figure(f"{ratio.value:.2f} times fewer iterations than {baseline}", ratio)
    if bound is None:
        return None
    words = f"some seed never reaches {baseline}'s loss: at most {bound:.2f}"
    return _Figure(words, is_refuted=bound < 1 and row["seeds"] > 1)


def _soonest(arms: _Arms) -> _Figure | None:
    """Each rival of the paper is met in the seeds that both have; the nearest decides. The words
    name those that can train the loss and were not run.
    """
    if BOTH not in arms.rows or not arms.logs(BOTH):
        return None
    family, leads = find_loss(arms.first["loss"]).family, list[tuple[Estimate, str]]()
    rivals = {
        name: info.title
        for name, info in SAMPLERS.items()
        if name != BOTH and info.in_paper and family in info.families
    }
    for name, title in rivals.items():
        if name not in arms.runs:
            continue
        if name not in arms.rows:
            return _Figure(f"{title} was not profiled")
        rows = arms.rows[BOTH], arms.rows[name]
        if any((row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD for row in rows):
            return _Figure(DISTURBED)
        if arms.is_profiled and any(row["per_iteration_speedup_lower"] is None for row in rows):
            return _Figure("the profile has too few rounds to tell")
        bound, least = rows[1]["total_speedup_at_most"], rows[0]["total_speedup_lower"]
        if arms.is_profiled and bound is not None:
            bound *= rows[1]["per_iteration_speedup_upper"] / rows[1]["per_iteration_speedup"]
        is_slower = bound is not None and bound < (least or 0.0)  # with some seed it never came
        lead = arms.lead(name)
        if lead is None and not is_slower:
            return _Figure(f"{title} has no ratio to compare with")
        leads += [] if lead is None else [(lead, title)]
    if not leads:
        return None
    # One rival that is sooner contradicts the claim; else the least certain lead decides.
    lead, title = min(leads, key=lambda each: (each[0].lower or -math.inf, each[0].value))
    sooner = [each for each in leads if each[0].upper is not None and each[0].upper < 1]
    if sooner:
        lead, title = min(sooner, key=lambda each: each[0].value)
    absent = ", ".join(title for name, title in rivals.items() if name not in arms.runs)
    words = f"{lead.value:.2f} times sooner than the next, {title}"
    return _Figure(words + (f" (not run: {absent})" if absent else ""), lead)


def _kept_recall(arms: _Arms) -> _Figure | None:
    """Recall may be lower by :data:`RECALL_TOLERANCE` of the baseline's."""
    name = arms.first["baseline"]
    bases = arms.runs.get(name, {})
    apart = recall_difference(arms.runs.get(BOTH, {}), bases)
    recalls = [run.summary[RECALL] for run in bases.values()]
    if apart is None or not recalls or None in recalls:
        return None
    if (scale := fmean(recalls)) == 0:
        return None
    low, high = ((apart.value + side * apart.half_width) / scale for side in (-1, 1))
    side, share = "higher" if apart.value > 0 else "lower", abs(apart.value) / scale
    words = f"recall@50 {side} by {share:.3f} of {find_sampler(name).title}'s {scale:.3f}"
    if len(recalls) == 1:
        words += " (over the users of one seed)"
    number = Estimate(apart.value / scale, low, high, len(recalls))
    return _Figure(words, number, -RECALL_TOLERANCE)


CLAIMS: Mapping[str, tuple[str, Callable[[_Arms], _Figure | None]]] = {
    "fewer-iterations": ("Sharing negatives needs fewer iterations", _fewer_iterations),
    "soonest": ("Strata with sharing are soonest of the five", _soonest),
    "kept-recall": ("Strata with sharing keep the recall", _kept_recall),
}
"""Claims by name: in words, and the function that returns the figure which decides them."""
