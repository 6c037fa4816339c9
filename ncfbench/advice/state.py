"""A race on disk: its state, and the records that its last answer rests on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncfbench.advice.candidates import Candidate, Status
from ncfbench.config import complete, digest
from ncfbench.errors import DataError, UsageError
from ncfbench.racing.rungs import Pace
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import tables

VERSION = 3
FILE = "advice.json"
FIELDS = tuple(each.name for each in dataclasses.fields(Candidate))
"""What is kept of a candidate."""


@dataclass
class State:
    """Everything that a race needs to continue, written at the end of every rung.

    Attributes:
        entrants: candidates that have entered, in this order.
        pool: those that have not, the most promising first.
        first_clock: training clock at the end of the first rung, in seconds.
        pace: expected before anything was measured.
        clock: at the end of the last rung; 0 before.
        notes: warnings for the answer, such as that the machine was busy.
    """

    fingerprint: str
    entrants: list[Candidate]
    pool: list[Candidate]
    first_clock: float
    pace: Pace = field(default_factory=Pace)
    clock: float = 0.0
    horizon: float = 0.0
    spent_seconds: float = 0.0
    is_over: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def racing(self) -> list[Candidate]:
        """Entrants that have not left."""
        return [each for each in self.entrants if each.status is Status.RACING]

    def write(self, folder: Path) -> None:
        """Write the state; DataError where it cannot be written."""
        values = vars(self) | {"version": VERSION, "pace": vars(self.pace)}
        for group in ("entrants", "pool"):
            values[group] = [
                {name: getattr(each, name) for name in FIELDS} | {"config": each.config.to_dict()}
                for each in values[group]
            ]
        tables.write_json(folder / FILE, values)


def read_state(folder: Path) -> State | None:
    """Read the state of a race; None where there is none, DataError if it cannot be used."""
    path = folder / FILE
    if not path.exists():
        return None
    values = tables.read_json(path)
    try:
        if values.pop("version") != VERSION:
            raise DataError(f"{path} is of another version of ncfbench. Remove {folder}.")
        for name in ("entrants", "pool"):
            values[name] = [_candidate(row) for row in values[name]]
        return State(**values | {"pace": Pace(**values["pace"])})
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise DataError(f"{path} is damaged: {error!r}. Remove {folder} to begin again.") from error


def _candidate(row: Mapping[str, Any]) -> Candidate:
    kept = {name: row[name] for name in FIELDS}
    read = {"config": complete(row["config"]), "status": Status(row["status"])}
    return Candidate(**kept | read)


def keep_records(records: Iterable[RunRecord], folder: Path) -> None:
    """Copy the records that an answer rests on: its runs may train on."""
    found = list(records)
    if found:
        with tables.atomic_folder(folder / runs.ANSWERED) as kept:
            for record in found:
                runs.copy_records(record, kept / record.name)


def read_kept_records(state: State, folder: Path) -> dict[str, list[RunRecord]]:
    """Return the kept runs of each entrant, by seed; none of one that did not begin."""
    kept = map(runs.read, sorted((folder / runs.ANSWERED).glob("[!.]*")))
    by_digest = {digest(record.config): record for record in kept}
    return {
        candidate.name: [
            by_digest[key]
            for key in map(digest, map(candidate.with_seed, candidate.seeds))
            if key in by_digest
        ]
        for candidate in state.entrants
    }
