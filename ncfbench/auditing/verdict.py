"""The verdict of an audit on one gradient: a word, and what shows that it is biased."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

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


@dataclass(frozen=True)
class Evidence:
    """The findings on one gradient."""

    bias: Bias
    is_listwise: bool = False
    """A sampled estimate is consistent at best, and never unbiased."""
    is_declared: bool = False
    """The sampler or the loss says that it is biased on purpose."""
    has_wrong_weights: bool = False
    """The conformance suite finds the weights of the batches wrong."""


class CellVerdict(NamedTuple):
    """The verdict, and the evidence of a bias; None where none is shown."""

    word: Word
    shown_by: ShownBy | None


def verdict(evidence: Evidence, margin: float) -> CellVerdict:
    """Return the verdict on a gradient.

    ``biased``: a bias is shown, even one within the margin. ``unbiased``: none is shown, and the
    upper bound is within the margin. A sampled softmax is biased by the order of one over its
    negatives: ``consistent`` where the upper bound is within the margin, ``too few negatives``
    where the lower one is not. ``too few batches``: none of these.

    Args:
        margin: largest bias, as a share of the exact gradient, that may be called unbiased.
    """
    word = _word(evidence, margin)
    if evidence.is_declared and word in ("biased", "consistent", "too few negatives"):
        return CellVerdict("biased", "declared")
    if word == "biased":
        return CellVerdict("biased", "gradient")
    # Wrong weights are certain, however noisy the batches.
    if evidence.has_wrong_weights:
        return CellVerdict("biased", "weights")
    return CellVerdict(word, None)


def _word(evidence: Evidence, margin: float) -> Word:
    bias = evidence.bias
    if evidence.is_listwise:
        if bias.lower > margin:
            return "too few negatives"
        return "consistent" if bias.upper <= margin else "too few batches"
    if bias.lower > RESOLUTION:
        return "biased"
    return "unbiased" if bias.upper <= margin else "too few batches"


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
