"""Find the run that matches the given settings and data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ncfbench.config import RunConfig, identity_of, revisions_of
from ncfbench.errors import DataError, UsageError
from ncfbench.runs.folder import read_config, read_last_settings, read_revisions
from ncfbench.storage import locks, schemas, tables


@dataclass(frozen=True)
class Match:
    """A run with the wanted settings and data.

    Args:
        is_alike: whether it was last on the wanted number of devices.
        status: that of its summary; empty where there is none.
        age: modification time of ``config.json``: a larger one is newer.
    """

    folder: Path
    is_alike: bool
    status: str
    age: int

    @property
    def has_checkpoint(self) -> bool:
        """True if there is something to continue from, or the folder of it cannot be read."""
        try:
            names = [path.name for path in (self.folder / "checkpoints").iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return any(name[0].isdecimal() for name in names)

    @property
    def is_held(self) -> bool:
        """True if a process trains it now."""
        return is_held(self.folder)

    @property
    def can_move(self) -> bool:
        """True if it can be continued on other devices."""
        is_over = self.status in ("", "finished", "diverged")
        return self.has_checkpoint and not is_over and not self.is_held


def is_held(folder: Path) -> bool:
    """Return whether a process trains the run of a folder now."""
    try:
        with locks.held(folder, "writing"):
            return False
    except UsageError:
        return True
    except DataError:  # a folder that cannot be written: nobody trains there
        return False


def find(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> Path | None:
    """Return the folder of the run to continue: the newest with these settings and data, or None.

    A run may continue on another number of devices. The first choice is a run that was last on as
    many devices, the second one that was interrupted on another number. A run that finished on
    another number is no choice: its times are those of other devices.
    """
    found = [
        (match.is_alike, match.age, match.folder)
        for match in _matches(runs_dir, config, data_fingerprint)
        if match.is_alike or match.can_move
    ]
    return max(found)[-1] if found else None


def find_trained(
    runs_dir: Path, config: RunConfig, data_fingerprint: str
) -> tuple[Path | None, Path | None]:
    """Return the newest finished run with these settings, data and devices, and the newest one that
    is being trained or can be continued; None where there is none.
    """
    finished = begun = None
    matches = _matches(runs_dir, config, data_fingerprint)
    for match in sorted(matches, key=lambda match: match.age):
        is_begun = match.status in ("running", "interrupted") and match.has_checkpoint
        if match.is_alike and match.status == "finished":
            finished = match.folder
        if match.is_alike and (is_begun or match.is_held):
            begun = match.folder
    return finished, begun


def _matches(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> Iterator[Match]:
    for path, settings, fingerprint in _readable(runs_dir):
        if (identity_of(settings), fingerprint) != (identity_of(config), data_fingerprint):
            continue
        if read_revisions(path) != revisions_of(config):
            continue
        with suppress(DataError):  # reported when the run is read
            settings, _ = read_last_settings(path.parent)
        is_alike = config.devices == settings.devices
        yield Match(path.parent, is_alike, _status(path.parent), path.stat().st_mtime_ns)


def _readable(runs_dir: Path) -> Iterator[tuple[Path, RunConfig, str]]:
    """Yield each ``config.json``, its settings and its data's fingerprint."""
    for path in runs_dir.glob("*/config.json"):
        with suppress(DataError, UsageError):
            yield path, *read_config(path)


def _status(folder: Path) -> str:
    try:
        (row,) = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
        return str(row["status"])
    except (DataError, ValueError):
        return ""
