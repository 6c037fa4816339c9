"""What to deploy: the floor, the trained arm or both, with the command that writes it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ncfbench.errors import shown
from ncfbench.reporting.answers import Answer, Caveat
from ncfbench.reporting.arms import ArmRecall
from ncfbench.reporting.floors import arm_beside
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.quality import RECALL, Quality

DOUBTS = (
    *(
        "busy",
        "untried",
        "undecided",
        "still_falling",
        "seeds",
        "one_seed",
        "one_arm",
        "decided_by_test",
    ),
    *("floors_left_out", "not_interleaved", "other_machine_of_floors", "note"),
)
"""Caveats that lower the confidence in an answer, the largest first."""
CONFIDENCE = ("high", "fair", "low")


class Deployment(NamedTuple):
    """What validation links recommend.

    Attributes:
        what: ``both``, ``floor`` or ``trained``.
        lines: of the block that begins an answer.
    """

    what: str
    name: str
    command: str
    recall: float | None
    lines: Sequence[str]

    @property
    def facts(self) -> dict[str, Any]:
        """Its values in JSON."""
        return {name: getattr(self, name) for name in ("what", "name", "command", "recall")}


def deployment(
    answer: Answer, caveats: Sequence[Caveat], locations: Mapping[str, str]
) -> Deployment | None:
    """Return what has the most recall of validation links: the best floor, the arm that stands
    beside it, or both; None where one of the former is not known.

    Args:
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in the command.
    """
    arm = arm_beside(answer.arms, answer.best, answer.judged_by)
    own = None if arm is None else arm.judged("test")
    floors = [floor for floor in answer.floors if floor.recall_on("validation") is not None]
    if arm is None or own is None or own.validation is None or not floors or not arm.runs:
        return None
    floor, run = floors[0], next(iter(arm.runs.values()))
    floor_name = floor.row["floor"]
    words = {"floor": [answer.config.dataset, "vectors", "--floor", floor_name]}
    words["trained"] = [shown(run.folder), "vectors"]
    reached = {"floor": floor.recall_on("validation"), "trained": own.validation}
    named = {"floor": floor.name, "trained": arm.name}
    quality: dict[str, Quality | None] = {"floor": floor.reported, "trained": arm.reported}
    for blend in answer.blends:
        name = blend.floor.row["floor"]
        words["both"] = [shown(run.folder), "vectors", "--floor", name]
        reached["both"] = blend.judged("validation").recall
        shares = f"{blend.weight:.2g} of {arm.name} and {1 - blend.weight:.2g} of {name}"
        named["both"] = f"both, {shares}"
        quality["both"] = blend.reported
    what = max(reached, key=lambda each: reached[each] or 0.0)
    data_dir = locations.get("--data-dir")
    more = ["--data-dir", data_dir] if data_dir else []
    command = shlex.join(["ncfbench", "export", *words[what], "--top", "50", *more])
    chance = floor.chance_on("test")
    parts = [f"{named[each]} {_text(quality[each])}" for each in reached if each != what]
    parts[0] += f" ({three_digits(floor.seconds)} s)" if what != "floor" else ""
    lines = [
        f"DEPLOY {named[what]}:",
        f"  {command}",
        f"Recall@50 of test links {_text(quality[what])}"
        + ("" if chance is None else f" (chance {chance:.3f})")
        + f"; {', '.join(parts)}.",
        _confidence([*caveats, *_few(answer, own)]),
    ]
    chosen = quality[what]
    recall = None if chosen is None else chosen.values[RECALL]
    return Deployment(what, named[what], command, recall, lines)


def _text(quality: Quality | None) -> str:
    return "-" if quality is None else quality.text(RECALL)


def _few(answer: Answer, own: ArmRecall) -> list[Caveat]:
    """Return what is too few to judge by."""
    found = []
    if len(own.recalls) == 1:
        found.append(Caveat("one_seed", "One seed: how much seeds differ is not known."))
    if len(answer.arms) == 1:
        found.append(Caveat("one_arm", "No other arm was tried."))
    return found


def _confidence(caveats: Sequence[Caveat]) -> str:
    """Return how far to trust an answer, with the two largest reasons."""
    by_code = {caveat.code: caveat for caveat in caveats}
    doubts = [by_code[code] for code in DOUBTS if code in by_code]
    word = CONFIDENCE[min(len(doubts), len(CONFIDENCE) - 1)]
    return " ".join([f"Confidence: {word}.", *(caveat.sentence for caveat in doubts[:2])])
