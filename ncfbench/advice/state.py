"""The records that a race's answer rests on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ncfbench.advice.candidates import State
from ncfbench.config import digest
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import tables


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
