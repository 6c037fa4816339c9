"""The share of evaluation in a run, and whether a second start of the same run compiles anything.

Each run starts twice, with a
cache of compiled programs of its own; the ledger of the second start has the shares.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

MOST_SHARE, MOST_COMPILED = 5.0, 0.0
RUNS = {
    "the default": ("--epochs", "5"),
    "a bag of words": ("--encoder", "bow", "--loss", "softmax", "--epochs", "10"),
    "good": ("--preset", "good"),
}


def started(words: Iterable[str], folder: Path) -> tuple[dict[str, float], int]:
    """Return the seconds by line of a run's ledger, and how many programs it compiled."""
    cache = folder / "cache"
    before = len(list(cache.rglob("*-cache")))
    command = [sys.executable, "-m", "ncfbench", "run", "--again", "--quiet", "--json", *words]
    done = subprocess.run(
        [*command, "--runs-dir", str(folder / "runs")],
        env={**os.environ, "NCFBENCH_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        check=True,
    )
    ledger = json.loads(done.stdout)["ledger"]
    lines = {row["line"]: row["seconds"] for row in ledger if row["thread"] == "main"}
    return lines, len(list(cache.rglob("*-cache"))) - before


def rows(datasets: Iterable[str]) -> Iterator[tuple[str, float, float]]:
    """Yield what was measured, its figure and the target."""
    for dataset in datasets:
        for name, words in RUNS.items():
            with tempfile.TemporaryDirectory() as folder:
                for _ in range(2):
                    seconds, compiled = started(["--dataset", dataset, *words], Path(folder))
            wall = sum(seconds.values())
            first, second, *_ = sorted(seconds, key=seconds.__getitem__, reverse=True)
            what = f"{dataset}, {name}: {wall:.1f} s, most for {first} and {second}"
            yield f"{what}; evaluation, %", 100 * seconds["evaluation"] / wall, MOST_SHARE
            yield f"{dataset}, {name}: programs compiled", compiled, MOST_COMPILED
