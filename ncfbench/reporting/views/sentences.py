"""An answer in sentences: what to deploy and to train with, and whether training is worth it beside
floors and blends.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ncfbench.errors import either, shown
from ncfbench.reporting.answers import Answer, Caveat, Code
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.floors import BlendResult, FloorResult, Standing, compare, standing
from ncfbench.reporting.formats import three_digits, with_error
from ncfbench.reporting.quality import ERROR, NDCG, RECALL, Quality
from ncfbench.reporting.table import Col, Table
from ncfbench.runs.labels import flags
from ncfbench.statistics.ranking import NEAR, SHARE

MOST_NAMED = 3
"""Tied arms that a sentence names."""
NO_CHOICE = "No choice can be justified: no arm ranks clearly better than chance."
WORTH = {
    "passes": "Training is worth it",
    "level": "Training is not clearly worth it",
    "below": "Training is not worth it",
    "unknown": "Whether training is worth it is not known",
}
"""Verdicts by how what is trained stands to the best floor."""
WORDS = {"passes": "above", "level": "level with", "below": "below", "unknown": "beside"}
"""Words by how a recall stands to another one."""
CONFIDENCE = ("high", "fair", "low")


def headline(answer: Answer, no_choice: str = NO_CHOICE, *, has_block: bool = True) -> str:
    """Return the answer in one paragraph.

    Args:
        no_choice: why no arm is recommended, where that is so.
        has_block: whether the verdict on training stands elsewhere, in what to deploy.
    """
    said, best = [no_choice], answer.best
    if best is not None:
        said = [f"To train, use {flags(best.config)}.", _reach(answer, best)]
    if best is not None and best.reported is not None:
        own = best.reported
        kinds = f" ({own.kinds})" if own.kinds else ""
        said.append(f"Recall@50 of test links: {own.text()} at epoch {own.epoch:.3g}{kinds}.")
    said.append(floors_sentence(answer))
    if seconds := answer.feature_seconds:
        said.append(f"Times count the item features: {three_digits(seconds)} s.")
    verdict = "" if has_block else worth_sentence(answer)
    if not (has_block or answer.is_decided):
        verdict = f"NO ANSWER YET. {verdict}".rstrip()
    return " ".join(filter(None, [verdict, *said]))


def worth_sentence(answer: Answer) -> str:
    """Return whether training is worth it: how far both together, or the arm alone where that has
    more recall of validation links, are above the best floor; nothing without floors or an arm.
    """
    arm = answer.beside_floors
    if arm is None or not answer.floors:
        return ""
    whole, floor = arm.reported, answer.floors[0]
    known: list[tuple[float, str, Quality | None]] = [
        (blend.quality("validation").recall, "both together have", blend.reported)
        for blend in answer.blends
    ]
    known += [((whole and whole.validation) or 0.0, "the trained arm has", whole)]
    _, who, quality = max(known, key=lambda each: each[0])
    stands = compare(quality, floor.reported)
    if stands.above_by is None:
        return ""
    return f"{WORTH[stands.word]}: {who} {stands.text} over {floor.row['floor']}, by test links."


def tied_sentence(ties: Sequence[Arm]) -> str:
    """Return which arms are tied with the best, the first few by name; nothing if none is."""
    names, others = [arm.name for arm in ties[:MOST_NAMED]], len(ties) - MOST_NAMED
    names += [f"{others} more"] if others > 0 else []
    return f"Tied with the trained arm: {', '.join(names)}." if names else ""


def floors_sentence(answer: Answer) -> str:
    """Return what the floors reach, and how the arm beside them stands to each; nothing without
    floors.
    """
    own = answer.beside_floors
    if not answer.floors:
        return ""
    floors, said = answer.floors, [_without(answer.floors)]
    recall = None if own is None else own.reported
    if own is None or recall is None:
        return f"{said[0]} No arm has a recall to compare."
    name = "The recommended arm" if own is answer.best else own.name
    whose = name if own is answer.best else f"{name}, {recall.text()},"
    parts = {floor.row["floor"]: standing(own, floor) for floor in floors}
    said.append(_stands(f"{whose} is", parts))
    said += [both_sentence(blend, recall, floors[0]) for blend in answer.blends]
    return " ".join([*said, *_by_ndcg(recall, name, floors[0])])


def _by_ndcg(arm: Quality, name: str, floor: FloorResult) -> list[str]:
    """Return who is ahead by NDCG@50, in the digits shown, where by recall@50 it is the other."""
    pairs = [(arm.values.get(key), floor.value(arm.split, key)) for key in (NDCG, RECALL)]
    if any(None in pair for pair in pairs):
        return []
    apart = [(ours or 0.0) - (theirs or 0.0) for ours, theirs in pairs]
    texts = [f"{value:.3f}" for value in pairs[0]]
    if texts[0] == texts[1] or (apart[0] > 0) == (apart[1] > 0):
        return []
    word = "above" if apart[0] > 0 else "below"
    return [
        f"By NDCG@50 {name.replace('The ', 'the ')} is {word} {floor.row['floor']}: {texts[0]} to"
        f" {texts[1]}."
    ]


def both_sentence(both: BlendResult, own: Quality, best: FloorResult) -> str:
    """Return what a blend reaches, and how it stands to the best floor and to training.

    Args:
        own: the recall of the runs alone.
        best: the floor of the most recall, which need not be that in the blend.
    """
    judged = both.reported
    parts = {
        best.row["floor"]: compare(judged, best.reported),
        "training alone": compare(judged, own),
    }
    shares = f"{both.weight:.2g} of training, {1 - both.weight:.2g} of {both.floor.row['floor']}"
    return _stands(f"Both together ({shares}), {judged.text()}, are", parts)


def run_sentence(
    floors: Sequence[FloorResult], own: Quality, both: BlendResult | None = None
) -> str:
    """Return how the recall of a run stands to the floors of its data, and its blend to both.

    Args:
        floors: one at least, the best first.
        own: of the run's test links.
    """
    parts = {floor.row["floor"]: compare(own, floor.reported) for floor in floors}
    said = [_without(floors), _stands(f"This run's recall@50, {own.text()}, is", parts)]
    return " ".join(said + ([] if both is None else [both_sentence(both, own, floors[0])]))


def floor_command(dataset: str, data_dir: Path | str | None) -> str:
    """Return the sentence that names the command for floors of a data set in a folder."""
    words = ["ncfbench", "floor", dataset, *(["--data-dir", str(data_dir)] if data_dir else [])]
    return f"To see what is reached without training: {shlex.join(words)}"


def _stands(who: str, parts: Mapping[str, Standing]) -> str:
    """Return how something stands to others, each with the difference of the recalls, and the
    seconds after which an arm was first seen above it.
    """
    names: dict[str, list[str]] = {word: [] for word in WORDS}
    for other, stands in parts.items():
        when = "" if stands.seconds is None else f", after {three_digits(stands.seconds)} s"
        names[stands.word].append(f"{other} ({stands.text}{when})")
    found = ", ".join(f"{WORDS[word]} {either(of, 'and')}" for word, of in names.items() if of)
    return f"{who} {found}."


def _without(floors: Sequence[FloorResult]) -> str:
    """Return the recalls of floors."""
    return f"Without training: {', '.join(floor.label() for floor in floors)}."


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


class Part(NamedTuple):
    """One of the things to deploy: ``floor``, ``trained`` or ``both``.

    Attributes:
        words: of ``ncfbench export``.
        validation: recall@50 of validation links, which chooses.
    """

    what: str
    name: str
    words: Sequence[str]
    validation: float | None
    quality: Quality
    note: str = ""

    @property
    def text(self) -> str:
        """Its recall of test links, with its error."""
        return f"{self.quality.text()}{self.note}"


def deployment(
    answer: Answer, caveats: Sequence[Caveat], locations: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return what has the most recall of validation links, or nearly so and is simpler: the best
    floor, the arm that stands beside it, or both; None where no arm was evaluated, none is better
    than chance and there is no floor, or validation links cannot choose.

    Args:
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in the command.

    Returns:
        ``what`` it is and its ``name``, the ``command`` that exports it, its ``validation_recall``
        and ``recall`` of test links, the recall and error of all ``parts`` that were to choose
        from, and the ``lines`` of the block that begins an answer.
    """
    arm = answer.beside_floors
    own = None if arm is None else arm.reported
    if arm is None or own is None:
        return None
    best = arm.deployed
    run = shown(best.folder)
    parts = [Part("trained", arm.name, [run, "vectors"], own.validation, own)]
    floors = sorted(answer.floors, key=lambda floor: -(floor.value("validation") or 0.0))[:1]
    for floor in floors:
        words = [answer.config.dataset, "vectors", "--floor", floor.row["floor"]]
        recall, seconds = floor.value("validation"), f" ({three_digits(floor.seconds)} s)"
        parts.insert(0, Part("floor", floor.name, words, recall, floor.reported, seconds))
    for blend in answer.blends:
        name, recall = blend.floor.row["floor"], blend.quality("validation").recall
        shares = f"both, {blend.weight:.2g} of {arm.name} and {1 - blend.weight:.2g} of {name}"
        words = [run, "vectors", "--floor", name]
        parts.append(Part("both", shares, words, recall, blend.reported))
    parts = parts if answer.best else parts[: len(floors)]
    if not parts or (len(parts) > 1 and any(part.validation is None for part in parts)):
        return None
    most = max(part.validation or 0.0 for part in parts)
    chosen = next(part for part in parts if (part.validation or 0.0) >= NEAR * most)
    data_dir = locations.get("--data-dir")
    more = ["--top", "50", *(["--data-dir", data_dir] if data_dir else [])]
    command = shlex.join(["ncfbench", "export", *chosen.words, *more])
    if chosen.what != "floor" and not (best.folder / "checkpoints").exists():
        command += "  # once it is trained again: its checkpoints are not here"
    elif chosen.what != "floor" and len(own.recalls) > 1:
        command += f"  # by validation the best of {len(own.recalls)} seeds, whose means stand here"
    chances = [floor.value("test", f"{RECALL}_chance") for floor in floors]
    chance = "".join(f" (chance {chance:.3f})" for chance in chances if chance is not None)
    recalls = [f"Recall@50 of test links {chosen.text}{chance}"]
    recalls += [f"{part.name} {part.text}" for part in parts if part != chosen]
    word = "DEPLOY" if answer.is_decided else "NO ANSWER YET; so far"
    lines = [f"{word} {chosen.name}:", f"  {command}", f"{'; '.join(recalls)}."]
    lines += filter(None, [worth_sentence(answer), tied_sentence(answer.ties)])
    return {
        "what": chosen.what,
        "name": chosen.name,
        "command": command,
        "validation_recall": chosen.validation,
        "recall": chosen.quality.values.get(RECALL),
        "parts": {
            part.what: {name: part.quality.values.get(name) for name in (RECALL, f"{RECALL}_error")}
            for part in parts
        },
        "lines": [*lines, _confidence(caveats)],
    }


def deployed_table(found: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return a table of what to deploy with a row for each answer.

    Args:
        found: names of data sets, with what :func:`deployment` says.
    """
    whats = ("floor", "trained", "both")
    rows = [
        {"data": name, "deploy": deploy["what"], **dict.fromkeys(whats)}
        | {what: tuple(own.values()) for what, own in deploy.get("parts", {}).items()}
        for name, deploy in found
    ]
    cols = [Col("data", "data"), Col("deploy", "deploy", align="left")]
    cols += [Col(what, what, with_error) for what in whats]
    notes = [f"Recall@50 of test links; validation links choose. {ERROR}."]
    return Table.of("What to deploy", cols, rows, notes, name="deploy")


def _confidence(caveats: Sequence[Caveat]) -> str:
    """Return how far to trust an answer, with the two largest reasons."""
    of_code = {caveat.code: caveat for caveat in reversed(caveats)}
    doubts = [of_code[code] for code in get_args(Code) if code in of_code and code != "edge"]
    word = CONFIDENCE[min(len(doubts), len(CONFIDENCE) - 1)]
    return " ".join([f"Confidence: {word}.", *(caveat.sentence for caveat in doubts[:2])])
