"""Sentences of an answer, shared by reports and by the adviser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ncfbench.reporting.quality import ERROR, RECALL, Quality
from ncfbench.reporting.table import sentence, three_digits
from ncfbench.runs.quality import CERTAIN
from ncfbench.timing.statistics import BUSY_SPREAD


def cost_sentence(
    own: tuple[float | None, float, float | None], theirs: tuple[float | None, float, float | None]
) -> str:
    """Return why one arm is sooner than another: its items a batch, seconds and iterations.

    Args:
        own, theirs: items embedded for a batch, seconds of an iteration, and iterations to the
            target, of both.
    """
    parts = [
        f"an iteration takes {three_digits(own[1] * 1e3)} ms instead of"
        f" {three_digits(theirs[1] * 1e3)}"
    ]
    if own[0] is not None and theirs[0] is not None:
        parts.insert(0, f"a batch embeds {own[0]:,.0f} items instead of {theirs[0]:,.0f}")
    if own[2] is not None and theirs[2] is not None:
        parts.append(f"{own[2]:,.0f} iterations do instead of {theirs[2]:,.0f}")
    text = ", and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return f"{text[0].upper()}{text[1:]}."


def recall_sentence(own: Quality | None, baseline: Quality | None, chance: float | None) -> str:
    """Return the best arm's recall at the end, with the baseline's if that is another arm."""
    if own is None or own.values[RECALL] is None:
        return ""
    text = f"Recall@50 at the end: {own.text(RECALL)} at epoch {own.epoch:.3g}"
    if baseline is not None:
        text += f", the baseline's {baseline.text(RECALL)} at epoch {baseline.epoch:.3g}"
    explained = [] if chance is None else [f"chance: {chance:.3f}"]
    explained += [CERTAIN.partition(". ")[0]] if (chance or 0) >= 1 else []
    explained += [] if own.error(RECALL) is None else [ERROR]
    return f"{text} ({'; '.join(explained)})." if explained else f"{text}."


def better_recall(own: Quality | None, others: Mapping[str, Quality | None]) -> str:
    """Return which arm's recall at the end is above the best arm's by two errors, and the largest
    such; nothing if none is.

    Args:
        others: of all arms, by name.
    """
    recall, error = (own.values.get(name) if own else None for name in (RECALL, f"{RECALL}_error"))
    if recall is None or error is None:
        return ""
    above = [
        (value, f"{name} ends with a higher recall@50, {quality.text(RECALL)}")
        for name, quality in others.items()
        if quality is not None
        and (value := quality.values[RECALL]) is not None
        and value > recall + 2 * math.hypot(error, quality.values[f"{RECALL}_error"] or error)
    ]
    return max(above)[1] if above else ""


def tied_sentence(names: Sequence[str]) -> str:
    """Return which arms are tied with the best; nothing if none is."""
    return sentence(f"Not to be told from it: {', '.join(names)}") if names else ""


def busy_sentences(spread: float) -> list[str]:
    """Return a warning if times spread so widely that something else was at work."""
    if spread <= BUSY_SPREAD:
        return []
    return [f"The machine was busy: times of blocks of iterations spread by {spread:.0%}."]
