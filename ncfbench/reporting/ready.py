"""Arms that read ready features alone: what the arms of a dearer encoder have to beat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ncfbench.catalog import find_encoder, find_loss
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import ArmResult, Peak
from ncfbench.reporting.floors import Standing, arm_beside, standing
from ncfbench.reporting.formats import three_digits


def with_ready_arms(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers, those of encoders of texts with the arm of the same data and environment
    that has the largest recall of all whose encoder reads dense features alone.
    """
    answers = list(answers)
    best: dict[tuple[str, str], tuple[float, ArmResult]] = {}
    for answer in answers:
        if find_encoder(answer.config.encoder).content != ("features",):
            continue
        for arm in _comparable(answer):
            peak, key = arm.peak, _measured_on(answer, arm)
            if peak is not None and (key not in best or peak.recall > best[key][0]):
                best[key] = peak.recall, arm
    return [
        replace(answer, ready=best[key][1])
        if "text" in find_encoder(answer.config.encoder).content
        and (key := _measured_on(answer, answer.arms[0])) in best
        else answer
        for answer in answers
    ]


def beside_ready(answer: Answer) -> tuple[Peak, ArmResult, Standing] | None:
    """Return the largest recall of the ready arm, the arm of the answer that is set beside it, and
    how that stands to it; None where either is missing.
    """
    ready = answer.ready.peak if answer.ready else None
    own = arm_beside(_comparable(answer), answer.best)
    return None if ready is None or own is None else (ready, own, standing(own, ready))


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
        seconds = three_digits(stands.seconds or 0.0)
        return f"{reached}; {name} passes it after {seconds} s{stands.note()}."
    if stands.word == "level":
        return f"{reached}; {name} is level with it{stands.note()}."
    return f"{reached}; {name} stays below, so its encoder has not paid yet."


def _comparable(answer: Answer) -> list[ArmResult]:
    """Return the arms whose recall and times can be set beside others'."""
    return [
        arm
        for arm in answer.arms
        if not arm.has_diverged and not any(run.is_simulated for run in arm.runs.values())
    ]


def _measured_on(answer: Answer, arm: ArmResult) -> tuple[str, str]:
    run = next(iter(arm.runs.values()))
    return answer.data_fingerprint, str(run.environment["key"])
