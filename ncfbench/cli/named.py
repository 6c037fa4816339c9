"""Names of runs on the command line: a folder, or a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ncfbench.config import Locations
from ncfbench.errors import UsageError, nearest, shown

if TYPE_CHECKING:
    from ncfbench.config import RunConfig


def named_runs(runs: Path | None, runs_dir: Path | None) -> tuple[Path | None, list[Path]]:
    """Return the folder of the runs to report, and the files of the sweeps of a name, where that is
    given.

    Raises:
        UsageError: both arguments name a folder, or there is nothing of a name.
    """
    if runs is None or (runs.is_dir() and runs_dir is None):
        return runs or runs_dir, []
    folder = Locations.of(None, runs_dir).runs_dir
    if runs.name == str(runs):
        # Another sweep of the name has a digest after it.
        found = [folder / "sweeps" / f"{runs}.toml"]
        found += folder.glob(f"sweeps/{runs.name}-????????.toml")
        if found[0].is_file():
            return folder, found
    if runs.is_dir():
        raise UsageError("Name the run folders once, as RUNS or by --runs-dir.")
    names = [path.stem for path in folder.glob("sweeps/*.toml")]
    raise UsageError(
        f"{runs} is no folder, and no sweep below {shown(folder)}{nearest(str(runs), names)}"
    )


def cells_of(files: Sequence[Path]) -> Callable[[RunConfig], bool]:
    """Return what says of a run's settings whether it is a cell of one of some sweeps."""
    from ncfbench.sweeps.cells import expand, has_cell
    from ncfbench.sweeps.files import read_sweep

    sweeps = [read_sweep(str(file)) for file in files]
    known = [has_cell(expand(each.axes, each.cells)[0]) for each in sweeps]
    return lambda config: any(has(config) for has in known)
