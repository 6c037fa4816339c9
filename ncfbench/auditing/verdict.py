"""The verdict of an audit on one gradient: a word, and what shows that it is biased."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from ncfbench.auditing.bias import RESOLUTION, Bias
from ncfbench.config import MAX_SEED, RunConfig

BLOCKS = 24
"""Independent means that a verdict rests on."""
MARGIN = 0.1
"""Largest bias, as a share of the exact gradient, that may be called unbiased."""
AUDIT_SEED = MAX_SEED + 3

Word = Literal["unbiased", "consistent", "biased", "too few batches", "too few negatives"]
ShownBy = Literal["gradient", "weights", "declared"]
Weighing: TypeAlias = tuple[str, str, str]
"""Choices that weights depend on: noise distribution, sampler, and the loss's family."""


def weighing(config: RunConfig) -> Weighing:
    """Return what the weights of batches depend on."""
    return config.noise, config.sampler, config.family


def verdict(
    bias: Bias,
    margin: float,
    *,
    is_listwise: bool = False,
    is_declared: bool = False,
    has_wrong_weights: bool = False,
) -> tuple[Word, ShownBy | None]:
    """Return the verdict on a gradient, and the evidence of a bias; None where none is shown.

    ``biased``: a bias is shown, even one within the margin. ``unbiased``: none is shown, and the
    upper bound is within the margin. A sampled softmax is biased by the order of one over its
    negatives: ``consistent`` where the upper bound is within the margin, ``too few negatives``
    where the lower one is not. ``too few batches``: none of these.

    Args:
        margin: largest bias, as a share of the exact gradient, that may be called unbiased.
        is_listwise: a sampled estimate is consistent at best, and never unbiased.
        is_declared: the sampler or the loss says that it is biased on purpose.
        has_wrong_weights: the conformance suite finds the weights of the batches wrong.
    """
    word: Word = "too few batches"
    if bias.lower > (margin if is_listwise else RESOLUTION):
        word = "too few negatives" if is_listwise else "biased"
    elif bias.upper <= margin:
        word = "consistent" if is_listwise else "unbiased"
    if is_declared and word in ("biased", "consistent", "too few negatives"):
        return "biased", "declared"
    if word == "biased":
        return word, "gradient"
    # Wrong weights are certain, however noisy the batches.
    return ("biased", "weights") if has_wrong_weights else (word, None)


def worded(row: Mapping[str, Any]) -> str:
    """Return a verdict of :data:`ncfbench.storage.schemas.AUDIT` in words: with what shows a bias,
    or with the batches that would decide.
    """
    word, shown_by, needed = str(row["verdict"]), row["shown_by"], row["batches_needed"]
    if needed:
        return f"{word} (try {needed:,})"
    return f"{word} ({shown_by})" if shown_by in ("weights", "declared") else word


def batches_needed(bias: Bias, margin: float) -> int:
    """Estimate how many batches bring the upper bound to the margin, where the bias is none."""
    return math.ceil(bias.batches * (bias.upper / margin) ** 2)
