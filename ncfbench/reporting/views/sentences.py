"""An answer in sentences: what to train with, and whether training is worth it beside floors and
blends.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ncfbench.data.content import Split
from ncfbench.errors import either
from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.blends import BlendResult, blend_of
from ncfbench.reporting.floors import (
    FloorResult,
    Standing,
    arm_beside,
    best_of,
    compare,
    is_plural,
    standing,
)
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.labels import flags
from ncfbench.reporting.quality import ERROR, NDCG, RECALL, Quality
from ncfbench.runs.quality import CERTAIN
from ncfbench.timing.ranking import SHARE

MOST_NAMED = 3
"""Tied arms that a sentence names."""
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
        first = [use, _reach(answer, best), recall]
    return " ".join(filter(None, [*first, beside, features_sentence(answer.feature_seconds)]))


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
    """Return which arms are tied with the best, the first few by name; nothing if none is."""
    names, others = [arm.name for arm in ties[:MOST_NAMED]], len(ties) - MOST_NAMED
    names += [f"{others} more"] if others > 0 else []
    return f"Tied with the trained arm: {', '.join(names)}." if names else ""


def floors_sentences(
    floors: Sequence[FloorResult],
    arms: Sequence[Arm],
    best: Arm | None,
    *,
    is_falling: bool = False,
    split: Split = "test",
) -> tuple[str, str]:
    """Return why training is not worth it, if so, and how the best arm stands to the floors;
    nothing without floors, or where times are simulated.

    Validation links choose the floor and the arms that are named, and test links judge: the best
    arm beside the best floor; where it does not pass that, the arm of the largest validation recall
    too, and the best floor of those that the first one passes. Where validation links judge, their
    recalls stand there, beside chance, and those of test links in a sentence of their own.

    Args:
        floors: the best first.
        best: the recommended arm, if there is one.
        is_falling: whether longer training may help, since the loss still falls.
        split: the links that judge.
    """
    floors = [floor for floor in floors if floor.quality(split)]
    arms = [arm for arm in arms if not arm.has_diverged]
    if not floors or any(run.is_simulated for arm in arms for run in arm.runs.values()):
        return "", ""
    first, own, top = floors[0], arm_beside(arms, best, split), best_of(arms, split)
    recall, highest = own and own.quality(split), top and top.quality(split)
    if own is None or top is None or not (recall and highest):
        return "", f"{_reaches(first, split)}; no arm has a recall to compare."
    name = "this arm" if own is best else own.name
    stands, theirs = standing(own, first, split), standing(top, first, split)
    against, sentences = "", list[str]()
    both = blend_of(own, floors)
    is_worth = (
        both is not None and compare(both.quality(split), first.quality(split)).word == "passes"
    )
    if stands.word == "unknown":
        sentences.append(
            f"{_reaches(first, split)}, {name} {recall.recall:.3f}: an error is missing, so nothing"
            " is known of the difference."
        )
    elif stands.word != "passes" and is_worth:
        alone = f"{name} alone {recall.recall:.3f}{_note(stands)}"
        sentences.append(f"{_reaches(first, split)}, {alone}.")
    elif stands.word != "passes" and theirs.word in ("passes", "unknown"):
        relation = "level with" if stands.word == "level" else "below"
        sentence = f"{_reaches(first, split)}; {_named(name, recall)} is {relation} {_it(first)}"
        sentence += _note(stands)
        if theirs.word == "passes":
            chosen_by = split if highest.validation is None else "validation"
            other = f"{top.name}, which has the highest {chosen_by} recall,"
            sentence += f", and {_named(other, highest)} {_passes(theirs, first)}"
        sentences.append(f"{sentence}.")
    elif stands.word != "passes":
        # Of the two the one that is nearer.
        is_other = theirs.word == "level" and stands.word == "below"
        who, judged, apart = (top.name, highest, theirs) if is_other else (name, recall, stands)
        worth = "not clearly worth it" if apart.word == "level" else "not worth it"
        against = (
            f"Training is {worth}{' yet' * is_falling}, by these runs:"
            f" {_reaches(first, split, 'it')},"
            f" {who} {judged.recall:.3f}{_note(apart)}."
        )
    for floor in floors:
        passed = standing(own, floor, split)
        if passed.word == "passes":
            who = _named(name, recall)
            sentences.append(f"{_reaches(floor, split)}; {who} {_passes(passed, floor)}.")
            break
    sentences += [] if both is None else [both_sentence(both, recall)]
    sentences += _by_ndcg(recall, name, first)
    if split != "test" and own.reported:
        has = "have" if is_plural(first) else "has"
        sentences.append(
            f"On test links{_chance(first, 'test')}, which choose nothing, {first.name} {has}"
            f" {first.value('test'):.3f}, {name} {own.reported.recall:.3f}"
            f"{_note(compare(own.reported, first.reported))}."
        )
    return against, " ".join(sentences)


def both_sentence(both: BlendResult, own: Quality) -> str:
    """Return what a blend reaches, and how it stands to each of its parts.

    Args:
        own: the recall of the runs alone.
    """
    judged, floor = both.quality(own.split), both.floor.row["floor"]
    parts = {
        floor: compare(judged, both.floor.quality(own.split)),
        "training alone": compare(judged, own),
    }
    beside = " and ".join(f"{_apart(stands)} {name}" for name, stands in parts.items())
    shares = f"{both.weight:.2g} of training, {1 - both.weight:.2g} of {floor}"
    return f"Both together ({shares}) reach {judged.recall:.3f}: {beside}."


def _apart(stands: Standing) -> str:
    """Return how far a recall is from another, and whether that is clear."""
    if stands.above_by is None:  # other users
        return "not compared with"
    error = "" if stands.error is None else f" ± {stands.error:.3f}"
    word = {"passes": "above", "below": "below", "level": "and so level with", "unknown": "beside"}
    return f"{stands.above_by:+.3f}{error} {word[stands.word]}"


def run_sentence(
    floors: Sequence[FloorResult], own: Quality, both: BlendResult | None = None
) -> str:
    """Return how the recall of a run stands to the floors of its data, and its blend to both.

    Args:
        floors: one at least, the best first.
        own: of the run's test links.
    """
    words = {"passes": "above", "level": "level with", "below": "below", "unknown": "beside"}
    names: dict[str, list[str]] = {word: [] for word in words}
    for floor in floors:
        stands = compare(own, floor.reported)
        note = stands.note or " (its error is not known)"
        names[stands.word].append(floor.row["floor"] + note)
    parts = ", ".join(f"{words[word]} {either(of, 'and')}" for word, of in names.items() if of)
    reached = ", ".join(floor.label() for floor in floors)
    more = "" if both is None else f" {both_sentence(both, own)}"
    return f"Without training: {reached}. This run's recall@50, {own.text()}, is {parts}.{more}"


def floor_command(dataset: str, data_dir: Path | str | None) -> str:
    """Return the sentence that names the command for floors of a data set.

    Args:
        data_dir: as the user gave it, to be repeated.
    """
    words = ["ncfbench", "floor", dataset, *(["--data-dir", str(data_dir)] if data_dir else [])]
    return f"To see what is reached without training: {shlex.join(words)}"


def _passes(stands: Standing, floor: FloorResult) -> str:
    """Return when an arm passes a floor, and by how much."""
    it, seconds = _it(floor), stands.seconds
    when = "" if seconds is None else f" after {three_digits(seconds)} s"
    if not stands.is_first:
        return f"passes {it}{when}{_note(stands)}"
    when = f", after {three_digits(seconds)} s" if seconds else ", before training"
    return f"is above {it} at its first evaluation{when}{_note(stands)}"


def _note(stands: Standing) -> str:
    """Return a difference in brackets, which says where its error has no part of the seeds."""
    return stands.note if stands.has_seeds else stands.note.replace(")", ", one seed)")


def _by_ndcg(own: Quality | None, name: str, floor: FloorResult) -> list[str]:
    """Return who is ahead by NDCG@50, in the digits shown, where by recall@50 it is the other."""
    if own is None:
        return []
    ndcg, recall = floor.value(own.split, NDCG), floor.value(own.split)
    if own.ndcg is None or ndcg is None or recall is None:
        return []
    ours, theirs = (f"{each:.3f}" for each in (own.ndcg, ndcg))
    if ours == theirs or (own.ndcg > ndcg) == (own.recall > recall):
        return []
    by = "By NDCG@50" + " of validation links" * (own.split == "validation")
    if ours > theirs:
        return [f"{by} {name} is ahead, with {ours} to {theirs}."]
    verb = "are" if is_plural(floor) else "is"
    return [f"{by} {floor.name} {verb} ahead, with {theirs} to {ours}."]


def _named(name: str, own: Quality) -> str:
    """Return an arm's name, with its recall where no other sentence has that."""
    if own.split == "test":
        return name
    return f"{name.removesuffix(',')}, with {own.recall:.3f},"


def _chance(floor: FloorResult, split: Split) -> str:
    """Return the recall by chance in brackets; nothing where it is not known."""
    chance = floor.value(split, f"{RECALL}_chance")
    return "" if chance is None else f" (chance: {chance:.3f})"


def _reaches(floor: FloorResult, split: Split = "test", training: str = "training") -> str:
    verb, name = "reach" if is_plural(floor) else "reaches", floor.name
    if training == "training" and name.islower():
        name = f"{name[0].upper()}{name[1:]}"
    time, links = three_digits(floor.seconds), ""
    if split == "validation":
        links = f" on validation links{_chance(floor, split)}"
    return f"{name} {verb} {floor.value(split):.3f}{links} in {time} s without {training}"


def _it(floor: FloorResult) -> str:
    return "them" if is_plural(floor) else "it"


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
