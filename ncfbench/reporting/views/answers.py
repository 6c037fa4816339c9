"""Answers as a paragraph and a table of 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from ncfbench.reporting.answers import BEST, Answer, Caveat
from ncfbench.reporting.arms import ArmResult
from ncfbench.reporting.blends import BlendResult
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.formats import counted, estimate, three_digits
from ncfbench.reporting.labels import flags
from ncfbench.reporting.quality import (
    COLD_USERS,
    EPOCH_NOTE,
    ERROR,
    KNOWN_ITEMS,
    NEW_ITEMS,
    RECALL,
    Quality,
)
from ncfbench.reporting.table import Cell, Col, Style, Table
from ncfbench.reporting.views.deploy import deployment
from ncfbench.reporting.views.sentences import (
    better_recall,
    busy_caveats,
    cost_sentence,
    features_sentence,
    floor_caveats,
    one_seed_caveats,
    recall_sentence,
    tied_sentence,
)
from ncfbench.reporting.worth import floors_sentence
from ncfbench.runs.quality import CERTAIN
from ncfbench.timing.ranking import ONE_SEED_FACTOR

STATUS_WORDS = {
    "never": "not reached",
    "diverged": "diverged",
    "floor": "no training",
    "both": "both",
}
TARGET = "target"
"""Group of the columns that depend on the target; a table has its value instead."""
PARTS = {COLD_USERS: "users without links", NEW_ITEMS: "new items", KNOWN_ITEMS: "known items"}
MEASURES = {RECALL: "recall@50", "ndcg_at_50": "NDCG@50", "mrr": "MRR", **PARTS}
"""Headings of the measures of an arm."""


def _sooner(arm: ArmResult | FloorResult | BlendResult) -> Cell:
    if arm.sooner is None or arm.sooner.total is None:
        if arm.sooner is not None and (bound := arm.sooner.total_at_most) is not None:
            return Cell(f"< {bound:.2f} ({arm.sooner.reached}/{arm.sooner.seeds})", "muted")
        return Cell(STATUS_WORDS.get(arm.status, "-"), "muted")
    return Cell(estimate(".2f")(arm.sooner.total), _style(arm))


def _style(arm: ArmResult | FloorResult | BlendResult) -> Style:
    return "best" if arm.status in BEST else "plain"


COLUMNS = [
    Col("arm", "name", style=_style, wraps=True),
    Col("items", "items", ",.0f", group="a batch"),
    Col("ms", "iteration_seconds", three_digits, scale=1e3, group="a batch"),
    Col("its", "iterations", ",.0f", group=TARGET),
    Col("s", "total_seconds", three_digits, group=TARGET),
    Col("times sooner", _sooner, group=TARGET),
    Col("recall@50", lambda arm: arm.reported and arm.reported.text(RECALL)),
    Col("epoch", "epoch", ".3g"),
]
"""Columns of the table of an answer: a row is an :class:`ncfbench.reporting.arms.ArmResult`, or a
:class:`ncfbench.reporting.floors.FloorResult` below them.
"""
NOT_INTERLEAVED = "Some runs did not take turns, so a change of the machine's speed counts."
FLOORS_NOTE = "no training: s is for content, fit and the choice of a penalty."


def answer_columns(target: str) -> list[Col]:
    """Return :data:`COLUMNS` with a heading of the target."""
    return [replace(col, group=target) if col.group == TARGET else col for col in COLUMNS]


def answer_tables(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[Table]:
    """Return a table for each answer, its paragraph above it.

    Args:
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    firsts = {answer.data_fingerprint: answer for answer in reversed(answers)}.values()
    return [
        _answer_table(answer, locations, is_first=any(answer is first for first in firsts))
        for answer in answers
    ]


def ranking_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return all arms of each answer whose own table leaves some out."""
    return [
        Table.of(
            f"All arms, the soonest first: {answer.subject}",
            answer_columns(_target(answer)),
            answer.arms,
            _recall_notes(answer, answer.arms),
            name=answer.named("arms"),
        )
        for answer in answers
        if len(answer.arms) > len(answer.main)
    ]


def quality_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return all measures of the main arms of each answer, at the epoch that they report."""
    return [_quality_table(answer, arms) for answer in answers if (arms := _evaluated(answer))]


def _evaluated(answer: Answer) -> list[tuple[str, Quality]]:
    rows: list[ArmResult | BlendResult] = [*answer.main, *answer.blends]
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
    title = f"Quality on {kind}: {answer.subject}"
    return Table.of(title, cols, arms, notes, name=answer.named("quality"))


def _measure(name: str, row: tuple[str, Quality]) -> str:
    return row[1].text(name)


def headline(answer: Answer) -> str:
    """Return the answer in one paragraph."""
    best, baseline = answer.best, answer.baseline
    if best is None or baseline is None or answer.target is None:
        return paragraph(answer, [caveat.sentence for caveat in answer.reasons])
    parts = [f"Use {flags(best.config)}."]
    if best is baseline:
        parts.append(
            "It is the baseline itself, at its best: no other arm comes down to its loss sooner."
        )
    else:
        parts += [_ratio(answer, best, baseline), _easier(answer, baseline)]
        parts.append(cost_sentence(best, baseline))
    chance = best.reported.values.get(f"{RECALL}_chance") if best.reported else None
    return paragraph(answer, parts, None if baseline is best else baseline, chance)


def paragraph(
    answer: Answer,
    first: Sequence[str],
    baseline: ArmResult | None = None,
    chance: float | None = None,
    floors: str | None = None,
) -> str:
    """Return some sentences, and how the best arm ranks, beside a baseline, its ties and floors.

    Args:
        floors: the sentence on these; by default :func:`ncfbench.reporting.worth.floors_sentence`.
    """
    own = answer.best.reported if answer.best else None
    parts = [*first, recall_sentence(own, baseline.reported if baseline else None, chance)]
    parts.append(tied_sentence(answer.ties))
    if floors is None:
        falls = answer.is_still_falling
        floors = floors_sentence(answer.floors, answer.arms, answer.best, is_falling=falls)
    return " ".join(filter(None, [*parts, floors, features_sentence(answer.feature_seconds)]))


def caveats(answer: Answer) -> list[Caveat]:
    """Return what speaks against an answer, or why there is none."""
    found = list(answer.reasons)
    if answer.best is None:
        return found + floor_caveats(answer)
    of_one_seed = [caveat.sentence for caveat in one_seed_caveats(answer)]
    if not answer.is_tie_known:
        text = (
            "Some arm has one seed: times that differ by less than a factor of"
            f" {ONE_SEED_FACTOR:.1f} cannot be told apart."
        )
        of_one_seed.insert(0, text)
    found += [Caveat("one_seed", " ".join(of_one_seed))] if of_one_seed else []
    if answer.is_still_falling:
        text = "The loss of the best arm was still falling: train longer."
        found.append(Caveat("still_falling", text))
    found += busy_caveats(answer.spread) + floor_caveats(answer)
    if answer.rounds is not None:
        count = sum(arm.profile_ratio is not None for arm in answer.arms)
        of = f" of {count} of {len(answer.arms)} arms" if count < len(answer.arms) else ""
        text = (
            f"Iterations{of} are as long as in a profile of {answer.rounds} rounds beside the runs:"
            " their own times were disturbed, of several machines, or not taken in turns."
        )
        found.append(Caveat("profile_times", text))
    if not answer.is_interleaved:
        found.append(Caveat("not_interleaved", NOT_INTERLEAVED))
    if better := better_recall(answer.best, answer.arms):
        found.append(Caveat("better_recall", f"{better}."))
    return found


def trust(answer: Answer, locations: Mapping[str, str]) -> list[str]:
    """Return what speaks against an answer, a sentence each; of too few arms, how to race more."""
    baselines = [arm.config for arm in answer.arms if arm.is_baseline]
    if answer.best is None:
        found = [caveat.sentence for caveat in floor_caveats(answer)]
        if len(answer.arms) == 1 or not baselines:
            words = ["ncfbench", "advise", answer.config.dataset, *chain(*locations.items())]
            found += ["To let arms race for the best ranking:", shlex.join(words)]
        return found
    sentences = [caveat.sentence for caveat in caveats(answer)]
    if len({(config.batch_size, config.learning_rate) for config in baselines}) == 1:
        sentences.append(
            "The baseline has one batch size and one learning rate; others may suit it better."
        )
    return sentences


def _answer_table(answer: Answer, locations: Mapping[str, str], *, is_first: bool) -> Table:
    notes, main = trust(answer, locations), answer.main
    if any(arm.sooner and arm.sooner.total_at_most for arm in main):
        notes.append(
            "<: some seed never came down to that loss, so the ratio is at most this; (seeds that"
            " did)."
        )
    notes += _recall_notes(answer, main)
    notes += [FLOORS_NOTE] if answer.floors else []
    if more := len(answer.arms) - len(main):
        notes.append(f"{counted(more, 'further arm')}: --table {answer.named('arms')}")
    return Table.of(
        f"{answer.asks}: {answer.subject}",
        answer_columns(_target(answer)),
        [*main, *answer.floors, *answer.blends],
        notes,
        lead=_lead(answer, locations) if is_first else headline(answer),
        name=answer.named("answer"),
    )


def _lead(answer: Answer, locations: Mapping[str, str]) -> str:
    """Return what to deploy, and the paragraph."""
    found = deployment(answer, caveats(answer), locations)
    return "\n".join([*(found.lines if found else ()), headline(answer)])


def _target(answer: Answer) -> str:
    return "to the target" if answer.target is None else f"to loss {answer.target:.4g}"


def _recall_notes(answer: Answer, arms: Sequence[ArmResult]) -> list[str]:
    known = [arm.reported for arm in arms if arm.reported is not None]
    if not known:
        return []
    kinds = "; links to new and to known items together" * any(each.kinds for each in known)
    note = f"its: iterations. {EPOCH_NOTE}{kinds}. {_chance(answer)}"
    has_errors = any(each.error(RECALL) is not None for each in known)
    return [note.rstrip(), *([f"{ERROR}."] if has_errors else [])]


def _chance(answer: Answer) -> str:
    levels = [arm.reported.values.get(f"{RECALL}_chance") for arm in answer.main if arm.reported]
    chance = next((level for level in levels if level is not None), None)
    if chance is None:
        return ""
    return f"By chance it is {chance:.3f}." if chance < 1 else f"{CERTAIN[0].upper()}{CERTAIN[1:]}"


def _ratio(answer: Answer, best: ArmResult, baseline: ArmResult) -> str:
    total = best.sooner.total if best.sooner else None
    if total is None or best.seconds is None or baseline.seconds is None:
        return ""
    interval = ""
    if total.lower is not None and total.upper is not None:
        interval = f"95 %: {total.lower:.3g} to {total.upper:.3g}, "
    which = "at its best, " if sum(arm.is_baseline for arm in answer.arms) > 1 else ""
    training = " of training" if answer.feature_seconds else ""
    return (
        f"It comes down to the smallest loss of {baseline.name} ({which}{answer.target:.4g})"
        f" {three_digits(total.value)} times sooner ({interval}{counted(total.seeds, 'seed')}): in"
        f" {three_digits(best.seconds)} s instead of {three_digits(baseline.seconds)}{training}."
    )


def _easier(answer: Answer, baseline: ArmResult) -> str:
    """Return how much sooner the best arm is at easier targets; nothing where that is unknown."""
    names = {0.25: "a quarter", 0.5: "half"}
    parts = [
        f"{ratio.value:.3g} to that after {names[share]}"
        for share, ratio in answer.easier(answer.best)
    ]
    if not parts:
        return ""
    parts[0] = parts[0].replace(
        "to that after", f"times sooner to the loss that {baseline.name} has after"
    )
    return f"At easier targets it is {', and '.join(parts)} of those iterations."
