"""An answer in words and as tables."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path

from ncfbench.advice.answer import STAYED, RaceAnswer, RacedArm
from ncfbench.advice.question import LISTED, Question, flag_of
from ncfbench.reporting.answers import Caveat
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.formats import counted, three_digits
from ncfbench.reporting.labels import flags, run_command
from ncfbench.reporting.quality import ERROR, epochs_of
from ncfbench.reporting.ranked import RankedArm
from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.views import overall
from ncfbench.reporting.views.answers import (
    FLOORS_NOTE,
    STATUS_WORDS,
    answer_columns,
    paragraph,
)
from ncfbench.reporting.views.sentences import (
    better_recall,
    busy_caveats,
    cost_sentence,
    floor_caveats,
)
from ncfbench.runs.arms import Variant
from ncfbench.runs.quality import CERTAIN

JUDGED_EPOCHS = 2
"""Epochs of the furthest entrant with the next budget; recall is measured after each."""


def headline(answer: RaceAnswer) -> str:
    """Return the answer in one paragraph."""
    best, baseline = answer.best, answer.baseline
    users = answer.sample_users
    sample = f"All this on a sample of {users:,} users." if users else ""
    if answer.ranks or best is None:
        return f"{overall.headline(answer, _no_choice(answer))} {sample}".strip()
    parts = [f"Use {flags(best.config)}."]
    if baseline is None:
        parts.append("No baseline raced, so there is no ratio.")
    elif baseline.name == best.name:
        parts.append("It is the baseline itself, at its best.")
        baseline = None
    else:
        parts += [_ratio(answer, best, baseline), cost_sentence(best, baseline)]
    return f"{paragraph(answer, parts, baseline, answer.chance)} {sample}".strip()


def caveats(answer: RaceAnswer) -> list[Caveat]:
    """Return what the answer rests on, and what speaks against it."""
    found, best = [Caveat("note", note) for note in answer.state.notes], answer.best
    if best is not None:
        seeds = [len(arm.measured.curves) for arm in answer.main]
        text = f"{counted(min(seeds), 'seed')} of each of {counted(len(seeds), 'finalist')}."
        found.append(Caveat("seeds", text))
        if answer.sooner is not None or answer.ranks:
            text = f"Intervals of times assume that {best.measured.spread.text}."
            found.append(Caveat("assumed_spread", text))
        found += overall.rest_caveats(answer, best)
        better = better_recall(best, answer.main)
        if better and not answer.ranks:
            text = f"{better}: --target recall decides by recall."
            found.append(Caveat("better_recall", text))
    if answer.undecided:
        text = f"{counted(answer.undecided, 'candidate')} left before they could be told from it."
        found.append(Caveat("undecided", text))
    if answer.unfitted:
        text = f"Floors that were left out: {' '.join(answer.unfitted)}"
        found.append(Caveat("floors_left_out", text))
    found += floor_caveats(answer)
    return found + [
        Caveat(code, f"{text} Repeat this on a quiet machine.")
        for code, text in busy_caveats(answer.spread)
    ]


def next_steps(
    answer: RaceAnswer, folder: Path, locations: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return what to do next: purposes and commands.

    Args:
        folder: of the race's runs.
        locations: ``--data-dir`` and ``--runs-dir`` to repeat.
    """
    times = 2.0
    if answer.best is None:
        epochs = (arm.first.summary["epochs"] for arm in answer.arms if arm.has_run)
        furthest = max(epochs, default=0.0)
        times = min(max(times, JUDGED_EPOCHS / furthest if furthest else 0.0), 10.0)
    longer = advise_command(answer.question, times * answer.budget_seconds, locations)
    steps = [("To be surer, go on with this race", longer)]
    if answer.best is not None:
        words = ["ncfbench", "export", str(folder / answer.best.first.name), "--vectors", "vectors"]
        data_dir = locations.get("--data-dir")
        words += ["--data-dir", data_dir] if data_dir else []
        steps.append(("To take its vectors away", shlex.join(words)))
        config = answer.best.config
        there = {**locations, "--runs-dir": str(folder)}
        command = run_command(config, Variant.of(config), config.seed, there)
        steps.append(("To train on from where the race left it", f"{command} --resume"))
    return steps


def answer_tables(answer: RaceAnswer) -> list[Table]:
    """Return the tables of an answer, those with rows."""
    if answer.ranks:
        tables = [overall.worth_table(answer)]
    else:
        tables = [standings_table(answer), left_table(answer)]
    return [table for table in tables if table.rows]


def standings_table(answer: RaceAnswer) -> Table:
    """Return the entrants that stayed to the end as a table of at most 80 columns."""
    best, level, shown = answer.best, answer.target, answer.main
    target = "" if level is None else f"to loss {level:.3g}"
    has_recall = any(arm.at_end is not None for arm in shown)
    speed = Col("speed" if best else "loss", partial(_speed, answer))
    left_out = set() if level is not None else {"its"}
    left_out |= set() if level is not None or answer.floors else {"s"}
    left_out |= set() if has_recall or answer.floors else {"recall@50"}
    cols = [
        speed if col.heading == "times sooner" else col
        for col in answer_columns(target)
        if col.heading not in left_out
    ]
    notes = ["its: iterations, of the first seed, as s"] if level is not None else []
    notes += ["speed: 1 for the first row, larger is faster"] if best else []
    if best and any(arm.learned_at is None and _speed(answer, arm) == "-" for arm in shown):
        notes.append("speed -: not clearly better than chance on validation links")
    if has_recall:
        when = epochs_of([arm.at_end for arm in shown])
        has_kinds = any(arm.at_end is not None and arm.at_end.kinds for arm in shown)
        together = ", to new and to known items together" if has_kinds else ""
        notes.append(f"recall@50: of test links{together}, at the end ({when})")
        notes += [f"by chance it is {answer.chance:.3f}", ERROR]
        notes += [CERTAIN] if answer.chance >= 1 else []
    notes += [FLOORS_NOTE] if answer.floors else []
    return Table.of(answer.subject, cols, [*shown, *answer.floors], notes)


def left_table(answer: RaceAnswer) -> Table:
    """Return the entrants that left the race, with the reasons, and what did not enter it."""
    cols = [
        Col("", "name"),
        Col("expected", partial(_expected, answer)),
        Col("reason", lambda arm: arm.entrant.reason.partition(". ")[0] or arm.status, wraps=True),
    ]
    left = [arm for arm in answer.arms if arm.status not in STAYED]
    notes = []
    if any(_expected(answer, arm) for arm in left):
        notes.append("expected: how many times slower than the recommended one it would have been")
    if count := len(answer.state.left_out):
        notes.append(f"Never entered: {count} that cannot win or work; --dry-run says why.")
    return Table.of("Left the race", cols, left, notes)


def advise_command(question: Question, budget_seconds: float, locations: Mapping[str, str]) -> str:
    """Return the command line that asks a question."""
    base, usual = question.base, Question({}, question.target)
    words = ["ncfbench", "advise", base.dataset]
    if question.target != Question.target:
        words += ["--target", question.target]
    if question.metric != usual.metric:
        words += ["--metric", question.metric]
    for name, attribute in LISTED.items():
        if (values := getattr(question, attribute)) != getattr(usual, attribute):
            words += [flag_of(name), ",".join(map(str, values))]
    for name, values in question.others.items():
        words += ["--try", f"{name}={','.join(map(str, values))}"]
    if question.seeds != usual.seeds:
        words += ["--seeds", str(question.seeds)]
    for name, value in question.fixed.items():
        if name != "dataset":
            words += ["--set", f"{name}={value}"]
    minutes = max(round(budget_seconds / 60), 1)
    return shlex.join([*words, "--budget", f"{minutes}m", *chain.from_iterable(locations.items())])


def _no_choice(answer: RaceAnswer) -> str:
    stayed = answer.main
    if not stayed:
        return "No choice yet: no candidate has trained. Give a larger --budget."
    reason = f"the recall@50 of none of {len(stayed)} is clearly above chance ({answer.chance:.3f})"
    judged = [arm.judged_at for arm in stayed if arm.at_end is not None]
    if not judged:
        reason = f"none of {len(stayed)} has trained an epoch, after which recall is measured"
    after = three_digits(min(judged or [arm.curve.clock for arm in stayed]))
    return (
        f"No choice can be justified: after {after} s of training each, {reason}. Give a larger"
        " --budget."
    )


def _ratio(answer: RaceAnswer, best: RankedArm, baseline: RacedArm) -> str:
    ratio, level = answer.sooner, answer.target
    if answer.sooner_at_least is not None:
        return (
            f"The best baseline, {baseline.name}, is not clearly better than chance after"
            f" {three_digits(baseline.judged_at)} s; this arm was after"
            f" {three_digits(best.learned_at or 0.0)} s: more than"
            f" {answer.sooner_at_least:.2g} times sooner."
        )
    if baseline.learned_at is None:
        return (
            f"The best baseline, {baseline.name}, trained {baseline.first.summary['epochs']:.2g}"
            f" epochs in {three_digits(baseline.curve.clock)} s, too few to judge its recall: no"
            " ratio."
        )
    if ratio is None or level is None or best.seconds is None or baseline.seconds is None:
        return f"It has no level in common with the best baseline, {baseline.name}."
    unit = "s of training" if answer.feature_seconds else "s"
    return (
        f"It reaches a loss of {level:.3g} in {three_digits(best.seconds)} {unit}; the best"
        f" baseline, {baseline.name}, takes {three_digits(baseline.seconds)} s:"
        f" {three_digits(ratio.value)} times as long (95 %: {ratio.lower:.2g} to"
        f" {ratio.upper:.2g}, {counted(ratio.seeds, 'seed')})."
    )


def _speed(answer: RaceAnswer, arm: RacedArm | FloorResult) -> str:
    """Return an entrant's speed over the best one's; a bound or nothing while it is at chance.
    Without a best one, return its lowest loss or highest recall.
    """
    if isinstance(arm, FloorResult):
        return STATUS_WORDS[arm.status]
    if answer.best is None:
        return f"{abs(arm.level):.4g}"
    if arm is answer.best:
        return "1"
    if arm is answer.baseline and answer.sooner_at_least is not None:
        return f"< {1 / answer.sooner_at_least:.2g}"
    if arm.behind is None or arm.learned_at is None:
        return "-"
    return f"{1 / arm.behind.value:.2g}"


def _expected(answer: RaceAnswer, arm: RacedArm) -> str | None:
    if answer.best is None or arm.status != "left":
        return None
    return three_digits(arm.expected) if math.isfinite(arm.expected) else "never"
