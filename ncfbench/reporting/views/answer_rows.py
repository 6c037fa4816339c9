"""Answers and floors as plain objects, for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ncfbench.reporting.answers import Answer
from ncfbench.reporting.arms import ArmResult
from ncfbench.reporting.floors import Standing, arm_beside, standing
from ncfbench.reporting.frames import interval_columns
from ncfbench.reporting.labels import flags
from ncfbench.reporting.views.answers import caveats, headline, trust
from ncfbench.reporting.views.deploy import deployment


def as_rows(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the answers as plain objects, for JSON; times in seconds."""
    return [
        {
            "dataset": answer.config.dataset,
            "data_fingerprint": answer.data_fingerprint,
            "encoder": answer.config.encoder,
            "loss": answer.config.loss,
            "settings": answer.settings,
            "deploy": found and found.facts,
            "headline": headline(answer),
            "trust": trust(answer, locations),
            "target": answer.target,
            "best": answer.best and answer.best.name,
            "flags": answer.best and flags(answer.best.config),
            "baseline": answer.baseline and answer.baseline.name,
            "easier_targets": [
                {"share": share, **asdict(ratio)} for share, ratio in answer.easier(answer.best)
            ],
            "profile_rounds": answer.rounds,
            **({"feature_seconds": seconds} if (seconds := answer.feature_seconds) else {}),
            "arms": [_as_row(arm) for arm in answer.arms],
            "floors": floor_rows(answer),
            "blends": [blend.facts for blend in answer.blends],
            "caveats": [caveat._asdict() for caveat in caveats(answer)],
        }
        for answer in answers
        for found in [deployment(answer, caveats(answer), locations)]
    ]


def floor_rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the floors as plain objects, each with how the arm stands to it that the answer's
    sentence about floors is of.
    """
    split, rows = answer.judged_by, []
    arm = arm_beside(answer.arms, answer.best, split)
    own = arm and arm.judged(split)
    for floor in answer.floors:
        beside = standing(arm, floor, split) if arm else Standing("unknown")
        stands = {
            "best_arm": beside.word if arm else None,
            "passed_after_seconds": beside.seconds,
            "best_arm_ndcg_at_50": own.ndcg if own else None,
        }
        rows.append(floor.facts | stands | beside.difference)
    return rows


def _as_row(arm: ArmResult) -> dict[str, Any]:
    return {
        "arm": arm.name,
        "sampler": arm.config.sampler,
        "flags": flags(arm.config),
        "status": arm.status,
        "is_baseline": arm.is_baseline,
        "seeds": len(arm.runs),
        "item_slots": arm.items,
        "full_iteration_seconds": arm.iteration_seconds,
        "iterations_to_target": arm.iterations,
        "seconds_to_target": arm.seconds,
        **interval_columns("times_sooner", arm.sooner.total if arm.sooner else None),
        "times_sooner_at_most": arm.sooner and arm.sooner.total_at_most,
        "quality": arm.reported and asdict(arm.reported),
        "runs": [run.name for run in arm.runs.values()],
    }
