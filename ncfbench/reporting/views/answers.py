"""Answers as a paragraph, tables of 100 columns, and JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from ncfbench.reporting.answers import Answer, Caveat, reads, worth
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.blends import BlendResult
from ncfbench.reporting.floors import FloorResult, Standing, arm_beside, standing
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.frames import grouped, interval_columns
from ncfbench.reporting.labels import flags, seeds_label
from ncfbench.reporting.quality import (
    COLD_USERS,
    EPOCH_NOTE,
    ERROR,
    KNOWN_ITEMS,
    NEW_ITEMS,
    RECALL,
    Quality,
)
from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.views.deploy import deployment
from ncfbench.reporting.views.sentences import (
    busy_caveats,
    features_sentence,
    floor_caveats,
    recall_sentence,
    tied_sentence,
)
from ncfbench.reporting.worth import floors_sentences
from ncfbench.runs.folder import are_interleaved
from ncfbench.runs.quality import CERTAIN
from ncfbench.timing.ranking import SHARE

AnswerRow: TypeAlias = Arm | FloorResult | BlendResult
NUMBERS = ("learning_rate", "batch_size", "stratum_size")
"""Settings of which an answer says that its value is the largest or the smallest that was tried."""
BY_TEST = "Test links decided: some runs have no recall of validation links."
NOT_INTERLEAVED = "Some runs did not take turns, so a change of the machine's speed counts."
FLOORS_NOTE = "no training: s is for content, fit and the choice of a penalty."
PARTS = {COLD_USERS: "users without links", NEW_ITEMS: "new items", KNOWN_ITEMS: "known items"}
MEASURES = {
    RECALL: "recall@50",
    "recall_at_10": "recall@10",
    "ndcg_at_50": "NDCG@50",
    "mrr": "MRR",
    **PARTS,
}
"""Headings of the measures of an arm."""
NO_CHOICE = "No choice can be justified: no arm ranks clearly better than chance."


def headline(answer: Answer, no_choice: str = NO_CHOICE) -> str:
    """Return the answer in one paragraph.

    Args:
        no_choice: why no arm is recommended, where that is so.
    """
    falls = answer.is_still_falling
    against, beside = floors_sentences(
        answer.floors, answer.arms, answer.best, is_falling=falls, split=answer.judged_by
    )
    first, best = [no_choice, against], answer.best
    if best is not None:
        use = flags(best.config, of_model=True)
        use = f"{against} If you train, use {use}." if against else f"Use {use}."
        recall = recall_sentence(best.reported, answer.chance)
        first = [use, _reach(answer, best), recall, tied_sentence(answer.ties)]
    return " ".join(filter(None, [*first, beside, features_sentence(answer.feature_seconds)]))


def caveats(answer: Answer) -> list[Caveat]:
    """Return what an answer about finished runs rests on, and what speaks against it."""
    best, found = answer.best, list(answer.reasons)
    if best is None:
        return found + floor_caveats(answer)
    if {*best.deciding} != {seed for arm in answer.arms for seed in arm.runs}:
        text = f"Decided by {seeds_label(best.deciding)}: not all arms have the others."
        found.append(Caveat("few_seeds", text))
    if len(answer.arms) == 1:
        found.append(Caveat("few_arms", "No other arm was tried."))
    found += [Caveat("decided_by_test", BY_TEST)] if answer.split == "test" else []
    found += best_caveats(answer, best)
    if not all(are_interleaved(best.first, arm.first) for arm in answer.main if arm is not best):
        found.append(Caveat("not_interleaved", NOT_INTERLEAVED))
    return found + floor_caveats(answer) + busy_caveats(answer.spread)


def best_caveats(answer: Answer, best: Arm) -> list[Caveat]:
    """Return whether the best arm still learns or has one seed, and which of its numbers are at an
    end of those that were tried.
    """
    found = []
    if answer.is_still_falling:
        epochs, seconds = best.first.summary["epochs"], three_digits(best.curve.clock)
        text = f"The best trained {seconds} s ({epochs:.3g} epochs), and its recall rose by"
        text += f" {answer.fall:.0%} in the latter half: longer training may change the order."
        found = [Caveat("undertrained", text)]
    if len(best.deciding) == 1:
        text = "One seed: errors are of users and items alone, and intervals of times assume that"
        found.append(Caveat("few_seeds", f"{text} {best.measured.spread.text}."))
    return found + _edges(answer, best)


def worth_table(answer: Answer, lead: str = "", notes: Sequence[str] = ()) -> Table:
    """Return the recommended arm, the best ones that differ from it in each choice, the floors and
    blends. An arm that is the best one for several choices has one row. All arms where none is
    recommended.

    Args:
        notes: more sentences below it.
    """
    rows: list[tuple[str, AnswerRow]] = [(arm.name, arm) for arm in answer.arms]
    if answer.best is not None:
        instead = grouped(worth(answer), lambda row: row.arm.name)
        rows = [("the recommended", answer.best)]
        for own in instead.values():
            choices = (f"{row.choice} {row.value}".replace("_", " ") for row in own)
            rows.append((", ".join(choices), own[0].arm))
    rows += [(f"no training: {floor.row['floor']}", floor) for floor in answer.floors]
    rows += [(f"both: {blend.floor.row['floor']} and it", blend) for blend in answer.blends]
    below = []
    if answer.best is not None:
        below = [
            f"{_level(answer)}: until a {answer.metric} of {answer.split} links that is {SHARE:g}"
            " of the best; left: it left the race before.",
            "with: the best arm with another value of each choice; where it is the best of several,"
            " all stand in one row.",
        ]
    by_chance = {f"{answer.split} {answer.metric}": answer.split_chance}
    by_chance |= {"test recall@50": answer.chance}
    known = [f"{name} {chance:.3f}" for name, chance in by_chance.items() if chance is not None]
    below += [f"By chance: {', '.join(known)}."] if known else []
    if any(arm.reported for arm in answer.main):
        below.append(f"{EPOCH_NOTE}. {ERROR}.")
    below += [FLOORS_NOTE] if answer.floors else []
    if (answer.chance or 0.0) >= 1:
        below.append(f"{CERTAIN[0].upper()}{CERTAIN[1:]}")
    cols = [Col("with", 0, wraps=True), *_columns(answer)]
    name = answer.named("answer")
    return Table.of(answer.title, cols, rows, [*below, *notes], name=name, lead=lead)


def answer_tables(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[Table]:
    """Return the table of each answer about finished runs, above it what to deploy and its
    paragraph.

    Args:
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    tables = []
    for answer in answers:
        reasons = caveats(answer)
        notes = [caveat.sentence for caveat in reasons]
        if len(answer.arms) == 1:
            words = ["ncfbench", "advise", answer.config.dataset, *chain(*locations.items())]
            notes += ["To let arms race for the best ranking:", shlex.join(words)]
        found = deployment(answer, reasons, locations)
        lead = "\n".join([*(found.lines if found else ()), headline(answer)])
        tables.append(worth_table(answer, lead, notes))
    return tables


def arms_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return all arms of each answer whose own table leaves some out."""
    return [
        Table.of(
            f"All arms: {answer.config.dataset}, {answer.metric}",
            [Col("arm", lambda row: row[1].name, wraps=True), *_columns(answer)],
            [(arm.name, arm) for arm in answer.arms],
            [f"{EPOCH_NOTE}. {ERROR}."],
            name=answer.named("arms"),
        )
        for answer in answers
        if len(answer.arms) > len(answer.main)
    ]


def quality_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return all measures of the main arms of each answer, at the epoch that they report."""
    return [_quality_table(answer, arms) for answer in answers if (arms := _evaluated(answer))]


def _evaluated(answer: Answer) -> list[tuple[str, Quality]]:
    rows: list[Arm | BlendResult] = [*answer.main, *answer.blends]
    return [(row.name, row.reported) for row in rows if row.reported]


def _quality_table(answer: Answer, arms: Sequence[tuple[str, Quality]]) -> Table:
    measures = {
        name: heading
        for name, heading in MEASURES.items()
        if any(quality.values[name] is not None for _, quality in arms)
    }
    cols = [Col("arm", 0, wraps=True), Col("epoch", lambda row: row[1].epoch, ".3g")]
    cols += [Col(heading, partial(_measure, name)) for name, heading in measures.items()]
    chances = [
        f"{heading} {chance:.3f}"
        for name, heading in measures.items()
        if (chance := arms[0][1].values.get(f"{name}_chance")) is not None
    ]
    notes = [f"By chance: {', '.join(chances)}."] if chances else []
    notes.append(f"{ERROR}; only that of recall@50 has a part of the items.")
    if parts := [heading for name, heading in PARTS.items() if name in measures]:
        notes.append(f"{', '.join(parts)}: recall@50 of these alone.".capitalize())
    kind = "test links" if KNOWN_ITEMS in measures else "cold test items"
    title = f"Quality on {kind}: {answer.config.dataset}"
    return Table.of(title, cols, arms, notes, name=answer.named("quality"))


def _measure(name: str, row: tuple[str, Quality]) -> str:
    return row[1].text(name)


def as_rows(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return answers about finished runs as plain objects, for JSON; times in seconds.

    Args:
        locations: as for :func:`answer_tables`.
    """
    return [
        {
            "dataset": answer.config.dataset,
            "data_fingerprint": answer.data_fingerprint,
            "deploy": found and found.facts,
            "headline": headline(answer),
            "caveats": [caveat._asdict() for caveat in reasons],
            **facts(answer),
            "arms": [
                {
                    "arm": arm.name,
                    "flags": flags(arm.config, of_model=True),
                    "iterations_to_level": arm.iterations,
                    "seconds_to_level": arm.total_seconds,
                    "reported_epoch": arm.epoch if arm.has_run else None,
                    **arm_facts(arm),
                }
                for arm in answer.arms
            ],
        }
        for answer in answers
        for reasons in [caveats(answer)]
        for found in [deployment(answer, reasons, locations)]
    ]


def facts(answer: Answer) -> dict[str, Any]:
    """Return what JSON says of an answer about finished runs, and of that of a race."""
    best = answer.best
    return {
        "metric": answer.metric,
        "split": answer.split,
        "judged_by": answer.judged_by,
        "level": answer.target,
        "recommended": best and best.name,
        "flags": best and flags(best.config, of_model=True),
        "tied": [arm.name for arm in answer.ties],
        "feature_seconds": answer.feature_seconds,
        "floors": floor_rows(answer),
        "blends": [blend.facts for blend in answer.blends],
        "worth": [
            {
                "choice": row.choice,
                "value": row.value,
                "entrant": row.arm.name,
                "times_later": row.arm.expected if math.isfinite(row.arm.expected) else None,
                "seconds": row.arm.total_seconds,
                answer.split: -row.arm.level,
                "status": row.arm.status,
            }
            for row in worth(answer)
        ],
    }


def arm_facts(arm: Arm) -> dict[str, Any]:
    """Return what JSON says of an arm's curves."""
    has_run = arm.has_run
    recalls = arm.reported.values if has_run and arm.reported else {}
    return {
        "status": arm.status,
        "seeds": len(arm.measured.curves),
        "clock_seconds": arm.curve.clock if has_run else None,
        "learned_seconds": arm.learned_at,
        "level": arm.level if math.isfinite(arm.level) else None,
        "full_iteration_seconds": arm.iteration_seconds if has_run else None,
        "item_slots": arm.items if has_run else None,
        **interval_columns("times_slower", arm.behind),
        "test_recall_at_50": recalls.get(RECALL),
        "test_recall_at_50_error": recalls.get(f"{RECALL}_error"),
        "runs": [run.name for run in arm.runs.values()],
    }


def floor_rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the floors as plain objects, each with how the arm stands to it that the answer's
    sentence about floors is of.
    """
    split, rows = answer.judged_by, []
    arm = arm_beside(answer.arms, answer.best, split)
    own = arm and arm.quality(split)
    for floor in answer.floors:
        beside = standing(arm, floor, split) if arm else Standing("unknown")
        stands = {
            "best_arm": beside.word if arm else None,
            "passed_after_seconds": beside.seconds,
            "best_arm_ndcg_at_50": own.ndcg if own else None,
        }
        rows.append(floor.facts | stands | beside.difference)
    return rows


def _level(answer: Answer) -> str:
    return "s" if answer.target is None else f"s to {abs(answer.target):.3g}"


def _columns(answer: Answer) -> list[Col]:
    """Return the columns of rows that are a name with an arm, a floor or a blend."""
    return [
        Col(_level(answer), lambda row: _reached(row[1])),
        Col("s of training", lambda row: _trained(row[1]), three_digits),
        Col(answer.split, lambda row: _judged(answer, row[1]), ".3f"),
        Col("test recall@50", lambda row: row[1].reported and row[1].reported.text()),
        Col("epoch", lambda row: row[1].epoch, ".3g"),
    ]


def _reach(answer: Answer, best: Arm) -> str:
    seconds = best.total_seconds
    when = "at once" if seconds is None else f"in {three_digits(seconds)} s"
    clock = three_digits(best.feature_seconds + best.curve.clock)
    chance = "" if answer.split_chance is None else f" (chance: {answer.split_chance:.3f})"
    level = f"{answer.metric} {abs(answer.target or 0.0):.3g} on {answer.split} links{chance}"
    return (
        f"It reaches {level} {when} ({SHARE:g} of the best that was reached), and"
        f" {-best.level:.3g} within {clock} s."
    )


def _edges(answer: Answer, best: Arm) -> list[Caveat]:
    """Return a caveat on each number of the best arm that is at an end of those that were tried
    with its loss and sampler.
    """
    config, found = best.config, []
    alike = [
        arm.config
        for arm in answer.arms
        if arm.has_run and (arm.config.loss, arm.config.sampler) == (config.loss, config.sampler)
    ]
    for name in NUMBERS:
        value, tried = getattr(config, name), {getattr(other, name) for other in alike}
        if reads(best, name) and len(tried) > 1 and value in (min(tried), max(tried)):
            end = "largest" if value == max(tried) else "smallest"
            text = f"Its {name} is the {end} that was tried: a {end[:-3]}er one may be better."
            found.append(Caveat("edge", text))
    return found


def _reached(arm: AnswerRow) -> str:
    """Return the seconds to the level, or why there are none."""
    if arm.total_seconds is not None:
        return three_digits(arm.total_seconds)
    words = {"left": "left", "both": "-"}
    return words.get(arm.status, "never")


def _judged(answer: Answer, arm: AnswerRow) -> float | None:
    """Return the metric of the links that decide; None of a floor where that is no recall@50."""
    if isinstance(arm, Arm):
        return -arm.level
    if answer.metric != Answer.metric:
        return None
    if isinstance(arm, BlendResult):
        return arm.quality(answer.split).recall
    return arm.value(answer.split)


def _trained(arm: AnswerRow) -> float | None:
    return arm.curve.clock if isinstance(arm, Arm) else None
