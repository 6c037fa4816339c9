"""An answer as rows and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ncfbench.advice.answer import RaceAnswer, RacedArm
from ncfbench.advice.summary import caveats, headline, next_steps
from ncfbench.reporting.beside import ANSWER_FORMAT
from ncfbench.reporting.views.overall import arm_facts, facts


def rows(answer: RaceAnswer) -> list[dict[str, Any]]:
    """Return a row of :data:`ncfbench.storage.schemas.ADVICE` for each entrant."""
    return [_row(answer, arm) for arm in answer.arms]


def as_json(answer: RaceAnswer, folder: Path, locations: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer as a JSON object; see docs/advice.md.

    Args:
        folder, locations: as for :func:`next_steps`.
    """
    question, state = answer.question, answer.state
    found = caveats(answer)
    return {
        "format": ANSWER_FORMAT,
        "dataset": question.base.dataset,
        "data_fingerprint": state.fingerprint,
        "encoders": list(question.encoders),
        "losses": list(question.losses),
        "target": question.target,
        **facts(answer),
        "budget_seconds": answer.budget_seconds,
        "spent_seconds": state.spent_seconds,
        "is_over": state.is_over,
        "sample_users": answer.sample_users,
        "baseline": answer.baseline and answer.baseline.name,
        "times_sooner": answer.sooner and asdict(answer.sooner),
        "times_sooner_at_least": answer.sooner_at_least,
        "headline": headline(answer),
        "trust": [caveat.sentence for caveat in found],
        "caveats": [caveat._asdict() for caveat in found],
        "next": [
            {"purpose": purpose, "command": command}
            for purpose, command in next_steps(answer, folder, locations)
        ],
        "entrants": rows(answer),
        "left_out": [each._asdict() for each in state.left_out],
        "folder": str(folder),
    }


def _row(answer: RaceAnswer, arm: RacedArm) -> dict[str, Any]:
    shape, config = arm.entrant.shape, arm.config
    summary = arm.first.summary if arm.runs else {}
    is_expected = answer.best and arm.has_run and math.isfinite(arm.expected)
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
        "reason": arm.entrant.reason or None,
        "iterations": summary.get("iterations"),
        "epochs": summary.get("epochs"),
        # In a search only the first candidate was timed before.
        "predicted_iteration_seconds": arm.entrant.iteration_seconds if not answer.ranks else None,
        "times_slower_expected": arm.expected if is_expected else None,
        **arm_facts(arm),
        "config": json.dumps(config.to_dict(), sort_keys=True),
        "data_fingerprint": answer.state.fingerprint,
    }
