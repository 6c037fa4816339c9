"""Evidence on a claim, and the verdict on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncfbench.catalog import find_sampler
from ncfbench.reporting.comparison import Comparison
from ncfbench.reporting.verdicts import RECALL, REPRODUCED, UNDECIDED
from ncfbench.runs.arms import Variant
from ncfbench.timing.seed_statistics import Estimate

Row = Mapping[str, Any]

NOT_REPRODUCED = "not reproduced"
STRATA, SHARING, BOTH = "strat", "ns", "strat-ns"
SHORTER = (
    "shorter-iterations",
    "Where items dominate, strata shorten an iteration as they cut the items",
)
SOONEST = "soonest", "Strata with sharing are soonest of the five"
"""Names and words of the claims that profiles can judge too."""


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


def as_judged(
    claim: tuple[str, str], comparison: Comparison, found: Finding, settings: str = ""
) -> Judged:
    """Return a finding on runs with what tells them apart.

    Args:
        claim: its name and its words.
        settings: in place of the comparison's own.
    """
    config = comparison.config
    where = config.dataset, comparison.data_fingerprint, config.encoder, config.loss
    return Judged(*claim, *where, settings or comparison.title(), **asdict(found))


def decide(
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


def estimate_of(row: Row, measure: str) -> Estimate | None:
    """Return a figure of a row with its interval; None where it has none."""
    if row.get(measure) is None:
        return None
    return Estimate(
        row[measure], row.get(f"{measure}_lower"), row.get(f"{measure}_upper"), row["seeds"]
    )


def recalls_of(comparison: Comparison, variant: Variant) -> list[float]:
    """Return the reported recall@50 of each seed; none where some seed has none."""
    found = [run.summary[RECALL] for run in comparison.arms[variant].values()]
    return [] if None in found else found
