"""The verdict on a gradient, from what was found of it."""

import pytest

from ncfbench.auditing.bias import Bias
from ncfbench.auditing.verdict import Evidence, batches_needed, verdict


def bias(lower, upper):
    return Bias((lower + upper) ** 2 / 4, lower, upper, 0.1, 1.0, 1.0, 100)


WITHIN, WIDE, SHOWN, LARGE = bias(0, 0.08), bias(0, 0.25), bias(0.01, 0.25), bias(0.15, 0.25)
SOFTMAX, DECLARED = {"is_listwise": True}, {"is_declared": True}
CASES = [
    # A mean of single links: by the interval alone.
    (WITHIN, {}, "unbiased", None),
    (WIDE, {}, "too few batches", None),
    (SHOWN, {}, "biased", "gradient"),
    (bias(0.01, 0.08), {}, "biased", "gradient"),
    # A softmax: whether the bias is within the margin.
    (WITHIN, SOFTMAX, "consistent", None),
    (bias(0.01, 0.08), SOFTMAX, "consistent", None),
    (SHOWN, SOFTMAX, "too few batches", None),
    (LARGE, SOFTMAX, "too few negatives", None),
    # Wrong weights: certain, however noisy the batches.
    (WITHIN, {"has_wrong_weights": True}, "biased", "weights"),
    (SHOWN, {"has_wrong_weights": True}, "biased", "gradient"),
    (LARGE, SOFTMAX | {"has_wrong_weights": True}, "biased", "weights"),
    # Biased on purpose.
    (SHOWN, DECLARED, "biased", "declared"),
    (WITHIN, DECLARED, "unbiased", None),
    (LARGE, SOFTMAX | DECLARED, "biased", "declared"),
    (WIDE, DECLARED, "too few batches", None),
    (WIDE, DECLARED | {"has_wrong_weights": True}, "biased", "weights"),
]


@pytest.mark.parametrize(("bias", "evidence", "word", "shown_by"), CASES)
def test_verdict_follows_from_the_evidence(bias, evidence, word, shown_by):
    assert verdict(Evidence(bias, **evidence), margin=0.1) == (word, shown_by)


def test_an_interval_twice_the_margin_needs_four_times_the_batches():
    assert batches_needed(bias(0, 0.2), margin=0.1) == 400
