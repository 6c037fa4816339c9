"""The verdict on a gradient, from what was found of it."""

from __future__ import annotations

import pytest

from ncfbench.auditing.bias import Bias
from ncfbench.auditing.verdict import Evidence, batches_needed, verdict


def bias(squared: float, error: float, upper: float, lower: float = 0.0) -> Bias:
    return Bias(max(squared, 0) ** 0.5, lower, upper, 0.1, 1.0, 1.0, squared, error, 0.0, 3.6, 100)


WITHIN, WIDE, SHOWN = (
    bias(0.005, 0.001, 0.08),
    bias(0.04, 0.001, 0.25),
    bias(0.04, 0.001, 0.25, 0.1),
)
BELOW_HALF, ABOVE_HALF = bias(0.012, 0.001, 0.15), bias(0.04, 0.001, 0.25)
FALLS = {"is_listwise": True, "more": BELOW_HALF}
CASES = [
    # A mean of single links: by the interval alone.
    (WITHIN, {}, "unbiased", None),
    (WIDE, {}, "too few batches", None),
    (SHOWN, {}, "biased", "gradient"),
    (bias(0.005, 0.001, 0.08, 0.01), {}, "biased", "gradient"),
    # A softmax: whether the bias falls.
    (WITHIN, {"is_listwise": True}, "consistent", None),
    (WIDE, {"is_listwise": True}, "too few batches", None),
    (SHOWN, {"is_listwise": True, "more": bias(0.003, 0.001, 0.08)}, "consistent", None),
    (WIDE, FALLS, "consistent", None),
    (WIDE, {"is_listwise": True, "more": ABOVE_HALF}, "biased", "gradient"),
    (WIDE, {"is_listwise": True, "more": bias(0.02, 0.01, 0.25)}, "too few batches", None),
    # Wrong weights: certain, however noisy the batches.
    (WITHIN, {"has_wrong_weights": True}, "biased", "weights"),
    (SHOWN, {"has_wrong_weights": True}, "biased", "gradient"),
    # Biased on purpose.
    (SHOWN, {"is_declared": True}, "biased", "declared"),
    (WITHIN, {"is_declared": True}, "unbiased", None),
    (WIDE, FALLS | {"is_declared": True}, "biased", "declared"),
    (WIDE, {"is_declared": True}, "too few batches", None),
    (WIDE, {"is_declared": True, "has_wrong_weights": True}, "biased", "weights"),
]


@pytest.mark.parametrize(("found", "evidence", "word", "shown_by"), CASES)
def test_verdict_follows_from_the_evidence(
    found: Bias, evidence: dict, word: str, shown_by: str | None
) -> None:
    assert verdict(Evidence(found, **evidence), margin=0.1) == (word, shown_by)


def test_no_number_of_batches_shows_a_bias_fall_that_cannot_be_measured() -> None:
    """Data with too few links for four times the negatives."""
    assert batches_needed(Evidence(WIDE, is_listwise=True), margin=0.1) is None
    assert batches_needed(Evidence(WIDE, is_listwise=True, more=BELOW_HALF), margin=0.1)
