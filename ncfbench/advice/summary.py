"""An answer in words, as tables and as JSON."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from ncfbench.advice.answer import RaceAnswer
from ncfbench.advice.question import METRIC, Question
from ncfbench.reporting.answers import Caveat, best_caveats, busy_caveats, floor_caveats
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.formats import counted, three_digits
from ncfbench.reporting.table import Table
from ncfbench.reporting.views import answers, sentences
from ncfbench.runs.labels import run_command

ENOUGH_SEEDS = 3
"""Seeds of a finalist from which on nothing is said of them."""


def headline(answer: RaceAnswer, *, has_block: bool = True) -> str:
    """Return the answer in one paragraph, with the verdict on training where no block has it."""
    users = answer.sample_users
    sample = f"All this on a sample of {users:,} users." if users else ""
    return f"{sentences.headline(answer, _no_choice(answer), has_block=has_block)} {sample}".strip()


def caveats(answer: RaceAnswer) -> list[Caveat]:
    """Return what the answer rests on, and what speaks against it."""
    notes, best = [Caveat("note", note) for note in answer.notes], answer.best
    if not answer.is_decided:
        text = f"Too little of the budget was training ({answer.training_share:.0%}): no answer."
        notes.append(Caveat("undertrained", f"{text} A larger --budget gives one."))
    if best is not None:
        notes += best_caveats(answer, best)
        if 1 < len(best.deciding) < ENOUGH_SEEDS:
            text = f"{counted(len(best.deciding), 'seed')} of each finalist."
            notes.append(Caveat("few_seeds", text))
    if answer.unfitted:
        lost = [note[3:].partition(":")[0] for note in answer.unfitted if note.startswith("No ")]
        text = f"Not among the floors, for want of time or memory: {', '.join(lost)}."
        notes += [Caveat("few_arms", text)] if lost else []
        text = f"Floors that were left out: {' '.join(answer.unfitted)}"
        notes.append(Caveat("note", text))
    if answer.undecided:
        text = f"{counted(answer.undecided, 'arm')} left before they could be told from it."
        notes.append(Caveat("few_arms", text))
    if answer.untried:
        names = ", ".join(arm.name for arm in answer.untried)
        text = f"Without a recall, for want of time: {names}. A larger --budget may tell."
        notes.append(Caveat("few_arms", text))
    notes += floor_caveats(answer)
    return notes + [
        Caveat(code, f"{text} Repeat this on a quiet machine.")
        for code, text in busy_caveats(answer.spread)
    ]


def next_steps(
    answer: RaceAnswer, folder: Path, locations: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return what to do next: purposes and commands.

    Args:
        folder: of the race's runs.
        locations: ``--data-dir`` and ``--runs-dir`` to repeat.
    """
    longer = advise_command(answer.question, 2 * answer.budget_seconds, locations)
    steps = [{"purpose": "To be surer", "command": longer}]
    if answer.best is not None:
        config = answer.best.deployed.config
        there = {**locations, "--runs-dir": str(folder)}
        purpose = "To train on from where the race left it"
        steps.append({"purpose": purpose, "command": run_command(config, there)})
    return steps


def answer_tables(answer: RaceAnswer) -> list[Table]:
    """Return the table of an answer; none where nothing is recommended."""
    return [answers.worth_table(answer)] if answer.best else []


def as_json(answer: RaceAnswer, folder: Path, locations: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer as a JSON object; see docs/advise.md.

    Args:
        folder, locations: as for :func:`next_steps`.
    """
    question = answer.question
    doubts = caveats(answer)
    deploy = sentences.deployment(answer, doubts, locations)
    return {
        "format": 1,
        "dataset": question.base.dataset,
        "data_fingerprint": answer.data_fingerprint,
        "tried": {name: list(values) for name, values in question.tried.items()},
        **answers.facts(answer),
        "budget_seconds": answer.budget_seconds,
        "spent_seconds": answer.spent_seconds,
        "training_seconds": answer.training_seconds,
        "is_over": answer.is_over,
        "sample_users": answer.sample_users,
        "deploy": deploy,
        "headline": headline(answer, has_block=bool(deploy)),
        "trust": [caveat.sentence for caveat in doubts],
        "caveats": [caveat._asdict() for caveat in doubts],
        "next": next_steps(answer, folder, locations),
        "arms": [_row(answer, arm) for arm in answer.arms],
        "folder": str(folder),
    }


def advise_command(question: Question, budget_seconds: float, locations: Mapping[str, str]) -> str:
    """Return the command line that asks a question."""
    words = ["ncfbench", "advise", question.base.dataset]
    if question.metric != METRIC:
        words += ["--metric", question.metric]
    for name, values in question.tried.items():
        words += ["--try", f"{name}={','.join(map(str, values))}"]
    for name, value in question.fixed.items():
        if name != "dataset":
            words += ["--set", f"{name}={value}"]
    minutes = max(round(budget_seconds / 60), 1)
    return shlex.join([*words, "--budget", f"{minutes}m", *chain.from_iterable(locations.items())])


def _no_choice(answer: RaceAnswer) -> str:
    judged = [arm.curve.clock for arm in answer.main if math.isfinite(arm.level)]
    if not judged:
        return "No choice yet: no arm has been evaluated. Give a larger --budget."
    after = three_digits(min(judged))
    return (
        f"No choice can be justified: after {after} s of training each, the validation recall@50 of"
        f" none of {len(judged)} is clearly above chance ({answer.learned_above:.3f}). Give a"
        " larger --budget."
    )


def _row(answer: RaceAnswer, arm: Arm) -> dict[str, Any]:
    summary = arm.first.summary if arm.runs else {}
    return {
        "reason": arm.reason or None,
        "iterations": summary.get("iterations"),
        "epochs": summary.get("epochs"),
        **answers.values_of(answer, arm),
        "config": json.dumps(arm.config.to_dict(), sort_keys=True),
    }
