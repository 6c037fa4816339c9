"""Results kept in the repository, read once."""

from functools import cache
from pathlib import Path
from unittest.mock import patch

from ncfbench.reporting.results import collect
from ncfbench.runs import folder as runs

REPOSITORY = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in REPOSITORY.glob("results/*/speedup.parquet"))
read = cache(runs.read_all)
"""Reads the runs of a folder, once."""


@cache
def kept(folder, **only):
    """A folder's results, read once, of runs whose settings have some values."""
    wanted = {name: [value] for name, value in only.items()}
    where = REPOSITORY / "results" / folder
    with patch.object(runs, "read_all", lambda where: tuple(map(list, read(where)))):
        return collect(where, REPOSITORY / "no data", only=wanted)
