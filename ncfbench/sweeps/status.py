"""How far the cells of a sweep are, by the run folders that are there. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ncfbench.config import RunConfig
from ncfbench.errors import DataError, UsageError
from ncfbench.runs import folder as runs
from ncfbench.sweeps.grid import identity

Status = Literal["done", "diverged", "interrupted", "left"]
STATUSES: tuple[Status, ...] = ("done", "diverged", "interrupted", "left")
"""The best first: where a cell has several folders, that one counts."""


@dataclass(frozen=True)
class State:
    """How far a cell is: ``left`` is one that has not begun to be recorded, though it may have a
    folder.
    """

    status: Status = "left"
    folder: Path | None = None
    epochs: float = 0.0
    summary: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to do: done, or diverged, which it would do again."""
        return self.status in ("done", "diverged")


@dataclass(frozen=True)
class Survey:
    """The state of each cell, and a message for each folder that cannot be used."""

    states: Mapping[RunConfig, State]
    problems: tuple[str, ...]

    def count(self, status: Status) -> int:
        """How many cells are in a state."""
        return sum(state.status == status for state in self.states.values())


def survey(
    runs_dir: Path, cells: Sequence[RunConfig], fingerprints: Mapping[str, str | None]
) -> Survey:
    """Look at all run folders once.

    Args:
        fingerprints: of the data sets, by name; None where one is not prepared, so that no run can
            be of it.
    """
    wanted = {(identity(config), fingerprints.get(config.dataset)): config for config in cells}
    digests = {config.digest() for config in cells}
    found = dict.fromkeys(cells, State())
    problems = []
    places = sorted(runs_dir.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns)
    for folder in (path.parent for path in places):
        try:
            config, fingerprint = runs.read_config(folder / "config.json")
            if config.digest() not in digests:
                continue
            config, _ = runs.trained_settings(
                folder
            )  # of other devices by now, it is no run of the cell
            cell = wanted.get((identity(config), fingerprint))
            if cell is not None:
                state = _state(folder)
                if _rank(state) >= _rank(found[cell]):
                    found[cell] = state
        except (DataError, UsageError) as error:
            problems.append(f"Skipped {folder.name}: {error}")
    return Survey(found, tuple(problems))


def _state(folder: Path) -> State:
    if not (folder / "summary.parquet").exists():
        if any(
            (folder / "checkpoints").glob("[0-9]*")
        ):  # the tables are written before the first of them
            raise DataError(f"{folder / 'summary.parquet'} is missing.")
        return State("left", folder)
    summary = runs.read(folder).summary
    statuses: Mapping[str, Status] = {"finished": "done", "diverged": "diverged"}
    return State(
        statuses.get(summary["status"], "interrupted"),
        folder,
        float(summary["epochs"] or 0.0),
        summary,
    )


def _rank(state: State) -> tuple[int, float]:
    """The better the larger; of equal ones the newer counts."""
    return -STATUSES.index(state.status), state.epochs
