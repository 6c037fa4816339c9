"""Findings: what is wrong with a loss or its batches, how much, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from ncfbench.statistics.intervals import Estimate, mean

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Kind(NamedTuple):
    """A kind of fault: what is wrong, what to do, and how surely it is one."""

    what: str
    fix: str
    severity: Severity = "error"


KINDS: dict[str, Kind] = {
    "not-finite": Kind(
        "the loss or its gradient is not finite",
        "Mask with a large negative score instead of infinity, keep a row's own item, and drop a"
        " last batch that is too small.",
    ),
    "no-gradient": Kind(
        "the loss is the same whatever the scores are",
        "See that positives and negatives are found, that no mask is inverted, and that vectors are"
        " not detached.",
    ),
    "batch-axis": Kind(
        "vectors are normalised along the batch, not each by itself",
        "Normalise along the last axis: axis=-1.",
    ),
    "squashed": Kind(
        "a logarithm is missing, or a softmax or sigmoid is applied twice, so that wrong pairs are"
        " hardly pushed",
        "Take the logarithm of the softmax or sigmoid, once, of the scores themselves.",
    ),
    "wrong-sign": Kind(
        "positives are pushed apart and negatives together",
        "Negate the loss, or swap positive and negative scores.",
    ),
    "wrong-positive": Kind(
        "a row is pulled to an item that is not its own",
        "Make row i's label the column of its own item: i.",
    ),
    "wrong-negative": Kind(
        "a row's drawn negatives meet another row's user",
        "Reshape negatives to [b, k, D] without transposing, and multiply row by row.",
    ),
    "no-pull": Kind(
        "rows do not pull their own item",
        "Keep the positive's score in the loss: mask other pairs only, never a row's own.",
    ),
    "over-users": Kind(
        "the softmax runs over the batch's users, not over items",
        "Normalise along the items' axis: axis 1 of scores of shape [users, items].",
    ),
    "idle-flag": Kind(
        "an option changes neither the loss nor its gradient",
        "Use the option in the loss, or remove it.",
    ),
    "mask-zero": Kind(
        "masked pairs still count as scores of a constant in the softmax",
        "Set masked scores, and a vector's score with itself, to minus infinity before the softmax:"
        " do not multiply by the mask.",
    ),
    "logq-sign": Kind(
        "the correction for popularity has the wrong sign",
        "Subtract the logarithm of the probability, do not add it.",
    ),
    "logq-scale": Kind(
        "the correction for popularity has the wrong size",
        "Subtract log p once, after the scores have been divided by the temperature.",
    ),
    "logq-positive": Kind(
        "the correction is applied to the positive too, whose other copies are masked",
        "Correct the negatives only: add log p back on the diagonal.",
    ),
    "missing-logq": Kind(
        "popular items are negatives more often, and no correction makes up for it",
        "Subtract the logarithm of each item's share of the links from its column of scores.",
    ),
    "duplicates": Kind(
        "a row's own item counts as its negative where another row has it",
        "Mask the columns with the row's item id, all but the diagonal.",
    ),
    "linked": Kind(
        "items that the user is linked with count as her negatives",
        "Mask the batch's pairs that are training links.",
    ),
    "temperature-twice": Kind(
        "the temperature is applied twice",
        "Divide scores by the temperature in one place.",
    ),
    "temperature": Kind(
        "scores do not share one temperature, or do not follow it as they should",
        "Divide all scores by the temperature, or multiply all by the scale, once: positives and"
        " negatives alike.",
    ),
    "not-normalised": Kind(
        "vectors that should have unit length do not",
        "Divide users', items' and negatives' vectors by their length, or none of them.",
    ),
    "padding": Kind(
        "padding counts",
        "Give rows of mask or weight 0 no share of the loss: leave them out of the mean, and mask"
        " their items' columns with minus infinity.",
    ),
}
"""By code, the worst first."""


@dataclass(frozen=True)
class Finding:
    """Something that a change in a scene has shown.

    Attributes:
        value, low, high: the number that shows it, with its interval over scenes, and its unit.
        expected: the number that a right loss would have.
    """

    code: str
    severity: Severity
    detail: str
    value: float
    low: float
    high: float
    expected: float
    unit: str

    @property
    def fix(self) -> str:
        """The remedy."""
        return KINDS[self.code].fix

    @property
    def sentence(self) -> str:
        """The fault and its size."""
        what, number = KINDS[self.code].what, with_interval(self.value, self.low, self.high)
        return (
            f"{what[0].upper()}{what[1:]}: {self.detail}; {self.unit} {number}, and"
            f" {short(self.expected)} would be right."
        )

    def as_row(self) -> dict[str, Any]:
        """Return the finding for ``--json``."""
        more = {"what": KINDS[self.code].what, "sentence": self.sentence, "fix": self.fix}
        return asdict(self) | more


def finding(
    code: str,
    values: Sequence[float] | Estimate,
    unit: str,
    expected: float,
    detail: str,
    severity: Severity | None = None,
) -> Finding:
    """Return a finding with the mean of its number over scenes.

    An error is a warning where the interval holds the number that would be right.
    """
    number = values if isinstance(values, Estimate) else mean(values)
    low = number.value if number.lower is None else number.lower
    high = number.value if number.upper is None else number.upper
    severity = severity or KINDS[code].severity
    if severity == "error" and low <= expected <= high:
        severity = "warning"
    return Finding(code, severity, detail, number.value, low, high, expected, unit)


def short(number: float) -> str:
    """Return a number with three digits."""
    return f"{number if abs(number) > 1e-6 else 0.0:.3g}"


def with_interval(value: float, low: float | None, high: float | None) -> str:
    """Return a number with its interval, unless that is narrow."""
    if low is None or high is None or high - low <= 1e-3 * max(abs(value), 1e-3):
        return short(value)
    return f"{short(value)} ({short(low)} to {short(high)})"
