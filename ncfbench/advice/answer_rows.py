"""An answer as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncfbench.advice.answer import RaceAnswer, RacedArm
from ncfbench.advice.summary import caveats, headline, next_steps
from ncfbench.catalog import find_sampler
from ncfbench.reporting.views.overall import arm_facts, facts


def as_json(answer: RaceAnswer, folder: Path, locations: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer as a JSON object; see docs/advice.md.

    Args:
        folder, locations: as for :func:`next_steps`.
    """
    question, state = answer.question, answer.state
    found = caveats(answer)
    return {
        "format": 1,
        "dataset": question.base.dataset,
        "data_fingerprint": state.fingerprint,
        "tried": {name: list(values) for name, values in question.tried.items()},
        **facts(answer),
        "budget_seconds": answer.budget_seconds,
        "spent_seconds": state.spent_seconds,
        "is_over": state.is_over,
        "sample_users": answer.sample_users,
        "headline": headline(answer),
        "trust": [caveat.sentence for caveat in found],
        "caveats": [caveat._asdict() for caveat in found],
        "next": [
            {"purpose": purpose, "command": command}
            for purpose, command in next_steps(answer, folder, locations)
        ],
        "entrants": [_row(answer, arm) for arm in answer.arms],
        "folder": str(folder),
    }


def _row(answer: RaceAnswer, arm: RacedArm) -> dict[str, Any]:
    config, reads = arm.config, find_sampler(arm.config.sampler).reads
    summary = arm.first.summary if arm.runs else {}
    is_expected = answer.best and arm.has_run and math.isfinite(arm.expected)
    return {
        "dataset": config.dataset,
        "encoder": config.encoder,
        "entrant": arm.name,
        "loss": config.loss,
        "sampler": config.sampler,
        "batch_size": config.batch_size,
        "stratum_size": config.stratum_size if reads("stratum_size") else None,
        "negatives": config.negatives if reads("negatives") else None,
        "learning_rate": config.learning_rate,
        "probe_every": config.probe_every,
        "reason": arm.entrant.reason or None,
        "iterations": summary.get("iterations"),
        "epochs": summary.get("epochs"),
        "times_slower_expected": arm.expected if is_expected else None,
        **arm_facts(arm),
        "config": json.dumps(config.to_dict(), sort_keys=True),
        "data_fingerprint": answer.state.fingerprint,
    }
