"""The answer of a race of commands in words and as tables."""

from __future__ import annotations

import math

from ncfbench.racing.answer import Answer, ArmResult
from ncfbench.racing.direction import chance_of
from ncfbench.racing.question import FINALISTS
from ncfbench.reporting.formats import counted, three_digits
from ncfbench.reporting.table import Col, Table, sentence
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
    highest = _text(answer, min(each.level for each in answer.stayed))
    why = "the target" if has_target else f"{SHARE:g} of the best, {highest}"
    if answer.start and not has_target:
        start = _text(answer, answer.start)
        chance = chance_of(answer.question.metric.name) or math.nan
        is_chance = answer.value(answer.start) in (chance, 100 * chance)
        began = "that of chance" if is_chance else "where arms began"
        why = f"{SHARE:.0%} of the way from {start}, {began}, to the best, {highest}"
    at_most = "at most " if best.is_at_most else ""
    parts = [
        f"Use {best.name}: it reaches {answer.question.metric.name} {level} ({why}) in {at_most}"
        f"{three_digits(best.seconds)} s of training.",
        _next_one(answer, best),
    ]
    if answer.ties:
        names = ", ".join(each.name for each in answer.ties)
        parts.append(f"Tied with it: {names}.")
    if top is not None and top is not best and not has_target:
        parts.append(f"The best value so far, {highest}, is that of {top.name}.")
    return " ".join(filter(None, parts))


def caveats(answer: Answer) -> list[str]:
    """Return how far to trust the answer, a sentence each."""
    best, found = answer.best, [*answer.question.metric.notes, *_doubts(answer)]
    if best is not None and best.curve is not None:
        seeds = min(len(each.runs.curves) for each in [best, *answer.stayed[1:FINALISTS]])
        text = f"{counted(seeds, 'seed')} of each finalist; the intervals assume that"
        pairs = sum(each.behind is not None for each in answer.results)
        many = ". Each interval is of one pair, without a correction for their number"
        found.append(f"{text} {answer.question.spread.text}{many if pairs > 1 else ''}.")
        if seeds == 1:
            cost = sum(each.seconds or 0.0 for each in answer.stayed[:FINALISTS])
            takes = f"A repeat of the finalists takes about {three_digits(cost)} s"
            if best.arm.command.uses("seed"):
                found.append(f"{takes}: --seeds 2 and a larger --budget.")
            else:
                found.append(f"{takes}, and needs {{seed}} in the command.")
        clock = three_digits(best.curve.clock)
        if answer.fall > FALLING:
            found.append(
                f"The best value rose by {answer.fall:.0%} of its way in the latter half of its"
                " training: longer training may change the order."
            )
        else:
            found.append(f"The best trained {clock} s, and values had about come to rest.")
        if best.is_at_most:
            found.append("Its first line was past the level: more lines early show when it was.")
        elif best.seconds and best.gap > COARSE * best.seconds:
            apart = three_digits(best.gap)
            found.append(f"Its lines there are {apart} s apart, and the intervals count that.")
    undecided = sum(
        each.status == "left" and (each.behind is None or each.behind.is_tie)
        for each in answer.results
    )
    if undecided and best is not None:
        they = "it" if undecided == 1 else "they"
        arms = counted(undecided, "arm")
        found.append(f"{arms} left before {they} could be told from the best.")
    found += _of_clock(answer)
    return [*found, *map(sentence, answer.notes)]


def _doubts(answer: Answer) -> list[str]:
    """Return why the metric may be read wrongly."""
    arms, found = [each.arm for each in answer.results], []
    doubts = [each.doubt for each in arms if each.doubt]
    if doubts:
        others = len(doubts) - 1
        found.append(f"{doubts[0]}{f' So are those of {others} more.' if others else ''}")
    question = answer.question
    if question.metric.minimize is None and question.goes_wrong(arms, is_last=True):
        way = "rise" if question.metric.is_less_better else "fall"
        name = question.metric.name
        found.append(f"Values of {name} {way} in half of the arms or more: is that really worse?")
    return found


def next_steps(answer: Answer, again: str) -> list[tuple[str, str]]:
    """Return what to do next: purposes and commands.

    Args:
        again: the command of the race with a larger budget.
    """
    steps = []
    if answer.best is not None:
        steps.append(("To train it", answer.best.arm.command.filled()))
    if again:
        steps.append(("To be surer", again))
    return steps


def answer_tables(answer: Answer) -> list[Table]:
    """Return the tables of an answer: the arms that stayed, and the others with the reasons."""
    name = answer.question.metric.name
    to = "s" if answer.level is None else f"s to {_text(answer, answer.level)}"
    cols = [
        Col("", "name", style=lambda each: "best" if each.status == "recommended" else "plain"),
        Col(to, _seconds),
        Col("times later (95 %)", _later),
        Col("best", lambda each: each.curve and answer.value(each.level), ".4g"),
        Col("s trained", lambda each: each.curve and each.curve.clock, ".1f"),
        Col("", "status", align="left"),
    ]
    notes = [f"best: {name}; s: of training, of the first seed"]
    shown = [each for each in answer.results if each.curve is not None]
    tables = [Table.of("Arms", cols, shown, notes, name="arms")] if shown else []
    left = [each for each in answer.results if each.arm.reason and each not in answer.stayed]
    reasons = [Col("", "name"), Col("why it is not the answer", _reason, wraps=True)]
    return [*tables, *([Table.of("Left the race", reasons, left)] if left else [])]


def _no_choice(answer: Answer) -> str:
    target, top = answer.question.target, answer.top
    if top is not None and top.status == "alone":
        said = f"Nothing was compared: only {top.name} printed its metric"
        waiting = [each for each in answer.results if each.status == "not begun"]
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
    others = [each for each in answer.results if each is not best and each.behind is not None]
    others = [each for each in others if each.seconds is not None]
    if not others:
        return ""
    other = min(others, key=lambda each: each.seconds or 0.0)
    behind, seconds = other.behind, other.seconds
    assert behind is not None
    assert seconds is not None
    ratio = f"95 %: {behind.lower:.2g} to {behind.upper:.2g}, {counted(behind.seeds, 'seed')}"
    if behind.upper < 1:
        return (
            f"{other.name} gets there sooner, in {three_digits(seconds)} s"
            f" ({three_digits(behind.value)} times as long; {ratio}), but peaks at"
            f" {_text(answer, other.level)}."
        )
    return (
        f"Next is {other.name}, in {three_digits(seconds)} s:"
        f" {three_digits(behind.value)} times as long ({ratio})."
    )


def _of_clock(answer: Answer) -> list[str]:
    """Return what is to be said of the clock and of memory."""
    found = []
    starts = [each.arm.timeline.startup_seconds for each in answer.results if each.curve]
    if starts and max(starts) >= 1:
        low, high = (three_digits(each) for each in (min(starts), max(starts)))
        span = f"{low} to {high} s" if low != high else f"{low} s"
        found.append(f"Start-up and compilation, {span}, are not counted.")
    for each in answer.results:
        if each.arm.bunched > BUNCHED * max(len(each.arm.readings), 1):
            found.append(
                f"Lines of {each.name} came together, so their times are late: flush its output"
                " after each line."
            )
    waiting = [each for each in answer.results if each.status == "not begun"]
    if waiting:
        found.append(f"{counted(len(waiting), 'arm')} did not begin: {waiting[0].arm.reason}.")
    return found


def _text(answer: Answer, level: float) -> str:
    return three_digits(answer.value(level))


def _seconds(result: ArmResult) -> str:
    if result.seconds is None:
        return "never" if result.status == "slower" else "-"
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
