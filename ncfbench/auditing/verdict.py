"""The verdict of an audit on one gradient: a word, and what shows that it is biased."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ncfbench.auditing.bias import RESOLUTION, Bias
from ncfbench.config import MAX_SEED
from ncfbench.errors import UsageError

BLOCKS = 24
"""Independent means that a verdict rests on."""
MODES = {"replacement": (1, BLOCKS), "more": (2, BLOCKS // 2)}
"""Ways of sampling: how many times fewer batches each gets, and in how many blocks.

``more`` has :data:`MORE_NEGATIVES` times the negatives.
"""
MORE_NEGATIVES = 4
"""Times more negatives with which a listwise loss is measured again, to see its bias fall."""
AUDIT_SEED = MAX_SEED + 3
NONE_DECIDES = "none would do"

Word = Literal["unbiased", "consistent", "biased", "too few batches"]
ShownBy = Literal["gradient", "weights", "declared"]


def check_request(batches: int, margin: float, otherwise: str) -> None:
    """Refuse batches or a margin from which no verdict can follow.

    Args:
        otherwise: what else the number of batches can be.

    Raises:
        UsageError: there are too few batches, or the margin is no share.
    """
    if batches < 2 * BLOCKS:
        raise UsageError(
            f"batches = {batches}: the gradients need at least {2 * BLOCKS}, in {BLOCKS} blocks"
            f"{otherwise}."
        )
    if not 0 < margin < 1:
        raise UsageError(
            f"margin = {margin}: it must lie between 0 and 1, for example 0.05 for 5 %."
        )


def blocks_and_size(mode: str, batches: int) -> tuple[int, int]:
    """Return how many blocks one of :data:`MODES` has, and how many batches each."""
    fewer, blocks = MODES[mode]
    return blocks, max(batches // fewer // blocks, 1)


@dataclass(frozen=True)
class Evidence:
    """The findings on one gradient."""

    bias: Bias
    is_listwise: bool = False
    """A sampled estimate is consistent at best, and never unbiased."""
    more: Bias | None = None
    """With four times the negatives; None where that was not measured."""
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
    upper bound is within the margin. ``consistent``: the bias of a listwise loss falls. ``too few
    batches``: none of these.

    Args:
        margin: largest bias, as a share of the exact gradient, that may be called unbiased.
    """
    word = _listwise(evidence, margin) if evidence.is_listwise else _interval(evidence.bias, margin)
    if evidence.is_declared and word in ("biased", "consistent"):
        return CellVerdict("biased", "declared")
    if word == "biased":
        return CellVerdict("biased", "gradient")
    # Wrong weights are certain, however noisy the batches.
    if evidence.has_wrong_weights:
        return CellVerdict("biased", "weights")
    return CellVerdict(word, None)


def worded(row: Mapping[str, Any]) -> str:
    """Return a verdict of :data:`ncfbench.storage.schemas.AUDIT` in words: with what shows a bias,
    or with the batches that would decide.
    """
    word, needed = str(row["verdict"]), row["batches_needed"]
    if word == "too few batches":
        return f"{word} (try {needed:,})" if needed else f"{word} ({NONE_DECIDES})"
    return f"{word} ({row['shown_by']})" if row["shown_by"] in ("weights", "declared") else word


def batches_needed(evidence: Evidence, margin: float) -> int | None:
    """Estimate how many batches would decide if the estimates are right; None if none would."""
    bias, more = evidence.bias, evidence.more
    for power in range(1, 24):
        factor = 1.5**power
        expected = replace(
            evidence,
            bias=bias.with_batches(factor),
            more=more and more.with_batches(factor),
        )
        if verdict(expected, margin).word != "too few batches":
            return expected.bias.batches
    return None


def _interval(bias: Bias, margin: float) -> Word:
    if bias.lower > RESOLUTION:
        return "biased"
    return "unbiased" if bias.upper <= margin else "too few batches"


def _listwise(evidence: Evidence, margin: float) -> Word:
    """Return whether the bias falls as negatives grow.

    A bias of the order of one over the negatives falls to a quarter with four times as many, its
    square to a sixteenth. Consistent: the bias is within the margin, with these negatives or with
    more, or its square is shown to be below half of what it is with these. Biased: it is shown to
    be above half.
    """
    bias, more = evidence.bias, evidence.more
    if bias.upper <= margin:
        return "consistent"
    if more is None:
        return "too few batches"
    gap = bias.squared / 2 - more.squared
    error = more.quantile * math.hypot(bias.squared_error / 2, more.squared_error)
    if more.upper <= margin or gap > error:
        return "consistent"
    return "biased" if gap < -error else "too few batches"
