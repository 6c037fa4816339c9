"""How long should a wave of candidates train before half of it leave? A replay of kept searches.

    python benchmarks/replay_waves.py            # seconds; trains nothing

A wave is six trials, drawn 1,500 times from the forty best of a reference search
(search_reference.py). It trains as in ``ncfbench advise``: to a share of the race's clock, then to
twice as much, and so on; each time the better half stays. *Kept* is the best recall of those that
stay to the end over the best of the wave, *cost* the training of the wave in trainings to the
clock.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from search_reference import SEARCHES, Trial, best, read

from ncfbench.cli.output import print_views
from ncfbench.reporting.table import Col, Table

WAVE, DRAWS, BEST = 6, 1500, 40
CLOCKS = (15.0, 30.0)
"""Seconds of training at which the race is."""
SHARES = (12, 6, 4, 2)
"""The wave begins with one of so many parts of the clock."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=SEARCHES)
    given = parser.parse_args()
    found = [
        row
        for path in sorted(given.folder.glob("*.json.gz"))
        for row in rows(path.name.partition(".")[0], read(path)["trials"])
    ]
    cols = [
        Col("data", 0),
        Col("clock", 1, ".0f"),
        *(Col(f"kept, 1/{share}", place, ".3f") for place, share in enumerate(SHARES, 2)),
        *(
            Col(f"cost, 1/{share}", place, ".2f")
            for place, share in enumerate(SHARES, 2 + len(SHARES))
        ),
    ]
    print_views(Table.of("Waves that begin with a share of the clock", cols, found))


def rows(name: str, trials: Sequence[Trial]) -> Iterator[tuple[str | float, ...]]:
    """Yield a row for each clock: kept and cost by share."""
    for clock in CLOCKS:
        pool = sorted(trials, key=lambda trial: best(trial, clock), reverse=True)[:BEST]
        if len(pool) < WAVE:
            continue
        ends = [[wave(pool, draw, clock, share) for draw in range(DRAWS)] for share in SHARES]
        kept, costs = ([fmean(end[of] for end in own) for own in ends] for of in (0, 1))
        yield name, clock, *kept, *costs


def wave(
    pool: Sequence[Trial], seed: int, clock: float, parts: int, size: int = WAVE
) -> tuple[float, float]:
    """Return what is kept of a drawn wave, and its cost."""
    drawn = np.random.default_rng(seed).choice(len(pool), size, replace=False)
    racing, target, before, cost = [pool[place] for place in drawn], clock / parts, 0.0, 0.0
    top = max(best(trial, clock) for trial in racing)
    while True:
        cost += len(racing) * (target - before) / clock
        if target >= clock:
            return max(best(trial, clock) for trial in racing) / top, cost
        order = sorted(racing, key=lambda trial: best(trial, target), reverse=True)
        racing = order[: math.ceil(len(order) / 2)]
        before, target = target, min(2 * target, clock)


if __name__ == "__main__":
    main()
