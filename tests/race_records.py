"""Records of a race's arms that literals make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from folders import write_run

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.config import complete
from ncfbench.runs import folder as runs

FIXED = {"dataset": "tiny", "encoder": "cnn"}


def entrant(name: str, sampler: str, reason: str = "", **more: Any) -> Candidate:
    config = complete(FIXED | {"sampler": sampler} | more)
    found = Candidate(name, config, iteration_seconds=0.01, seeds=[0, 1])
    if reason:
        found.leave(Status.DIVERGED if reason.startswith("diverged") else Status.LEFT, reason)
    return found


def written(
    runs_dir: Path, each: Candidate, losses: list[float], ms: float, recalls: list[float]
) -> list[runs.RunRecord]:
    found = []
    for seed in (0, 1):
        settings = {
            name: value
            for name, value in each.with_seed(seed).to_dict().items()
            if value is not None and name != "sampler"
        }
        own = [loss * (1 + 0.001 * seed) for loss in losses]
        folder = write_run(runs_dir, each.shape.sampler, own, ms, recalls, **settings)
        found.append(runs.read(folder))
    return found
