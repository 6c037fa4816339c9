"""The state of a race on disk: who races, who left and why, and how much of the budget is spent.

``runs/advice/NAME/advice.json`` is written at the end of every rung, when the runs have saved their
checkpoints. A killed race loses the rung that it was in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncfbench.advice.candidates import Candidate, LeftOut, Shape
from ncfbench.config import RunConfig, complete
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import tables

VERSION = 2
FILE = "advice.json"


@dataclass
class Entrant:
    """A candidate in the race.

    Attributes:
        config: settings of its first run; its other seeds differ in the seed alone.
        predicted_seconds: of an iteration, before the race.
        reason: why it left; empty while it races.
    """

    name: str
    candidate: Candidate
    config: RunConfig
    predicted_seconds: float
    seeds: list[int] = field(default_factory=lambda: [0])
    reason: str = ""

    @property
    def shape(self) -> Shape:
        """Its settings but for the learning rate."""
        return self.candidate.shape

    def with_seed(self, seed: int) -> RunConfig:
        """Return the settings of its run with a seed; seeds count from the first run's."""
        return dataclasses.replace(self.config, seed=self.config.seed + seed)


@dataclass
class State:
    """Everything that a race needs to go on."""

    fingerprint: str
    entrants: list[Entrant]
    pool: list[tuple[Candidate, float]]
    """Candidates that have not entered, the most promising first, with seconds of an iteration."""
    left_out: list[LeftOut]
    first_clock: float
    clock: float = 0.0
    horizon: float = 0.0
    spent_seconds: float = 0.0
    is_over: bool = False
    notes: list[str] = field(default_factory=list)
    """Warnings for the answer, such as that the machine was busy."""

    @property
    def racing(self) -> list[Entrant]:
        """Entrants that have not left."""
        return [each for each in self.entrants if not each.reason]

    def write(self, folder: Path) -> None:
        """Write the state.

        Raises:
            DataError: it cannot be written.
        """
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        values |= {
            "version": VERSION,
            "entrants": [_of_entrant(each) for each in self.entrants],
            "pool": [_of_candidate(each) | {"seconds": seconds} for each, seconds in self.pool],
            "left_out": [dataclasses.asdict(each) for each in self.left_out],
        }
        tables.write_json(folder / FILE, values)


def read_state(folder: Path) -> State | None:
    """Read the state of a race; None where there is none.

    Raises:
        DataError: it is damaged, or of another version.
    """
    path = folder / FILE
    if not path.exists():
        return None
    values = tables.read_json(path)
    try:
        if values.pop("version") != VERSION:
            raise DataError(f"{path} is of another version of ncfbench. Remove {folder}.")
        values["entrants"] = [_to_entrant(each) for each in values["entrants"]]
        values["pool"] = [(_to_candidate(each), each["seconds"]) for each in values["pool"]]
        values["left_out"] = [LeftOut(**each) for each in values["left_out"]]
        return State(**values)
    except (KeyError, TypeError, AttributeError, UsageError) as error:
        raise DataError(f"{path} is damaged: {error!r}. Remove {folder} to begin again.") from error


def _of_candidate(each: Candidate) -> dict[str, Any]:
    return {
        "shape": dataclasses.asdict(each.shape),
        "config": each.config.to_dict(),
        "rank": list(each.rank),
        "effort": each.effort,
    }


def _to_candidate(values: Mapping[str, Any]) -> Candidate:
    others, rate = values["rank"]
    shape, config = Shape(**values["shape"]), complete(values["config"])
    return Candidate(shape, config, (others, rate), values["effort"])


def _of_entrant(each: Entrant) -> dict[str, Any]:
    names = ("name", "predicted_seconds", "seeds", "reason")
    own = {name: getattr(each, name) for name in names}
    return own | {"config": each.config.to_dict(), "candidate": _of_candidate(each.candidate)}


def _to_entrant(values: Mapping[str, Any]) -> Entrant:
    own = dict(values)
    own |= {"config": complete(own["config"]), "candidate": _to_candidate(own["candidate"])}
    return Entrant(**own)
