"""Which run a command means: one that is finished, one to continue, or none yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ncfbench.config import RunConfig, identity_of
from ncfbench.errors import DataError, UsageError
from ncfbench.runs.folder import read_config, read_last_settings
from ncfbench.storage import locks, schemas, tables

NEAR = 3
"""Most settings in which a run may differ to be named as the nearest."""


@dataclass(frozen=True)
class Match:
    """A run with the wanted settings and data."""

    folder: Path
    is_alike: bool
    """True if it was last on the wanted number of devices."""
    age: int
    """Modification time of ``config.json``: a larger one is newer."""

    @property
    def is_finished(self) -> bool:
        """True if it was trained to its end."""
        return _status(self.folder) == "finished"

    @property
    def has_checkpoint(self) -> bool:
        """True if there is something to continue from."""
        return any((self.folder / "checkpoints").glob("[0-9]*"))


def find(
    runs_dir: Path, config: RunConfig, data_fingerprint: str, *, anywhere: bool = False
) -> Path | None:
    """Return the folder of the run to continue: the newest with these settings and data, or None.

    With global sharing a run may continue on another number of devices. The first choice is a run
    that was last on as many devices. The second is one that was interrupted on another number, if
    it takes no turns with others. A run that finished on another number is no choice: its times are
    those of other devices.

    Args:
        anywhere: prefer a finished run, on whatever devices it was trained.
    """
    found = []
    for match in _matches(runs_dir, config, data_fingerprint):
        is_wanted = anywhere and match.is_finished
        if is_wanted or match.is_alike or _can_move(match):
            found.append((is_wanted, match.is_alike, match.age, match.folder))
    return max(found)[-1] if found else None


def find_trained(
    runs_dir: Path, config: RunConfig, data_fingerprint: str
) -> tuple[Path | None, Path | None]:
    """Return the newest finished run with these settings, data and devices, and the newest one that
    is being trained or can be continued; None where there is none.
    """
    matches = sorted(
        (each for each in _matches(runs_dir, config, data_fingerprint) if each.is_alike),
        key=lambda each: each.age,
    )
    finished = [each.folder for each in matches if each.is_finished]
    begun = [
        each.folder
        for each in matches
        if _is_held(each.folder)
        or (_status(each.folder) in ("running", "interrupted") and each.has_checkpoint)
    ]
    return finished[-1] if finished else None, begun[-1] if begun else None


def describe_nearest(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> str:
    """Return a sentence on the run whose settings differ least; empty where none is near."""
    wanted = identity_of(config) | config.placement
    nearest: list[tuple[int, int, str]] = []
    for path, found, fingerprint in _readable(runs_dir):
        has = identity_of(found) | found.placement
        differing = [
            f"{name} = {has.get(name)} (not {wanted.get(name)})"
            for name in {**wanted, **has}
            if has.get(name) != wanted.get(name)
        ]
        if fingerprint != data_fingerprint:
            differing.append("another content of the data set")
        if 0 < len(differing) <= NEAR:
            status = _status(path.parent) or "begun"
            text = f" The nearest, {path.parent.name} ({status}), has {', '.join(differing)}."
            nearest.append((len(differing), -path.stat().st_mtime_ns, text))
    return min(nearest)[-1] if nearest else ""


def _matches(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> Iterator[Match]:
    """Yield the runs that have these settings and data."""
    for path, found, fingerprint in _readable(runs_dir):
        if (identity_of(found), fingerprint) != (identity_of(config), data_fingerprint):
            continue
        try:
            last, _ = read_last_settings(path.parent)
        except DataError:  # reported when the run is read
            last = found
        is_alike = config.placement == last.placement
        yield Match(path.parent, is_alike, path.stat().st_mtime_ns)


def _readable(runs_dir: Path) -> Iterator[tuple[Path, RunConfig, str]]:
    """Yield each ``config.json``, its settings and its data's fingerprint."""
    for path in runs_dir.glob("*/config.json"):
        try:
            yield path, *read_config(path)
        except (DataError, UsageError):
            continue


def _status(folder: Path) -> str:
    """Return the status that a run's summary gives; empty where there is none."""
    try:
        (row,) = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
        return str(row["status"])
    except (DataError, ValueError):
        return ""


def _is_held(folder: Path) -> bool:
    """Return whether a process trains the run now."""
    try:
        with locks.held(folder, "writing"):
            return False
    except UsageError:
        return True
    except DataError:  # a folder that cannot be written: nobody trains there
        return False


def _can_move(match: Match) -> bool:
    """Return whether a run can be continued on other devices.

    It has a checkpoint, is not over, is not being trained, and took no turns with others.
    """
    try:
        if any(tables.read_json(match.folder / "environment.json")["interleaved"]):
            return False
        (summary,) = tables.read_rows(match.folder / "summary.parquet", schemas.SUMMARY)
        is_over = summary["status"] in ("finished", "diverged")
        return not is_over and match.has_checkpoint and not _is_held(match.folder)
    except (DataError, ValueError, TypeError, KeyError):
        return False
