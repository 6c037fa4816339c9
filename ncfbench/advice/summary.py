"""An answer in words, as a table, as rows and as JSON."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from ncfbench.advice.answer import FALLING, STAYED, Answer, Standing
from ncfbench.advice.question import Question
from ncfbench.catalog import find_encoder, find_loss
from ncfbench.errors import DataError, either
from ncfbench.reporting.commands import flags, run_command
from ncfbench.reporting.quality import ERROR, RECALL, epochs_of
from ncfbench.reporting.table import Cell, Column, Table, columns_of, three_digits
from ncfbench.reporting.views.sentences import (
    better_recall,
    busy_sentences,
    cost_sentence,
    recall_sentence,
    tied_sentence,
)
from ncfbench.runs.arms import Variant
from ncfbench.runs.quality import CERTAIN
from ncfbench.storage import tables

FORMAT = 1
"""Version of the JSON."""
ANSWER = "answer.json"
"""File of a race's folder with :func:`as_json` of its last answer."""
JUDGED_EPOCHS = 2
"""Epochs of the furthest entrant with the next budget; recall is measured after each."""


def headline(answer: Answer) -> str:
    """Return the answer in one paragraph."""
    best, baseline = answer.best, answer.baseline
    if best is None:
        return _no_choice(answer)
    parts = [f"Use {flags(best.entrant.config)}."]
    if baseline is None:
        parts.append("No baseline raced, so there is no ratio.")
    elif baseline is best:
        parts.append("It is the baseline itself, at its best.")
    else:
        parts += [*_ratio_sentences(answer, best, baseline), _why(answer, best, baseline)]
    other = None if baseline is None or baseline is best else baseline.at_end
    parts.append(recall_sentence(best.at_end, other, answer.chance))
    parts.append(tied_sentence([each.name for each in answer.ties]))
    if answer.sample_users:
        parts.append(f"All this on a sample of {answer.sample_users:,} users.")
    return " ".join(filter(None, parts))


def caveats(answer: Answer) -> list[str]:
    """Return what the answer rests on, and what speaks against it, a sentence each."""
    best = answer.best
    found = []
    if best is not None:
        seeds = [len(each.runs.curves) for each in (best, *answer.ties, *answer.others)]
        least = min(seeds)
        found.append(f"{_count(least, 'seed')} of each of {_count(len(seeds), 'finalist')}.")
        if answer.sooner is not None:
            found.append("The interval assumes that times of two seeds differ by a tenth.")
        what = "loss" if answer.question.target == "loss" else "recall"
        change = "fell" if what == "loss" else "rose"
        line = f"The best trained {three_digits(best.curve.clock)} s ({best.epochs:.3g} epochs)"
        if answer.fall > FALLING:
            line += (
                f", and its {what} {change} by {answer.fall:.0%} in the latter half: longer"
                " training may change the order."
            )
        else:
            line += f", and its {what} had about come to rest."
        found += [line, *_noise(answer, best), *_edges(answer, best)]
        ends = {each.name: each.at_end for each in (*answer.ties, *answer.others)}
        if better := better_recall(best.at_end, ends):
            found.append(f"{better}: --target recall decides by recall.")
    if answer.undecided:
        found.append(
            f"{_count(answer.undecided, 'candidate')} left for want of time before they could be"
            " told from it."
        )
    busy = busy_sentences(answer.time_spread)
    found += [f"{each} Repeat this on a quiet machine." for each in busy]
    return found


def next_steps(answer: Answer, folder: Path, locations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what to do next: purposes and commands.

    Args:
        folder: of the race's runs.
        locations: ``--data-dir`` and ``--runs-dir`` to repeat.
    """
    times = 2.0
    if answer.best is None:
        furthest = max((each.epochs for each in answer.standings if each.has_run), default=0.0)
        times = min(max(times, JUDGED_EPOCHS / furthest if furthest else 0.0), 10.0)
    longer = advise_command(answer.question, times * answer.budget_seconds, locations)
    steps = [("To be surer, go on with this race", longer)]
    if answer.best is not None:
        config = answer.best.entrant.config
        there = {**locations, "--runs-dir": str(folder)}
        command = run_command(config, Variant.of(config), config.seed, there)
        steps.append(("To train on from where the race left it", f"{command} --resume"))
    return steps


def standings_table(answer: Answer) -> Table:
    """Return the entrants that stayed to the end as a table of at most 80 columns."""
    best, level = answer.best, answer.level
    what = "loss" if answer.question.target == "loss" else "recall"
    shown = [each for each in answer.standings if each.status in STAYED]
    has_recall = any(each.at_end is not None for each in shown)
    header: list[Column | str] = ["", *columns_of("batch", "items", "ms")]
    if level is not None:
        header += columns_of(f"to {what} {abs(level):.3g}", "its", "s")
    header += [Column("speed" if best else what), *([Column("recall@50")] if has_recall else [])]
    rows: list[list[Cell | str]] = [
        [
            Cell(each.name, "best" if each is best else "plain"),
            f"{each.contender.items or 0:,.0f}",
            three_digits(each.contender.seconds * 1e3),
            *([] if level is None else _to_level(each, level)),
            _speed(answer, each) if best else f"{abs(each.level):.4g}",
            *(["-" if each.at_end is None else each.at_end.text(RECALL)] if has_recall else []),
        ]
        for each in shown
    ]
    base = answer.question.base
    losses = either([find_loss(name).title for name in answer.question.losses])
    title = f"{base.dataset}, {find_encoder(base.encoder).title}, {losses}"
    notes = ["its: iterations, of the first seed, as s"] if level is not None else []
    notes += ["speed: 1 for the first row, larger is faster"] if best else []
    if best and any(each.learned_at is None and _speed(answer, each) == "-" for each in shown):
        notes.append("speed -: not clearly better than chance on validation items")
    if has_recall:
        when = epochs_of([each.at_end for each in shown])
        notes.append(f"recall@50: on test items, at the end ({when})")
        notes += [f"by chance it is {answer.chance:.3f}", ERROR]
        notes += [CERTAIN] if answer.chance >= 1 else []
    return Table(title, header, rows, notes)


def left_table(answer: Answer) -> Table:
    """Return the entrants that left the race, with the reasons, and what did not enter it."""
    rows = [
        [
            each.name,
            _expected(each) if answer.best and each.status == "left" else "-",
            each.entrant.reason.partition(". ")[0] or each.status,
        ]
        for each in answer.standings
        if each.status not in STAYED
    ]
    notes = []
    if any(row[1] != "-" for row in rows):
        notes.append("expected: times slower than the recommended one, by cost and negatives;")
        notes.append("of a rate that a smaller one overtook, by its last gains")
    if count := len(answer.state.left_out):
        notes.append(f"Never entered: {count} that cannot win or work; --dry-run says why.")
    header: list[Column | str] = ["", Column("expected"), Column("reason", "left", wraps=True)]
    return Table("Left the race", header, rows, notes)


def rows(answer: Answer) -> list[dict[str, Any]]:
    """Return a row of :data:`ncfbench.storage.schemas.ADVICE` for each entrant."""
    return [_row(answer, each) for each in answer.standings]


def as_json(answer: Answer, folder: Path, locations: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer as a JSON object; see docs/advice.md.

    Args:
        folder, locations: as for :func:`next_steps`.
    """
    steps = next_steps(answer, folder, locations)
    question, state = answer.question, answer.state
    best = answer.best
    return {
        "format": FORMAT,
        "dataset": question.base.dataset,
        "data_fingerprint": state.fingerprint,
        "encoder": question.base.encoder,
        "losses": list(question.losses),
        "target": question.target,
        "budget_seconds": answer.budget_seconds,
        "spent_seconds": state.spent_seconds,
        "is_over": state.is_over,
        "sample_users": answer.sample_users,
        "recommended": best and best.name,
        "flags": best and flags(best.entrant.config),
        "baseline": answer.baseline and answer.baseline.name,
        "times_sooner": answer.sooner and asdict(answer.sooner),
        "times_sooner_at_least": answer.sooner_at_least,
        "level": answer.level,
        "tied": [each.name for each in answer.ties],
        "headline": headline(answer),
        "trust": [*state.notes, *caveats(answer)],
        "next": [{"purpose": why, "command": what} for why, what in steps],
        "entrants": rows(answer),
        "left_out": [{"what": each.what, "reason": each.reason} for each in state.left_out],
        "folder": str(folder),
    }


def read_answer(folder: Path) -> dict[str, Any]:
    """Return the last answer of the race in a folder.

    Raises:
        DataError: it is damaged.
    """
    path = folder / ANSWER
    found = tables.read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{path} is damaged or of another version: repeat the race's command.")
    return found


def advise_command(question: Question, budget_seconds: float, locations: Mapping[str, str]) -> str:
    """Return the command line that asks a question."""
    base, usual = question.base, Question({})
    words = ["ncfbench", "advise", base.dataset, "--encoder", base.encoder]
    if question.target != usual.target:
        words += ["--target", question.target]
    if question.losses != question.usual_losses:
        words += ["--loss", ",".join(question.losses)]
    for name in ("samplers", "batch_sizes", "stratum_sizes", "negatives", "learning_rates"):
        value = getattr(question, name)
        if value != getattr(usual, name):
            flag = "--" + name.replace("_", "-")
            words += [flag, ",".join(map(str, value))]
    if question.seeds != usual.seeds:
        words += ["--seeds", str(question.seeds)]
    for name, value in question.fixed.items():
        if name not in ("dataset", "encoder"):
            words += ["--set", f"{name}={value}"]
    minutes = max(round(budget_seconds / 60), 1)
    return shlex.join([*words, "--budget", f"{minutes}m", *chain.from_iterable(locations.items())])


def _no_choice(answer: Answer) -> str:
    found = [each for each in answer.standings if each.status in STAYED]
    if not found:
        return "No choice yet: no candidate has trained. Give a larger --budget."
    reason = f"the recall@50 of none of {len(found)} is clearly above chance ({answer.chance:.3f})"
    judged = [each.judged_at for each in found if each.at_end is not None]
    if not judged:
        reason = f"none of {len(found)} has trained an epoch, after which recall is measured"
    after = three_digits(min(judged or [each.curve.clock for each in found]))
    return (
        f"No choice can be justified: after {after} s of training each, {reason}. Give a larger"
        " --budget."
    )


def _ratio_sentences(answer: Answer, best: Standing, baseline: Standing) -> list[str]:
    if answer.sooner_at_least is not None:
        return [
            f"The best baseline, {baseline.name}, is not clearly better than chance after"
            f" {three_digits(baseline.judged_at)} s; this arm was after"
            f" {three_digits(best.learned_at or 0.0)} s: more than"
            f" {answer.sooner_at_least:.2g} times sooner."
        ]
    if baseline.learned_at is None:
        return [
            f"The best baseline, {baseline.name}, trained {baseline.epochs:.2g} epochs in"
            f" {three_digits(baseline.curve.clock)} s, too few to judge its recall: no ratio."
        ]
    if answer.sooner is None or answer.level is None:
        return [f"It has no level in common with the best baseline, {baseline.name}."]
    ratio = answer.sooner
    what = "loss" if answer.question.target == "loss" else "validation recall@50"
    found = [each.to_level(answer.level) for each in (best, baseline)]
    own, theirs = (f"{three_digits(each[1])} s" for each in found if each is not None)
    return [
        f"It reaches a {what} of {abs(answer.level):.3g} in {own}; the best baseline,"
        f" {baseline.name}, takes {theirs}: {three_digits(ratio.value)} times as long (95 %:"
        f" {ratio.lower:.2g} to {ratio.upper:.2g}, {_count(ratio.seeds, 'seed')})."
    ]


def _why(answer: Answer, best: Standing, baseline: Standing) -> str:
    costs = []
    for each in (best, baseline):
        reached = None if answer.level is None else each.to_level(answer.level)
        costs.append((each.contender.items, each.contender.seconds, reached and reached[0]))
    return cost_sentence(*costs)


def _noise(answer: Answer, best: Standing) -> Iterable[str]:
    """Yield how well validation items can tell arms apart, if they decide."""
    curve = next(iter(best.contender.runs.values())).curve
    errors = [row["validation_recall_at_50_error"] for row in curve]
    if answer.question.target == "recall" and errors and errors[-1] is not None:
        yield (
            f"Recall on validation items, which decided, has a standard error of {errors[-1]:.3f}."
        )


def _edges(answer: Answer, best: Standing) -> Iterable[str]:
    """Yield the tried settings of which the best one has the largest or smallest value."""
    own = best.entrant.shape
    for name, value in (
        ("learning_rate", best.entrant.config.learning_rate),
        ("batch_size", own.batch_size),
        ("stratum_size", own.stratum_size),
    ):
        tried = {
            each.entrant.config.to_dict()[name]
            for each in answer.standings
            if each.has_run
            and (each.entrant.shape.loss, each.entrant.shape.sampler) == (own.loss, own.sampler)
        }
        if value is not None and len(tried) > 1 and value in (min(tried), max(tried)):
            end = "largest" if value == max(tried) else "smallest"
            yield (
                f"Its {name} is the {end} that was tried: a {end[:-3]}er one may be better"
                f" (--{name.replace('_', '-')}s)."
            )


def _row(answer: Answer, each: Standing) -> dict[str, Any]:
    shape, config = each.entrant.shape, each.entrant.config
    ratio = each.behind
    has_run = each.has_run
    records = list(each.contender.runs.values())
    summary = records[0].summary if records else {}
    recalls = each.at_end.values if has_run and each.at_end else {}
    return {
        **{name: getattr(config, name) for name in ("dataset", "encoder")},
        "entrant": each.name,
        "target": answer.question.target,
        **{
            name: getattr(shape, name)
            for name in ("loss", "sampler", "batch_size", "stratum_size", "negatives")
        },
        **{name: getattr(config, name) for name in ("learning_rate", "probe_every")},
        "is_baseline": shape.is_baseline,
        "status": each.status,
        "reason": each.entrant.reason or None,
        "seeds": len(each.runs.curves),
        "clock_seconds": each.curve.clock if has_run else None,
        "learned_seconds": each.learned_at,
        "iterations": summary.get("iterations"),
        "epochs": summary.get("epochs"),
        "level": each.level if has_run else None,
        "predicted_iteration_seconds": each.entrant.iteration_seconds,
        "full_iteration_seconds": each.contender.seconds if has_run else None,
        "item_slots": each.contender.items if has_run else None,
        "times_slower": ratio and ratio.value,
        "times_slower_lower": ratio and ratio.lower,
        "times_slower_upper": ratio and ratio.upper,
        "times_slower_expected": each.expected
        if answer.best and has_run and math.isfinite(each.expected)
        else None,
        "test_recall_at_50": recalls.get(RECALL),
        "test_recall_at_50_error": recalls.get(f"{RECALL}_error"),
        "runs": [record.name for record in records],
        "config": json.dumps(config.to_dict(), sort_keys=True),
        "data_fingerprint": answer.state.fingerprint,
    }


def _to_level(each: Standing, level: float) -> tuple[str, str]:
    reached = each.to_level(level)
    return (f"{reached[0]:,.0f}", three_digits(reached[1])) if reached else ("-", "-")


def _speed(answer: Answer, each: Standing) -> str:
    """Return an entrant's speed over the best one's; a bound or nothing while it is at chance."""
    if each is answer.best:
        return "1"
    if each is answer.baseline and answer.sooner_at_least is not None:
        return f"< {1 / answer.sooner_at_least:.2g}"
    if each.behind is None or each.learned_at is None:
        return "-"
    return f"{1 / each.behind.value:.2g}"


def _expected(each: Standing) -> str:
    return three_digits(each.expected) if math.isfinite(each.expected) else "never"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
