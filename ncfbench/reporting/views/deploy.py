"""Deployment: the floor, the trained arm or both, with the command that writes it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from ncfbench.errors import shown
from ncfbench.reporting.answers import Answer, Caveat, Code
from ncfbench.reporting.formats import three_digits, with_error
from ncfbench.reporting.frames import Run
from ncfbench.reporting.quality import ERROR, RECALL, Quality
from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.views.sentences import tied_sentence, worth_sentence
from ncfbench.runs.reported import reported_row, validation_recall

CONFIDENCE = ("high", "fair", "low")


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
    """Return what has the most recall of validation links: the best floor, the arm that stands
    beside it, or both; None where no arm was evaluated, or validation links cannot choose.

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
    best = max(arm.shown.values(), key=_on_validation)
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
    if len(parts) > 1 and any(part.validation is None for part in parts):
        return None
    chosen = max(parts, key=lambda part: part.validation or 0.0)
    data_dir = locations.get("--data-dir")
    more = ["--top", "50", *(["--data-dir", data_dir] if data_dir else [])]
    command = shlex.join(["ncfbench", "export", *chosen.words, *more])
    if chosen.what != "floor" and not (best.folder / "checkpoints").exists():
        command += "  # once it is trained again: its checkpoints are not here"
    elif chosen.what != "floor" and len(own.recalls) > 1:
        command += f"  # by validation the best of {len(own.recalls)} seeds"
    chances = [floor.value("test", f"{RECALL}_chance") for floor in floors]
    chance = "".join(f" (chance {chance:.3f})" for chance in chances if chance is not None)
    recalls = [f"Recall@50 of test links {chosen.text}{chance}"]
    recalls += [f"{part.name} {part.text}" for part in parts if part != chosen]
    lines = [f"DEPLOY {chosen.name}:", f"  {command}", f"{'; '.join(recalls)}."]
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


def _on_validation(run: Run) -> float:
    row = reported_row(run)
    return (None if row is None else validation_recall(row)) or 0.0


def _confidence(caveats: Sequence[Caveat]) -> str:
    """Return how far to trust an answer, with the two largest reasons."""
    of_code = {caveat.code: caveat for caveat in reversed(caveats)}
    doubts = [of_code[code] for code in get_args(Code) if code in of_code and code != "edge"]
    word = CONFIDENCE[min(len(doubts), len(CONFIDENCE) - 1)]
    return " ".join([f"Confidence: {word}.", *(caveat.sentence for caveat in doubts[:2])])
