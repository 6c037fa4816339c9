"""The times that users wait for, beside their targets: start, evaluation, the step, floors.

    make bench                                     # CiteULike, prepared; on a quiet machine
    make bench DATASET=movielens BENCH_FLAGS="start step"

Each part is a module of its own, ``bench_start.py`` and so on, which says what it measures. Exit
code 6 says that a target is missed. How all grows with users, items and links: ``bench_scale.py``.
"""

import sys
from importlib import import_module

from ncfbench.data import open_dataset
from ncfbench.errors import CheckFailedError, NcfbenchError
from ncfbench.timing import allocator

PARTS = {"start": False, "evaluation": True, "step": True, "floors": True}  # what reads data


def main(dataset: str, *parts: str) -> None:
    """Measure some parts, by default all; print each figure as soon as it is known.

    Raises:
        SystemExit: a target is missed, or the data set is not prepared.
    """
    try:
        if any(PARTS[part] for part in parts or PARTS):
            open_dataset(dataset)
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    missed = 0
    for part in parts or PARTS:
        rows = import_module(f"bench_{part}").rows
        for what, figure, target in rows([dataset]) if PARTS[part] else rows():
            missed += figure > target
            verdict = "missed" if figure > target else "met"
            print(f"{figure:8.3g}  at most {target:<5g}  {verdict:6}  {what}", flush=True)
    if missed:
        raise SystemExit(CheckFailedError.exit_code)


if __name__ == "__main__":
    allocator.restart()
    main(*sys.argv[1:])
