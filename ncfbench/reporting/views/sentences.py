"""Sentences and caveats of an answer, shared by reports and by the adviser."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.reporting.answers import Answer, Caveat
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.quality import ERROR, RECALL, Quality
from ncfbench.reporting.table import sentence
from ncfbench.runs.quality import CERTAIN
from ncfbench.timing.speedups import BUSY_SPREAD


def features_sentence(seconds: float) -> str:
    """Return what deriving the item features took before training; nothing where none are read."""
    if not seconds:
        return ""
    return (
        f"The item features took {three_digits(seconds)} s before training. Times to pass a floor"
        " or to come to a level count them; those of training do not."
    )


def recall_sentence(own: Quality | None, chance: float | None) -> str:
    """Return the recall that the best arm reports; nothing where it has none."""
    if own is None or own.values[RECALL] is None:
        return ""
    text = f"Recall@50 of test links: {own.text()} at epoch {own.epoch:.3g}"
    text += f" ({own.kinds})" if own.kinds else ""
    explained = [] if chance is None else [f"chance: {chance:.3f}"]
    explained += [CERTAIN.partition(". ")[0]] if (chance or 0) >= 1 else []
    explained += [] if own.error() is None else [ERROR]
    return f"{text} ({'; '.join(explained)})." if explained else f"{text}."


def tied_sentence(ties: Sequence[Arm]) -> str:
    """Return which arms are tied with the best; nothing if none is."""
    names = ", ".join(arm.name for arm in ties)
    return sentence(f"Statistically tied with it: {names}") if names else ""


def floor_caveats(answer: Answer) -> list[Caveat]:
    """Return a warning if floors are known to be of another machine than the runs."""
    # Some kept runs do not say which machine theirs was.
    runs = [run for arm in answer.arms for run in arm.runs.values()]
    hosts = {run.environment.get("host_key") for run in runs} - {None}
    fitted = {floor.row["environment_key"] for floor in answer.floors}
    if not hosts or not fitted or len(hosts | fitted) == 1:
        return []
    text = (
        "The floors were fitted on another machine than the runs, or in another environment: their"
        " seconds do not compare. On the machine of the runs ncfbench floor"
        f" {answer.config.dataset} fits them again."
    )
    return [Caveat("other_machine", text)]


def busy_caveats(spread: float) -> list[Caveat]:
    """Return a warning if times spread so widely that something else was at work."""
    if spread <= BUSY_SPREAD:
        return []
    text = f"The machine was busy: times of blocks of iterations spread by {spread:.0%}."
    return [Caveat("busy", text)]
