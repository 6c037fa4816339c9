"""Results kept in the repository, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ncfbench.reporting.collecting import collect
from ncfbench.reporting.results import Results

REPOSITORY = Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in REPOSITORY.glob("results/*/speedup.parquet"))


@cache
def kept(folder: str, **only: str) -> Results:
    """A folder's results, read once, of runs whose settings have some values."""
    wanted = {name: [value] for name, value in only.items()}
    where = REPOSITORY / "results" / folder
    return collect(where, REPOSITORY / "no data", only=wanted)
