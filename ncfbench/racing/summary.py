"""The answer of a race of commands in words, as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ncfbench.racing.answer import Answer, ArmResult
from ncfbench.racing.clock import Reading, doubt
from ncfbench.racing.direction import chance_of
from ncfbench.racing.question import FINALISTS
from ncfbench.reporting.formats import counted, three_digits
from ncfbench.reporting.table import Col, Table, sentence
from ncfbench.statistics.intervals import interval_columns
from ncfbench.statistics.ranking import SHARE

FALLING = 0.03
"""A best arm that gained more of its quality in the latter half of its clock is still improving."""
COARSE = 0.1
"""Lines further apart than this share of the time to the level make that time uncertain."""
BUNCHED = 0.5
"""Share of an arm's lines that came together with later ones, from which its output is buffered."""


def headline(answer: Answer) -> str:
    """Return the answer in one paragraph."""
    best, top, has_target = answer.best, answer.top, answer.question.target is not None
    if best is None or best.seconds is None or answer.level is None:
        return _no_choice(answer)
    level = _text(answer, answer.level)
    highest = _text(answer, min(arm.level for arm in answer.stayed))
    why = "the target" if has_target else f"{SHARE:g} of the best, {highest}"
    if answer.start and not has_target:
        start = _text(answer, answer.start)
        chance = chance_of(answer.question.metric.name) or math.nan
        is_chance = answer.value(answer.start) in (chance, 100 * chance)
        began = "that of chance" if is_chance else "where arms began"
        why = f"{SHARE:.0%} of the way from {start}, {began}, to the best, {highest}"
    at_most = "at most " if best.is_at_most else ""
    use = "Use" if answer.is_decided else "NO ANSWER YET; so far use"
    parts = [
        f"{use} {best.name}: it reaches {answer.question.metric.name} {level} ({why}) in {at_most}"
        f"{three_digits(best.seconds)} s of training.",
        _next_one(answer, best),
    ]
    if answer.ties:
        names = ", ".join(arm.name for arm in answer.ties)
        parts.append(f"Tied with it: {names}.")
    if top is not None and top is not best and not has_target:
        parts.append(f"The best value so far, {highest}, is that of {top.name}.")
    return " ".join(filter(None, parts))


def caveats(answer: Answer) -> list[str]:
    """Return how far to trust the answer, a sentence each."""
    trust = [*answer.question.metric.notes, *_doubts(answer)]
    if answer.best is not None and answer.best.curve is not None:
        trust += _of_seeds(answer, answer.best)
        clock = three_digits(answer.best.curve.clock)
        if answer.fall > FALLING:
            trust.append(
                f"The best value rose by {answer.fall:.0%} of its way in the latter half of its"
                " training: longer training may change the order."
            )
        else:
            trust.append(f"The best trained {clock} s, and values had about come to rest.")
        if answer.best.is_at_most:
            trust.append("Its first line was past the level: more lines early show when it was.")
        elif answer.best.seconds and answer.best.gap > COARSE * answer.best.seconds:
            apart = three_digits(answer.best.gap)
            trust.append(f"Its lines there are {apart} s apart, and the intervals count that.")
        if short := sum(result.status == "undecided" for result in answer.results):
            trust.append(
                f"{counted(short, 'arm')} trained for less than the recommended one took, and may"
                " yet be sooner."
            )
        left = [result for result in answer.results if result.status == "left"]
        if undecided := sum(result.behind is None or result.behind.is_tie for result in left):
            they = "it" if undecided == 1 else "they"
            trust.append(
                f"{counted(undecided, 'arm')} left before {they} could be told from the best."
            )
    return [*trust, *_of_clock(answer), *map(sentence, answer.notes)]


def _of_seeds(answer: Answer, best: ArmResult) -> list[str]:
    """Return what the intervals rest on, and how to have more seeds."""
    seeds = min(len(arm.runs.curves) for arm in [best, *answer.stayed[1:FINALISTS]])
    pairs = sum(result.behind is not None for result in answer.results)
    many = ". Each interval is of one pair, without a correction for their number"
    text = f"{counted(seeds, 'seed')} of each finalist; the intervals assume that"
    trust = [f"{text} {answer.question.spread.text}{many if pairs > 1 else ''}."]
    if seeds == 1:
        cost = sum(result.seconds or 0.0 for result in answer.stayed[:FINALISTS])
        more = ", and needs {seed} in the command."
        if best.arm.command.uses("seed"):
            more = ": --seeds 2 and a larger --budget."
        trust.append(f"A repeat of the finalists takes about {three_digits(cost)} s{more}")
    return trust


def _doubts(answer: Answer) -> list[str]:
    """Return why the metric may be read wrongly."""
    arms, question, texts = [result.arm for result in answer.results], answer.question, []
    if doubts := {arm.name: why for arm in arms if (why := doubt(arm.readings))}:
        name, why = next(iter(doubts.items()))
        more = f" So are those of {len(doubts) - 1} more." if len(doubts) > 1 else ""
        texts.append(
            f"Lines of {name} seem to be of several series, since {why}, and all count. Choose one"
            f" by a word of its lines, as in {question.metric.narrowed}.{more}"
        )
    if question.metric.minimize is None and question.goes_wrong(arms, is_last=True):
        way = "rise" if question.metric.is_less_better else "fall"
        name = question.metric.name
        texts.append(f"Values of {name} {way} in half of the arms or more: is that really worse?")
    return texts


def answer_tables(answer: Answer) -> list[Table]:
    """Return the tables of an answer: the arms that stayed, and the others with the reasons."""
    name = answer.question.metric.name
    to = "s" if answer.level is None else f"s to {_text(answer, answer.level)}"
    cols = [
        Col("", "name", style=lambda arm: "best" if arm.status == "recommended" else "plain"),
        Col(to, _seconds),
        Col("times later (95 %)", _later),
        Col("best", lambda arm: arm.curve and answer.value(arm.level), ".4g"),
        Col("s trained", lambda arm: arm.curve and arm.curve.clock, ".1f"),
        Col("", "status", align="left"),
    ]
    notes = [f"best: {name}; s: of training, of the first seed"]
    shown = [result for result in answer.results if result.curve is not None]
    tables = [Table.of("Arms", cols, shown, notes, name="arms")] if shown else []
    gone = [result for result in answer.results if result not in answer.stayed]
    left = [result for result in gone if result.arm.reason]
    reasons = [Col("", "name"), Col("why it is not the answer", _reason, wraps=True)]
    return [*tables, *([Table.of("Left the race", reasons, left)] if left else [])]


def as_json(answer: Answer, folder: Path) -> dict[str, Any]:
    """Return an answer as a JSON object; see docs/race.md.

    Args:
        folder: of the race's records.
    """
    question, best, level = answer.question, answer.best, answer.level
    return {
        "format": 1,
        "metric": question.metric.name,
        "is_less_better": question.metric.is_less_better,
        "target": question.target,
        "level": None if level is None else answer.value(level),
        "budget_seconds": question.budget_seconds,
        "spent_seconds": answer.spent_seconds,
        "is_over": answer.is_over,
        "recommended": best and best.name,
        "tied": [tie.name for tie in answer.ties],
        "headline": headline(answer),
        "trust": caveats(answer),
        "next": [{"purpose": "To train it", "command": best.arm.command.filled()}] if best else [],
        "arms": [_row(answer, result) for result in answer.results],
        "folder": str(folder),
    }


def _row(answer: Answer, result: ArmResult) -> dict[str, Any]:
    arm, curve = result.arm, result.curve
    return {
        "arm": result.name,
        "values": dict(arm.command.values),
        "command": arm.command.filled(),
        "status": result.status,
        "reason": arm.reason or None,
        "seeds": len(result.runs.curves),
        "seconds": result.seconds,
        "is_at_most": result.is_at_most,
        **interval_columns("times_later", result.behind),
        "best": None if curve is None else answer.value(curve.level),
        "trained_seconds": curve and curve.clock,
        "running_seconds": arm.running_seconds,
        "startup_seconds": arm.timeline.startup_seconds,
        "lines": len(arm.readings),
        "memory_bytes": arm.memory_bytes,
        "curves": {
            seed: [
                [at, answer.value(loss)] for at, loss in zip(one.seconds, one.losses, strict=True)
            ]
            for seed, one in result.runs.curves.items()
        },
    }


def _no_choice(answer: Answer) -> str:
    target, top = answer.question.target, answer.top
    if top is not None and top.status == "alone":
        said = f"Nothing was compared: only {top.name} printed its metric"
        waiting = [result for result in answer.results if result.status == "not begun"]
        if waiting and waiting[0].arm.reason:
            return f"{said}. {waiting[0].name} did not begin: {waiting[0].arm.reason}."
        return f"{said} in {three_digits(answer.spent_seconds)} s. Give a larger --budget."
    if target is None or top is None or top.curve is None:
        return "No choice can be justified: no arm printed a metric and trained on."
    return (
        f"No arm reached {answer.question.metric.name} {three_digits(target)}: the best value is"
        f" {_text(answer, top.level)}, of {top.name}, after {three_digits(top.curve.clock)} s."
        " Give a larger --budget, or a target that can be reached."
    )


def _next_one(answer: Answer, best: ArmResult) -> str:
    later = [
        (result.seconds, result.behind, result)
        for result in answer.results
        if result is not best and result.behind is not None and result.seconds is not None
    ]
    if not later:
        return ""
    seconds, behind, result = min(later, key=lambda row: row[0])
    ratio = f"95 %: {behind.lower:.2g} to {behind.upper:.2g}, {counted(behind.seeds, 'seed')}"
    times = f"{three_digits(behind.value)} times as long"
    if behind.upper < 1:
        return (
            f"{result.name} gets there sooner, in {three_digits(seconds)} s ({times}; {ratio}), but"
            f" peaks at {_text(answer, result.level)}."
        )
    return f"Next is {result.name}, in {three_digits(seconds)} s: {times} ({ratio})."


def _of_clock(answer: Answer) -> list[str]:
    """Return what is to be said of the clock and of memory."""
    arms, texts = [result.arm for result in answer.results], []
    starts = [arm.timeline.startup_seconds for arm in arms if arm.readings]
    if starts and max(starts) >= 1:
        low, high = three_digits(min(starts)), three_digits(max(starts))
        span = f"{low} to {high} s" if low != high else f"{low} s"
        texts.append(f"Start-up and compilation, {span}, are not counted.")
    texts += [
        f"Lines of {arm.name} came together, so their times are late: flush its output after each"
        " line."
        for arm in arms
        if is_buffered(arm.readings)
    ]
    waiting = [result.arm for result in answer.results if result.status == "not begun"]
    if waiting:
        texts.append(f"{counted(len(waiting), 'arm')} did not begin: {waiting[0].reason}.")
    return texts


def is_buffered(lines: Sequence[Reading]) -> bool:
    """Return whether many lines came together with a later one."""
    together = sum(line.running == after.running for line, after in pairwise(lines))
    return together > BUNCHED * max(len(lines), 1)


def _text(answer: Answer, level: float) -> str:
    return three_digits(answer.value(level))


def _seconds(result: ArmResult) -> str:
    if result.seconds is None:
        return {"slower": "never", "undecided": "not yet"}.get(result.status, "-")
    return f"{'< ' if result.is_at_most else ''}{three_digits(result.seconds)}"


def _later(result: ArmResult) -> str:
    if result.status == "recommended":
        return "1"
    if result.behind is None:
        return "-"
    behind = result.behind
    return f"{three_digits(behind.value)} ({behind.lower:.2g} to {behind.upper:.2g})"


def _reason(result: ArmResult) -> str:
    return f"{result.status}: {result.arm.reason}"
