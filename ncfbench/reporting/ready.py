"""Arms that read ready features alone: what the arms of a dearer encoder have to beat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ncfbench.catalog import find_encoder, find_loss
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import ArmResult
from ncfbench.reporting.floors import Peak, Standing, peak_of, standing
from ncfbench.reporting.formats import three_digits


def with_ready_arms(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers, those of encoders of texts with the arm of the same data that has the
    largest recall of all whose encoder reads dense features alone.
    """
    answers = list(answers)
    best: dict[str, tuple[float, ArmResult]] = {}
    for answer in filter(_reads_features_alone, answers):
        digest = answer.data_fingerprint
        for arm in answer.arms:
            is_compared = not arm.has_diverged and not any(
                run.is_simulated for run in arm.runs.values()
            )
            peak = peak_of(arm) if is_compared else None
            if peak is not None and (digest not in best or peak.recall > best[digest][0]):
                best[digest] = peak.recall, arm
    return [
        replace(answer, ready=best[answer.data_fingerprint][1])
        if answer.data_fingerprint in best and "text" in find_encoder(answer.config.encoder).content
        else answer
        for answer in answers
    ]


def beside_ready(answer: Answer) -> tuple[Peak, ArmResult, Standing] | None:
    """Return the largest recall of the ready arm, the arm of the answer that is set beside it, and
    how that stands to it; None where either is missing.

    It is the best arm, or the one with the largest recall where no arm is the best.
    """
    known = [(peak.recall, arm) for arm in answer.arms if (peak := peak_of(arm)) is not None]
    ready = peak_of(answer.ready) if answer.ready else None
    if ready is None or not known:
        return None
    best = answer.best
    own = best if best is not None and peak_of(best) else max(known, key=lambda pair: pair[0])[1]
    return ready, own, standing(own, ready)


def ready_sentence(answer: Answer) -> str:
    """Return whether the answer's arm beats ready features; nothing where none are known."""
    beside = beside_ready(answer)
    if beside is None or answer.ready is None:
        return ""
    ready, own, stands = beside
    name = "this arm" if own is answer.best else own.name
    loss = find_loss(answer.ready.config.loss).title
    title = find_encoder(answer.ready.config.encoder).title
    reached = (
        f"{title} on dense features ({loss}, {answer.ready.name}) reaches {ready.recall:.3f} in"
        f" {three_digits(ready.seconds)} s"
    )
    if stands.word == "passes":
        return f"{reached}; {name} passes it after {three_digits(stands.seconds or 0.0)} s."
    if stands.word == "level":
        return f"{reached}; {name} is level with it."
    return f"{reached}; {name} stays below, so its encoder has not paid here."


def _reads_features_alone(answer: Answer) -> bool:
    return find_encoder(answer.config.encoder).content == ("features",)
