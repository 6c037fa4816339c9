"""The board as tables: one for each target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ncfbench.reporting.board import FACTORS, SHARES, Board, Times, profile
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.table import Cell, Col, Table, slug, under

TIES_NOTE = (
    "Bold: the soonest, and what cannot be told from it over seeds. tied: on how many data sets;"
    " within: on how many it takes at most so many times as long as the soonest one; ever: on how"
    " many it came to the target. -: this floor was not fitted."
)
ONE_SEED_NOTE = "Some have one seed: the spread of others was assumed for what is tied."


def board_tables(board: Board | None) -> list[Table]:
    """Return a table for each target, the best contestant first; none without a board."""
    return [] if board is None else [_table(board, share) for share in reversed(SHARES)]


def as_row(board: Board | None) -> dict[str, Any] | None:
    """Return the board as a plain object, for JSON; times in seconds, None for never."""
    if board is None:
        return None
    counted = ("tied", *(f"within_{factor:g}" for factor in FACTORS), "ever")
    rows = []
    for share in SHARES:
        counts = profile(board.standings[share])
        for name, own in board.standings[share].items():
            on = [
                {
                    "dataset": board.names[at],
                    "data_fingerprint": board.fingerprints[at],
                    "seconds": None if math.isinf(standing.seconds) else standing.seconds,
                    "is_tied": standing.is_tied,
                    "runs": board.runs[name][at] if name in board.runs else [],
                }
                for at, standing in enumerate(own)
                if standing is not None
            ]
            profiled = dict(zip(counted, counts[name], strict=True))
            rows.append({"target": share, "contestant": name, **profiled, "on": on})
    names = ("metric", "split", "seeds", "differences", "left_out")
    return {name: getattr(board, name) for name in names} | {"standings": rows}


def _table(board: Board, share: float) -> Table:
    standings, names = board.standings[share], enumerate(board.names)
    counts = profile(standings)
    headings = ["tied", *(f"within {factor:g}x" for factor in FACTORS), "ever"]
    cols = [
        Col("contestant", 0, wraps=True),
        *under(
            f"of {len(board.names)} data sets",
            *(Col(heading, partial(_count, counts, at)) for at, heading in enumerate(headings)),
        ),
        *under("s to the target", *(Col(name, partial(_time, at)) for at, name in names)),
    ]
    notes = [
        f"The target of each data set is {share:g} of the best {board.metric} of {board.split}"
        " links that one of these contestants reached there. Seconds count features, and for floors"
        " the choice of their penalty.",
        TIES_NOTE,
        *([ONE_SEED_NOTE] if board.seeds == 1 else []),
    ]
    for name, values in board.differences.items():
        own = zip(board.names, values, strict=True)
        notes.append(f"{name}: {', '.join(f'{value} on {data}' for data, value in own)}.")
    if board.left_out:
        notes.append(
            "Left out, since some data set has no run of them in this environment:"
            f" {', '.join(board.left_out)}."
        )
    title = f"The board: soonest to {share:g} of the best {board.metric}"
    return Table.of(title, cols, standings.items(), notes, name=slug("board", f"{share:g}"))


def _count(counts: Mapping[str, Sequence[int]], at: int, row: tuple[str, Times]) -> int:
    return counts[row[0]][at]


def _time(at: int, row: tuple[str, Times]) -> Cell:
    standing = row[1][at]
    if standing is None:
        return Cell("-", "muted")
    if math.isinf(standing.seconds):
        return Cell("never", "muted")
    return Cell(three_digits(standing.seconds), "best" if standing.is_tied else "plain")
