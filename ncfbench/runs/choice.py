"""Find the run that matches the given settings and data."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ncfbench.config import RunConfig, identity_of, revisions_of
from ncfbench.errors import DataError, UsageError
from ncfbench.runs.folder import read_config, read_revisions
from ncfbench.storage import locks, schemas, tables


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
    """Return the folder of the newest run with these settings and data, or None."""
    return next(iter(_matches(runs_dir, config, data_fingerprint)), None)


def find_trained(
    runs_dir: Path, config: RunConfig, data_fingerprint: str
) -> tuple[Path | None, Path | None]:
    """Return the newest finished run with these settings and data, and the newest one that is being
    trained or can be continued; None where there is none.
    """
    matches = _matches(runs_dir, config, data_fingerprint)
    finished = (folder for folder in matches if _status(folder) == "finished")
    begun = (folder for folder in matches if _is_begun(folder) or is_held(folder))
    return next(finished, None), next(begun, None)


def _matches(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> list[Path]:
    """Return the folders of the runs with these settings and data, the newest first."""
    wanted = identity_of(config), config.devices, data_fingerprint
    found = []
    for path in runs_dir.glob("*/config.json"):
        with suppress(DataError, UsageError):
            own, fingerprint = read_config(path)
            is_alike = (identity_of(own), own.devices, fingerprint) == wanted
            if is_alike and read_revisions(path) == revisions_of(config):
                found.append((path.stat().st_mtime_ns, path.parent))
    return [folder for _, folder in sorted(found, reverse=True)]


def _is_begun(folder: Path) -> bool:
    has_checkpoint = any((folder / "checkpoints").glob("[0-9]*"))
    return has_checkpoint and _status(folder) in ("running", "interrupted")


def _status(folder: Path) -> str:
    """Return the status of a run's summary; empty where there is none."""
    try:
        (row,) = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
        return str(row["status"])
    except (DataError, ValueError):
        return ""
