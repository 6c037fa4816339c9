"""The verdict on a gradient, from what was found of it."""

from __future__ import annotations

import pytest

from ncfbench.auditing.bias import Bias
from ncfbench.auditing.frameworks.tables import finding
from ncfbench.auditing.verdict import Evidence, verdict


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
    # Its limit.
    (WIDE, FALLS | {"limit": None}, "falls with b", None),
    (WIDE, FALLS | {"limit": 0.07}, "biased", "limit"),
    (WIDE, FALLS | {"limit": 1e-4}, "consistent", None),
    (WIDE, {"is_listwise": True, "more": ABOVE_HALF, "limit": 0.07}, "biased", "gradient"),
    # Wrong weights, or links among the negatives: certain, however noisy the batches.
    (WITHIN, {"has_wrong_weights": True}, "biased", "weights"),
    (WIDE, {"has_unclaimed_links": True}, "biased", "links"),
    (SHOWN, {"has_wrong_weights": True, "has_unclaimed_links": True}, "biased", "gradient"),
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


@pytest.mark.parametrize(
    ("word", "shown_by", "limit", "text"),
    [
        ("biased", "limit", 0.07, "however large the batch"),
        ("consistent", None, 0.0, "0 in the limit"),
        ("falls with b", None, None, "whether it vanishes is not known"),
        ("too few batches", None, None, "undecided with these batches"),
        ("biased", "links", None, "3.0 % of its negatives are training links"),
        ("biased", "gradient", None, "biased by 20.0 % (10.0 to 25.0) as an estimate of"),
    ],
)
def test_sentence_says_what_shows_the_bias(
    word: str, shown_by: str | None, limit: float | None, text: str
) -> None:
    row = {"bias": 0.2, "bias_low": 0.1, "bias_high": 0.25, "bias_with_4x_batch": 0.1}
    row |= {"popular_push": 0.0, "popular_push_low": 0.0, "popular_push_high": 0.0}
    row |= {"linked_share": 0.03, "planted_fault": None, "claim_meaning": "the softmax"}
    row |= {"title": "TFRS", "remedy": "Use it so.", "limit_bias": limit}
    assert text in finding(row | {"verdict": word, "shown_by": shown_by})
