"""Claims: what the paper says of its samplers on any hardware, each judged by results of ours.

A claim is about one data set, encoder and loss. It is judged by an interval, never by a printed
figure: ``reproduced`` where the whole 95 % interval agrees with it, ``not reproduced`` where the
whole interval contradicts it, else ``undecided``. So is what one seed alone cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ncfbench.paper import measures
from ncfbench.paper.measures import (
    DISTURBED,
    NOT_REPRODUCED,
    REPRODUCED,
    Evidence,
    Measured,
    Row,
)


class Claim(NamedTuple):
    """A claim of the paper in words, and the function that returns the figure which decides it."""

    says: str
    measure: Callable[[Evidence], Measured | None]


CLAIMS: Mapping[str, Claim] = {
    "fewer-iterations": Claim(
        "Sharing negatives needs fewer iterations", measures.fewer_iterations
    ),
    "soonest": Claim("Strata with sharing are soonest of the five", measures.soonest),
    "kept-recall": Claim("Strata with sharing keep the recall", measures.kept_recall),
}
"""Claims by name."""
COLUMNS = ("dataset", "data_fingerprint", "encoder", "loss", "settings")
"""Columns of our tables that tell verdicts on a claim apart."""


@dataclass(frozen=True)
class ClaimVerdict:
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


def judge_claims(evidence: Iterable[Evidence]) -> list[ClaimVerdict]:
    """Return the verdicts on all claims that some result bears on, by data set, encoder, loss and
    settings.

    Profiles reach encoders without runs, on a quiet machine. Where one decides a claim, what runs
    of a busy machine say is left out.
    """
    verdicts = [
        (_judge(name, measured, results.arms[0]), results.by_profile)
        for results in sorted(evidence, key=lambda results: results.by_profile)
        for name in results.claims or CLAIMS
        if (measured := CLAIMS[name].measure(results)) is not None
    ]
    decided = {_question(verdict) for verdict, by_profile in verdicts if by_profile}
    chosen = [
        verdict
        for verdict, by_profile in verdicts
        if by_profile or verdict.evidence != DISTURBED or _question(verdict) not in decided
    ]
    return sorted(chosen, key=lambda verdict: [getattr(verdict, column) for column in COLUMNS])


def _question(verdict: ClaimVerdict) -> tuple[str, ...]:
    return verdict.claim, verdict.data_fingerprint, verdict.encoder, verdict.loss


def _judge(name: str, measured: Measured, where: Row) -> ClaimVerdict:
    """Return the verdict that a figure gives."""
    value = lower = upper = None
    if measured.figure is not None:
        value, lower, upper = measured.figure.value, measured.figure.lower, measured.figure.upper
    verdict = measured.verdict
    if lower is not None and lower > measured.least:
        verdict = REPRODUCED
    elif upper is not None and upper < measured.contradicted:
        verdict = NOT_REPRODUCED
    return ClaimVerdict(
        claim=name,
        says=CLAIMS[name].says,
        **{column: where[column] for column in COLUMNS},
        verdict=verdict,
        value=value,
        lower=lower,
        upper=upper,
        evidence=measured.words,
    )
