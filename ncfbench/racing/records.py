"""A race on disk: its lines and decisions, appended after each turn, and read back."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ncfbench.errors import DataError
from ncfbench.racing.arms import Arm
from ncfbench.racing.clock import Reading
from ncfbench.racing.entry import Entry, Status
from ncfbench.storage.tables import storage_errors

FILE = "race.jsonl"
FORMAT = 1


class Records:
    """The file of a race. What is noted survives a kill of this program.

    Args:
        folder: of the race.
        restored: entries that the file holds already; without any it begins anew.
    """

    def __init__(self, folder: Path, restored: Sequence[Entry] = ()) -> None:
        self.path = folder / FILE
        with storage_errors(self.path):
            if restored:  # what follows the last line end was cut by a kill
                os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
            self._file = self.path.open("a" if restored else "w", encoding="utf-8")
        self._written = {entry: len(entry.timeline.readings) for entry in restored}
        self._states = {entry: (entry.status, entry.reason) for entry in restored}
        self._note({"format": FORMAT})

    def note(self, entries: Sequence[Entry], spent: float, *, is_over: bool = False) -> None:
        """Append what is new of the entries, and the seconds spent."""
        for entry in entries:
            own = {"arm": entry.number, "seed": entry.seed}
            pieces = entry.timeline.pieces
            lines = [(number, line) for number, piece in enumerate(pieces) for line in piece]
            for piece, reading in lines[self._written.get(entry, 0) :]:
                self._note(own | {"piece": piece, "reading": [*reading]})
            self._written[entry] = len(lines)
            state = entry.status, entry.reason
            if self._states.get(entry) != state:
                self._states[entry] = state
                memory = {"memory_bytes": entry.memory_bytes, "bunched": entry.bunched}
                self._note(own | memory | {"status": entry.status.value, "reason": entry.reason})
            self._note(own | {"running": entry.before + entry.running_seconds})
        self._note({"spent": spent, "is_over": is_over})
        with storage_errors(self.path):
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _note(self, event: dict[str, Any]) -> None:
        with storage_errors(self.path):
            self._file.write(json.dumps(event) + "\n")


def read(folder: Path, arms: Sequence[Arm]) -> tuple[list[Entry], float, bool]:
    """Return the entries of a race, the seconds that it spent and whether it is over; new entries
    where nothing was noted.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / FILE
    entries = {(number, 0): Entry(arm, 0, number) for number, arm in enumerate(arms)}
    spent, is_over = 0.0, False
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    try:
        for line in text.split("\n")[:-1]:  # what follows the last line end was cut by a kill
            event = json.loads(line)
            if "arm" in event:
                key = event["arm"], event["seed"]
                entry = entries.setdefault(key, Entry(arms[key[0]], key[1], key[0]))
                _take(entry, event)
            elif event.get("format", FORMAT) != FORMAT:
                raise ValueError(f"format {event['format']}")
            else:
                spent, is_over = event.get("spent", spent), event.get("is_over", is_over)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error!r}. Remove {folder} to begin again.") from error
    return [*entries.values()], spent, is_over


def _take(entry: Entry, event: dict[str, Any]) -> None:
    if "reading" in event:
        pieces = entry.timeline.pieces
        while len(pieces) <= event["piece"]:
            pieces.append([])
        pieces[event["piece"]].append(Reading(*event["reading"]))
    elif "running" in event:
        entry.running_seconds = event["running"]
    else:
        entry.status, entry.reason = Status(event["status"]), event["reason"]
        entry.memory_bytes, entry.bunched = event["memory_bytes"], event["bunched"]
