"""An answer as rows and as JSON, and read back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ncfbench.advice.answer import RaceAnswer, RacedArm
from ncfbench.advice.summary import caveats, headline, next_steps
from ncfbench.advice.worth import as_rows, frontier
from ncfbench.errors import DataError
from ncfbench.reporting.frames import interval_columns
from ncfbench.reporting.labels import flags
from ncfbench.reporting.quality import RECALL
from ncfbench.reporting.views.answer_rows import floor_rows
from ncfbench.storage import tables

FORMAT = 1
"""Version of the JSON."""
ANSWER = "answer.json"
"""File of a race's folder with :func:`as_json` of its last answer."""


def rows(answer: RaceAnswer) -> list[dict[str, Any]]:
    """Return a row of :data:`ncfbench.storage.schemas.ADVICE` for each entrant."""
    return [_row(answer, arm) for arm in answer.arms]


def as_json(answer: RaceAnswer, folder: Path, locations: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer as a JSON object; see docs/advice.md.

    Args:
        folder, locations: as for :func:`next_steps`.
    """
    question, state, best = answer.question, answer.state, answer.best
    found = caveats(answer)
    return {
        "format": FORMAT,
        "dataset": question.base.dataset,
        "data_fingerprint": state.fingerprint,
        "encoders": list(question.encoders),
        "losses": list(question.losses),
        "target": question.target,
        "metric": question.metric,
        "budget_seconds": answer.budget_seconds,
        "spent_seconds": state.spent_seconds,
        "feature_seconds": answer.feature_seconds,
        "is_over": state.is_over,
        "sample_users": answer.sample_users,
        "recommended": best and best.name,
        "flags": best and flags(best.config, of_model=question.target == "recall"),
        "baseline": answer.baseline and answer.baseline.name,
        "times_sooner": answer.sooner and asdict(answer.sooner),
        "times_sooner_at_least": answer.sooner_at_least,
        "level": answer.target,
        "tied": [arm.name for arm in answer.ties],
        "floors": floor_rows(answer),
        "headline": headline(answer),
        "trust": [caveat.sentence for caveat in found],
        "caveats": [caveat._asdict() for caveat in found],
        "next": [
            {"purpose": purpose, "command": command}
            for purpose, command in next_steps(answer, folder, locations)
        ],
        "worth": as_rows(answer) if question.target == "recall" else [],
        "frontier": [{"seconds": at, RECALL: recall} for at, recall in frontier(answer)],
        "entrants": rows(answer),
        "left_out": [each._asdict() for each in state.left_out],
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


def _row(answer: RaceAnswer, arm: RacedArm) -> dict[str, Any]:
    shape, config, has_run = arm.entrant.shape, arm.config, arm.has_run
    is_loss = answer.question.target == "loss"
    summary = arm.first.summary if arm.runs else {}
    recalls = arm.at_end.values if has_run and arm.at_end else {}
    is_expected = answer.best and has_run and math.isfinite(arm.expected)
    return {
        "dataset": config.dataset,
        "encoder": config.encoder,
        "entrant": arm.name,
        "target": answer.question.target,
        **{
            name: getattr(shape, name)
            for name in ("loss", "sampler", "batch_size", "stratum_size", "negatives")
        },
        "learning_rate": config.learning_rate,
        "probe_every": config.probe_every,
        "is_baseline": arm.is_baseline,
        "status": arm.status,
        "reason": arm.entrant.reason or None,
        "seeds": len(arm.measured.curves),
        "clock_seconds": arm.curve.clock if has_run else None,
        "learned_seconds": arm.learned_at,
        "iterations": summary.get("iterations"),
        "epochs": summary.get("epochs"),
        "level": arm.level if has_run else None,
        # In a search only the first candidate was timed before.
        "predicted_iteration_seconds": arm.entrant.iteration_seconds if is_loss else None,
        "full_iteration_seconds": arm.iteration_seconds if has_run else None,
        "item_slots": arm.items if has_run else None,
        **interval_columns("times_slower", arm.behind),
        "times_slower_expected": arm.expected if is_expected else None,
        "test_recall_at_50": recalls.get(RECALL),
        "test_recall_at_50_error": recalls.get(f"{RECALL}_error"),
        "runs": [run.name for run in arm.runs.values()],
        "config": json.dumps(config.to_dict(), sort_keys=True),
        "data_fingerprint": answer.state.fingerprint,
    }
