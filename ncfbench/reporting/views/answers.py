"""Answers as a paragraph and a table of 80 columns; quality and the best recall at every time."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ncfbench.catalog import find_encoder, find_sampler
from ncfbench.reporting.answers import Answer, Standing
from ncfbench.reporting.commands import flags
from ncfbench.reporting.frontier import frontier
from ncfbench.reporting.quality import COLD_USERS, ERROR, RECALL, epochs_of
from ncfbench.reporting.table import Cell, Column, Table, three_digits
from ncfbench.reporting.views.sentences import (
    better_recall,
    busy_sentences,
    cost_sentence,
    recall_sentence,
    tied_sentence,
)
from ncfbench.runs.quality import CERTAIN
from ncfbench.timing.ties import ONE_SEED_FACTOR

STATUS_WORDS = {"never": "not reached", "diverged": "diverged", "no target": "-"}


def answer_tables(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[Table]:
    """Return a table for each answer, its paragraph above it.

    Args:
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    return [_answer_table(each, locations) for each in answers]


def ranking_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return all arms of each answer whose own table leaves some out."""
    return [
        Table(
            f"All arms, the soonest first: {each.subject}",
            _header(each),
            _rows(each, each.standings),
            _recall_notes(each, each.standings),
            name=each.named("arms"),
        )
        for each in answers
        if len(each.standings) > len(each.main)
    ]


def quality_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return the quality of the main arms of each answer at each moment, with its epoch."""
    tables = []
    for answer in answers:
        measures = {RECALL: "recall@50", "ndcg_at_50": "NDCG@50", "mrr": "MRR"}
        found = [quality for standing in answer.main for quality in standing.quality]
        if any(quality.values[COLD_USERS] is not None for quality in found):
            measures[COLD_USERS] = "cold users"
        rows: list[list[Cell | str]] = [
            [
                standing.name,
                ", ".join(quality.moments),
                f"{quality.epoch:.3g}",
                *(quality.text(measure) for measure in measures),
            ]
            for standing in answer.main
            for quality in standing.quality
        ]
        if not rows:
            continue
        chances = {
            heading: found[0].values.get(f"{measure}_chance")
            for measure, heading in measures.items()
        }
        by_chance = [f"{name} {each:.3f}" for name, each in chances.items() if each is not None]
        notes = [f"By chance: {', '.join(by_chance)}."] if by_chance else []
        notes.append(f"{ERROR}; that of NDCG, MRR and cold users has no part of the items.")
        rules = {
            str(run.summary.get("reported_by") or "validation, in an older version")
            for standing in answer.main
            for run in standing.contender.runs.values()
        }
        notes.append(f"How reported epochs were chosen: {'; '.join(sorted(rules))}.")
        if answer.target is not None:
            notes.append("target: the first evaluation after the target loss was reached.")
        header = [Column("arm", "left", wraps=True), Column("at", "left"), Column("epoch")]
        if COLD_USERS in measures:
            notes.append("Cold users: recall@50 of those without a training link.")
        tables.append(
            Table(
                f"Quality on cold test items: {answer.subject}",
                [*header, *map(Column, measures.values())],
                rows,
                notes,
                grouped=1,
                name=answer.named("quality"),
            )
        )
    return tables


def frontier_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return which arm has the best recall after how much training, for each answer."""
    tables = []
    for answer in answers:
        steps = frontier(answer)
        if len(answer.standings) < 2 or not steps:
            continue
        rows = [
            [
                each.name,
                three_digits(each.since),
                f"{each.recall_since:.3f}",
                f"{each.recall_until:.3f}",
            ]
            for each in steps
        ]
        header = [
            Column("arm", "left", wraps=True),
            Column("from s"),
            Column("recall@50 then"),
            Column("at its last gain"),
        ]
        title = f"Best recall at every training time: {answer.subject}"
        tables.append(Table(title, header, rows, name=answer.named("frontier")))
    return tables


def headline(answer: Answer) -> str:
    """Return the answer in one paragraph."""
    best, baseline = answer.best, answer.baseline
    if best is None or baseline is None or answer.target is None:
        return " ".join(answer.reasons)
    parts = [f"Use {flags(best.contender.config)}."]
    if best is baseline:
        parts.append(
            "It is the baseline itself, at its best: no other arm comes down to its loss sooner."
        )
    else:
        parts += [_ratio(answer, best, baseline), _easier(answer), _why(best, baseline)]
    chance = best.at_end.values.get(f"{RECALL}_chance") if best.at_end else None
    other = None if baseline is best else baseline.at_end
    parts += [recall_sentence(best.at_end, other, chance)]
    parts += [tied_sentence([each.name for each in answer.ties])]
    return " ".join(filter(None, parts))


def trust(answer: Answer, locations: Mapping[str, str]) -> list[str]:
    """Return what speaks against an answer, a sentence each, and the command that raises trust."""
    own = [each.contender.config for each in answer.standings if each.contender.is_baseline]
    if answer.best is None:
        is_hint = len(answer.standings) == 1 or not own
        return _race("To let arms race:", answer, locations) if is_hint else []
    found = list(answer.reasons)
    if not answer.is_tie_known:
        found.append(
            "Some arm has one seed: times that differ by less than a factor of"
            f" {ONE_SEED_FACTOR:.1f} cannot be told apart."
        )
    if answer.is_still_falling:
        found.append("The loss of the best arm was still falling: train longer.")
    found += busy_sentences(answer.spread)
    if answer.rounds is not None:
        found.append(
            f"Iterations are as long as in a profile of {answer.rounds} rounds beside the runs:"
            " their own times were disturbed, of several machines, or not taken in turns."
        )
    if not answer.is_interleaved:
        found.append("Some runs did not take turns, so a change of the machine's speed counts.")
    ends = {each.name: each.at_end for each in answer.standings}
    if better := better_recall(answer.best.at_end, ends):
        found.append(f"{better}: see --table {answer.named('frontier')}.")
    if len({(each.batch_size, each.learning_rate) for each in own}) == 1:
        found += _race(
            "The baseline has one batch size and one learning rate; others may suit it better. To"
            " try them:",
            answer,
            locations,
        )
    return found


def as_rows(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the answers as plain objects, for JSON; times in seconds."""
    return [
        {
            "dataset": answer.config.dataset,
            "data_fingerprint": answer.data_fingerprint,
            "encoder": answer.config.encoder,
            "loss": answer.config.loss,
            "settings": answer.settings,
            "headline": headline(answer),
            "trust": trust(answer, locations),
            "target": answer.target,
            "best": answer.best and answer.best.name,
            "flags": answer.best and flags(answer.best.contender.config),
            "baseline": answer.baseline and answer.baseline.name,
            "easier_targets": [{"share": share, **asdict(each)} for share, each in answer.easier],
            "profile_rounds": answer.rounds,
            "arms": [_as_row(each) for each in answer.standings],
            "frontier": [asdict(step) for step in frontier(answer)],
        }
        for answer in answers
    ]


def _answer_table(answer: Answer, locations: Mapping[str, str]) -> Table:
    notes = [*trust(answer, locations)]
    if any(each.sooner and each.sooner.total_at_most for each in answer.main):
        notes.append(
            "<: some seed never came down to that loss, so the ratio is at most this; (seeds that"
            " did)."
        )
    notes += _recall_notes(answer, answer.main)
    if len(answer.standings) > len(answer.main):
        notes.append(
            f"{len(answer.standings) - len(answer.main)} further arms: --table"
            f" {answer.named('arms')}"
        )
    return Table(
        f"Which sampler trains soonest: {answer.subject}",
        _header(answer),
        _rows(answer, answer.main),
        notes,
        lead=headline(answer),
        name=answer.named("answer"),
    )


def _header(answer: Answer) -> list[Column]:
    target = "to the target" if answer.target is None else f"to loss {answer.target:.4g}"
    return [
        Column("arm", "left", wraps=True),
        Column("items", group="a batch"),
        Column("ms", group="a batch"),
        Column("its", group=target),
        Column("s", group=target),
        Column("times sooner", group=target),
        Column("recall@50"),
    ]


def _recall_notes(answer: Answer, standings: Sequence[Standing]) -> list[str]:
    """Return what recall@50 in a table is; nothing where none was measured."""
    found = [each.at_end for each in standings]
    when = epochs_of(found)
    note = f"its: iterations. recall@50 is that at the end ({when}). {_chance(answer)}"
    has_errors = any(each is not None and each.error(RECALL) is not None for each in found)
    return [note.rstrip(), *([f"{ERROR}."] if has_errors else [])] if any(found) else []


def _rows(answer: Answer, standings: Sequence[Standing]) -> list[list[Cell | str]]:
    return [
        [
            Cell(each.name, "best" if each is answer.best else "plain"),
            "-" if each.contender.items is None else f"{each.contender.items:,.0f}",
            three_digits(each.contender.seconds * 1e3) if each.contender.is_timed else "-",
            "-" if each.iterations is None else f"{each.iterations:,.0f}",
            "-" if each.seconds is None else three_digits(each.seconds),
            _sooner(each),
            "-" if each.at_end is None else each.at_end.text(RECALL),
        ]
        for each in standings
    ]


def _sooner(standing: Standing) -> str | Cell:
    found = standing.sooner
    if found is None or found.total is None:
        if found is not None and found.total_at_most is not None:
            return Cell(f"< {found.total_at_most:.2f} ({found.reached}/{found.seeds})", "muted")
        return Cell(STATUS_WORDS.get(standing.status, "-"), "muted")
    total = found.total
    text = f"{total.value:.2f}"
    if total.lower is not None and total.upper is not None and total.lower < total.upper:
        text += f" [{total.lower:.2f}, {total.upper:.2f}]"
    return Cell(text, "best" if standing.status == "best" else "plain")


def _ratio(answer: Answer, best: Standing, baseline: Standing) -> str:
    total = best.sooner.total if best.sooner else None
    if total is None:
        return ""
    seeds = f"{total.seeds} seed{'s' * (total.seeds > 1)}"
    interval = ""
    if total.lower is not None and total.upper is not None:
        interval = f"95 %: {total.lower:.3g} to {total.upper:.3g}, "
    which = (
        "at its best, " if sum(each.contender.is_baseline for each in answer.standings) > 1 else ""
    )
    times = [three_digits(each.seconds or 0.0) for each in (best, baseline)]
    return (
        f"It comes down to the smallest loss of {baseline.name} ({which}{answer.target:.4g})"
        f" {three_digits(total.value)} times sooner ({interval}{seeds}): in {times[0]} s instead of"
        f" {times[1]}."
    )


def _easier(answer: Answer) -> str:
    """Return how much sooner the best arm is at easier targets; nothing where that is unknown."""
    names = {0.25: "a quarter", 0.5: "half"}
    found = [f"{each.value:.3g} to that after {names[share]}" for share, each in answer.easier]
    if not found or answer.baseline is None:
        return ""
    found[0] = found[0].replace(
        "to that after", f"times sooner to the loss that {answer.baseline.name} has after"
    )
    return f"At easier targets it is {', and '.join(found)} of those iterations."


def _why(best: Standing, baseline: Standing) -> str:
    own, theirs = (
        (each.contender.items, each.contender.seconds, each.iterations) for each in (best, baseline)
    )
    return cost_sentence(own, theirs)


def _race(purpose: str, answer: Answer, locations: Mapping[str, str]) -> list[str]:
    """Return the command of a race and its purpose; nothing where no measure can decide one."""
    config = answer.config
    has_recall = find_encoder(config.encoder).scores_cold_items
    if config.objective_settings and not has_recall:
        return []
    words = ["ncfbench", "advise", config.dataset, "--encoder", config.encoder]
    words += ["--loss", config.loss]
    if config.objective_settings:  # losses of other objectives do not compare
        words += ["--target", "recall"]
    words += [word for each in answer.settings.split(", ") if each for word in ("--set", each)]
    return [purpose, shlex.join([*words, *(word for pair in locations.items() for word in pair)])]


def _chance(answer: Answer) -> str:
    """Return the chance level of recall, and what follows where it is 1."""
    for each in answer.main:
        chance = each.at_end.values.get(f"{RECALL}_chance") if each.at_end else None
        if chance is not None and chance >= 1:
            return f"{CERTAIN[0].upper()}{CERTAIN[1:]}"
        if chance is not None:
            return f"By chance it is {chance:.3f}."
    return ""


def _as_row(standing: Standing) -> dict[str, Any]:
    total = standing.sooner.total if standing.sooner else None
    contender = standing.contender
    return {
        "arm": standing.name,
        "sampler": contender.config.sampler,
        "title": find_sampler(contender.config.sampler).title,
        "flags": flags(contender.config),
        "status": standing.status,
        "is_baseline": contender.is_baseline,
        "seeds": len(contender.runs),
        "item_slots": contender.items,
        "full_iteration_seconds": contender.seconds if contender.is_timed else None,
        "iterations_to_target": standing.iterations,
        "seconds_to_target": standing.seconds,
        "times_sooner": total and total.value,
        "times_sooner_lower": total and total.lower,
        "times_sooner_upper": total and total.upper,
        "times_sooner_at_most": standing.sooner and standing.sooner.total_at_most,
        "quality": [asdict(each) for each in standing.quality],
        "runs": [run.name for run in contender.runs.values()],
    }
